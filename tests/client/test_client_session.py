"""Finding and making the session of a prompt, and what refusals say."""

import grpc
import pytest
from client.fake_service import FakeService, connected
from google.rpc import error_details_pb2, status_pb2

from yarrow.client.rpc_errors import RpcFailure, SessionNotFound, parse_rpc_error
from yarrow.client.session_lookup import SessionInfo, find_newest_session, find_session, make_session, open_session
from yarrow.v1 import agent_pb2 as pb


async def test_a_session_is_created_with_the_prompts_settings() -> None:
    service = FakeService()
    service.state.provider.name, service.state.provider.model = "ollama", "qwen"
    service.state.provider_reason = "it was running"
    service.state.message_count = 3
    service.state.warnings.append("1 line was skipped")
    settings = pb.SessionSettings(model="qwen", dry_run=False)
    prompt = pb.PromptRequest(session_id="x", cwd="/w", settings=settings, options=pb.PromptOptions(ephemeral=True))
    async with connected(service) as stub:
        session = await make_session(stub, prompt)
    assert service.requests == [
        pb.NewSessionRequest(session_id="x", cwd="/w", settings=settings, ephemeral=True),
        pb.GetStateRequest(session_id="s1"),
    ]
    assert session == SessionInfo(
        session_id="s1",
        cwd="/work",
        provider="ollama",
        model="qwen",
        version="9.9",
        message_count=3,
        provider_reason="it was running",
        warnings=("1 line was skipped",),
        settings=service.state.settings,
    )


async def test_a_provider_that_is_not_created_yet_is_named_by_its_setting() -> None:
    service = FakeService()
    service.state.settings.provider, service.state.settings.model = "openai", "gpt"
    async with connected(service) as stub:
        session = await make_session(stub, pb.PromptRequest())
    assert (session.provider, session.model) == ("openai", "gpt")


async def test_an_existing_session_is_opened_and_configured() -> None:
    service = FakeService()
    async with connected(service) as stub:
        session = await open_session(stub, "s1", pb.SessionSettings(model="new", dry_run=False))
        untouched = await open_session(stub, "s1", pb.SessionSettings())
    assert session.model == untouched.model == "new"
    asked = pb.ConfigureSessionRequest(session_id="s1", settings=pb.SessionSettings(model="new", dry_run=False))
    assert [each for each in service.requests if isinstance(each, pb.ConfigureSessionRequest)] == [asked]


async def test_an_unknown_session_is_not_created() -> None:
    service = FakeService()
    async with connected(service) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await open_session(stub, "unknown", pb.SessionSettings(model="new"))
    assert parse_rpc_error(caught.value) == RpcFailure("no such session", "NOT_FOUND", "SESSION_UNKNOWN")
    assert service.requests == [pb.GetStateRequest(session_id="unknown")]


async def test_the_latest_session_of_a_directory_is_found() -> None:
    service = FakeService()
    service.sessions = [pb.SessionSummary(session_id="b"), pb.SessionSummary(session_id="a")]
    async with connected(service) as stub:
        assert await find_newest_session(stub, "/work") == "b"
        assert service.requests[-1] == pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd="/work", limit=50)
        service.sessions[1].title = "said something"
        assert await find_newest_session(stub, "/work") == "a"
        service.sessions[0].name = "named"
        assert await find_newest_session(stub, "/work") == "b"
        service.sessions = []
        with pytest.raises(SessionNotFound, match="no session to continue in /work") as caught:
            await find_newest_session(stub, "/work")
    assert caught.value.failure.reason == "SESSION_UNKNOWN"


async def test_session_names_are_resolved_by_the_service() -> None:
    service = FakeService()
    async with connected(service) as stub:
        assert await find_session(stub, "s1") == "s1"
    assert service.requests == [pb.GetStateRequest(session_id="s1")]


async def test_resolving_a_session_hides_no_other_error() -> None:
    service = FakeService()
    service.refused, service.refusal = {"GetState"}, (grpc.StatusCode.FAILED_PRECONDITION, "held by 7", "LOCKED")
    async with connected(service) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await find_session(stub, "s1")
    assert parse_rpc_error(caught.value) == RpcFailure("held by 7", "FAILED_PRECONDITION", "LOCKED")
    assert service.requests == [pb.GetStateRequest(session_id="s1")]


# ---- refusals ----


def details(domain: str) -> bytes:
    status = status_pb2.Status()
    status.details.add().Pack(error_details_pb2.RetryInfo())
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="R", domain=domain))
    return status.SerializeToString()


class Context:
    """A service that refuses with whatever a test wants."""

    def __init__(self, details: str, *metadata: tuple[str, bytes | str]) -> None:
        self.error = grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details
        )


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (Context("connection refused"), RpcFailure("connection refused", "UNAVAILABLE")),
        (Context(""), RpcFailure("the service returned UNAVAILABLE", "UNAVAILABLE")),
        (Context("x", ("grpc-status-details-bin", b"\xff\xff")), RpcFailure("x", "UNAVAILABLE")),
        (Context("x", ("grpc-status-details-bin", b"")), RpcFailure("x", "UNAVAILABLE")),
        (Context("x", ("grpc-status-details-bin", details("elsewhere"))), RpcFailure("x", "UNAVAILABLE")),
        (
            Context("x", ("other", "y"), ("grpc-status-details-bin", details("yarrow"))),
            RpcFailure("x", "UNAVAILABLE", "R"),
        ),
    ],
)
def test_errors_of_the_service_are_parsed(context: Context, expected: RpcFailure) -> None:
    assert parse_rpc_error(context.error) == expected
