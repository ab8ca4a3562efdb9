"""OpenTelemetry traces and metrics of runs, turns, model calls and tools."""
