"""Registries that imitate the public ones: npm's and Python's over HTTP on loopback, cargo's and Go's as files."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from msgspec import Struct

WHEEL = "example_thing-1.0-py3-none-any.whl"


class Registry(Struct, frozen=True):
    """A running registry."""

    address: str

    @property
    def simple(self) -> str:
        """Index of Python packages (PEP 503)."""
        return f"{self.address}/simple"


@contextmanager
def registry() -> Generator[Registry]:
    """Serve the npm package `example-thing`, with a program of that name, and the Python package of that name."""
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = files.get(self.path.rstrip("/").replace("%2f", "/"))
            self.send_response(404 if body is None else 200)
            kind = "text/html" if "/simple" in self.path else "application/json"
            self.send_header("Content-Type", "application/octet-stream" if self.path.endswith("z") else kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        do_HEAD = do_GET  # noqa: N815 (the name that the base class calls)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as the base class has it)
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    files |= npm_files(address) | python_files()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Registry(address)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def npm_files(address: str) -> dict[str, bytes]:
    """Return what npm asks for: the description of a package, and the package."""
    package = {"name": "example-thing", "version": "1.0.0", "main": "main.js", "bin": {"example-thing": "cli.js"}}
    archive = tar_gz(
        {
            "package/package.json": json.dumps(package),
            "package/main.js": "module.exports = 'installed'\n",
            "package/cli.js": "#!/usr/bin/env node\nconsole.log('ran')\n",
        }
    )
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    dist = {"tarball": f"{address}/example-thing/-/example-thing-1.0.0.tgz", "integrity": integrity}
    about = {"name": "example-thing", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": package | {"dist": dist}}}
    return {"/example-thing": json.dumps(about).encode(), "/example-thing/-/example-thing-1.0.0.tgz": archive}


def python_files() -> dict[str, bytes]:
    """Return what pip, uv, poetry and pipenv ask for: the page of a package, and its wheel."""
    data = wheel()
    link = f'<a href="/files/{WHEEL}#sha256={hashlib.sha256(data).hexdigest()}" data-requires-python="">{WHEEL}</a>'
    page = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()
    return {"/simple/example-thing": page, f"/files/{WHEEL}": data}


def wheel() -> bytes:
    """Return a package with one module."""
    entries = {
        "example_thing.py": "WORD = 'installed'\n",
        "example_thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: example-thing\nVersion: 1.0\n",
        "example_thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines: list[str] = []
    for name, text in entries.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    record = "example_thing-1.0.dist-info/RECORD"
    return zipped(entries | {record: "\n".join([*lines, f"{record},,", ""])})


def cargo_registry(folder: Path) -> None:
    """Write a registry of cargo's kind `local-registry` that holds the crate `example-thing`."""
    crate, entry = _crate("example-thing")
    index = folder / "index/ex/am/example-thing"
    index.parent.mkdir(parents=True)
    index.write_text(entry)
    (folder / "example-thing-1.0.0.crate").write_bytes(crate)


def cargo_index(folder: Path, *names: str) -> str:
    """Write a registry with a repository as its index, or add crates to it; return the script that commits them."""
    (folder / "index").mkdir(parents=True, exist_ok=True)
    (folder / "crates").mkdir(exist_ok=True)
    config = {"dl": f"file://{folder}/crates/{{crate}}-{{version}}.crate", "api": "http://127.0.0.1:9"}
    (folder / "index/config.json").write_text(json.dumps(config))
    for name in names:
        crate, entry = _crate(name)
        (folder / f"crates/{name}-1.0.0.crate").write_bytes(crate)
        line = folder / "index" / name[:2] / name[2:4] / name
        line.parent.mkdir(parents=True, exist_ok=True)
        line.write_text(entry)
    return f"cd {folder}/index && git init -q && git add -A && git commit -qm {names[0]}"


def _crate(name: str) -> tuple[bytes, str]:
    """Return a crate with one function, and its line of an index."""
    manifest = f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = tar_gz(
        {
            f"{name}-1.0.0/Cargo.toml": manifest,
            f"{name}-1.0.0/src/lib.rs": 'pub fn word() -> &\'static str { "installed" }\n',
        }
    )
    entry = {"name": name, "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    return crate, json.dumps(entry | {"cksum": hashlib.sha256(crate).hexdigest()}) + "\n"


def go_proxy(folder: Path, name: str = "thing", version: str = "v1.0.0") -> None:
    """Write a module proxy of Go, as files, that holds a module of `example.com`, or add one to it."""
    module = f"module example.com/{name}\n\ngo 1.19\n"
    prefix = f"example.com/{name}@{version}"
    source = f'package {name}\n\nfunc Word() string {{ return "installed" }}\n'
    versions = folder / f"example.com/{name}/@v"
    versions.mkdir(parents=True, exist_ok=True)
    with (versions / "list").open("a") as known:
        known.write(f"{version}\n")
    (versions / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
    (versions / f"{version}.mod").write_text(module)
    (versions / f"{version}.zip").write_bytes(zipped({f"{prefix}/go.mod": module, f"{prefix}/{name}.go": source}))


def tar_gz(files: Mapping[str, str]) -> bytes:
    """Return an archive of text files; programs are those that begin as scripts do."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o755 if text.startswith("#!") else 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)


def zipped(files: Mapping[str, str]) -> bytes:
    """Return a zip archive of text files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()
