"""Images as models take them: recognised by content, measured by header, made smaller when too large."""
