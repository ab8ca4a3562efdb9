"""The first start: where no model backend was found, a person says which one there is."""

from collections.abc import Mapping

from msgspec import Struct
from prompt_toolkit import PromptSession

from yarrow.client.tui.editor.completion import Choice
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.picker import pick

TITLES = ("No model backend was found. Which one will you use?", "Which model backend?")
_CHOICES = (
    Choice("Ollama", "on this machine: run `ollama serve` and `ollama pull qwen3`"),
    Choice("llama.cpp", "on this machine: run `llama-server -m MODEL.gguf --jinja --port 8080`"),
    Choice("Starter model", "a small one that is fetched now (400 MB) and runs inside Yarrow"),
    Choice("Anthropic", "with a key in ANTHROPIC_API_KEY"),
    Choice("OpenAI", "with a key in OPENAI_API_KEY"),
    Choice("Gemini", "with a key in GEMINI_API_KEY"),
    Choice("Another server", "that speaks OpenAI's chat completions"),
)
_PROVIDERS = {
    "Ollama": "ollama",
    "llama.cpp": "llamacpp",
    "Starter model": "local",
    "Anthropic": "anthropic",
    "OpenAI": "openai",
    "Gemini": "gemini",
}


class Backend(Struct, frozen=True):
    """What is to be configured."""

    provider: str
    """Its id."""
    settings: Mapping[str, str] = {}
    """Of a provider that is not built in, as the configuration file holds them."""
    model: str = ""
    needs_starter: bool = False
    """Whether the starter model is to be fetched."""


async def choose_backend(terminal: Terminal) -> Backend | None:
    """Ask which backend there is; None when the person left."""
    picked = await pick(terminal, TITLES, _CHOICES)
    if picked is None:
        return None
    if picked in _PROVIDERS:
        return Backend(_PROVIDERS[picked], needs_starter=picked == "Starter model")
    try:
        return await _other(PromptSession(input=terminal.input, output=terminal.output))
    except (KeyboardInterrupt, EOFError):
        return None


async def _other(asking: "PromptSession[str]") -> Backend | None:
    address = (await asking.prompt_async("Its address, such as https://llm.example.com/v1: ")).strip()
    if not address:
        return None
    variable = (await asking.prompt_async("The environment variable that holds its key (empty: none): ")).strip()
    model = (await asking.prompt_async("The model: ")).strip()
    settings = {"type": "openai", "baseUrl": address}
    if variable:
        settings["apiKeyEnv"] = variable
    return Backend("other", settings, model)
