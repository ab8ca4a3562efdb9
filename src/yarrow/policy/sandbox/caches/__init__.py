"""Caches of package managers: which of them commands use, and how."""
