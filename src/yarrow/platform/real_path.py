"""Real paths, also of what a program made to make them fail."""

import os


def real_path(path: str | os.PathLike[str]) -> str:
    """Return a path with every symlink followed; missing parts stay unchanged.

    If a chain of symlinks is too long for `os.path.realpath`, the absolute path is returned: no system follows it.
    """
    try:
        return os.path.realpath(path)  # noqa: TID251 (banned elsewhere, since it can raise RecursionError)
    except RecursionError:
        return os.path.abspath(path)  # noqa: PTH100 (`Path.resolve` would follow the chain again)
