"""Remembers what a server has refused of a model, so that each thing is refused only once."""

import re

from yarrow.errors import Code, ProviderError
from yarrow.provider.body import Body

_REFUSAL_PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"support thinking|\bthink value\b|\.think\b|field \S?think\b", ("think",)),
    (r"support tools", ("tools",)),
    (r"\btruncate\b|\bshift\b", ("truncate", "shift")),
)
"""What a refusal says, and the fields that can be done without then."""
_FIELD_CODES = frozenset({Code.UNSUPPORTED_PARAMETER, Code.UNSUPPORTED_FEATURE, Code.INVALID_REQUEST})


class OllamaRefusals:
    """What one server refused of one model."""

    def __init__(self) -> None:
        self.refused_fields: frozenset[str] = frozenset()
        """Fields that are left out from now on."""

    def apply(self, body: Body) -> Body:
        """Return the body without what was refused."""
        return {name: value for name, value in body.items() if name not in self.refused_fields}

    def learn(self, error: ProviderError, sent: Body) -> bool:
        """Tell whether the error names something of the body that can be done without; it is from now on."""
        if error.status not in (400, 422) or error.code not in _FIELD_CODES:
            return False
        text = error.message.lower()
        for pattern, fields in _REFUSAL_PATTERNS:
            if re.search(pattern, text) and not sent.keys().isdisjoint(fields):
                self.refused_fields |= frozenset(fields)
                return True
        return False
