"""Checks of the settings: which files exist, and whether they can be used."""

import os
from collections.abc import Mapping
from pathlib import Path

from yarrow.cli.doctor.report import Check, CheckContext, fail, ok, warn
from yarrow.cli.path_arguments import working_directory
from yarrow.config.files import get_user_directory, get_user_file
from yarrow.config.project_trust import read_project
from yarrow.config.settings import Settings
from yarrow.config.settings_merge import LoadedSettings, load_settings
from yarrow.errors import ConfigError, UsageError
from yarrow.extension.loader import find_entry_points
from yarrow.platform.real_path import real_path
from yarrow.policy.permission.decision import describe_unknown_tools

SECTION = "settings"
_UNLOADED_HINT = " (unless an extension provides it; they are not loaded here)"


def read_context(home: Path, cwd: Path, environment: Mapping[str, str]) -> tuple[CheckContext, list[Check]]:
    """Return the context of the checks and the checks of the settings; defaults replace invalid settings."""
    loaded, faults = LoadedSettings(Settings(), (), ()), list[Check]()
    extensions = 0
    try:
        read = load_settings(home=home, cwd=cwd, environment=environment, overrides={})
        extensions = len(read.settings.extensions) + len(find_entry_points()[0])
        read.check_providers({read.settings.provider, *read.settings.providers} if extensions else ())
        loaded = read
    except ConfigError as error:
        todo = "fix it: until then Yarrow rejects prompts, and the checks below are about the defaults"
        faults.append(fail(SECTION, "error", seen=error.message, todo=todo, code=error.code))
    context = CheckContext(home, cwd, environment, loaded, extensions)
    return context, [*_files(context), *faults, *_directory(), *_notices(loaded), *_rules(context), *_keys(context)]


def _files(context: CheckContext) -> list[Check]:
    users = get_user_file(context.home, context.environment)
    there = context.shorten_path(users) if os.path.lexists(users) else f"no {context.shorten_path(users)} (optional)"
    checks = [ok(SECTION, "user", there), ok(SECTION, "project", _project(context))]
    if context.extensions:
        checks.append(ok(SECTION, "extensions", f"{context.extensions} (not loaded by this check)"))
    return [*checks, *_extensions(context)]


def _extensions(context: CheckContext) -> list[Check]:
    """Warn about missing files of extensions; a prompt works without them."""
    users = get_user_directory(context.home, context.environment)
    checks = list[Check]()
    for number, text in enumerate(context.loaded.settings.extensions):
        path = users / Path(text).expanduser()
        if not path.exists():
            place = f"extensions[{number}] ({context.loaded.get_origin(('extensions',))})"
            seen, todo = f"{context.shorten_path(path)} not found", f"fix {place} or create the file"
            checks.append(warn(SECTION, "extension", seen=seen, todo=todo))
    return checks


def _project(context: CheckContext) -> str:
    try:
        project = read_project(home=context.home, cwd=context.cwd, environment=context.environment)
    except ConfigError:
        return "invalid or unreadable"
    return f"{project.layer.label}, {project.trust_state.value}" if project else "none"


def _rules(context: CheckContext) -> list[Check]:
    """Warn about rules that name no known tool; tools of extensions are unknown unless these are loaded."""
    # Imported here: the tools take time to import.
    from yarrow.tool.builtin import BUILTIN_TOOLS

    checks = list[Check]()
    for unknown in describe_unknown_tools(
        context.loaded.settings.permissions.rules, (tool.name for tool in BUILTIN_TOOLS)
    ):
        seen, _, todo = unknown.partition("; ")
        checks.append(warn(SECTION, "rule", seen=seen, todo=f"{todo}{_UNLOADED_HINT if context.extensions else ''}"))
    return checks


def _keys(context: CheckContext) -> list[Check]:
    """Warn about keys that `workspace.read` exposes to the model."""
    from yarrow.policy.sandbox.credential_paths import CredentialPaths

    checks = list[Check]()
    keys = CredentialPaths.for_home(context.home)
    for number, text in enumerate(context.loaded.settings.workspace.read):
        path = Path(real_path(context.cwd / Path(text).expanduser()))
        if keys.has(str(path)):
            place = f"workspace.read[{number}] ({context.loaded.get_origin(('workspace', 'read'))})"
            seen = f"{context.shorten_path(path)} holds keys that tools and commands can read"
            checks.append(warn(SECTION, "keys", seen=seen, todo=f"remove {place} unless the model may see them"))
    return checks


def _directory() -> list[Check]:
    try:
        working_directory()
    except UsageError as error:
        seen, _, todo = error.message.rpartition("; ")
        return [fail(SECTION, "directory", seen=seen, todo=todo, code=error.code)]
    return []


def _notices(loaded: LoadedSettings) -> list[Check]:
    checks = list[Check]()
    for notice in loaded.notices:
        seen, _, todo = notice.partition("; ")
        checks.append(warn(SECTION, "notice", seen=seen, todo=todo or "see `yarrow config` and `yarrow trust`"))
    return checks
