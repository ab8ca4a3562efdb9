"""Notices that a server read less of a conversation than it was sent."""

from yarrow.provider.base import CompletionRequest

MIN_TRUNCATED_TOKENS = 1024
"""Tokens that a server leaves at least when it cuts; fewer were read beside a part that it had in its cache."""
_MAX_CHARACTERS_PER_TOKEN = 8
"""Per token, more than in any text of some length."""


def describe_truncation(request: CompletionRequest, reported: int) -> str:
    """Return a sentence when the server reports fewer prompt tokens than there must be in the request, else nothing.

    Counted are the characters of system prompt and messages alone, as if tokens were long, so that what is noticed
    was cut, or else was cached by a server that does not count what it has in its cache.
    """
    texts = (len(message.text) for message in request.messages if not message.incomplete)
    least = (len(request.system) + sum(texts)) // _MAX_CHARACTERS_PER_TOKEN
    if not MIN_TRUNCATED_TOKENS <= reported < least:
        return ""
    told = f"{request.model} was sent at least {least} tokens and reports {reported}"
    return f"{told}: its server may have cut the beginning of the conversation; give it a larger contextWindow"
