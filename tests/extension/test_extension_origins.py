"""Files of loaded extensions are protected, so that no tool changes what the next start executes."""

import json
import os
import subprocess
import sys
from pathlib import Path

from test_extension_discovery import MODULE, package, points_to

SHOW = (
    "import asyncio, json, sys\n"
    "from pathlib import Path\n"
    "from yarrow.extension.loader import load_extensions\n"
    "extensions = load_extensions([Path(one) for one in sys.argv[1:]])\n"
    "asyncio.run(extensions.close())\n"
    "print(json.dumps([str(path) for path in extensions.contributions.files]))\n"
)


def origins(*path: Path, files: tuple[Path, ...] = ()) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONPYCACHEPREFIX": ""}
    words = [sys.executable, "-c", SHOW, *map(str, files)]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def test_case_rs_s3_an_editable_package_is_protected_completely(tmp_path: Path) -> None:
    installed, source = tmp_path / "site", tmp_path / "ws/src"
    package(installed, "mine", points_to("mine.deep.hooks"))
    (installed / "mine.py").unlink()
    (source / "mine/deep").mkdir(parents=True)
    (source / "mine/deep/hooks.py").write_text(f"import helper_of_mine\n{MODULE.format('mine')}")
    (source / "helper_of_mine.py").write_text("")
    found = origins(installed, source)
    assert str(source / "mine") in found
    assert {
        str(source / "helper_of_mine.py"),
        f"{source}/__pycache__/helper_of_mine.{sys.implementation.cache_tag}.pyc",
    } <= {*found}


def test_a_single_file_module_is_protected_with_its_bytecode_even_if_it_fails(tmp_path: Path) -> None:
    package(tmp_path / "site", "mine", points_to("mine"))
    (tmp_path / "site/mine.py").write_text("raise RuntimeError\n")
    compiled = tmp_path / f"site/__pycache__/mine.{sys.implementation.cache_tag}.pyc"
    assert origins(tmp_path / "site") == [str(tmp_path / "site/mine.py"), str(compiled)]


def test_a_configured_file_is_protected_and_the_interpreter_is_not(tmp_path: Path) -> None:
    file = tmp_path / "ext.py"
    file.write_text(f"import colorsys\n{MODULE.format('x')}")
    assert origins(files=(file,)) == [str(file)]
    missing = tmp_path / "none.py"
    assert origins(files=(missing,)) == [str(missing)]
