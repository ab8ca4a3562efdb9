"""Images for models: recognized by content, measured by header, scaled down if too large."""
