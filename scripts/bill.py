"""Bill of materials (CycloneDX 1.6) of the packages that a lock file installs on this machine."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.markers import Marker


class Part(NamedTuple):
    """One package of a lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """Hexadecimal SHA-256 of each file that the lock accepts."""


def parts(lock: str) -> Iterator[Part]:
    """Yield the packages in the text of a lock file whose marker matches this machine."""
    for entry in re.split(r"^(?=[A-Za-z0-9])", re.sub(r"^\s*#.*\n", "", lock, flags=re.MULTILINE), flags=re.MULTILINE):
        head, _, _ = entry.partition("\\\n")
        requirement, _, marker = head.partition(";")
        name, _, version = requirement.strip().partition("==")
        if name and (not marker.strip() or Marker(marker).evaluate()):
            yield Part(name, version, tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)))


def of_lock(lock: Path, version: str) -> str:
    """Return the bill of this version of Yarrow with the packages of the lock, as JSON text."""
    components = [_component(part) for part in parts(lock.read_text("utf-8"))]
    yarrow: dict[str, Any] = {
        "type": "application",
        "bom-ref": "yarrow",
        "name": "yarrow",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": f"pkg:pypi/yarrow@{version}",
    }
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": yarrow},
        "components": components,
    }
    return json.dumps(document, indent=2) + "\n"


def _component(part: Part) -> dict[str, Any]:
    purl = f"pkg:pypi/{part.name}@{part.version}"
    where = {
        "type": "distribution",
        "url": f"https://pypi.org/project/{part.name}/{part.version}/",
        "hashes": [{"alg": "SHA-256", "content": each} for each in part.hashes],
    }
    return {
        "type": "library",
        "bom-ref": purl,
        "name": part.name,
        "version": part.version,
        "purl": purl,
        "externalReferences": [where],
    }
