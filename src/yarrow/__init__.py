"""Yarrow: a coding agent run as a service; each of its user interfaces is a client of one gRPC `AgentService`."""
