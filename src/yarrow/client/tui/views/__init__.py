"""Full-screen views, on the alternate screen, which leave the screen as it was."""
