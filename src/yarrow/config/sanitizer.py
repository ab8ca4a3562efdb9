"""Shows what no terminal should obey: names from a file or a disk, as they are told to people."""


def escape_unprintable(text: str) -> str:
    r"""Return `text` with an escape such as `\x1b` for each character that steers a terminal, hides or is no UTF-8."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
