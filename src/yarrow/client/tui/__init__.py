"""Terminal UI: finished blocks go to the terminal's own scrollback, and only unfinished ones are redrawn."""
