"""Makes text that JSON and protobuf can hold."""


def replace_surrogates(text: str) -> str:
    """Return the text with halves of surrogate pairs joined, and U+FFFD for a half that is alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
