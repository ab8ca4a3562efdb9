"""Finds the line of a JSON text on which a value stands, so that an error can point at it."""

import re

_SPACE = re.compile(r"[ \t\r\n]*")


def line_of(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line, from 1, of the key or list item that `path` ends in. `text` must be valid JSON that holds it.

    Of a key written twice it is the last, which is the one that counts.
    """
    # Here, since only an error or `yarrow config` needs it and most runs have neither.
    from json import JSONDecoder

    decoder = JSONDecoder()

    def skip(index: int) -> int:
        found = _SPACE.match(text, index)
        return found.end() if found else index

    def members(index: int) -> list[tuple[str | int, int, int]]:
        """Return key, where it stands and where its value stands, for each member of the container at `index`."""
        found: list[tuple[str | int, int, int]] = []
        is_object = text[index] == "{"
        index = skip(index + 1)
        while text[index] not in "}]":
            start = index
            key: str | int = len(found)
            if is_object:
                key, index = decoder.raw_decode(text, index)
                index = skip(skip(index) + 1)
            found.append((key, start, index))
            _, index = decoder.raw_decode(text, index)
            index = skip(index)
            if text[index] == ",":
                index = skip(index + 1)
        return found

    place = value = skip(0)
    for step in path:
        place, value = next((at, inside) for key, at, inside in reversed(members(value)) if key == step)
    return text.count("\n", 0, place) + 1
