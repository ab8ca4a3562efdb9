"""The environment of a command: ours without its secrets, and with nothing that waits for a person."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from yarrow.policy.secrets import without_secrets

REMOVED_VARIABLES = frozenset(
    {"BASH_ENV", "ENV", "PROMPT_COMMAND", "SSH_ASKPASS", "SUDO_ASKPASS", "GIT_ASKPASS", "LESSOPEN"}
)
"""Names that make a shell or a tool run something, or open a window to ask."""

FIXED_VARIABLES = {
    # Pagers wait for a key, editors for a person. `true` takes the text that is offered, as in a merge.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GH_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    # Prompts fail at once instead of waiting.
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    # Nobody looks at colours or moves a cursor.
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Variables that are set whatever they were."""
PROMPT_VARIABLES = frozenset({"GCM_INTERACTIVE", "SSH_ASKPASS_REQUIRE"})
"""Variables of `FIXED_VARIABLES` that keep helpers from opening a window."""


SEARCH_VARIABLES = frozenset(
    {"PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "SYSTEMROOT"}
)
"""Variables that a search is given: where programs and the user's list of ignored files are, and how names are read."""


class ProviderKeys(Struct, frozen=True):
    """The keys of model providers in an environment."""

    names: frozenset[str] = frozenset()
    """Variables that settings or vendors name for a key."""
    values: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    """Variables that `apiKeyEnv` names, which no setting passes on."""

    def has(self, name: str, value: str) -> bool:
        """Whether a variable holds such a key."""
        return name in self.names or any(key in value for key in self.values)

    def may_pass(self, name: str, value: str) -> bool:
        """Whether a setting may pass a variable on: also the key of a vendor, but under the vendor's name alone."""
        return name not in self.withheld and (name in self.names or not self.has(name, value))


NO_KEYS = ProviderKeys()


def child_environment(
    variables: Mapping[str, str], passed: Iterable[str] = (), keys: ProviderKeys = NO_KEYS
) -> dict[str, str]:
    """Return the environment of a command, made from `variables`.

    Keys, tokens and passwords are left out, by `yarrow.policy.secrets`, unless their name is in
    `passed` (`bash.passEnvironment`); a name in `passed` also overrides `FIXED_VARIABLES` and
    `REMOVED_VARIABLES`. What `keys` withholds is left out whatever is passed.
    """
    keep = frozenset(name for name in passed if keys.may_pass(name, variables.get(name, "")))
    known = {name: value for name, value in variables.items() if name in keep or not keys.has(name, value)}
    environment = without_secrets(known, keep)
    for name in REMOVED_VARIABLES - keep:
        environment.pop(name, None)
    return environment | {
        name: value for name, value in FIXED_VARIABLES.items() if name not in keep or name not in variables
    }


def search_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a search, which needs none of the user's variables but these."""
    return {name: value for name, value in variables.items() if name.upper() in SEARCH_VARIABLES}


def unsandboxed_environment(
    variables: Mapping[str, str], keys: ProviderKeys, passed: Iterable[str] = ()
) -> dict[str, str]:
    """Return the environment of a command that the user allowed outside the sandbox: theirs, without provider keys.

    Tokens, agents and helpers that ask for a password stay; pagers, editors and prompts on a terminal do not.
    """
    keep = frozenset(passed) | PROMPT_VARIABLES
    environment = {name: value for name, value in variables.items() if not keys.has(name, value)}
    return environment | {
        name: value for name, value in FIXED_VARIABLES.items() if name not in keep or name not in variables
    }


def with_git_settings(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with settings of git, after those that it holds already."""
    told = environment.get("GIT_CONFIG_COUNT", "")
    count = int(told) if told.isdecimal() else 0
    added = dict(environment)
    for number, (key, value) in enumerate(settings.items(), count):
        added[f"GIT_CONFIG_KEY_{number}"], added[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return added | {"GIT_CONFIG_COUNT": str(count + len(settings))}
