"""What tools may touch and how they run programs."""
