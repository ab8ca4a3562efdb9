"""Entry point of `python -m yarrow`."""

import sys

from yarrow.cli.entry_point import main

if __name__ == "__main__":
    sys.exit(main())
