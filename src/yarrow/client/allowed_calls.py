"""Calls that the user allowed to run without asking: a numbered list, and revoking by number."""

from collections.abc import Sequence

from yarrow.client.permission_texts import reveal, shorten_path
from yarrow.client.slash_command import CommandError
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

MAX_CALL_CHARACTERS = 200
"""Maximum characters of a call in the list; the rest is cut."""
MAX_DIGITS = 9
"""Maximum digits of a number in the list."""
NO_CALLS = "No calls are allowed beyond what the mode and the rules allow."


async def list_or_revoke(stub: Stub, words: Sequence[str], *, session_id: str = "") -> str:
    """Return the calls that are allowed, or the one that was revoked. Raises `CommandError` and `aio.AioRpcError`."""
    number = parse_words(words)
    if number is None:
        return format_calls(await stub.ListPermissions(pb.ListPermissionsRequest(session_id=session_id)))
    return f"Revoked {format_call(await revoke(stub, number, session_id=session_id))}"


def parse_words(words: Sequence[str]) -> str | None:
    """Return the number that `revoke` is given, None when the words ask for the list. Raises `CommandError`."""
    match tuple(words):
        case () | ("list",):
            return None
        case ("revoke", number):
            return number
        case ("revoke",):
            raise CommandError("revoke needs the number of a call: list shows the numbers")
        case _:
            raise CommandError(f"{' '.join(words)!r} is not `list` or `revoke N`")


async def revoke(stub: Stub, number: str, *, session_id: str = "") -> pb.AllowedCall:
    """Revoke the call with a number of the list, and return it. Raises `CommandError` and `aio.AioRpcError`."""
    calls = (await stub.ListPermissions(pb.ListPermissionsRequest(session_id=session_id))).calls
    is_number = number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS
    if not (is_number and 1 <= int(number) <= len(calls)):
        there = f"list shows 1 to {len(calls)}" if calls else "no call is allowed"
        raise CommandError(f"{reveal(number[:MAX_CALL_CHARACTERS])!r} is not the number of an allowed call: {there}")
    call = calls[int(number) - 1]
    await stub.RevokePermission(pb.RevokePermissionRequest(session_id=session_id, call=call))
    return call


def format_calls(listed: pb.ListPermissionsResponse) -> str:
    """Return the calls with their numbers, those that are always allowed first, below the file that stores them."""
    if not listed.calls:
        return NO_CALLS
    lines: list[str] = []
    stored = shorten_path(reveal(listed.file)) or "the settings of the service"
    for number, call in enumerate(listed.calls, 1):
        title = f"Always allowed (in {stored}):" if call.always else "Allowed for this session:"
        lines += [] if title in lines else [title]
        lines.append(f"{number:>4}  {format_call(call)}")
    return "\n".join(lines)


def format_call(call: pb.AllowedCall) -> str:
    """Return a call on one line."""
    text = call.subject.strip()
    subject = reveal(" ".join(text[: 8 * MAX_CALL_CHARACTERS].split()))
    if len(subject) > MAX_CALL_CHARACTERS or len(text) > 8 * MAX_CALL_CHARACTERS:
        subject = f"{subject[: MAX_CALL_CHARACTERS - 1]}…"
    outside = ", outside the sandbox" if call.uncontained else ""
    return f"{reveal(call.tool)}: {subject} (in {shorten_path(reveal(call.cwd))}{outside})"
