"""Views that take the whole screen for a while, on the alternate screen, and leave it as it was."""
