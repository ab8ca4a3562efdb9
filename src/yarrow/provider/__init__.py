"""Model backends behind one interface."""
