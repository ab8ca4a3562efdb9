"""The adapter for Ollama's own chat format."""
