"""Settings: one frozen struct with defaults per object of the configuration file."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from yarrow.config.provider_adapter_table import ADAPTERS
from yarrow.message import ThinkingLevel


class PermissionMode(StrEnum):
    """Permission mode of a session; `auto` comes from a flag or a request, never from a file."""

    AUTO = "auto"
    """Asks only if a rule or the workspace requires it."""
    ASK = "ask"
    """Asks before a call that could change anything outside the workspace."""
    DENY = "deny"
    """Runs only read-only tools, and denies a call instead of asking."""
    PLAN = "plan"
    """Runs only read-only tools; a read outside the workspace is asked."""


if TYPE_CHECKING:
    ProviderType = str
else:
    # Decoding, its error messages and the JSON Schema need the literals; a type checker cannot read them from a table.
    ProviderType = Literal[tuple(ADAPTERS)]


class CompactionSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Compaction of the context: a summary replaces old messages when the window fills up. Sizes are in tokens."""

    enabled: bool = True
    """True to compact automatically when the context exceeds the window."""
    reserve_tokens: int = 2048
    """Tokens of the window reserved for the answer."""
    keep_recent_tokens: int = 8192
    """Minimum tokens of recent messages that stay unchanged."""
    model: str = ""
    """Model of the same provider that writes the summaries; empty for the session's model."""


class ProviderSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Connection to one provider. Times are in seconds; 0 means no limit, and unset means the provider's default."""

    type: ProviderType | None = None
    """Adapter; optional if the provider's id is that of a built-in provider."""
    base_url: str = ""
    """http:// or https:// URL. With OpenAI's formats, its query (`?api-version=...`) is added to each request."""
    api_key_env: str = ""
    """Name of the environment variable with the API key."""
    api_key_command: str = ""
    """Command that prints the API key. User settings only."""
    headers: dict[str, str] = {}
    """Headers of every request."""
    extra_body: dict[str, Any] = {}
    """Merged into the JSON body of every request."""
    context_window: int = 0
    """Context window in tokens; 0 asks the server."""
    max_tokens: int = 0
    """Maximum tokens of an answer; 0 leaves it to the server."""
    temperature: float | None = None
    """Sampling temperature; unset leaves it to the server."""
    thinking_style: Literal["budget", "adaptive"] | None = None
    """For the messages format: how thinking is requested; if unset, it depends on the model."""
    first_byte_timeout: float | None = None
    """Seconds until the first byte of an answer."""
    idle_timeout: float | None = None
    """Seconds between two bytes of an answer."""
    stall_timeout: float | None = None
    """Seconds without content in a streamed answer; 0 means no limit, and unset means five times `idleTimeout`."""
    text_calls: Literal["auto", "on", "off"] = "auto"
    """`on` runs tool calls that the model wrote as text; `auto` does so for servers on this machine or the local
    network, and for any llama.cpp or Ollama server but ollama.com. User settings only.
    """
    chat_template: str = ""
    """For a local model: `yarrow-tools`, a path, or empty for the model's own template."""
    models: tuple[str, ...] = ()
    """For the local provider: paths of GGUF files."""
    script: str = ""
    """For the scripted provider: path of its script."""


BUILT_IN_PROVIDERS: dict[str, ProviderSettings] = {
    adapter.provider or kind: ProviderSettings(type=kind) for kind, adapter in ADAPTERS.items()
}
"""Providers available without configuration, by id; settings for an id are merged over its entry."""


class RetrySettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Retries of a failed model call."""

    attempts: int = 3
    """Maximum retries; 0 disables them."""
    base_delay: float = 2.0
    """Seconds before the first retry; each further delay is twice as long."""


class WorkspaceSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Directories besides the working directory that file tools may access."""

    extra: tuple[str, ...] = ()
    """Directories besides the working directory that file tools may read and write."""
    read: tuple[str, ...] = ()
    """Directories that file tools may read."""
    repository: Literal["write", "read"] = "write"
    """Access of shell commands to the repository around a working directory that is one of its subdirectories. A
    project's file can only set `read`.
    """


class SecretFilesSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Names of files hidden because of their secrets, besides `.env` and its variants; `*` matches any text."""

    more: tuple[str, ...] = ()
    """Additional files to hide, such as `*.pem`."""
    fewer: tuple[str, ...] = ()
    """Variants of `.env` that are not hidden, such as `.env.test`."""


class BashSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Environment and limits of shell commands."""

    pass_environment: tuple[str, ...] = ()
    """Variables passed to commands although their names look like secrets; never one that `apiKeyEnv` names."""
    timeout: float = 120.0
    """Timeout in seconds of a command whose call names none."""


class AllowedCall(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A call that is always allowed: an identical one runs without asking."""

    tool: str
    subject: str
    """Command of bash, directory of a file tool, or arguments of any other tool as JSON."""
    cwd: str
    """Working directory in which it was allowed."""
    uncontained: bool = False
    """For bash: true if allowed outside a sandbox; if false, the call runs without asking only in a sandbox."""


class PermissionSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Permissions of tools. A project's file can only tighten them."""

    mode: Literal["ask", "deny", "plan"] = "ask"
    """Mode of sessions created without one; `auto` is only available as a flag."""
    rules: dict[str, Literal["auto", "ask", "deny"]] = {}
    """Rules by `tool` or `tool(pattern)`, in which `*` matches any text."""
    always: tuple[AllowedCall, ...] = ()
    """Calls that are always allowed. User settings only."""
    timeout: float = 600.0
    """Seconds to wait for an answer, after which the call is denied. User settings only."""


class ServiceSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Limits of one service. User settings only."""

    sessions: int = 4096
    """Maximum sessions in memory. The least recently used is evicted; if all are in use, further ones are rejected."""
    runs: int = 256
    """Maximum concurrent runs in all sessions; further ones are rejected."""
    subscribers: int = 256
    """Maximum event streams of one session; further ones are rejected."""
    queued_texts: int = 64
    """Maximum steers and follow-ups queued in one session; further ones are rejected."""
    queued_characters: int = 8 << 20
    """Maximum characters of these texts together; those beyond it are rejected."""
    connections: int = 4096
    """Maximum connections to one address; further ones are closed. At most the process's open file limit minus 256."""
    idle_seconds: int = 600
    """Seconds after which a connection without calls is closed; clients reconnect on their next call."""
    streams: int = 256
    """Maximum concurrent calls on one connection; further ones wait."""
    message_bytes_in: int = 8 << 20
    """Maximum bytes of a request; larger ones are rejected."""
    message_bytes_out: int = 32 << 20
    """Maximum bytes of a response; larger ones are not sent."""
    metadata_bytes: int = 16 << 10
    """Maximum bytes of a request's metadata; larger ones are rejected."""


class TelemetrySettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Telemetry with OpenTelemetry, set up by the `OTEL_*` variables; it needs the extra `otel`. User settings only."""

    send: Literal["auto", "on", "off"] = "auto"
    """`auto` exports if a variable names an exporter or an endpoint."""
    content: bool = False
    """True to include prompts, answers, and the arguments and results of tools."""


class Price(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Price of a model in US dollars per million tokens."""

    input: float = 0.0
    """Price of input tokens."""
    output: float = 0.0
    """Price of output tokens."""
    cache_read: float | None = None
    """Price of tokens read from the cache; if unset, the same as `input`."""
    cache_write: float | None = None
    """Price of tokens written to the cache; if unset, the same as `input`."""


class Settings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """All settings."""

    provider: str = ""
    """Provider to use; empty for the first found of Ollama, llama.cpp, a key in the environment and a local model."""
    model: str = ""
    """Model to use; if empty, the first one of Ollama, llama.cpp or `local`, or the only one of a compatible server.

    Hosted providers need it.
    """
    thinking: ThinkingLevel = ThinkingLevel.OFF
    """Thinking level of the model."""
    fallback: tuple[str, ...] = ()
    """Models, each as `provider/model`, to try in order in the rest of a run when a model is overloaded, unreachable or
    limits the rate of requests, or its server fails.
    """
    providers: dict[str, ProviderSettings] = {}
    """Providers by id. Never put a key here: name the variable that holds it."""
    compaction: CompactionSettings = CompactionSettings()
    retry: RetrySettings = RetrySettings()
    prices: dict[str, Price] = {}
    """Prices by model name, such as `{"qwen3": {"input": 0.1, "output": 0.4}}`; for other models no cost is shown."""
    dry_run: bool = False
    """True to show what would be done without doing it. A project's file can turn this on but not off."""
    sandbox: Literal["off", "workspace", "strict"] = "workspace"
    """Sandbox of shell commands, where available; `strict` blocks the network and is never skipped. User settings only.
    """
    sandbox_network: Literal["on", "off"] = "on"
    """Network access of shell commands in a sandbox of level `workspace`. User settings only."""
    workspace: WorkspaceSettings = WorkspaceSettings()
    secret_files: SecretFilesSettings = SecretFilesSettings()
    """User settings only."""
    bash: BashSettings = BashSettings()
    permissions: PermissionSettings = PermissionSettings()
    service: ServiceSettings = ServiceSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    session_dir: str = ""
    """Directory of sessions; empty for ~/.yarrow/sessions."""
    sync: Literal["message", "run", "none"] = "message"
    """When writes are synced to disk: after each message, at the end of a run, or never."""
    max_turns: int = 200
    """Maximum turns of a run; 0 means no limit."""
    extensions: tuple[str, ...] = ()
    """Python files that add tools, commands and providers; relative paths start at the user's directory. User settings
    only.
    """
