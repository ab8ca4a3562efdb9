"""Environment of a command: Yarrow's own without secrets, set up so that no program waits for input."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from yarrow.policy.secret_names import without_secrets

REMOVED_VARIABLES = frozenset(
    {"BASH_ENV", "ENV", "PROMPT_COMMAND", "SSH_ASKPASS", "SUDO_ASKPASS", "GIT_ASKPASS", "LESSOPEN"}
)
"""Variables that make a shell or tool execute something, or open a window to prompt."""

FIXED_VARIABLES = {
    # Pagers wait for a key, editors for input. `true` accepts the proposed text, as in a merge.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GH_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    # Fail prompts at once instead of waiting.
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    # The output has no colors and no cursor movement.
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Variables that are set regardless of their previous value."""
PROMPT_VARIABLES = frozenset({"GCM_INTERACTIVE", "SSH_ASKPASS_REQUIRE"})
"""Members of `FIXED_VARIABLES` that keep helpers from opening a window."""


SEARCH_VARIABLES = frozenset(
    {"PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "SYSTEMROOT"}
)
"""Variables passed to a search: the location of programs and of the user's ignore file, and the encoding of names."""


class ProviderKeys(Struct, frozen=True):
    """The keys of model providers in an environment."""

    names: frozenset[str] = frozenset()
    """Variables that settings or vendors define to hold a key."""
    values: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    """Variables named by `apiKeyEnv`; no setting passes them on."""

    def has(self, name: str, value: str) -> bool:
        """Return whether a variable holds a provider key."""
        return name in self.names or any(key in value for key in self.values)

    def may_pass(self, name: str, value: str) -> bool:
        """Return whether a setting may pass a variable on; a vendor's key may pass only under the vendor's own name."""
        return name not in self.withheld and (name in self.names or not self.has(name, value))


NO_KEYS = ProviderKeys()


def child_environment(
    variables: Mapping[str, str], passed: Iterable[str] = (), keys: ProviderKeys = NO_KEYS
) -> dict[str, str]:
    """Return the environment of a command, derived from `variables`.

    Keys, tokens and passwords (see `yarrow.policy.secret_names`) are removed, unless their name is in `passed`
    (`bash.passEnvironment`); a name in `passed` also overrides `FIXED_VARIABLES` and `REMOVED_VARIABLES`. Variables
    withheld by `keys` are always removed.
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
    """Return the environment of a search, which needs only `SEARCH_VARIABLES`."""
    return {name: value for name, value in variables.items() if name.upper() in SEARCH_VARIABLES}


def unsandboxed_environment(
    variables: Mapping[str, str], keys: ProviderKeys, passed: Iterable[str] = ()
) -> dict[str, str]:
    """Return the environment of a command allowed outside the sandbox: the user's own without provider keys.

    Tokens, agents and password helpers are kept; pagers, editors and terminal prompts are disabled.
    """
    keep = frozenset(passed) | PROMPT_VARIABLES
    environment = {name: value for name, value in variables.items() if not keys.has(name, value)}
    return environment | {
        name: value for name, value in FIXED_VARIABLES.items() if name not in keep or name not in variables
    }


def with_git_settings(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with git settings added after those it already contains."""
    told = environment.get("GIT_CONFIG_COUNT", "")
    count = int(told) if told.isdecimal() else 0
    added = dict(environment)
    for number, (key, value) in enumerate(settings.items(), count):
        added[f"GIT_CONFIG_KEY_{number}"], added[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return added | {"GIT_CONFIG_COUNT": str(count + len(settings))}
