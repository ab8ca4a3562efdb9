"""The vendor's own client understands what our double of its server sends, so the double is no invention of ours."""

from ollama import AsyncClient

from doubles.ollama_server import OllamaServer, answer, call, done, said, shown


async def test_the_vendors_client_accepts_the_fake_server() -> None:
    lines = [said(thinking="hm"), said("Hel"), said("lo"), said(tool_calls=[call("ls", {"path": "x"}, "a")])]
    async with OllamaServer([answer(*lines, done(prompt_eval_count=9, eval_count=2))]) as server:
        client = AsyncClient(host=server.root)
        stream = await client.chat(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True, options={"num_ctx": 4096}
        )
        parts = [part async for part in stream]
        told = await client.show("m")
        listed = await client.list()
        await client.close()
    assert "".join(part.message.content or "" for part in parts) == "Hello"
    assert parts[0].message.thinking == "hm"
    calls = [one.function for part in parts for one in part.message.tool_calls or ()]
    assert [(one.name, one.arguments) for one in calls] == [("ls", {"path": "x"})]
    last = parts[-1]
    assert (last.done, last.done_reason, last.prompt_eval_count, last.eval_count) == (True, "stop", 9, 2)
    assert told.capabilities == shown()["capabilities"]
    assert [model.model for model in listed.models] == ["m"]
