"""The tools a model can call, and the one place through which it does."""
