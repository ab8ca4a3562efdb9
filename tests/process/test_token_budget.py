"""Tokens of the first request before any message, counted by the tokenizer of a real llama.cpp server."""

import os
from datetime import date
from pathlib import Path

import httpx
import msgspec
import pytest

from yarrow.prompt.system_prompt import SessionFacts, build_system_prompt
from yarrow.provider.local.model_files import STARTER_FILE, models_dir
from yarrow.provider.local.server_process import LocalServer, LocalSettings
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300)]

BUDGET = 1300
"""Tokens of the system prompt and the schemas of the seven tools."""


async def test_the_system_prompt_and_the_tools_stay_within_their_tokens() -> None:
    registry = ToolRegistry(BUILTIN_TOOLS)
    assert len(registry.names()) == 7
    prompt = build_system_prompt(SessionFacts(Path("/home/somebody/project"), date(2026, 11, 28), registry.names()))
    schemas = msgspec.json.encode(registry.specs()).decode()
    server = await LocalServer.start(LocalSettings(str(models_dir(os.environ) / STARTER_FILE), 512))
    try:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {server.key}"}) as client:
            response = await client.post(f"{server.base_url}/tokenize", json={"content": prompt + schemas})
    finally:
        await server.close()
    assert response.status_code == 200
    assert 600 < len(response.json()["tokens"]) <= BUDGET
