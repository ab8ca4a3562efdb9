"""Yarrow: a coding agent that is a service, with every face of it a client of one gRPC `AgentService`."""
