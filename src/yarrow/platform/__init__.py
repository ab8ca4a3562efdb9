"""Operations that differ between operating systems: `system` is the one that runs this process.

No other package uses a function, flag or module that is missing on some system. `Platform` in `base.py` has the
contract of each operation; `docs/platforms.md` lists the supported features of each system.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yarrow.platform.base import Platform

system: "Platform"
"""The operating system that runs this process."""
if sys.platform == "win32":
    from yarrow.platform.windows import Windows

    system = Windows()
elif sys.platform == "darwin":
    from yarrow.platform.macos import MacOS

    system = MacOS()
else:
    from yarrow.platform.linux import Linux

    system = Linux()

__all__ = ["system"]
