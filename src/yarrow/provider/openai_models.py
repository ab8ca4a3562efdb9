"""Properties of OpenAI's models, by their names: context windows, and which of them reason."""

_REASONING_PREFIXES = ("o1", "o3", "o4", "gpt-5", "gpt-6")
"""Prefixes of the vendor's models that reason; they refuse a temperature."""


_PLAIN_PREFIXES = ("gpt-3", "gpt-4", "chatgpt-")
"""Prefixes of the vendor's models that do not reason, and refuse the fields about it."""


def is_plain_model(model: str) -> bool:
    """Return whether a model of the vendor certainly does not reason; an unknown one may."""
    return model.startswith(_PLAIN_PREFIXES)


def is_reasoning_model(model: str) -> bool:
    """Return whether a model of the vendor reasons, as far as its name says."""
    return model.startswith(_REASONING_PREFIXES)


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
    """Return the window in tokens for the longest known prefix of a model's name; 0 is unknown."""
    name = model.rpartition("/")[2].lower()
    fitting = [prefix for prefix in _CONTEXT_WINDOWS if name == prefix or name.startswith((f"{prefix}-", f"{prefix}."))]
    return _CONTEXT_WINDOWS[max(fitting, key=len)] if fitting else 0
