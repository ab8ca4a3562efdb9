"""Sessions on disk: records, files and how they are found."""
