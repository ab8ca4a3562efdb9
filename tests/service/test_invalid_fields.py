"""Any value of a request's field is answered, never by a bug, and a rejection has its reason."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from doubles.house import House, reason_of, stub_of
from doubles.reached import METHODS, request_of
from yarrow.v1 import agent_pb2 as pb

S = grpc.StatusCode
TEXTS = ("\0", "../../etc/passwd", "/", "a\nb", "\u202e\ufeff", "x" * 70_000, "\U0010ffff", "-1", '{"a":', "[]", "~")
WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: ((1 << 32) - 1,),
    FieldDescriptor.CPPTYPE_UINT64: ((1 << 64) - 1,),
    FieldDescriptor.CPPTYPE_ENUM: (99, -1),
    FieldDescriptor.CPPTYPE_BOOL: (True,),
    FieldDescriptor.CPPTYPE_DOUBLE: (float("nan"), float("inf"), -1.0),
}
BUGS = (S.INTERNAL, S.UNKNOWN, S.UNIMPLEMENTED, S.DATA_LOSS, S.DEADLINE_EXCEEDED)


def values(field: Any) -> tuple[Any, ...]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return (b"\xff\x00", b"x" * 70_000) if field.type == FieldDescriptor.TYPE_BYTES else TEXTS
    return WHOLE[field.cpp_type]


def odd(message: Message) -> Iterator[tuple[str, Message]]:
    """Each request that differs from this one in a single field, with its name; also within fields."""
    fields: Any = message.DESCRIPTOR.fields
    for field in fields:
        nested = field.message_type is not None
        made = [one for _, one in odd(field.message_type._concrete_class())] if nested else values(field)
        for value in made:
            changed = type(message)()
            changed.CopyFrom(message)
            if field.is_repeated:
                getattr(changed, field.name).extend([value] * 3)
            elif nested:
                getattr(changed, field.name).CopyFrom(value)
            else:
                setattr(changed, field.name, value)
            yield field.name, changed


async def answered(stub: Any, name: str, request: Message) -> grpc.aio.AioRpcError | None:
    """Make a call and return how it was refused; a stream that goes on is left."""
    method = METHODS[name]
    call = getattr(stub, name)(iter([request]) if method.client_streaming else request)
    try:
        if not method.server_streaming:
            await call
        elif name != "StreamEvents":
            await call.read()
        call.cancel()
    except grpc.aio.AioRpcError as error:
        return error
    return None


@pytest.mark.parametrize("name", sorted(METHODS))
async def test_any_value_of_any_field_is_answered(house: House, name: str) -> None:
    async with stub_of(house) as stub:
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        usual = request_of(METHODS[name], session_id=session, text="hi", cwd=str(house.cwd), tool="echo")
        for field, request in odd(usual):
            error = await answered(stub, name, request)
            if error is not None:
                assert error.code() not in BUGS, (field, error.details())
                assert reason_of(error), (field, error.details())
                assert len(error.details() or "") < 8_000, field
            await stub.Abort(pb.AbortRequest(session_id=session)) if name in ("Prompt", "RunTool") else None
        await stub.GetState(pb.GetStateRequest(session_id=(await stub.NewSession(pb.NewSessionRequest())).session_id))


@pytest.fixture
def house(tmp_path: Any) -> House:
    return House(tmp_path, [[{"text": "x"}]] * 3_000)
