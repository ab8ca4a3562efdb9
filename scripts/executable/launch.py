"""Entry point of the self-contained executable."""

import os
import sys


def restore_library_paths() -> None:
    """Restore the user's library paths for child processes, in place of those of the executable."""
    for name in ("LD_LIBRARY_PATH", "LIBPATH"):
        own = os.environ.pop(f"{name}_ORIG", None)
        if own is not None:
            os.environ[name] = own
        else:
            os.environ.pop(name, None)


if __name__ == "__main__":
    restore_library_paths()

    from yarrow.cli.entry_point import main

    sys.exit(main())
