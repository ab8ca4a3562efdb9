"""Generator of protocol.md from the comments of the proto and the error table: python scripts/reference.py [FOLDER]."""

import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from yarrow.errors import Code
from yarrow.service.rpc_middleware import DOMAIN, RETRY_SECONDS, STATUS_BY_CODE, UNAUTHENTICATED

ROOT = Path(__file__).parents[1]
PROTO = "yarrow/v1/agent.proto"
MESSAGE, FIELD, ENUM, VALUE, SERVICE, METHOD = 4, 2, 5, 2, 6, 2
"""Field numbers of descriptors, which form the paths of source locations."""
WRAPPED = {"google.protobuf.Timestamp": "https://protobuf.dev/reference/protobuf/google.protobuf/#timestamp"}
INTRODUCTION = """# The protocol

Clients use one service, `{service}`, defined in [`proto/{proto}`](../proto/{proto}). Generate your
client from that file, as the [examples](../examples) do. [Operating](operating.md) describes addresses and the token.
This page is generated from the proto by `make generate`.

- [Calls](#calls): [{methods}
- [Messages](#messages), [enums](#enums), [errors](#errors)
"""
ERRORS = f"""## Errors

A refused call ends with

- a gRPC status and one sentence with the value and what to do;
- in `grpc-status-details-bin`, a `google.rpc.Status` with `google.rpc.ErrorInfo`: the domain `{DOMAIN}`, a reason of
  the table, and for INVALID_ARGUMENT the `field` in its metadata;
- if waiting helps, `google.rpc.RetryInfo` with the delay of the table, or the one that the provider asked for.

A run or a message that fails after it started ends with an [`Error`](#error), whose `code` is one of the same reasons.

| reason | status | retry after | cause |
|---|---|---|---|
"""
MEANINGS: dict[Code, str] = {
    Code.USAGE: "The service was started with an invalid flag, argument or variable.",
    Code.CONFIG: "A setting is invalid, or the working directory was replaced.",
    Code.INVALID_ARGUMENT: "A field of the request is invalid; the metadata names it.",
    Code.SESSION_UNKNOWN: "The session does not exist.",
    Code.SESSION_NOT_ACTIVE: "The session is saved but not in memory; GetState loads it.",
    Code.MODEL_UNKNOWN: "The provider does not have the model.",
    Code.ALREADY_ACCEPTED: "A prompt of this `message_id` was accepted before; follow its run with StreamEvents.",
    Code.BUSY: "The session has an active run; wait for its end or abort it.",
    Code.NOT_RUNNING: "The session has no active run, or its run is being aborted.",
    Code.LOCKED: "Another process writes to the session.",
    Code.NOTHING_TO_COMPACT: "A compaction would not make the context smaller.",
    Code.TOO_LARGE: "A value exceeds its maximum size.",
    Code.TOO_MANY: "A limit of the service was reached.",
    Code.DRAINING: "The service is shutting down; retry once it has restarted.",
    Code.STORAGE: "Reading from or writing to the disk failed.",
    Code.INTERNAL: "A bug in Yarrow; the message contains an id that is also in the log.",
    Code.OVERLOADED: "The provider is overloaded.",
    Code.RATE_LIMIT: "The provider received too many requests; it may report when to retry.",
    Code.QUOTA: "The quota of the account at the provider is used up.",
    Code.SERVER_ERROR: "The provider had an internal error.",
    Code.CONTEXT_OVERFLOW: "The conversation exceeds the model's context window.",
    Code.INVALID_REQUEST: "The provider rejected the request.",
    Code.AUTH: "The provider rejected the API key, or no key is set.",
    Code.NOT_FOUND: "The provider does not know the requested item, or the permission request does not exist.",
    Code.REQUEST_TOO_LARGE: "The request exceeds the provider's maximum size.",
    Code.UNSUPPORTED_PARAMETER: "The model does not support a parameter.",
    Code.UNSUPPORTED_FEATURE: "The model does not support the feature.",
    Code.STREAM_TRUNCATED: "The provider's answer ended too early.",
    Code.STREAM_STALLED: "The provider sent nothing for too long.",
    Code.MALFORMED_RESPONSE: "The provider's answer violates its format.",
    Code.MALFORMED_TOOL_CALL: "The provider could not parse a tool call of its model.",
    Code.UNREACHABLE: "The provider is unreachable.",
    Code.PROVIDER_SETUP: "The provider needs something that is not installed or not configured.",
    Code.EMPTY_RESPONSE: "The model returned nothing.",
    Code.OUTPUT_LIMIT: "The answer was truncated at its maximum of tokens.",
    Code.CONTENT_FILTER: "The provider withheld the answer.",
    Code.ABORTED: "The run was aborted.",
    Code.COMPACTION_INEFFECTIVE: "Compacting did not make the context smaller.",
    Code.LOOP_DETECTED: "The model repeated the same call with the same result.",
    Code.TURN_LIMIT: "The run reached its limit of turns.",
}


class Source:
    """The proto with its comments."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self.file = file
        self._comments = {tuple(one.path): one.leading_comments for one in file.source_code_info.location}
        methods = (method for service in file.service for method in service.method)
        self._names = {one.name for one in (*methods, *file.message_type, *file.enum_type)}

    def paragraphs(self, *path: int) -> str:
        """Return a comment with names linked; indented lines in it are code."""
        text = self._comments.get(path, "").rstrip()
        parts = re.split(r"((?:^ {3,}.*\n?)+)", text, flags=re.MULTILINE)
        prose = [self._linked("\n".join(line.strip() for line in part.split("\n"))).strip("\n") for part in parts[::2]]
        code = [f"```\n{textwrap.dedent(part).rstrip()}\n```" for part in parts[1::2]]
        woven = [part for pair in zip_longest(prose, code, fillvalue="") for part in pair if part]
        return "\n\n".join(woven)

    def sentence(self, *path: int) -> str:
        """Return a comment as one line of a table."""
        words = " ".join(self._comments.get(path, "").split())
        return self._linked(words).replace("|", "\\|")

    def type_of(self, field: FieldDescriptorProto) -> str:
        """Return the type of a field, linked if it is described on the page."""
        full = field.type_name.removeprefix(".")
        short = full.removeprefix(f"{self.file.package}.")
        if not full:
            name = f"`{FieldDescriptorProto.Type.Name(field.type).removeprefix('TYPE_').lower()}`"
        else:
            name = f"[`{short}`]({WRAPPED.get(full, f'#{short.lower()}')})"
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return f"repeated {name}"
        return f"optional {name}" if field.proto3_optional else name

    def _linked(self, text: str) -> str:
        """Return the text with the names of calls, messages and enums linked."""

        def link(found: re.Match[str]) -> str:
            word = found[0]
            return f"[{word}](#{word.lower()})" if word in self._names else word

        # Single words, such as Prompt and Usage, also occur in prose.
        return re.sub(r"\b[A-Z][a-z]+[A-Z]\w+\b", link, text.replace("*", "\\*"))


def page(source: Source) -> str:
    """Return the whole page."""
    (service,) = source.file.service
    methods = ", ".join(f"{name}](#{name.lower()})" for name in (one.name for one in service.method))
    head = INTRODUCTION.format(
        service=f"{source.file.package}.{service.name}", proto=PROTO, methods=methods.replace("), ", "), [")
    )
    messages = (lines for number, one in enumerate(source.file.message_type) for lines in _message(source, one, number))
    enums = (lines for number, one in enumerate(source.file.enum_type) for lines in _enum(source, one, number))
    parts = [head, *_service(source, service), "## Messages\n", *messages, "## Enums\n", *enums, ERRORS + errors()]
    return "\n".join(parts)


def _service(source: Source, service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"## Calls\n\n{source.paragraphs(SERVICE, 0)}\n"
    for number, method in enumerate(service.method):
        asked, given = (one.rpartition(".")[2] for one in (method.input_type, method.output_type))
        takes = f"{'stream of ' if method.client_streaming else ''}[`{asked}`](#{asked.lower()})"
        returns = f"{'stream of ' if method.server_streaming else ''}[`{given}`](#{given.lower()})"
        yield f"### {method.name}\n\n{takes} → {returns}\n\n{source.paragraphs(SERVICE, 0, METHOD, number)}\n"


def _message(source: Source, message: DescriptorProto, number: int) -> Iterator[str]:
    yield f"### {message.name}\n\n{source.paragraphs(MESSAGE, number)}\n"
    if message.field:
        yield "| field | type | number | meaning |\n|---|---|---|---|"
    for index, field in enumerate(message.field):
        choice = field.HasField("oneof_index") and not field.proto3_optional
        one_of = f"one of `{message.oneof_decl[field.oneof_index].name}`: " if choice else ""
        text = source.sentence(MESSAGE, number, FIELD, index)
        yield f"| `{field.name}` | {one_of}{source.type_of(field)} | {field.number} | {text} |"
    if message.field:
        yield ""


def _enum(source: Source, enum: EnumDescriptorProto, number: int) -> Iterator[str]:
    yield f"### {enum.name}\n\n{source.paragraphs(ENUM, number)}\n\n| value | number | meaning |\n|---|---|---|"
    for index, value in enumerate(enum.value):
        yield f"| `{value.name}` | {value.number} | {source.sentence(ENUM, number, VALUE, index)} |"
    yield ""


def errors() -> str:
    """Return the rows of the error table. Raises KeyError for a code without a meaning here."""
    rows = [f"| `{UNAUTHENTICATED}` | UNAUTHENTICATED | | The call does not carry the service's token. |"]
    for code in Code:
        wait = f" {RETRY_SECONDS[code]:g} s" if code in RETRY_SECONDS else ""
        rows.append(f"| `{code.value}` | {STATUS_BY_CODE[code].name} |{wait} | {MEANINGS[code]} |")
    return "\n".join(rows) + "\n"


def read() -> Source:
    """Return the proto as parsed by the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        what = [f"-I{ROOT / 'proto'}", "--include_source_info", f"--descriptor_set_out={out}", PROTO]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *what], check=True)
        (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    return Source(file)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    (folder / "protocol.md").write_text(page(read()), "utf-8")
