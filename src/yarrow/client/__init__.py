"""Clients for users and scripts; they depend only on the generated gRPC stub of the service."""
