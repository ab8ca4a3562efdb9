"""Adapter for Gemini, over the vendor's library."""
