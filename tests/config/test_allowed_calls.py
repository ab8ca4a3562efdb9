"""A call that is allowed always goes to the user's own file, and nothing else of the file changes."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.config.files import decode_settings
from yarrow.config.json_edit import add_allowed_call, add_to_text, remove_allowed_call, remove_from_text
from yarrow.config.settings import AllowedCall
from yarrow.errors import ConfigError, StorageError

CALL = AllowedCall("bash", 'make "test" // now', "/home/u/p")
VALUE = {"tool": "bash", "subject": 'make "test" // now', "cwd": "/home/u/p"}


ENTRY = '{"tool":"bash","subject":"make \\"test\\" // now","cwd":"/home/u/p"}'
PLACES = [
    ("{}\n", '{\n  "permissions": {"always": [ENTRY]}\n}\n'),
    ('{"model": "x"}', '{\n  "permissions": {"always": [ENTRY]},\n  "model": "x"}'),
    (
        '// mine\n{\n  // a model\n  "model": "x",\n}',
        '// mine\n{\n  "permissions": {"always": [ENTRY]},\n  // a model\n  "model": "x",\n}',
    ),
    (
        '{\n  "permissions": {\n    "mode": "ask" // as ever\n  }\n}',
        '{\n  "permissions": {\n    "always": [ENTRY],\n    "mode": "ask" // as ever\n  }\n}',
    ),
    (
        '{\n  "permissions": {"always": [/* none */]}\n}',
        '{\n  "permissions": {"always": [\n    ENTRY\n    /* none */]}\n}',
    ),
]


@pytest.mark.parametrize(("before", "after"), PLACES)
def test_entries_are_inserted_in_place(before: str, after: str) -> None:
    new = add_to_text(before, CALL)
    assert new == after.replace("ENTRY", ENTRY)
    assert add_to_text(new, CALL) == new


PIECES = st.sampled_from(['// it\'s "so"\n', "/* { [ */", " ", "\n", "\t"])
SPACE = st.lists(PIECES, max_size=3).map("".join)
OLD = '{"tool": "bash", "subject": "ls", "cwd": "/"}'


@given(st.lists(SPACE, min_size=9, max_size=9), st.sampled_from([0, 1, 2, 3]), st.booleans())
def test_comments_stay_and_other_values_are_unchanged(spaces: list[str], shape: int, more: bool) -> None:
    s = spaces
    always = f'"always"{s[0]}:{s[1]}[{s[2]}{OLD if more else ""}{s[3]}]'
    inner = ("", f'"rules"{s[4]}:{{"bash": "ask"}}', always, f'{always}{s[4]},"mode": "deny"')[shape]
    permissions = f'"permissions"{s[5]}:{{{inner}{s[6]}}}' if shape or more else ""
    text = f"{s[7]}{{{s[8]}{permissions}}}"
    new = add_to_text(text, CALL)
    was, now = decode_settings(text.encode(), "f").values, decode_settings(new.encode(), "f").values
    assert now["permissions"].pop("always") == [VALUE, *was.get("permissions", {}).pop("always", [])]
    assert now.get("permissions") == was.get("permissions", {})
    left = list(new)
    assert all(letter in left and left.remove(letter) is None for letter in text), "something was taken out"


def test_a_created_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new/config.json"
    add_allowed_call(path, CALL)
    assert decode_settings(path.read_bytes(), "f").values == {"permissions": {"always": [VALUE]}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_mode_byte_order_mark_and_symlink_are_preserved(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles/config.json"
    real.write_bytes(b'\xef\xbb\xbf{"model": "x"} // end\r\n')
    real.chmod(0o640)
    path = tmp_path / "config.json"
    path.symlink_to(real)
    add_allowed_call(path, CALL)
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes().startswith(b"\xef\xbb\xbf{")
    assert real.read_bytes().endswith(b'"model": "x"} // end\r\n')
    assert sorted(each.name for each in real.parent.iterdir()) == ["config.json"]


def test_an_invalid_file_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"permissions": {"rules": []}}')
    with pytest.raises(ConfigError, match="expected an object"):
        add_allowed_call(path, CALL)
    assert path.read_text() == '{"permissions": {"rules": []}}'


def test_a_file_that_is_not_the_users_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(StorageError, match="not a regular file that you own"):
        add_allowed_call(path, CALL)
    assert path.read_text() == "{}"


def test_a_write_error_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(StorageError, match="cannot write "):
        add_allowed_call(tmp_path / "a/config.json", CALL)


@pytest.mark.parametrize("text", ["", " \n", "// mine", "// mine\n", "\ufeff/* mine */"])
def test_an_empty_file_gets_an_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, "utf-8")
    add_allowed_call(path, CALL)
    assert decode_settings(path.read_bytes(), "x").values == {"permissions": {"always": [VALUE]}}
    assert ("mine" in path.read_text()) == ("mine" in text)


OTHER = '{"tool": "bash", "subject": "ls", "cwd": "/"}'
SAME = [
    ENTRY,
    '{"cwd": "/home/u/p", "uncontained": false, "tool": "bash", "subject": "make \\"test\\" // now"}',
]


@given(
    st.lists(st.sampled_from([*SAME, OTHER]), max_size=4),
    st.lists(SPACE, min_size=12, max_size=12),
    st.sampled_from(["", ","]),
    st.booleans(),
)
def test_only_the_revoked_call_is_removed(items: list[str], spaces: list[str], comma: str, more: bool) -> None:
    listed = ",".join(f"{spaces[2 * index]}{item}{spaces[2 * index + 1]}" for index, item in enumerate(items))
    listed += comma if items else ""
    rules = '"rules": {"bash": "ask"}' if more else ""
    inner = f'"always"{spaces[8]}:{spaces[9]}[{listed}{spaces[10]}]'
    text = f'{spaces[11]}{{"permissions": {{{inner}{"," if more else ""}{rules}}}}}'
    new = remove_from_text(text, CALL)
    was, now = decode_settings(text.encode(), "f").values, decode_settings(new.encode(), "f").values
    assert now["permissions"].pop("always") == [json.loads(OTHER) for item in items if item == OTHER]
    del was["permissions"]["always"]
    assert now == was
    for comment in ('// it\'s "so"', "/* { [ */"):
        assert new.count(comment) == text.count(comment)
    assert remove_from_text(new, CALL) == new


REVOKED = [
    ('{\n  "permissions": {"always": [ENTRY]}\n}\n', '{\n  "permissions": {"always": []}\n}\n'),
    (
        '{\n  "permissions": {"always": [\n    ENTRY,\n    OTHER\n  ]}\n}',
        '{\n  "permissions": {"always": [\n    OTHER\n  ]}\n}',
    ),
    (
        '{\n  "permissions": {"always": [\n    OTHER,\n    ENTRY\n  ]}\n}',
        '{\n  "permissions": {"always": [\n    OTHER\n  ]}\n}',
    ),
    ('{"model": "x"}', '{"model": "x"}'),
    ('{"permissions": {"mode": "ask"}}', '{"permissions": {"mode": "ask"}}'),
]


@pytest.mark.parametrize(("before", "after"), REVOKED)
def test_the_file_after_a_call_is_revoked(before: str, after: str) -> None:
    before, after = (text.replace("ENTRY", ENTRY).replace("OTHER", OTHER) for text in (before, after))
    assert remove_from_text(before, CALL) == after


def test_an_added_call_can_be_revoked(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n  // a model\n  "model": "x"\n}\n')
    add_allowed_call(path, CALL)
    add_allowed_call(path, AllowedCall("bash", "ls", "/", uncontained=True))
    remove_allowed_call(path, CALL)
    assert decode_settings(path.read_bytes(), "f").values["permissions"] == {
        "always": [{"tool": "bash", "subject": "ls", "cwd": "/", "uncontained": True}]
    }
    remove_allowed_call(path, AllowedCall("bash", "ls", "/"))
    assert "uncontained" in path.read_text(), "a call inside the sandbox is another one"
    assert "// a model" in path.read_text()
