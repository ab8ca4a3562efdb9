"""Table of the built-in tools."""

from yarrow.tool.base import Tool
from yarrow.tool.bash import Bash
from yarrow.tool.edit import Edit
from yarrow.tool.find import Find
from yarrow.tool.grep import Grep
from yarrow.tool.ls import Ls
from yarrow.tool.read import Read
from yarrow.tool.write import Write

BUILTIN_TOOLS: tuple[Tool, ...] = (Read(), Grep(), Find(), Ls(), Write(), Edit(), Bash())
