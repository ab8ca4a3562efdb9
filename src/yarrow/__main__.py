"""`python -m yarrow`: the command `yarrow`."""

import sys

from yarrow.cli.entry_point import main

if __name__ == "__main__":
    sys.exit(main())
