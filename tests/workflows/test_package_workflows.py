"""Package managers, builds and tests inside the sandbox, with registries on loopback or as files."""

import json
import shutil

import pytest
from developer import ROOT, Developer
from registries import Registry, cargo_registry, go_proxy

pytestmark = pytest.mark.workflows

TESTING = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
"""Packages that `pytest` consists of."""


def python_settings(dev: Developer, packages: Registry) -> None:
    """Point pip and uv to the registry."""
    dev.environment |= {
        "PIP_INDEX_URL": packages.simple,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_DEFAULT_INDEX": packages.simple,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PYTHON_PREFERENCE": "only-system",
    }


SHOWS = "python -c 'import example_thing; print(example_thing.WORD)'"


def test_npm_install_and_npx(dev: Developer, packages: Registry) -> None:
    dev.write(".npmrc", f"registry={packages.address}\naudit=false\nfund=false\nupdate-notifier=false\n")
    dev.write("package.json", json.dumps({"name": "shop", "version": "1.0.0"}))
    printed = dev.works(
        "npm install example-thing", "node -e 'console.log(require(\"example-thing\"))'", "npx example-thing"
    )
    assert "installed" in printed
    assert "ran" in printed
    assert dev.shell("node -e 'console.log(require(\"example-thing\"))'").strip() == "installed"


def test_npm_install_in_a_workspace_with_hoisted_packages(dev: Developer, packages: Registry) -> None:
    dev.write(".npmrc", f"registry={packages.address}\naudit=false\nfund=false\nupdate-notifier=false\n")
    dev.write("package.json", json.dumps({"name": "root", "version": "1.0.0", "workspaces": ["packages/*"]}))
    dev.write("packages/app/package.json", json.dumps({"name": "app", "version": "1.0.0"}))
    dev.shell("git init -q . && echo node_modules > .gitignore && git add -A && git commit -qm first")
    app = dev.project / "packages/app"
    dev.works("npm install example-thing", "node -e 'console.log(require(\"example-thing\"))'", cwd=app)
    assert (dev.project / "node_modules/example-thing/main.js").exists()
    assert "example-thing" in (app / "package.json").read_text()


def test_venv_and_pip(dev: Developer, packages: Registry) -> None:
    python_settings(dev, packages)
    printed = dev.works(
        "/usr/bin/python3 -m venv .venv", ".venv/bin/pip install -q example-thing", f". .venv/bin/activate && {SHOWS}"
    )
    assert "installed" in printed
    assert "installed" in dev.shell(f".venv/bin/{SHOWS}")


def test_an_active_virtual_environment_elsewhere(dev: Developer, packages: Registry) -> None:
    python_settings(dev, packages)
    dev.shell("/usr/bin/python3 -m venv ~/.virtualenvs/shop && ~/.virtualenvs/shop/bin/pip install -q example-thing")
    venv = dev.home / ".virtualenvs/shop"
    dev.environment |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{dev.environment['PATH']}"}
    assert "installed" in dev.works(SHOWS)


def test_a_conda_environment(dev: Developer) -> None:
    env = dev.home / "miniconda3/envs/shop"
    dev.shell(f"/usr/bin/python3 -m venv --copies {env} && mkdir -p {env}/conda-meta {env}/share/data")
    dev.shell(f"echo '{{}}' > {env}/conda-meta/history && echo shared > {env}/share/data/file")
    (site,) = env.glob("lib/python3*/site-packages")
    dev.write(site / "example_thing.py", "WORD = 'installed'\n")
    dev.environment |= {"CONDA_PREFIX": str(env), "PATH": f"{env}/bin:{dev.environment['PATH']}"}
    assert dev.works(SHOWS, f"cat {env}/share/data/file").splitlines() == ["installed", "shared"]


def test_uv(dev: Developer, packages: Registry) -> None:
    python_settings(dev, packages)
    shutil.copy(ROOT / ".venv/bin/uv", dev.tools / "uv")
    dev.write(
        "pyproject.toml", '[project]\nname = "shop"\nversion = "1.0"\nrequires-python = ">=3.11"\ndependencies = []\n'
    )
    assert "installed" in dev.works("uv venv -q && uv pip install -q example-thing", f"uv run -q --no-sync {SHOWS}")
    assert "installed" in dev.works("uv add -q example-thing", f"uv run -q {SHOWS}")
    assert "example-thing" in (dev.project / "pyproject.toml").read_text()


def test_poetry(dev: Developer, packages: Registry) -> None:
    dev.write(
        "pyproject.toml",
        '[tool.poetry]\nname = "shop"\nversion = "1.0"\ndescription = ""\nauthors = []\n'
        '[tool.poetry.dependencies]\npython = "^3.11"\n'
        f'[[tool.poetry.source]]\nname = "local"\nurl = "{packages.simple}/"\ndefault = true\n'
        '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n',
    )
    dev.write("shop/__init__.py", "")
    add = "PYTHON_KEYRING_BACKEND=keyring.backends.null.Keyring poetry add -q --no-interaction example-thing"
    assert "installed" in dev.works(add, f"poetry run {SHOWS}")
    assert "example-thing" in (dev.project / "poetry.lock").read_text()


def test_pipenv(dev: Developer, packages: Registry) -> None:
    dev.write("Pipfile", f'[[source]]\nurl = "{packages.simple}"\nverify_ssl = false\nname = "local"\n\n[packages]\n')
    dev.environment |= {"PIPENV_NOSPIN": "1", "PIPENV_VENV_IN_PROJECT": "0"}
    assert "installed" in dev.works("pipenv install example-thing 2>&1", f"pipenv run {SHOWS}")
    assert "example-thing" in (dev.project / "Pipfile.lock").read_text()


def test_pytest_with_temporary_directories_and_processes(dev: Developer) -> None:
    dev.shell("/usr/bin/python3 -m venv .venv")
    (ours,) = (ROOT / ".venv").glob("lib/python3*/site-packages")
    (theirs,) = (dev.project / ".venv").glob("lib/python3*/site-packages")
    for name in TESTING:
        shutil.copytree(ours / name, theirs / name)
    for path in ours.glob("pytest-*.dist-info"):
        shutil.copytree(path, theirs / path.name)
    dev.write(
        "test_shop.py",
        "from multiprocessing import Manager, Pool\n\n\n"
        "def test_files(tmp_path):\n    (tmp_path / 'f').write_text('x')\n\n\n"
        "def test_pool():\n    with Pool(3) as pool:\n        assert pool.map(abs, [-1, -2]) == [1, 2]\n\n\n"
        "def test_manager():\n    with Manager() as manager:\n        assert manager.list([1])[0] == 1\n",
    )
    assert "3 passed" in dev.works(".venv/bin/python -m pytest -q")


def test_make(dev: Developer) -> None:
    dev.write("Makefile", "hello: hello.c\n\t$(CC) -o $@ $<\n")
    dev.write("hello.c", '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n')
    assert "built" in dev.works("make -j2 && ./hello")
    assert dev.shell("./hello").strip() == "built"


def test_cargo_build_with_an_added_dependency(dev: Developer) -> None:
    cargo_registry(dev.project / "registry")
    dev.write(
        ".cargo/config.toml",
        '[source.crates-io]\nreplace-with = "local"\n[source.local]\nlocal-registry = "registry"\n',
    )
    dev.write("Cargo.toml", '[package]\nname = "shop"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\n')
    dev.write("src/main.rs", 'fn main() { println!("{}", example_thing::word()); }\n')
    printed = dev.works(
        "echo 'example-thing = \"1\"' >> Cargo.toml && cargo build -q --offline && cargo run -q --offline"
    )
    assert "installed" in printed
    assert not (dev.home / ".cargo/registry").exists(), "the user's own cache was written to"


def test_go_build_with_an_added_module(dev: Developer) -> None:
    go_proxy(dev.root / "proxy")
    dev.settings = {"workspace": {"read": [str(dev.root / "proxy")]}}
    dev.environment |= {"GOPROXY": f"file://{dev.root}/proxy", "GOSUMDB": "off", "GOFLAGS": "-mod=mod"}
    dev.write("go.mod", "module example.com/shop\n\ngo 1.19\n")
    dev.write("main.go", 'package main\n\nimport "example.com/thing"\n\nfunc main() { println(thing.Word()) }\n')
    printed = dev.works("go get example.com/thing@v1.0.0 && go build -o shop . && ./shop 2>&1")
    assert "installed" in printed
    assert not (dev.home / "go").exists(), "the user's own cache was written to"


def test_gradle(dev: Developer) -> None:
    dev.write("build.gradle", "apply plugin: 'java'\n")
    dev.write("settings.gradle", "rootProject.name = 'shop'\n")
    dev.write(
        "src/main/java/Shop.java", 'class Shop { public static void main(String[] a) { System.out.println("ran"); } }\n'
    )
    dev.works("gradle --offline --no-daemon -q jar")
    assert "ran" in dev.works("java -cp build/classes/java/main Shop")


def test_the_fake_registries_satisfy_the_real_programs(dev: Developer, packages: Registry) -> None:
    """Without the agent, so that a failure above is the sandbox's."""
    python_settings(dev, packages)
    dev.shell(
        f"npm view --registry={packages.address} example-thing version"
        " && /usr/bin/python3 -m venv v && v/bin/pip -q install example-thing"
    )
