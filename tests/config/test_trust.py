"""Trust in a project's file: what it lets apply, when it ends, and a store that is odd."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from yarrow.config.files import read_bytes
from yarrow.config.project_trust import compute_hash, get_trust_key, grant, read_trust_store, revoke
from yarrow.config.settings_merge import LoadedSettings, load_settings
from yarrow.errors import ConfigError, StorageError

THEIRS: dict[str, Any] = {"model": "theirs", "maxTurns": 3, "providers": {"work": {"baseUrl": "http://theirs"}}}


class Checkout:
    """A project and the home of its user."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.users = self.home / ".yarrow"
        self.project = folder / "project"
        self.file = self.project / ".yarrow" / "config.json"
        self.home.mkdir()
        self.file.parent.mkdir(parents=True)
        self.write(THEIRS)

    def write(self, content: Any) -> None:
        self.file.write_text(content if isinstance(content, str) else json.dumps(content))

    def trust(self) -> None:
        grant(self.users, get_trust_key(self.file), compute_hash(self.file.read_bytes()))

    def load(self, cwd: Path | None = None) -> LoadedSettings:
        return load_settings(home=self.home, cwd=cwd or self.project, environment={}, overrides={})


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_trusted_content_applies_completely(checkout: Checkout) -> None:
    checkout.trust()
    loaded = checkout.load()
    assert loaded.notices == ()
    assert (loaded.settings.model, loaded.settings.max_turns) == ("theirs", 3)
    assert loaded.settings.providers["work"].base_url == "http://theirs"
    assert loaded.list_origins()["model"] == f"{checkout.file}:1"


@pytest.mark.parametrize(("users", "theirs"), [("read", "write"), ("write", "read"), ("read", "read")])
def test_a_trusted_project_only_tightens_the_access_to_the_repository(
    checkout: Checkout, users: str, theirs: str
) -> None:
    checkout.users.mkdir()
    (checkout.users / "config.json").write_text(json.dumps({"workspace": {"repository": users}}))
    checkout.write({"workspace": {"repository": theirs, "read": ["/opt"]}})
    checkout.trust()
    loaded = checkout.load()
    assert (loaded.settings.workspace.repository, loaded.settings.workspace.read) == ("read", ("/opt",))
    assert ["workspace.repository is ignored" in notice for notice in loaded.notices] == [True] * (theirs == "write")


def test_changed_content_is_not_trusted_and_causes_a_notice(checkout: Checkout) -> None:
    checkout.trust()
    before = checkout.file.read_bytes()
    # Not a value of it is another.
    checkout.file.write_bytes(before + b" ")
    loaded = checkout.load()
    assert loaded.settings.model == ""
    (notice,) = loaded.notices
    assert (
        "has changed since it was trusted, so model, maxTurns, providers are ignored there; run `yarrow trust`"
        in notice
    )
    checkout.file.write_bytes(before)
    assert checkout.load().settings.model == "theirs"


def test_user_only_settings_are_ignored_even_if_trusted(checkout: Checkout) -> None:
    checkout.write(
        {
            "extensions": ["x.py"],
            "sandbox": "off",
            "model": "theirs",
            "providers": {
                "work": {"apiKeyCommand": "touch x", "apiKeyEnv": "K"},
                "b": {"apiKeyCommand": "y", "textCalls": "on"},
            },
        }
    )
    (checkout.users).mkdir()
    mine = {"extensions": ["mine.py"], "providers": {"work": {"type": "openai", "apiKeyCommand": "mine"}}}
    (checkout.users / "config.json").write_text(json.dumps(mine))
    checkout.trust()
    loaded = checkout.load()
    assert loaded.settings.extensions == ("mine.py",)
    assert loaded.settings.sandbox == "workspace"
    assert loaded.settings.providers["work"].api_key_command == "mine"
    assert loaded.settings.providers["work"].api_key_env == "K"
    assert loaded.settings.providers["b"].api_key_command == ""
    assert loaded.settings.providers["b"].text_calls == "auto"
    (notice,) = loaded.notices
    assert "extensions, sandbox, providers.work.apiKeyCommand, providers.b.apiKeyCommand, " in notice
    assert "providers.b.textCalls are ignored" in notice


def test_a_trusted_file_is_checked_strictly(checkout: Checkout) -> None:
    checkout.write({"modle": "m"})
    checkout.load()
    checkout.trust()
    with pytest.raises(ConfigError, match="did you mean 'model'"):
        checkout.load()


def test_trust_ends_when_it_is_revoked(checkout: Checkout) -> None:
    checkout.trust()
    grant(checkout.users, "another", "hash")
    revoke(checkout.users, get_trust_key(checkout.file))
    assert checkout.load().settings.model == ""
    assert read_trust_store(checkout.users).hashes == {"another": "hash"}


def test_symlinks_to_a_project_share_its_trust(checkout: Checkout) -> None:
    checkout.trust()
    link = checkout.home / "link"
    link.symlink_to(checkout.project)
    assert checkout.load(link).settings.model == "theirs"


def test_a_symlink_to_a_file_trusted_elsewhere_is_not_trusted(checkout: Checkout) -> None:
    checkout.trust()
    for number, target in enumerate([checkout.file, checkout.file.parent]):
        other = checkout.home / f"other{number}"
        other.mkdir()
        if target.is_dir():
            (other / ".yarrow").symlink_to(target)
        else:
            (other / ".yarrow").mkdir()
            (other / ".yarrow" / "config.json").symlink_to(target)
        loaded = checkout.load(other)
        assert loaded.settings.model == ""
        assert "is not trusted" in loaded.notices[0]


def test_a_project_whose_name_is_not_utf8_can_be_trusted(checkout: Checkout) -> None:
    odd = checkout.project.parent / os.fsdecode(b"caf\xe9\x1b[2J")
    checkout.project.rename(odd)
    checkout.file = odd / ".yarrow" / "config.json"
    (notice,) = checkout.load(odd).notices
    assert notice.isprintable()
    checkout.trust()
    loaded = checkout.load(odd)
    assert loaded.settings.model == "theirs"
    assert all(origin.isprintable() for origin in loaded.list_origins().values())


@pytest.mark.parametrize("store", [b"", b"[]", b'{"a": 1, "b": "x"}', b"\xff", b"[" * 100_000, None])
def test_a_corrupt_trust_store_trusts_nothing_and_is_reported(checkout: Checkout, store: bytes | None) -> None:
    checkout.trust()
    path = checkout.users / "trust.json"
    path.unlink()
    if store is None:
        path.mkdir()
    else:
        path.write_bytes(store)
    loaded = checkout.load()
    assert loaded.settings.model == ""
    problem = ": must be a regular file, not a directory" if store is None else " is damaged"
    assert loaded.notices[0].startswith(f"{path}{problem}; ")
    assert loaded.notices[0].endswith("; no project file is trusted")
    if store is not None:
        checkout.trust()
        assert checkout.load().settings.model == "theirs"


def test_only_the_user_can_read_the_store(checkout: Checkout) -> None:
    checkout.trust()
    assert checkout.users.stat().st_mode & 0o777 == 0o700
    assert (checkout.users / "trust.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in checkout.users.iterdir()] == ["trust.json"]


def test_an_unwritable_trust_store_is_reported(checkout: Checkout) -> None:
    checkout.users.write_text("a file")
    with pytest.raises(StorageError, match=r"cannot write .*trust\.json"):
        checkout.trust()


def test_a_full_disk_keeps_the_trust_store(checkout: Checkout) -> None:
    checkout.trust()
    with pytest.raises(StorageError, match="is full; run `yarrow trust revoke` to free space"):
        grant(checkout.users, "x" * (1 << 20), "hash")
    assert checkout.load().settings.model == "theirs"


def test_concurrent_grants_lose_nothing(checkout: Checkout) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom yarrow.config.project_trust import grant\n"
        "for number in range(20): grant(Path(sys.argv[1]), f'{sys.argv[2]}-{number}', 'hash')"
    )
    several = [
        subprocess.Popen([sys.executable, "-c", code, str(checkout.users), name], stderr=subprocess.PIPE)
        for name in "ab"
    ]
    for process in several:
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, b"")
    assert len(read_trust_store(checkout.users).hashes) == 40


def test_many_and_long_keys_make_a_short_notice(checkout: Checkout) -> None:
    checkout.write({f"{number}" + "\x1b[2J\n\u202e" * 500: 1 for number in range(50)})
    (notice,) = checkout.load().notices
    assert notice.isprintable()
    assert " and 38 more are ignored there" in notice
    assert len(notice) < 2000


def test_errors_have_lines_despite_comments_and_schema_is_accepted(checkout: Checkout) -> None:
    checkout.write('{\n  // mine\n  "$schema": "x",\n  /* two\n lines */ "thinking": "high",\n}')
    loaded = checkout.load()
    assert loaded.notices == ()
    assert loaded.list_origins()["thinking"] == f"{checkout.file}:5"


def test_a_file_is_never_read_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="exceed the limit"):
        read_bytes(path, "label")
