"""What an agent tells its watchers, and the bus that carries it."""
