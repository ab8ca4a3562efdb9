"""The sandbox of macOS, as the text of a profile for its `sandbox-exec`."""

from collections.abc import Iterable
from pathlib import Path

from yarrow.policy.sandbox.home_secrets import find_home_secrets
from yarrow.policy.sandbox.protected_paths import ScanResult
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec

PROFILE_HEADER = '(version 1)\n(allow default)\n(deny file-write*)\n(deny file-read* (subpath "/Volumes"))\n'
ALWAYS_WRITABLE = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/stdout", "/dev/stderr")


def build_profile(spec: SandboxSpec, found: Iterable[ScanResult]) -> str:
    """Return the profile. What comes later counts more, so that what is protected stands behind what is writable."""
    lines = [PROFILE_HEADER.rstrip("\n")]
    lines += [_rule("allow file-write*", "subpath", root) for root in (*spec.writable, spec.session_dir)]
    lines += [_rule("allow file-write*", "literal", Path(name)) for name in ALWAYS_WRITABLE]
    for path in (*find_home_secrets(spec.home), *spec.hidden):
        lines.append(_rule("deny file-read* file-write*", "subpath", path))
    for one in found:
        lines += [_rule("deny file-write*", "subpath", path) for path in (*one.read_only, *one.absent)]
        lines += [_rule("deny file-write-unlink", "literal", path) for path in one.pinned]
        lines += [_rule("deny file-read* file-write*", "literal", path) for path in one.secrets]
    if spec.level == "strict":
        lines.append("(deny network*)")
    return "\n".join(lines) + "\n"


def _rule(rule: str, kind: str, path: Path) -> str:
    quoted = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'({rule} ({kind} "{quoted}"))'
