"""Redaction of secrets, for everything that is stored, shown or sent."""
