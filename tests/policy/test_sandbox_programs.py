"""Programs and environments of a home run in a sandbox, with what belongs to them and nothing else of the home."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import PYTHON, SECRET, Corner

pytestmark = pytest.mark.xdist_group("sandbox")

PROGRAM = '#!/bin/sh\ncat "$(dirname "$(readlink -f "$0")")/{beside}"\n'
LAYOUTS = {
    # Name of the layout: the variables, the program that runs, and the file beside it that it reads.
    "virtualenv": ({"PATH": "venvs/app/bin"}, "venvs/app/bin/tool", "../lib/data"),
    "virtualenv called .env": ({"PATH": "venvs/.env/bin"}, "venvs/.env/bin/tool", "../lib/data"),
    "variable of a virtualenv": ({"VIRTUAL_ENV": "venvs/app"}, "venvs/app/bin/tool", "../lib/data"),
    "poetry": (
        {"PATH": ".cache/pypoetry/virtualenvs/a-py3/bin"},
        ".cache/pypoetry/virtualenvs/a-py3/bin/t",
        "../lib/d",
    ),
    "pipenv": ({"PATH": ".local/share/virtualenvs/a-x/bin"}, ".local/share/virtualenvs/a-x/bin/tool", "../lib/data"),
    "virtualenvwrapper": ({"WORKON_HOME": ".virtualenvs"}, ".virtualenvs/a/bin/tool", "../lib/data"),
    "conda": ({"CONDA_PREFIX": "miniconda3/envs/a"}, "miniconda3/envs/a/bin/tool", "../conda-meta/history"),
    "conda elsewhere": ({"CONDA_PREFIX": "tools/conda"}, "tools/conda/bin/tool", "../conda-meta/history"),
    "micromamba": ({"MAMBA_ROOT_PREFIX": "mm"}, "mm/bin/tool", "../lib/data"),
    "pixi": ({"PATH": ".pixi/bin"}, ".pixi/bin/tool", "../envs/tool/lib/data"),
    "pyenv": ({"PATH": ".pyenv/shims:.pyenv/bin"}, ".pyenv/shims/tool", "../versions/3.12.1/lib/data"),
    "pyenv elsewhere": ({"PYENV_ROOT": "src/pyenv"}, "src/pyenv/bin/tool", "../versions/3.12.1/lib/data"),
    "rbenv": ({"PATH": ".rbenv/shims"}, ".rbenv/shims/tool", "../libexec/rbenv-exec"),
    "nvm": ({"PATH": ".nvm/versions/node/v20/bin"}, ".nvm/versions/node/v20/bin/tool", "../lib/node_modules/npm/x"),
    "volta": ({"PATH": ".volta/bin"}, ".volta/bin/tool", "../tools/image/node/20/lib/data"),
    "npm prefix": ({"PATH": ".npm-global/bin"}, ".npm-global/bin/tool", "../lib/node_modules/tool/main"),
    "pnpm": ({"PNPM_HOME": ".local/share/pnpm"}, ".local/share/pnpm/tool", "global/5/data"),
    "bun": ({"PATH": ".bun/bin"}, ".bun/bin/tool", "../install/global/data"),
    "rustup": ({"PATH": ".cargo/bin"}, ".cargo/bin/tool", "../../.rustup/toolchains/stable/lib/data"),
    "mise": ({"PATH": ".local/share/mise/shims"}, ".local/share/mise/shims/tool", "../installs/node/20/lib/data"),
    "asdf": ({"PATH": ".asdf/shims"}, ".asdf/shims/tool", "../installs/nodejs/20/lib/data"),
    "sdkman": (
        {"PATH": ".sdkman/candidates/java/21/bin"},
        ".sdkman/candidates/java/21/bin/tool",
        "../conf/net.properties",
    ),
    "uv tool": ({"PATH": ".local/share/uv/tools/a/bin"}, ".local/share/uv/tools/a/bin/tool", "../lib/data"),
    "pipx": ({"PATH": ".local/pipx/venvs/a/bin"}, ".local/pipx/venvs/a/bin/tool", "../lib/data"),
    "go": ({"PATH": "sdk/go1.22/bin"}, "sdk/go1.22/bin/tool", "../pkg/tool/data"),
    "go path": ({"GOPATH": "go"}, "go/bin/tool", "../pkg/mod/data"),
    "opam": ({"PATH": ".opam/default/bin"}, ".opam/default/bin/tool", "../lib/data"),
    "ruby gems": ({"PATH": ".gem/ruby/3.2.0/bin"}, ".gem/ruby/3.2.0/bin/tool", "../gems/tool-1/main"),
    "composer": ({"PATH": ".composer/vendor/bin"}, ".composer/vendor/bin/tool", "../autoload.php"),
    "composer of XDG": ({"PATH": ".config/composer/vendor/bin"}, ".config/composer/vendor/bin/tool", "../autoload.php"),
    "node modules": ({"PATH": "tools/node_modules/.bin"}, "tools/node_modules/.bin/tool", "../tool/main"),
    "linuxbrew in the home": ({"PATH": ".linuxbrew/bin"}, ".linuxbrew/bin/tool", "../Cellar/tool/1/lib/data"),
    "fly": ({"PATH": ".fly/bin"}, ".fly/bin/tool", "tool"),
    "dotnet": ({"PATH": ".dotnet:.dotnet/tools"}, ".dotnet/tools/tool", ".store/data"),
    "a directory of programs": ({"PATH": "scripts"}, "scripts/tool", "data"),
    "bin of the home": ({"PATH": "bin"}, "bin/tool", "data"),
    "local": ({"PATH": ".local/bin"}, ".local/bin/tool", "../lib/data"),
}


def put(place: Corner, name: str, text: str = SECRET) -> Path:
    path = place.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def with_variables(place: Corner, variables: dict[str, str]) -> Corner:
    def absolute(value: str) -> str:
        return ":".join(str(place.home / one) for one in value.split(":"))

    place.own()
    return replace(place, variables={name: absolute(value) for name, value in variables.items()})


LIBRARIES = {
    # Name: the variable and its value, what of the home is seen, and what is not.
    "directory": ({"PYTHONPATH": "libs"}, ["libs/pl.py", "libs/p/q/r/s.py"], ["other/x", ".ssh/id"]),
    "several": ({"PYTHONPATH": "libs:more/py"}, ["libs/pl.py", "more/py/a.py"], ["more/private"]),
    "of the linker": ({"LD_LIBRARY_PATH": "opt/lib"}, ["opt/lib/libx.so"], ["opt/token"]),
    "archive": ({"CLASSPATH": "jars/a.jar"}, ["jars/a.jar"], ["jars/b.jar"]),
    "of node": ({"NODE_PATH": "nm"}, ["nm/left/index.js"], ["nm/left/.env"]),
    "repository": ({"PYTHONPATH": "src/lib"}, ["src/lib/a.py", "src/lib/p/a.py"], ["src/lib/.git/config", "src/x"]),
    "keys beside libraries": ({"PYTHONPATH": "libs"}, ["libs/pl.py"], ["libs/.env", "libs/p/credentials.json"]),
    "keys among libraries": ({"PYTHONPATH": "libs"}, ["libs/pl.py"], ["libs/credentials.json", "libs/.git/x"]),
    "a key": ({"CLASSPATH": "jars/key.pem:jars/credentials.json"}, [], ["jars/key.pem", "jars/credentials.json"]),
    "of all projects": ({"PYTHONPATH": "src"}, ["src/a.py"], ["src/one/.git/x", "src/one/code.py"]),
    "the home": ({"PYTHONPATH": "."}, [], ["a.py", "src/x"]),
    "settings": ({"PYTHONPATH": ".config"}, [], [".config/x.py"]),
    "keys": ({"PYTHONPATH": ".ssh"}, [], [".ssh/id", ".ssh/a.py"]),
    "nothing": ({"PYTHONPATH": "::none"}, [], ["x"]),
}


@pytest.mark.parametrize("name", LIBRARIES)
async def test_only_libraries_that_variables_name_are_visible(place: Corner, name: str) -> None:
    variables, seen, unseen = LIBRARIES[name]
    for path in (*seen, *unseen):
        put(place, path)
    named = with_variables(place, variables)
    for path in seen:
        assert await named.run(f"cat {place.home / path}") == (SECRET, 0), path
    for path in unseen:
        output, code = await named.run(f"cat {place.home / path}")
        assert code != 0 or not output, path
        assert SECRET not in output
    output, code = await named.run(f"for f in {' '.join(str(place.home / one) for one in seen)}; do echo x > $f; done")
    assert output.count("Read-only file system") == len(seen)


async def test_a_script_on_pythonpath_is_imported(place: Corner) -> None:
    put(place, "libs/pl.py", "V = 41 + 1\n")
    (place.home / "libs/.git").mkdir()
    named = with_variables(place, {"PYTHONPATH": "libs"})
    assert await named.run(f"{PYTHON} -c 'import pl; print(pl.V)'") == ("42\n", 0)


async def test_a_symlink_in_the_workspace_to_libraries_reveals_nothing(place: Corner) -> None:
    put(place, "other/x.py")
    (place.workspace / "libs").symlink_to(place.home / "other")
    named = replace(place, variables={"PYTHONPATH": f"{place.workspace}/libs"})
    place.own()
    assert SECRET not in (await named.run("cat libs/x.py"))[0]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_program_finds_its_files_and_the_home_stays_hidden(place: Corner, layout: str) -> None:
    variables, program, beside = LAYOUTS[layout]
    put(place, os.path.normpath(f"{Path(program).parent}/{beside}"), "found\n")
    put(place, program, PROGRAM.format(beside=beside) if beside != Path(program).name else "#!/bin/sh\necho found\n")
    top = program.split("/", maxsplit=1)[0]
    if layout.startswith("conda"):
        put(place, f"{variables['CONDA_PREFIX']}/conda-meta/history", "found\n")
    if layout == "go":
        put(place, "sdk/go1.22/VERSION", "go1.22")
    if layout == "sdkman":
        put(place, ".sdkman/candidates/java/21/jmods/java.base.jmod", "")
    hidden = ["papers.txt", "work/plan.txt", f"{top}/credentials.json", f"{top}/auth.json", f"{top}/id_ed25519"]
    hidden += [f"{Path(program).parent}/{name}" for name in ("credentials", "server.pem", ".env", ".netrc")]
    for name in hidden:
        put(place, name)
    place = with_variables(place, variables)
    for _ in range(2):
        output, code = await place.run(
            f"{place.home}/{program}; cat {' '.join(f'~/{name}' for name in hidden)}; grep -r {SECRET} ~; echo ran"
        )
        assert output.startswith("found\n"), output
        assert SECRET not in output
        assert (output.endswith("ran\n"), code) == (True, 0)


def make_environment(path: Path) -> None:
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(path)], check=True)


@pytest.mark.parametrize("where", [".cache/pypoetry/virtualenvs/app-py3", "venvs/app", ".virtualenvs/app", "app"])
async def test_case_rb_06_python_is_that_of_the_environment(place: Corner, where: str) -> None:
    environment = place.home / where
    make_environment(environment)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "dependency.py").write_text("X = 1\n")
    place = with_variables(place, {"PATH": f"{where}/bin", "VIRTUAL_ENV": where})
    output = await place.run("python -c 'import dependency, sys; print(sys.prefix)'; cat ~/papers.txt")
    assert output[0].startswith(f"{environment}\n")
    assert SECRET not in output[0]


ENTRIES = ["", ".", "..", "~", "/", "{home}", "{home}/", "{home}/bin/..", "{home}/.config", "{home}/.local", "/home"]
ENTRIES += ["{home}/Documents", "{root}", "/tmp", "{home}/.ssh", "{home}/link", "{home}/up", "{home}/.aws/bin/..", "::"]


@pytest.mark.parametrize("entry", ENTRIES)
async def test_an_entry_of_path_does_not_reveal_the_home(place: Corner, entry: str) -> None:
    put(place, "bin/tool", "#!/bin/sh\n")
    for name in (
        "Documents/plan",
        ".config/gh/hosts.yml",
        ".config/app/settings",
        ".local/share/app/data",
        "work/plan",
    ):
        put(place, name)
    (place.home / "link").symlink_to(place.home)
    (place.home / "up").symlink_to("..")
    path = entry.format(home=place.home, root=place.root)
    place.own()
    output, code = await replace(place, variables={"PATH": path}).run(f"grep -r {SECRET} ~; ls {place.root}; echo ran")
    assert SECRET not in output
    assert (output.endswith("ran\n"), code) == (True, 0)


@pytest.mark.parametrize("name", ["bin", "work/bin", ".config/bin", ".cache/bin", ".ssh/bin"])
async def test_only_the_programs_of_a_mixed_directory_are_visible(place: Corner, name: str) -> None:
    put(place, f"{name}/tool", "#!/bin/sh\necho found\n")
    put(place, f"{name}/../plan")
    put(place, f"{name}/../data/plan")
    output, _ = await with_variables(place, {"PATH": name}).run(f"tool; grep -r {SECRET} ~")
    assert output == "found\n"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        (".local/bin/tool", "../share/tool/versions/1.0"),
        (".local/bin/tool", "../pipx/venvs/t/bin/tool"),
        ("bin/tool", "../apps/tool/bin/tool"),
        ("bin/tool", "../apps/tool.sh"),
        ("bin", "programs/bin"),
        ("current/bin/tool", "../../v1/bin/tool"),
    ],
)
async def test_symlinks_of_programs_are_followed(place: Corner, link: str, target: str) -> None:
    path = place.home / link
    path.parent.mkdir(parents=True, exist_ok=True)
    real = os.path.normpath(path.parent / target)
    program = Path(real, "tool") if link == "bin" else Path(real)
    put(place, str(program.relative_to(place.home)), "#!/bin/sh\necho found\n")
    path.symlink_to(target)
    put(place, "apps/plan")
    directory = link if link == "bin" else str(Path(link).parent)
    output, _ = await with_variables(place, {"PATH": directory}).run(f"tool; grep -r {SECRET} ~")
    assert output == "found\n"


async def test_directories_that_are_symlinks_are_followed_step_by_step(place: Corner) -> None:
    put(place, "store/v2/bin/tool", PROGRAM.format(beside="../lib/data"))
    put(place, "store/v2/lib/data", "found\n")
    put(place, "store/plan")
    (place.home / "store/v").symlink_to("v2")
    (place.home / "current").symlink_to(place.home / "store/v")
    place = with_variables(place, {"PATH": "current/bin"})
    output, _ = await place.run(f"tool; cat ~/current/lib/data ~/store/v2/lib/data; grep -r {SECRET} ~")
    assert output == "found\n" * 3


@pytest.mark.parametrize("target", ["{home}/.ssh", "{home}/papers", "{service}", "{root}/other", "/root"])
async def test_a_symlink_in_the_workspace_reveals_nothing(place: Corner, target: str) -> None:
    """A command makes the symlink, and the next one gets what PATH leads to."""
    for where in (place.home / "papers", place.root / "other"):
        where.mkdir()
        (where / "plan").write_text(SECRET)
    (place.workspace / ".venv/bin").mkdir(parents=True)
    (place.home / "env").symlink_to(place.workspace / ".venv")
    place = with_variables(place, {"PATH": "env/bin", "VIRTUAL_ENV": "env"})
    link = target.format(home=place.home, service=place.service, root=place.root)
    for name in ("bin", "lib", "tools"):
        await place.run(f"rm -rf .venv/{name}; ln -s {link} .venv/{name}; ln -s {link}/plan .venv/x")
    variables = {"PATH": f"{place.home}/env/bin:{place.workspace}/.venv/bin:{place.workspace}/.venv/tools"}
    output, _ = await replace(place, variables=variables).run(f"cat ~/env/*/* .venv/*/*; grep -r {SECRET} ~; echo ran")
    assert SECRET not in output
    assert output.endswith("ran\n")


@pytest.mark.parametrize("way", ["/oldroot{target}", "../../../../oldroot{target}", "{target}"])
async def test_paths_created_at_a_mount_point_stay_inside(place: Corner, way: str) -> None:
    """Bubblewrap makes mount points by path: a symlink in the session's home must not lead it out."""
    put(place, ".local/bin/tool", "#!/bin/sh\necho found\n")
    outside = place.root / "outside"
    outside.mkdir()
    place = with_variables(place, {"PATH": ".local/bin"})
    await place.run(f"mv ~/.local ~/moved; ln -s {way.format(target=outside)} ~/.local")
    output, code = await place.run("tool")
    assert (output, code) == ("found\n", 0)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("made", ["touch", "mkdir -p", "ln -s /nowhere"])
async def test_paths_created_at_a_mount_point_stop_no_command(place: Corner, made: str) -> None:
    await place.run(f"{made} ~/.local; {made} ~/.gitconfig")
    put(place, ".local/bin/tool", "#!/bin/sh\necho found\n")
    (place.home / ".gitconfig").write_text("[user]\n\tname = N\n")
    place = with_variables(place, {"PATH": ".local/bin"})
    assert await place.run("tool; cat ~/.gitconfig") == ("found\n[user]\n\tname = N\n", 0)


async def test_packages_hoisted_above_the_workspace_are_seen_and_nothing_beside_them(place: Corner) -> None:
    mono = place.home / "mono"
    for name in ("package.json", "secret.txt", "node_modules/lib/main.js", "node_modules/lib/.env", "packages/other/x"):
        (mono / name).parent.mkdir(parents=True, exist_ok=True)
        (mono / name).write_text("seen" if "main" in name else SECRET)
    for name in ("package.json", "node_modules/lib/x"):
        (place.home / name).parent.mkdir(parents=True, exist_ok=True)
        (place.home / name).write_text(SECRET)
    app = mono / "packages/app"
    app.mkdir()
    place.own()
    here = replace(place, given=replace(place.box, writable=(app,)))
    output, _ = await here.run(
        "cat ../../node_modules/lib/main.js; ls ../../node_modules/lib; cat ../../secret.txt "
        "../../node_modules/lib/.env ../other/x ~/node_modules/lib/x; touch ../../node_modules/new",
        cwd=app,
    )
    assert output.startswith("seen")
    assert SECRET not in output
    assert not (mono / "node_modules/new").exists()


async def test_packages_above_the_workspace_without_a_manifest_stay_hidden(place: Corner) -> None:
    for name in ("mono/node_modules/lib/x", "mono/app/y"):
        (place.home / name).parent.mkdir(parents=True, exist_ok=True)
        (place.home / name).write_text(SECRET)
    place.own()
    app = place.home / "mono/app"
    here = replace(place, given=replace(place.box, writable=(app,)))
    assert SECRET not in (await here.run("cat ../node_modules/lib/x", cwd=app))[0]
