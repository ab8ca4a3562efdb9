"""The adapter for a llama.cpp server."""
