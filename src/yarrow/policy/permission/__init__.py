"""Decides whether a tool call runs: the rules of settings, the mode of a session, and what a person allowed before."""
