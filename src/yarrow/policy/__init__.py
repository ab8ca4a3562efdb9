"""Access rules for tools, and execution of programs."""
