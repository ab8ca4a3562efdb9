"""Client that prompts a local Yarrow service and prints the answer: python client.py "the prompt" [SESSION]."""

import os
import sys
from pathlib import Path

import grpc

from yarrow.v1.agent_pb2 import GetStateRequest, PromptRequest
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

if len(sys.argv) not in (2, 3):
    sys.exit('usage: python client.py "the prompt" [SESSION]')
SOCKET = Path(os.environ.get("YARROW_SOCKET", Path.home() / ".yarrow" / "run" / "yarrow.sock"))
TOKEN = Path(f"{SOCKET}.token")
if not TOKEN.exists():
    sys.exit(f"token file {TOKEN} not found: start yarrow serve, or set YARROW_SOCKET to its socket")
metadata = (("authorization", f"Bearer {TOKEN.read_text().strip()}"),)
with grpc.insecure_channel(f"unix:{SOCKET}") as channel:
    service, session = AgentServiceStub(channel), "".join(sys.argv[2:])
    try:
        if session:  # Prompt would create a session that does not exist; fail instead
            service.GetState(GetStateRequest(session_id=session), metadata=metadata)
        request = PromptRequest(text=sys.argv[1], session_id=session, cwd=str(Path.cwd()))
        for response in service.Prompt(request, metadata=metadata):
            event = response.event
            print(event.text_delta.text or "\n" * event.HasField("message_end"), end="", flush=True)
            if event.HasField("agent_end"):
                print(f"session {event.session_id}, {event.agent_end}", file=sys.stderr)
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
