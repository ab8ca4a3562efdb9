"""Command line: argument parsing, composition of all parts, and the commands."""
