"""Implementation of the generated gRPC interface, over sessions and their agents."""
