"""Adapter for Anthropic and all endpoints with its messages format."""
