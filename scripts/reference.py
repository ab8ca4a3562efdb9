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
from yarrow.service.grpc_status import DOMAIN, RETRY_SECONDS, STATUS_BY_CODE, UNAUTHENTICATED

ROOT = Path(__file__).parents[1]
PROTO = "yarrow/v1/agent.proto"
MESSAGE, FIELD, ENUM, VALUE, SERVICE, METHOD = 4, 2, 5, 2, 6, 2
"""Field numbers of descriptors, which form the paths of source locations."""
WRAPPED = {"google.protobuf.Timestamp": "https://protobuf.dev/reference/protobuf/google.protobuf/#timestamp"}
INTRODUCTION = """# The protocol

Everything a client can ask is one service, `{service}`, defined in
[`proto/{proto}`](../proto/{proto}); any program can make its code from that file, as the
[examples](../examples) do. This page is made from it by `make generate`. How a service is reached and what a call must
carry is in [Operating](operating.md).

- [Calls](#calls): [{methods}
- [Messages](#messages), [enums](#enums), [errors](#errors)
"""
ERRORS = f"""## Errors

A call that is refused ends with a status, one sentence that names the value and what to do, and in
`grpc-status-details-bin` a `google.rpc.Status` whose details are `google.rpc.ErrorInfo` (domain `{DOMAIN}`, the reason
below; of INVALID_ARGUMENT the `field` in the metadata) and, where waiting helps, `google.rpc.RetryInfo`. The same words
are the `code` of an [`Error`](#error), with which a run or a message ends after it began.

| reason | status | try again after | meaning |
|---|---|---|---|
"""
MEANINGS: dict[Code, str] = {
    Code.USAGE: "A value of the service's own command line or environment is wrong.",
    Code.CONFIG: "A setting is wrong or does not fit, or the working directory is not what it was.",
    Code.INVALID_ARGUMENT: "A field of the request is wrong.",
    Code.SESSION_UNKNOWN: "There is no such session.",
    Code.SESSION_NOT_ACTIVE: "The session is saved but not in memory; GetState loads it.",
    Code.MODEL_UNKNOWN: "The provider has no such model.",
    Code.ALREADY_ACCEPTED: "A prompt of this `message_id` was accepted before; follow its run with StreamEvents.",
    Code.BUSY: "The session runs; wait for its end or abort it.",
    Code.NOT_RUNNING: "The session does not run, or its run is being aborted.",
    Code.LOCKED: "Another process writes to the session.",
    Code.NOTHING_TO_COMPACT: "The context is as small as a compaction would make it.",
    Code.TOO_LARGE: "Something is larger than it may be.",
    Code.TOO_MANY: "A limit of the service is reached.",
    Code.DRAINING: "The service is ending.",
    Code.STORAGE: "The disk refused to read or write.",
    Code.INTERNAL: "A mistake in Yarrow; the sentence names an id that is also in the log.",
    Code.OVERLOADED: "The provider is overloaded.",
    Code.RATE_LIMIT: "The provider wants fewer requests; it may say from when on.",
    Code.QUOTA: "The account at the provider has nothing left.",
    Code.SERVER_ERROR: "The provider failed.",
    Code.CONTEXT_OVERFLOW: "The conversation does not fit the model's window.",
    Code.INVALID_REQUEST: "The provider does not take the request.",
    Code.AUTH: "The provider does not take the key, or there is none.",
    Code.NOT_FOUND: "The provider does not have what was asked for, or no such permission request exists.",
    Code.REQUEST_TOO_LARGE: "The request is larger than the provider takes.",
    Code.UNSUPPORTED_PARAMETER: "The model does not take a parameter.",
    Code.UNSUPPORTED_FEATURE: "The model cannot do that.",
    Code.STREAM_TRUNCATED: "The provider's answer broke off.",
    Code.STREAM_STALLED: "The provider was silent for too long.",
    Code.MALFORMED_RESPONSE: "The provider's answer is not of its format.",
    Code.MALFORMED_TOOL_CALL: "The provider could not read the call that its model wrote.",
    Code.UNREACHABLE: "The provider cannot be reached.",
    Code.PROVIDER_SETUP: "Something that the provider needs is not installed or not configured.",
    Code.EMPTY_RESPONSE: "The model said nothing.",
    Code.OUTPUT_LIMIT: "The answer was cut at the most tokens that the model writes.",
    Code.CONTENT_FILTER: "The provider withheld the answer.",
    Code.ABORTED: "Somebody aborted it.",
    Code.COMPACTION_INEFFECTIVE: "Compacting did not make the context smaller.",
    Code.LOOP_DETECTED: "The model repeated one call with one result.",
    Code.TURN_LIMIT: "The run used up its turns.",
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
        yield "| field | type | number | |\n|---|---|---|---|"
    for index, field in enumerate(message.field):
        choice = field.HasField("oneof_index") and not field.proto3_optional
        one_of = f"one of `{message.oneof_decl[field.oneof_index].name}`: " if choice else ""
        text = source.sentence(MESSAGE, number, FIELD, index)
        yield f"| `{field.name}` | {one_of}{source.type_of(field)} | {field.number} | {text} |"
    if message.field:
        yield ""


def _enum(source: Source, enum: EnumDescriptorProto, number: int) -> Iterator[str]:
    yield f"### {enum.name}\n\n{source.paragraphs(ENUM, number)}\n\n| value | number | |\n|---|---|---|"
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
