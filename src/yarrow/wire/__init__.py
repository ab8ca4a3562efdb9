"""In-memory gRPC channel for the unchanged generated stub."""
