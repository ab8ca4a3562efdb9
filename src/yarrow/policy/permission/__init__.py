"""Decides whether a tool call runs, from the rules in the settings, the session's mode and the user's past answers."""
