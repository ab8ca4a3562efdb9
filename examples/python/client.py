"""Prompts a Yarrow service on this machine and prints what it answers: python client.py "the prompt" [SESSION]."""

import os
import sys
from pathlib import Path

import grpc

from yarrow.v1.agent_pb2 import PromptRequest
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

SOCKET = Path(os.environ.get("YARROW_SOCKET", Path.home() / ".yarrow" / "run" / "yarrow.sock"))
token = Path(f"{SOCKET}.token").read_text().strip()
with grpc.insecure_channel(f"unix:{SOCKET}") as channel:
    request = PromptRequest(text=sys.argv[1], session_id="".join(sys.argv[2:]), cwd=str(Path.cwd()))
    for response in AgentServiceStub(channel).Prompt(request, metadata=(("authorization", f"Bearer {token}"),)):
        event = response.event
        print(event.text_delta.text or "\n" * event.HasField("message_end"), end="", flush=True)
        if event.HasField("agent_end"):
            print(f"session {event.session_id}, {event.agent_end}", file=sys.stderr)
