"""Real paths, also of what a program made to make them fail."""

import os


def real_path(path: str | os.PathLike[str]) -> str:
    """Return a path with every symlink followed; missing parts stay unchanged.

    If a chain of symlinks is too long for `os.path.realpath`, the absolute path is returned: no system follows it.
    """
    try:
        return os.path.realpath(path)  # noqa: TID251 (the only place)
    except RecursionError:
        return os.path.abspath(path)  # noqa: PTH100 (lexical, and a string)
