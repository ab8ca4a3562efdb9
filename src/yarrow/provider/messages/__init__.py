"""The adapter for Anthropic and for every endpoint that speaks its messages format."""
