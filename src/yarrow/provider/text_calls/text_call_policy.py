"""Treatment of calls that a server left in the text of an answer: by the setting, and by who runs the server."""

from msgspec import Struct

from yarrow.config.settings import ProviderSettings
from yarrow.provider.text_calls.notations import SERVER_PARSERS


class TextCallPolicy(Struct, frozen=True):
    """Treatment of calls in the text of one server's answers."""

    provider: str
    runs: bool
    """A call that qualifies runs; otherwise the text stays, and a notice says so."""
    watches: bool = True
    """A notice reports an answer that looks like a call and is not run."""


def make_policy(provider: str, settings: ProviderSettings, *, local: bool) -> TextCallPolicy:
    """Return the policy for a server, which by default depends on whether the user runs it."""
    mode = settings.text_calls
    return TextCallPolicy(provider, runs=mode == "on" or (mode == "auto" and local), watches=mode != "off")


def describe_unparsed_call(policy: TextCallPolicy, notation: str, reason: str) -> str:
    """Return the sentence for the user about a call that was not run."""
    parser = f" --tool-call-parser {SERVER_PARSERS[notation]}" if notation in SERVER_PARSERS else ""
    named = f" ({notation} notation)" if notation else ""
    elsewhere = "" if policy.runs else f', or set providers.{policy.provider}.textCalls to "on"'
    return (
        f"{policy.provider} sent a tool call as text{named} that was not run, because {reason}: make the server parse "
        f"it (llama-server --jinja, vLLM --enable-auto-tool-choice{parser}){elsewhere}"
    )
