"""Calls that the user allowed to run without asking: a numbered list, and revoking by number."""

from collections.abc import Sequence

from yarrow.client.command import WrongWords
from yarrow.client.permission import short_path, visible
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

LONGEST = 200
"""Maximum characters of a call in the list; the rest is cut."""
MOST_DIGITS = 9
"""Maximum digits of a number in the list."""
NOTHING = "No calls are allowed beyond what the mode and the rules allow."


async def allowed(stub: Stub, words: Sequence[str], *, session_id: str = "") -> str:
    """Return the calls that are allowed, or the one that was revoked. Raises `WrongWords` and `aio.AioRpcError`."""
    number = revoked_number(words)
    if number is None:
        return listing(await stub.ListPermissions(pb.ListPermissionsRequest(session_id=session_id)))
    return f"Revoked {described(await revoke(stub, number, session_id=session_id))}"


def revoked_number(words: Sequence[str]) -> str | None:
    """Return the number that `revoke` is given, None when the words ask for the list. Raises `WrongWords`."""
    match tuple(words):
        case () | ("list",):
            return None
        case ("revoke", number):
            return number
        case ("revoke",):
            raise WrongWords("revoke needs the number of a call: list shows the numbers")
        case _:
            raise WrongWords(f"{' '.join(words)!r} is not `list` or `revoke N`")


async def revoke(stub: Stub, number: str, *, session_id: str = "") -> pb.AllowedCall:
    """Revoke the call with a number of the list, and return it. Raises `WrongWords` and `aio.AioRpcError`."""
    calls = (await stub.ListPermissions(pb.ListPermissionsRequest(session_id=session_id))).calls
    is_number = number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS
    if not (is_number and 1 <= int(number) <= len(calls)):
        there = f"list shows 1 to {len(calls)}" if calls else "no call is allowed"
        raise WrongWords(f"{visible(number[:LONGEST])!r} is not the number of an allowed call: {there}")
    call = calls[int(number) - 1]
    await stub.RevokePermission(pb.RevokePermissionRequest(session_id=session_id, call=call))
    return call


def listing(listed: pb.ListPermissionsResponse) -> str:
    """Return the calls with their numbers, those that are always allowed first, below the file that stores them."""
    if not listed.calls:
        return NOTHING
    lines: list[str] = []
    stored = short_path(visible(listed.file)) or "the settings of the service"
    for number, call in enumerate(listed.calls, 1):
        title = f"Always allowed (in {stored}):" if call.always else "Allowed for this session:"
        lines += [] if title in lines else [title]
        lines.append(f"{number:>4}  {described(call)}")
    return "\n".join(lines)


def described(call: pb.AllowedCall) -> str:
    """Return a call on one line."""
    text = call.subject.strip()
    subject = visible(" ".join(text[: 8 * LONGEST].split()))
    if len(subject) > LONGEST or len(text) > 8 * LONGEST:
        subject = f"{subject[: LONGEST - 1]}…"
    outside = ", outside the sandbox" if call.uncontained else ""
    return f"{visible(call.tool)}: {subject} (in {short_path(visible(call.cwd))}{outside})"
