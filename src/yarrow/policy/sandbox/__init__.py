"""Sandboxes for shell commands, in which they can change the workspace and little else."""
