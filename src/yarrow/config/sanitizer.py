"""Escaping of names from files and disks for display on a terminal."""


def escape_unprintable(text: str) -> str:
    r"""Return `text` with control, invisible and non-UTF-8 characters escaped, as in `\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
