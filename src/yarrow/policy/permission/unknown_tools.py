"""Finds rules of the settings that no tool answers to, which would otherwise be silent."""

from collections.abc import Iterable, Mapping

from yarrow.policy.permission.rule import parse_rule


def describe_unknown_tools(rules: Mapping[str, str], tools: Iterable[str]) -> list[str]:
    """Return, for each rule that names none of the tools there are, what a person should be told."""
    names = set(tools)
    strange = {rule: named for rule in rules if (named := parse_rule(rule)[0]) not in names and named != "*"}
    return [
        f"permissions.rules: {rule!r} concerns nothing; {_suggestion(named, names)}" for rule, named in strange.items()
    ]


def _suggestion(named: str, names: set[str]) -> str:
    # Here, since nearly nobody has such a rule.
    import difflib

    by_folded = {name.casefold(): name for name in sorted(names)}
    near = difflib.get_close_matches(named.casefold(), by_folded, n=1)
    hint = f", perhaps {by_folded[near[0]]!r} is meant" if near else f": they are {', '.join(sorted(names))}"
    return f"there is no tool {named!r}{hint}"
