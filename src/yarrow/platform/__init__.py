"""What differs from system to system, behind functions with one contract each: `system` is the one that runs here.

Nothing else of Yarrow names a function, a flag or a module that is not there on every system. The module of each system
has the same names; `docs/platforms.md` says what is supported where.
"""

import sys

if sys.platform == "win32":
    from yarrow.platform import windows as system
elif sys.platform == "darwin":
    from yarrow.platform import macos as system
else:
    from yarrow.platform import linux as system

__all__ = ["system"]
