"""The generated server interface, over sessions and their agents."""
