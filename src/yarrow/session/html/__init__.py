"""Self-contained HTML page of a session."""
