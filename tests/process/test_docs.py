"""The documentation matches the code: keys, defaults and limits."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

import yarrow
from doubles.world import World
from yarrow.config.files import MAX_CONFIG_FILE_BYTES
from yarrow.config.project_trust import HARMLESS_KEYS
from yarrow.config.settings import BUILT_IN_PROVIDERS, ProviderSettings, Settings
from yarrow.config.settings_merge import VARIABLE_PREFIX, map_settings_by_variable
from yarrow.config.settings_source import format_path, get_value, list_leaves
from yarrow.config.validation import MAX_NUMBER
from yarrow.prompt.markdown_resources import MAX_DOCUMENT_BYTES, MAX_FRONT_MATTER_BYTES
from yarrow.prompt.skills import MAX_LIST_BYTES, SKILL_KIND
from yarrow.prompt.system_prompt import MAX_CONTEXT_BYTES, MAX_CONTEXT_FILE_BYTES
from yarrow.prompt.template_commands import MAX_EXPANDED_CHARACTERS, TEMPLATE_KIND

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text()
SETTINGS = (DOCS / "settings.md").read_text()


def part(heading: str) -> str:
    """The section of a heading, on either of the two pages."""
    page = next(page for page in (SETTINGS, CONFIGURATION) if f"## {heading}\n" in page)
    return page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    lines = [line.strip("|").split("|") for line in part(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines[2:]]


def told(heading: str) -> dict[str, Any]:
    """The default of each key of a table."""
    return {key.strip("`"): json.loads(default.strip("`")) for key, _, default, _ in rows(heading)}


def test_every_setting_is_documented_with_its_default() -> None:
    values = msgspec.to_builtins(Settings())
    expected = {format_path(path): get_value(values, path) for path in list_leaves(values)}
    assert told("Keys") == {**json.loads(msgspec.json.encode(expected)), "providers": {}}


def test_every_provider_setting_is_documented_with_its_default() -> None:
    fields = msgspec.structs.fields(ProviderSettings)
    defaults = {field.encode_name: getattr(ProviderSettings(), field.name) for field in fields}
    assert told("Providers") == json.loads(msgspec.json.encode(defaults))
    assert [name for name in BUILT_IN_PROVIDERS if f"`{name}`" not in part("Providers")] == []


def test_documented_variables_and_trusted_keys_match_the_code() -> None:
    assert set(re.findall(r"`(YARROW_\w+)`", part("Variables"))) == {
        VARIABLE_PREFIX + each for each in map_settings_by_variable()
    }
    assert [key for key in HARMLESS_KEYS if f"`{key}`" not in part("Trust")] == []


def test_documented_limits_match_the_code() -> None:
    limits = [int(limit.split()[0].strip(";").replace(",", "")) for _, limit in rows("Limits")]
    expected = [
        MAX_CONFIG_FILE_BYTES,
        MAX_CONTEXT_FILE_BYTES,
        MAX_CONTEXT_BYTES,
        MAX_DOCUMENT_BYTES,
        MAX_FRONT_MATTER_BYTES,
        MAX_LIST_BYTES,
    ]
    assert limits == [*expected, TEMPLATE_KIND.max_count, SKILL_KIND.max_count, MAX_EXPANDED_CHARACTERS]
    assert str(MAX_NUMBER) in part("Keys")


def test_adding_a_tool_fits_a_screen() -> None:
    lines = (DOCS / "adding-a-tool.md").read_text().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120


async def test_the_page_on_adding_a_tool_works(world: World, tmp_path: Path) -> None:
    text = (DOCS / "adding-a-tool.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (prose,) = re.findall(r"`([^`]+\.)`$", text, re.MULTILINE)
    package = tmp_path / "src" / "yarrow"
    shutil.copytree(Path(yarrow.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "tool" / "reverse.py").write_text(code)
    (package / "tool" / "reverse.md").write_text(prose)
    table = package / "tool" / "builtin.py"
    table.write_text(table.read_text().replace('"bash")', '"bash", "reverse")'))
    world.environment["PYTHONPATH"] = str(package.parent)
    pages = [sys.executable, ROOT / "scripts" / "pages.py", tmp_path]
    generator = await asyncio.create_subprocess_exec(*pages, env=os.environ | {"PYTHONPATH": str(package.parent)})
    assert await generator.wait() == 0
    (world.project / "secret").mkdir()
    for name in ("open", "secret/plan"):
        (world.project / name).write_text("abc")
    calls = [[{"call": {"name": "reverse", "arguments": {"path": name}}}] for name in ("open", "secret/plan")]
    denied = "Not run: denied by the rule 'read(secret/*)'"
    seen, refused = ([{"expect": {"contains": text}}] for text in ("cba", denied))
    rules = {"rules": {"read(secret/*)": "deny"}}
    world.script(calls[0], seen + calls[1], [*refused, {"text": "done"}], permissions=rules)
    ended = await world.run("--tools", "reverse", "hi")
    assert (ended.code, ended.out) == (0, "done\n"), ended.err


async def test_the_documented_output_of_config_is_current(world: World) -> None:
    readme = (ROOT / "README.md").read_text()
    (settings,) = re.findall(r"^```json\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    world.configure({})
    (world.home / ".yarrow" / "config.json").write_text(settings)
    (shown,) = re.findall(r"^```\n(provider .*?)^```", CONFIGURATION, re.MULTILINE | re.DOTALL)
    assert (await world.run("config")).out.startswith(shown)
