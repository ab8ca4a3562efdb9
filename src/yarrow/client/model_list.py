"""Commands that ask the service one thing and print the answer."""

from yarrow.client.event_json import dumps
from yarrow.client.sanitizer import sanitize
from yarrow.client.sink import Sink
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb


async def print_models(stub: Stub, provider: str, *, json: bool, out: Sink, err: Sink) -> None:
    """Print the models of a provider, of the one in force when it is empty: one name a line, or one object a line.

    An object has `name`, `contextWindow` in tokens (0 is unknown) and `provider`. That there are none is told
    on `err`. Raises `aio.AioRpcError`.
    """
    response = await stub.ListModels(pb.ListModelsRequest(provider=provider))
    if not response.models:
        err.write(f"yarrow: {sanitize(response.provider)} lists no models: name the one you want with -m\n")
    for model in response.models:
        if json:
            entry = {"name": model.name, "contextWindow": model.context_window, "provider": response.provider}
            out.write(dumps(entry) + "\n")
        else:
            out.write(f"{sanitize(model.name)}\n")
    await out.drain()
