"""The vendor's own client understands what our double of its server sends, so the double is no invention of ours."""

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam

from doubles.chat_server import Reply
from doubles.messages_server import MessagesServer, call, end, start, text, thinking


async def test_the_vendors_client_accepts_the_fake_server() -> None:
    pieces = [start(7, cache_read_input_tokens=3), thinking(0, "h", "m"), text(1, "Hel", "lo")]
    pieces += [call(2, "toolu_1", "ls", '{"path":', '"x"}'), call(3, "toolu_2", "pwd"), end("tool_use", 5)]
    async with MessagesServer([Reply(pieces)]) as server:
        version = {"anthropic-version": "2023-06-01"}
        asked: list[MessageParam] = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
        async with (
            AsyncAnthropic(base_url=server.root, api_key="k", default_headers=version) as client,
            client.messages.stream(model="m", max_tokens=9, messages=asked) as stream,
        ):
            message = await stream.get_final_message()
    told = [block.to_dict() for block in message.content]
    assert told == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "x"}},
        {"type": "tool_use", "id": "toolu_2", "name": "pwd", "input": {}},
    ]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (7, 3, 5)
