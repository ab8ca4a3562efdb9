"""Caches of package managers: which ones commands use, and how."""
