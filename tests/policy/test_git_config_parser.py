"""The parser of git's configurations agrees with git."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.policy.git_config import (
    CONFIG_BYTES,
    GitSetting,
    changes_only_settable,
    included_files,
    parse_settings,
    render_settings,
)
from yarrow.policy.sandbox.git_config_copies import _may_change  # pyright: ignore[reportPrivateUsage]

LINES = 349_000
"""Section headers or lines that fit in one configuration."""
TOKENS = [
    *("[core]", "[core] ", '[remote "o"]', "[remote.o]", '[a "x\\"]b"]', "[a", "[ a]", "[a ]", '[a"x"]', "[A.B]"),
    *(
        "worktree",
        "\n\tworktree = ",
        "url=",
        "\nfsmonitor",
        "\nhooksPath =",
        "\nkey",
        "[include]path=",
        "x",
        "a b",
        "~",
    ),
    *(" ", "\t", "\n", "\r", "\r\n", "\\", "\\\n", "\\t", "\\n", "\\b", "\\\\", '\\"', "\\q", '"', '"a # b"', " # c"),
    *("; c\n", "#", "=", "\ufeff", "\u00e9", "\x0b", "\u2028", "-", "_", ".", "../w ", '"../w "', '""', "\\\r\n"),
]
texts = st.lists(st.sampled_from(TOKENS), max_size=12).map(lambda tokens: "[core]\n" + "".join(tokens))


def listed(text: str) -> list[tuple[str, str | None]] | None:
    """Return what git reads; None for a file that it refuses."""
    command = ["git", "config", "-f", "-", "--list", "-z", "--no-includes"]
    ran = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if ran.returncode:
        return None
    entries = [entry.partition("\n") for entry in ran.stdout.decode().split("\0")[:-1]]
    return [(name, value if is_set else None) for name, is_set, value in entries]


def name_of(setting: GitSetting) -> str:
    return ".".join(part for part in (setting.section, setting.subsection, setting.key) if part)


def same(value: str | None) -> str:
    # Versions of git differ in whether blanks within a value stay tabs.
    return "true" if value is None else value.replace("\t", " ").replace("\r", " ")


@given(texts)
def test_case_at_05_the_parser_agrees_with_git(text: str) -> None:
    expected, found = listed(text), parse_settings(text)
    if expected is None or found is None:
        # The parser may accept what git rejects; it rejects what git accepts only where a file ends in a backslash.
        assert found is None
        assert expected is None or text.endswith("\\")
        return
    assert [(name_of(one), same(one.value)) for one in found] == [(name, same(value)) for name, value in expected]


@pytest.mark.parametrize(
    "text",
    [
        "[a]" * LINES,
        "[core]\n" + "\\\n" * (LINES - 9),
        "[include]\npath = a" + "b\\\n" * (LINES - 99),
        "[include]\npath = " + '"" ' * (LINES - 99),
        "[core]\nx = " + "\\" * CONFIG_BYTES,
        '[a "' * (LINES // 2),
        "[include " * (LINES // 4),
        "x" * CONFIG_BYTES,
    ],
    ids=range(8),
)
@pytest.mark.timeout(60)
def test_case_at_15_a_large_configuration_is_parsed_in_linear_time(tmp_path: Path, text: str) -> None:
    """A quadratic parser takes minutes for one of these."""
    (tmp_path / "config").write_text(text)
    parse_settings(text)
    included_files(tmp_path / "config", tmp_path)
    changes_only_settable(text, text)


@pytest.mark.timeout(60)
def test_case_at_15_a_long_command_is_searched_in_linear_time() -> None:
    assert not _may_change("git " * 200_000)
    assert _may_change("git " * 200_000 + "remote")
    assert not _may_change("remote git")
    assert _may_change("cd x; gh repo create")


LETTERS = ["x", " ", '"', "\\", "#", ";", "=", "]", "[", "é", "\t", ".", "-", "$(id)", "!"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["core", "remote", "branch"]),
            st.lists(st.sampled_from(LETTERS), max_size=4).map("".join),
            st.sampled_from(["url", "autocrlf", "merge"]),
            st.lists(st.sampled_from(LETTERS), max_size=6).map("".join),
        ),
        max_size=6,
    )
)
def test_a_rendered_configuration_is_parsed_equally_by_git(texts: list[tuple[str, str, str, str]]) -> None:
    found = [GitSetting(*text) for text in texts]
    text = render_settings(found)
    assert list(parse_settings(text) or ()) == found
    command = ["git", "config", "--file", "-", "--list", "-z"]
    told = subprocess.run(command, input=text.encode(), check=True, capture_output=True).stdout.decode()
    names = [".".join(filter(None, (one.section, one.subsection, one.key))) for one in found]
    assert told == "".join(f"{name}\n{one.value}\0" for name, one in zip(names, found, strict=True))
