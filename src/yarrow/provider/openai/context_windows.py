"""Context windows of well-known models, for servers that do not tell theirs."""

_CONTEXT_WINDOWS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-5": 400_000,
    "chatgpt-4o": 128_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}


def find_known_window(model: str) -> int:
    """Return the tokens of the window of the longest known prefix of a model's name; 0 is unknown."""
    name = model.rpartition("/")[2].lower()
    fitting = [prefix for prefix in _CONTEXT_WINDOWS if name == prefix or name.startswith((f"{prefix}-", f"{prefix}."))]
    return _CONTEXT_WINDOWS[max(fitting, key=len)] if fitting else 0
