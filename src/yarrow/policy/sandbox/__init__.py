"""Runs shell commands where they can change the workspace and little else."""
