"""Adapter for OpenAI and all compatible endpoints."""
