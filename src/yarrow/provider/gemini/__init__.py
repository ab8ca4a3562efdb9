"""The adapter for Gemini, through its vendor's library."""
