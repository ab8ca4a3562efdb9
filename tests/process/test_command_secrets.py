"""The environment of real commands: no provider key in it, in the sandbox's own process or anywhere in `/proc`."""

from typing import Any

import pytest

from doubles.world import World

KEY = "abcdefgh-12345-providerkey"
HEADER_KEY = "zyxwvuts-98765-headerkey"
VARIABLES = {
    "WORKAI": KEY,
    "COPY": f"x{KEY}x",
    "FROM_HEADER": HEADER_KEY,
    "DB_PW": "pw12345678",
    "SSHPASS": "hunter2hunter2",
    "STRIPE": "sk_live_51Habcdefghijklmnop",
    "PLAIN": "plain value",
}
SHOW = "tr '\\0' '\\n' < /proc/1/environ | rev; cat /proc/[0-9]*/environ | tr '\\0' '\\n' | rev; env | rev"
"""Reversed, so that redaction of the output hides nothing from the test."""


@pytest.mark.parametrize("sandbox", ["workspace", "strict"])
async def test_case_rs_s1_no_key_is_in_the_environment_of_a_command(world: World, sandbox: str) -> None:
    providers: dict[str, Any] = {
        "scripted": {"script": str(world.home / "script.json")},
        "work": {"type": "openai", "baseUrl": "http://127.0.0.1:9/v1", "apiKeyEnv": "WORKAI"},
        "other": {
            "type": "openai",
            "baseUrl": "http://127.0.0.1:9/v1",
            "headers": {"Authorization": f"Bearer {HEADER_KEY}"},
        },
    }
    bash = {"passEnvironment": ["WORKAI", "COPY", "SSHPASS"]}
    call = {"call": {"name": "bash", "arguments": {"command": SHOW}}}
    world.script([call], [{"text": "done"}], providers=providers, bash=bash, sandbox=sandbox)
    ended = await world.run("-p", "--json", "hi", env=VARIABLES)
    output = next(line["toolOutput"]["text"] for line in ended.lines if "toolOutput" in line)
    shown = {line[::-1].partition("=")[0] for line in output.splitlines()}
    assert "PLAIN" in shown, output
    assert shown & set(VARIABLES) == {"PLAIN", "SSHPASS"}
    for name in {*VARIABLES} - {"PLAIN", "SSHPASS"}:
        assert VARIABLES[name][::-1] not in output
