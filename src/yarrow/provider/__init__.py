"""Model backends behind one seam."""
