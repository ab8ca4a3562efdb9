"""The chat-completions format, as pure functions over bytes."""
