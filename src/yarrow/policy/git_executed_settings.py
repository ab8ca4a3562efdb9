"""Settings of git whose values it executes, or that name what it executes."""

from collections.abc import Mapping
from pathlib import Path

from yarrow.policy.git_config import ANY_SETTING, GitSetting, read_settings

HOOK_DIRECTORIES = {"core": ("hookspath",), "init": ("templatedir",)}
"""Settings, by section, that name a directory whose files git executes, or copies to where it does."""
COMMANDS = {
    "core": ("fsmonitor", "sshcommand", "editor", "pager", "askpass", "gitproxy", "alternaterefscommand"),
    "sequence": ("editor",),
    "credential": ("helper",),
    "filter": ("clean", "smudge", "process"),
    "diff": ("external", "command", "textconv"),
    "merge": ("driver",),
    "difftool": ("cmd", "path"),
    "mergetool": ("cmd", "path"),
    "interactive": ("difffilter",),
    "gpg": ("program", "defaultkeycommand"),
    "remote": ("uploadpack", "receivepack"),
    "submodule": ("update",),
    "trailer": ("cmd", "command"),
    "uploadpack": ("packobjectshook",),
    "alias": (ANY_SETTING,),
    "pager": (ANY_SETTING,),
}
"""Settings, by section, whose value git executes as a command line."""
INCLUDES = {"include": ("path",), "includeif": ("path",)}
"""Settings, by section, that name another configuration."""


def names_commands(config: Path) -> bool:
    """Return whether a file is a git configuration with a setting that executes something or includes another file."""
    tables = (COMMANDS, HOOK_DIRECTORIES, INCLUDES)
    return any(is_in_table(setting, table) for setting in read_settings(config) for table in tables)


def is_in_table(setting: GitSetting, table: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a table names a setting."""
    keys = table.get(setting.section, ())
    return setting.key in keys or ANY_SETTING in keys
