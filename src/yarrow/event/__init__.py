"""Events of an agent, and the bus that delivers them."""
