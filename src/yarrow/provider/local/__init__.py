"""Provider for a model on this machine, in its own process."""
