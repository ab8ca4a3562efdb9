"""The terminal UI: finished blocks go to the terminal's own scrollback, and only what is unfinished is redrawn."""
