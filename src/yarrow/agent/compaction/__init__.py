"""Compaction: what of a context is dropped, and the summary that stands in for it."""
