"""The vendor's own client reads the answers of our double of its server, and sends what the double accepts."""

from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall, ResponseReasoningItem

from doubles.chat_server import Reply
from doubles.responses_server import (
    ResponsesServer,
    call,
    call_item,
    end,
    message_item,
    reasoning,
    reasoning_item,
    says,
    start,
    text,
    usage,
)

KEY = "nobodys-key"


async def test_the_vendors_client_reads_the_double_and_answers_it() -> None:
    items = [reasoning_item("hm"), message_item("Hello"), call_item("a", "ls", '{"path":"x"}')]
    pieces = [start(), reasoning(0, "hm"), text(1, "Hel", "lo"), call(2, "a", "ls", '{"path":', '"x"}')]
    first = Reply([*pieces, end(output=items, usage=usage(9, 2, cached=4, reasoning=1))])
    async with (
        ResponsesServer([first, says("done")], key=KEY) as server,
        AsyncOpenAI(base_url=f"{server.root}/v1", api_key=KEY) as client,
    ):
        async with client.responses.stream(model="m", input=[{"role": "user", "content": "hi"}], store=False) as stream:
            answer = await stream.get_final_response()
        thought, said, asked = answer.output
        assert isinstance(thought, ResponseReasoningItem)
        assert thought.encrypted_content == "ZW5j"
        assert answer.output_text == "Hello"
        assert isinstance(asked, ResponseFunctionToolCall)
        assert (asked.call_id, asked.name, asked.arguments) == ("a", "ls", '{"path":"x"}')
        assert answer.usage is not None
        assert answer.usage.input_tokens_details.cached_tokens == 4
        last = await client.responses.create(
            model="m",
            store=False,
            stream=True,
            input=[
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "id": thought.id, "summary": [], "encrypted_content": "ZW5j"},
                {"type": "function_call", "id": f"{asked.id}", "call_id": "a", "name": "ls", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "r"},
            ],
        )
        deltas = [event.delta async for event in last if event.type == "response.output_text.delta"]
    assert said.type == "message"
    assert (deltas, server.refused) == (["done"], 0)
