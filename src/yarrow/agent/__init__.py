"""The agent: its loop, its states, and the run it owns."""
