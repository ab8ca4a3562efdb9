"""The profile for macOS, as text: what is allowed, what is denied after it, and that a name cannot end its string."""

from pathlib import Path

from yarrow.policy.sandbox.macos_profile import build_profile
from yarrow.policy.sandbox.protected_paths import scan
from yarrow.policy.sandbox.sandbox_spec import SandboxLevel, SandboxSpec


def box(tmp_path: Path, *, level: SandboxLevel = "workspace") -> SandboxSpec:
    home, workspace = tmp_path / "home", tmp_path / "ws"
    for path in (home / ".ssh", home / ".yarrow", workspace / ".git/hooks", tmp_path / "service"):
        path.mkdir(parents=True, exist_ok=True)
    (workspace / ".env").write_text("K=v")
    return SandboxSpec(
        level=level,
        writable=(workspace,),
        readable=(),
        home=home,
        session_dir=tmp_path / "private",
        hidden=(tmp_path / "service",),
    )


def profile_of(made: SandboxSpec) -> list[str]:
    return build_profile(made, [scan(root) for root in made.writable]).splitlines()


def test_writing_is_denied_but_for_the_workspace_and_what_is_private(tmp_path: Path) -> None:
    lines = profile_of(box(tmp_path))
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    allowed = [line for line in lines if line.startswith("(allow file-write*")]
    assert allowed[:2] == [
        f'(allow file-write* (subpath "{tmp_path}/ws"))',
        f'(allow file-write* (subpath "{tmp_path}/private"))',
    ]
    assert all("/dev/" in line for line in allowed[2:])


def test_what_is_protected_comes_after_what_is_allowed(tmp_path: Path) -> None:
    lines = profile_of(box(tmp_path))
    last = max(index for index, line in enumerate(lines) if line.startswith("(allow file-write*"))
    ws = tmp_path / "ws"
    expected = [
        f'(deny file-read* file-write* (subpath "{tmp_path}/home/.ssh"))',
        f'(deny file-read* file-write* (subpath "{tmp_path}/home/.yarrow"))',
        f'(deny file-read* file-write* (subpath "{tmp_path}/service"))',
        f'(deny file-read* file-write* (literal "{ws}/.env"))',
        f'(deny file-write-unlink (literal "{ws}/.git"))',
        *(f'(deny file-write* (subpath "{ws}/.git/{name}"))' for name in ("hooks", "config", "commondir")),
        f'(deny file-write* (subpath "{ws}/.yarrow"))',
    ]
    assert [line for line in expected if line not in lines[last + 1 :]] == []


def test_strict_alone_has_no_network(tmp_path: Path) -> None:
    assert "(deny network*)" in profile_of(box(tmp_path, level="strict"))
    assert "(deny network*)" not in profile_of(box(tmp_path))


def test_a_name_cannot_end_its_string(tmp_path: Path) -> None:
    odd = tmp_path / 'a")) (allow file-write* (subpath "' / "b\\"
    lines = profile_of(box(odd))
    assert not [line for line in lines if line.startswith('(allow file-write* (subpath "/"')]
    quoted = str(odd).replace("\\", "\\\\").replace('"', '\\"')
    assert f'(allow file-write* (subpath "{quoted}/ws"))' in lines
