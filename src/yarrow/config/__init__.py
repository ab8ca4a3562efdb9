"""What can be configured, and where each value came from."""
