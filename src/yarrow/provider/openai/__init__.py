"""The adapter for OpenAI and for every compatible endpoint."""
