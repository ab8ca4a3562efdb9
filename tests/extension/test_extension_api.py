"""Registration: what is wrong is refused at once, in a sentence that says what is right."""

from collections.abc import AsyncGenerator, Callable
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from extending import Say, Shout, extended
from msgspec import Meta, Struct

from yarrow.extension.api import Yarrow
from yarrow.tool.base import Access


def attempt(register: Callable[[Yarrow], None]) -> str:
    """The sentence with which a registration is refused."""
    with pytest.raises((TypeError, ValueError)) as caught:
        register(Yarrow("mine"))
    return str(caught.value)


def payload_only(payload: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("name", "function", "told"),
    [
        ("ModifyInptu", payload_only, "did you mean ModifyInput?"),
        ("x", payload_only, "use one of SessionStart, "),
        (5, payload_only, "unknown hook 5"),
        ("ModifyInput", "text", "must be a function, not str"),
        ("ModifyInput", lambda: None, "must accept (payload) or (payload, about)"),
        ("ModifyInput", lambda a, b, c: None, "must accept (payload) or (payload, about)"),
    ],
)
def test_a_hook_has_a_known_name_and_a_function(name: Any, function: Any, told: str) -> None:
    assert told in attempt(lambda yarrow: yarrow.hook(name, function))


@pytest.mark.parametrize(
    ("access", "told"),
    [
        ("file", "must be a yarrow.tool.base.Access"),
        (Access.file("where"), "the unknown argument 'where'; the arguments are text"),
    ],
)
def test_a_tool_declares_its_access_by_its_own_arguments(access: Any, told: str) -> None:
    shout = Shout()
    shout.access = access  # type: ignore[attr-defined]
    assert told in attempt(lambda yarrow: yarrow.tool(shout))


class Odd(Struct, forbid_unknown_fields=True):
    """Runs code when it is made."""

    text: str = ""

    def __post_init__(self) -> None:
        raise SystemExit


class Endless(Struct, forbid_unknown_fields=True):
    """Refers to itself."""

    inner: "Endless | None" = None


class Colour(Enum):
    """Runs code when a value is unknown."""

    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise SystemExit


def structure(*fields: Any, **settings: Any) -> type[Struct]:
    return msgspec.defstruct("Made", fields, **{"forbid_unknown_fields": True, **settings})


def made_by_code() -> list[int]:
    raise SystemExit


def no_generator(*_: Any) -> None: ...


async def no_yield(*_: Any) -> None: ...


async def too_few(self: Any) -> AsyncGenerator[Any]:
    yield self


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"name": "no good"}, "name must be up to 64 letters, digits"),
        ({"name": "x" * 65}, "name must be up to 64 letters, digits"),
        ({"name": "1x"}, "not starting with a digit"),
        ({"name": "x\n"}, "name must be up to 64 letters, digits"),
        ({"name": None}, "name must be up to 64 letters, digits"),
        ({"read_only": 1}, "needs read_only"),
        ({"arguments": dict}, "subclass of msgspec.Struct"),
        ({"arguments": None}, "subclass of msgspec.Struct"),
        ({"arguments": structure("text", forbid_unknown_fields=False)}, "forbid_unknown_fields=True"),
        ({"arguments": structure("text", array_like=True)}, "must be a JSON object"),
        ({"arguments": structure(("text", complex))}, "complex"),
        ({"arguments": Endless}, "refers to itself"),
        ({"arguments": Odd}, "__post_init__ in Odd"),
        ({"arguments": structure(("inner", list[Odd | None]))}, "__post_init__ in Odd"),
        ({"arguments": structure(("colour", dict[str, Colour]))}, "_missing_ in Colour"),
        ({"arguments": structure(("x", list[int], msgspec.field(default_factory=made_by_code)))}, "default_factory"),
        ({"run": no_generator}, "async def run(self, arguments, context)"),
        ({"run": no_yield}, "async def run(self, arguments, context)"),
        ({"run": too_few}, "async def run(self, arguments, context)"),
        ({"preview": no_generator}, "async def preview"),
        ({"__doc__": " "}, "needs a docstring"),
        ({"__doc__": None}, "needs a docstring"),
    ],
)
def test_a_tool_must_have_the_interface_of_a_tool(attributes: dict[str, Any], told: str) -> None:
    tool = type("Tool", (Shout,), {"__doc__": "Does.", **attributes})()
    assert told in attempt(lambda yarrow: yarrow.tool(tool))


def test_arbitrary_objects_are_not_tools() -> None:
    assert "name must be up to 64 letters" in attempt(lambda yarrow: yarrow.tool(object()))  # pyright: ignore[reportArgumentType]


class Rich(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that arguments may be made of."""

    kind: Literal["a", "b"]
    count: Annotated[int, Meta(ge=1)]
    inner: Say | None = None
    names: list[str] = []
    map: dict[str, Annotated[str, Meta(max_length=3)]] = {}


async def test_arguments_may_be_any_plain_data() -> None:
    tool = type("Tool", (Shout,), {"__doc__": "Does.", "arguments": Rich})()
    async with extended(lambda yarrow: yarrow.tool(tool)) as added:
        assert [offered.arguments for offered in added.tools] == [Rich]
        assert not added.warnings


@pytest.mark.parametrize(
    ("register", "told"),
    [
        (lambda y: y.command("/x", lambda a, b: a), "not starting with a digit"),
        (lambda y: y.command(None, lambda a, b: a), "name: letters"),
        (lambda y: y.command("x", None), "must be a function, not NoneType"),
        (lambda y: y.command("x", lambda a: a), "must accept (arguments, cwd)"),
        (lambda y: y.command("x", lambda a, b: a, None), "must be a str"),
        (lambda y: y.provider("a:b", lambda plan: plan), "letters, digits, _, - and dots"),
        (lambda y: y.provider("", lambda plan: plan), "letters, digits, _, - and dots"),
        (lambda y: y.provider("x", 1), "must be a function, not int"),
        (lambda y: y.provider("x", lambda: None), "must accept (plan)"),
    ],
)
def test_commands_and_providers_have_names_and_functions(register: Any, told: str) -> None:
    assert told in attempt(register)


def test_registrations_are_rejected_after_the_end_or_beyond_the_limit() -> None:
    yarrow = Yarrow("mine")
    for _ in range(1000):
        yarrow.hook("ModifyInput", payload_only)
    with pytest.raises(ValueError, match="at most 1,000"):
        yarrow.hook("ModifyInput", payload_only)
    assert len(yarrow.finish()) == 1000
    with pytest.raises(ValueError, match="too late"):
        yarrow.command("x", lambda arguments, _: arguments)
