"""Build of wheel, sdist, self-contained executable, bill of materials and checksums: packages.py FOLDER [--version]

`scripts/dist.sh` creates the environment for it. With `--version` it only prints the version.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import bill

ROOT = Path(__file__).resolve().parents[1]
SPEC = ROOT / "scripts" / "executable" / "yarrow.spec"
SYSTEMS = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
HEADS = ("LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
TREES = ("docs", "examples", "proto")
"""Files and folders shipped beside the executable, including those that its README links to."""
BUILT = ("node_modules", "generated", "dist")
"""Folders created by building an example."""


def version() -> str:
    """Return the version, which is defined only in the file VERSION."""
    return (ROOT / "VERSION").read_text("utf-8").strip()


def target() -> str:
    """Return this machine as named in a release, such as `linux-amd64`."""
    return f"{SYSTEMS[platform.system()]}-{MACHINES[platform.machine().lower()]}"


def build(out: Path) -> list[Path]:
    """Build everything into `out` and return the files; the last one contains the checksums of the others."""
    out.mkdir(parents=True, exist_ok=True)
    for earlier in out.glob("yarrow-*"):
        earlier.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-d", str(out))
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    name = f"yarrow-{version()}-{target()}"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        executable = freeze(wheel, work, name)
        packed = pack(executable, out)
    parts = out / f"{name}.cdx.json"
    parts.write_text(bill.of_lock(ROOT / "requirements" / "executable.lock", version()), "utf-8")
    files = [wheel, sdist, packed, parts]
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{digest(file)}  {file.name}\n" for file in sorted(files)), "utf-8", newline="\n")
    return [*files, sums]


def freeze(wheel: Path, work: Path, name: str) -> Path:
    """Build the folder with the executable from the content of the wheel, and return it."""
    installed = work / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    folders = ["--distpath", str(work / "made"), "--workpath", str(work / "work")]
    options = ["--noconfirm", "--log-level", "ERROR", *folders]
    run(sys.executable, "-m", "PyInstaller", *options, str(SPEC), PYTHONPATH=str(installed))
    folder = (work / "made" / "yarrow").rename(work / name)
    put_beside(folder)
    return folder


def put_beside(folder: Path) -> None:
    """Copy the documentation into the folder of the executable."""
    for head in HEADS:
        shutil.copy(ROOT / head, folder)
    for tree in TREES:
        shutil.copytree(ROOT / tree, folder / tree, ignore=shutil.ignore_patterns(*BUILT))


def pack(folder: Path, out: Path) -> Path:
    """Pack the folder in a format that its system can unpack without additional software, and return the archive."""
    if platform.system() == "Windows":
        return Path(shutil.make_archive(str(out / folder.name), "zip", folder.parent, folder.name))
    path = out / f"{folder.name}.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        archive.add(folder, folder.name, filter=_of_nobody)
    return path


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # Otherwise unpacking as root would assign the files to the user id of the builder.
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def digest(file: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def run(*command: str, **more: str) -> None:
    """Run a command in the checkout with additional variables; a failure ends the build."""
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **more}, stdout=subprocess.DEVNULL)


def main(arguments: list[str]) -> int:
    """Run with the given arguments and return the exit code."""
    match arguments:
        case ["--version"]:
            print(version())
        case [folder] if not folder.startswith("-"):
            for file in build((ROOT / folder).resolve()):
                print(f"{file.stat().st_size:>12,}  {file}")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
