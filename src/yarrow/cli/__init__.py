"""The command line: arguments, the composition of all parts, and commands that need no service."""
