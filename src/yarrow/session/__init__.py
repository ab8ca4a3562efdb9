"""Sessions on disk: records, files and lookup."""
