"""Tool calls that a model wrote as text, in any published notation, and that its server did not parse."""
