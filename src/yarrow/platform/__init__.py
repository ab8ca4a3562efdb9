"""Functions that differ between operating systems, with one contract each: `system` is the module for this one.

No other package uses a function, flag or module that is missing on some system. The modules of all systems export the
same names; `docs/platforms.md` lists the supported features of each.
"""

import sys

if sys.platform == "win32":
    from yarrow.platform import windows as system
elif sys.platform == "darwin":
    from yarrow.platform import macos as system
else:
    from yarrow.platform import linux as system

__all__ = ["system"]
