"""Tells OpenTelemetry what runs, turns, model calls and tools take, and nothing of what is said in them."""
