"""Adapter for a llama.cpp server."""
