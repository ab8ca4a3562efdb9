"""Adapter for OpenAI's Responses API and all servers with it."""
