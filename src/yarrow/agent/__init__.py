"""Agent loop, agent state and run execution."""
