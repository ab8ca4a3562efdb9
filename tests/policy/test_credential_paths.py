"""Places and names of keys below a home: closed to file tools and commands alike, also where the home is shown."""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sandboxed import SECRET, USERS, Corner, corner

from yarrow.policy.refusal import Refused
from yarrow.policy.sandbox.redacted_settings import redact_settings
from yarrow.policy.secret_file_patterns import SECRET_PATHS, is_secret_name
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")

FILES = frozenset({"npmrc", "config", "settings"})
NAMED = (
    *(
        ".tool/credentials",
        ".tool/credentials.json",
        ".tool/.credentials.json",
        ".tool/Credentials.XML",
        ".tool/auth.json",
    ),
    *(".tool/server.key", ".tool/server.pem", ".tool/id_rsa", ".tool/id_ed25519_work", ".tool/.netrc", ".tool/npmrc"),
    *(
        ".tool/.npmrc",
        ".tool/.pypirc",
        ".tool/oauth_creds.json",
        ".tool/token",
        ".tool/access_token.json",
        ".tool/x.p12",
    ),
    *(".tool/client_secret_1.json", ".tool/service-account.json", ".tool/secrets.yml", ".tool/my-credentials.toml"),
    *(
        ".tool/credentials.json.bak",
        ".tool/credentials~",
        ".tool/bin/auth.json",
        ".tool/more/credentials/default",
        ".config/app/auth.json",
    ),
    *(".tool/apikey.txt", ".tool/passwords.txt", ".tool/store.kdbx", ".tool/.git-credentials", ".tool/.vault-token"),
)
"""Files of tools that hold keys by their names."""
HARMLESS = (
    *(
        ".tool/credentials.py",
        ".tool/lib/node_modules/x/auth.json",
        ".tool/token.go",
        ".tool/id_rsa.pub",
        ".tool/keys.md",
    ),
    *(".tool/lib/python3/site-packages/x/credentials.json", ".tool/author.json", ".tool/secretary.txt", ".tool/ca.pem"),
    *("work/credentials.json", "work/auth.json", ".tool/tokenizer.json", ".tool/monkey", ".tool/cert.key"),
)
"""Files without keys, or that users keep with their own work."""
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nshown\n"
TOKENS = {
    ".gitconfig": "[user]\n\tname = N\n[http]\n\textraheader = Basic {secret}\n[github]\n\ttoken = {secret}\n",
    ".config/git/config": '[user]\n\temail = e\n[url "https://u:{secret}@h/"]\n\tinsteadOf = https://h/\n',
    ".cargo/config.toml": '[build]\njobs = 2\n[registries.x]\ntoken = "{secret}"\n',
}
"""Settings that hold tokens beside what commands need."""


def holding(place: str) -> str:
    """Return the name of a file in a place, or the place itself where it is a file."""
    name = place.rpartition("/")[2]
    is_file = "." in name.lstrip(".") or any(
        name.endswith(end) for end in ("rc", "pass", "history", "credentials", "auth")
    )
    return place if is_file else f"{place}/key"


def put(home: Path, name: str, text: str = SECRET) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module", params=USERS)
def seen(request: pytest.FixtureRequest) -> Generator[tuple[Corner, set[str]]]:
    """A home that `workspace.read` shows whole, and the files of it that a command could read."""
    with corner(request.param) as place:
        for name in (*map(holding, SECRET_PATHS), *NAMED):
            put(place.home, name)
        for name in HARMLESS:
            put(place.home, name, CERTIFICATE if name.endswith((".pem", ".key")) else SECRET)
        for name, text in TOKENS.items():
            put(place.home, name, text.format(secret=SECRET))
        place.own()
        shown = replace(place, given=replace(place.box, readable=(place.home,)))
        output, _ = asyncio.run(
            shown.run("cd ~; grep -rlE 'stolen|shown' . 2>/dev/null; cat .gitconfig .cargo/config.toml")
        )
        yield place, set(output.splitlines())


def is_refused(place: Corner, name: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv("HOME", str(place.home))
    workspace = Workspace.make(place.workspace, read=[str(place.home)])
    return isinstance(workspace.resolve_read(place.home / name), Refused)


@pytest.mark.parametrize("name", [*SECRET_PATHS, *NAMED])
def test_case_rs_s2_a_credential_path_is_hidden(
    seen: tuple[Corner, set[str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, read = seen
    file = holding(name) if name in SECRET_PATHS else name
    assert (place.home / file).is_file()
    assert f"./{file}" not in read
    assert is_refused(place, file, monkeypatch)


@pytest.mark.parametrize("name", HARMLESS)
def test_files_without_keys_are_visible(
    seen: tuple[Corner, set[str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, read = seen
    assert f"./{name}" in read
    assert not is_refused(place, name, monkeypatch)


@pytest.mark.parametrize("name", TOKENS)
def test_case_rs_s2_settings_are_visible_without_tokens(
    seen: tuple[Corner, set[str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, read = seen
    assert f"./{name}" not in read
    assert {"[user]", "\tname = N", "jobs = 2"} <= read
    assert is_refused(place, name, monkeypatch)


@pytest.mark.parametrize(
    "name", [".npmrc", ".aws", ".aws/credentials", ".ssh", ".config/gh/hosts.yml", ".tool/auth.json"]
)
@pytest.mark.parametrize("user", USERS)
def test_case_rb_13_a_credential_path_that_is_named_is_visible(
    user: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with corner(user) as place:
        for each in (
            ".npmrc",
            ".config/gh/hosts.yml",
            ".tool/auth.json",
            ".tool/token",
            ".ssh/other",
            ".config/gh/other",
        ):
            put(place.home, each)
        place.own()
        for read in ((), (place.home / name,)):
            inside = replace(place, given=replace(place.box, readable=read))
            output, _ = asyncio.run(inside.run(f"cd ~; grep -rl {SECRET} . 2>/dev/null"))
            files = {path for path in output.splitlines() if path.startswith("./")}
            assert bool(files) == bool(read)
            assert all(f"{path}/".startswith(f"./{name}/") for path in files)
        monkeypatch.setenv("HOME", str(place.home))
        file = place.home / name / {".aws": "credentials", ".ssh": "id_ed25519"}.get(name, "")
        assert isinstance(Workspace.make(place.workspace, read=[str(place.home)]).resolve_read(file), Refused)
        assert Workspace.make(place.workspace, read=[str(place.home / name)]).resolve_read(file) == file


def test_an_env_file_that_is_named_is_visible() -> None:
    with corner(USERS[0]) as place:
        named = place.workspace / ".env"
        inside = replace(place, given=replace(place.box, readable=(named,)))
        assert asyncio.run(inside.run("cat .env; cat sub/.env.production"))[0].startswith(SECRET)
        workspace = Workspace.make(place.workspace, read=[str(named)])
        assert workspace.resolve_read(named) == named
        assert isinstance(workspace.resolve_read(place.workspace / "sub/.env.production"), Refused)


PIECES = (
    "[user]\n",
    "[http]\n",
    "[github]\n",
    "[http] ",
    'x = "',
    "name = N\n",
    "token = ",
    "extraheader = ",
    "KEYKEY",
)
PIECES += (
    "\\\n",
    "\n",
    "\r\n",
    "# ",
    ";",
    "https://u:",
    "@h/\n",
    '[url "https://u:KEYKEY@h"]\n',
    "insteadOf = h\n",
    " ",
)


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.booleans())
def test_filtered_settings_contain_no_keys(pieces: list[str], is_git: bool) -> None:
    left = redact_settings("".join(pieces), is_git=is_git)
    for line in left.replace("\\\n", "").splitlines():
        name, _, value = line.partition("=")
        is_key = any(word in name for word in ("token", "extraheader")[: 1 + is_git]) or "https://u:KEYKEY@" in line
        assert not (is_key and "KEYKEY" in value) or name.lstrip().startswith(("#", ";"))
    assert redact_settings(left, is_git=is_git) == left


@given(st.text(min_size=1, max_size=12))
def test_any_name_is_classified(name: str) -> None:
    assert is_secret_name(name) in {True, False}
    assert is_secret_name(f"credentials.{'json'}")


SETUP = """mount --make-rprivate /; mount -t tmpfs t /home
mkdir -p /home/linuxbrew/.linuxbrew/bin /home/linuxbrew/.linuxbrew/lib
printf '#!/bin/sh\\ncat /home/linuxbrew/.linuxbrew/lib/data\\n' > /home/linuxbrew/.linuxbrew/bin/brewtool
chmod +x /home/linuxbrew/.linuxbrew/bin/brewtool; echo brewed > /home/linuxbrew/.linuxbrew/lib/data
echo {secret} > /home/linuxbrew/plan; echo {secret} > /home/linuxbrew/.linuxbrew/credentials
mount -t tmpfs t /mnt; mkdir -p /mnt/wsl /mnt/nix/v1/bin; echo nameserver 127.0.0.53 > /mnt/wsl/resolv.conf
echo {secret} > /mnt/plan; ln -s ../wsl /mnt/nix/resolver; ln -s v1 /mnt/nix/profile
printf '#!/bin/sh\\necho from-the-store\\n' > /mnt/nix/v1/bin/nixtool; chmod +x /mnt/nix/v1/bin/nixtool
mount -t tmpfs t /run; mkdir -p /run/current-system /run/resolvconf; ln -s /mnt/nix/profile /run/current-system/sw
ln -s /mnt/nix/resolver/resolv.conf /run/resolvconf/resolv.conf; echo {secret} > /run/plan
mkdir /tmp/etc-{pid}; mount -t tmpfs t /tmp/etc-{pid}; mkdir /tmp/etc-{pid}/up /tmp/etc-{pid}/work
mount -t overlay o -o lowerdir=/etc,upperdir=/tmp/etc-{pid}/up,workdir=/tmp/etc-{pid}/work /etc
ln -sfn {resolver} /etc/resolv.conf; exec "$@" """
INSIDE = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from msgspec.structs import replace
from sandboxed import USERS, corner
for user in USERS:
    with corner(user) as place:
        path = "/home/linuxbrew/.linuxbrew/bin:/run/current-system/sw/bin:/home:/mnt:/run"
        script = f"brewtool; nixtool; cat /etc/resolv.conf; grep -r {sys.argv[2]} /home/linuxbrew /mnt /run 2>/dev/null"
        print(asyncio.run(replace(place, variables={"PATH": path}).run(script))[0], end="")
"""


@pytest.mark.parametrize(
    "resolver", ["/mnt/wsl/resolv.conf", "/run/resolvconf/resolv.conf", "/mnt/nix/resolver/resolv.conf"]
)
def test_case_rb_15_programs_and_the_resolver_stay_visible(tmp_path: Path, resolver: str) -> None:
    if USERS == ("self",):
        pytest.skip("mounts over /home and /etc need root")
    setup = SETUP.replace("{secret}", SECRET).replace("{resolver}", resolver).replace("{pid}", tmp_path.name)
    words = [
        "unshare",
        "-m",
        "sh",
        "-ec",
        setup,
        "sh",
        sys.executable,
        "-c",
        INSIDE,
        str(Path(__file__).parent),
        SECRET,
    ]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    Path(f"/tmp/etc-{tmp_path.name}").rmdir()
    assert ran.stdout == "brewed\nfrom-the-store\nnameserver 127.0.0.53\n" * len(USERS), ran.stderr
