"""Adapter for Ollama's own chat format."""
