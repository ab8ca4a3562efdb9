"""Tools that a model can call, and the registry that runs them."""
