"""Configuration: the available settings and the origin of each value."""
