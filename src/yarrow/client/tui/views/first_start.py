"""The first start: where no model backend was found, a person says which one there is."""

from collections.abc import Awaitable, Callable, Mapping
from textwrap import wrap

from msgspec import Struct
from msgspec.structs import replace
from prompt_toolkit import PromptSession

from yarrow.client.inert import inert
from yarrow.client.tui.editor.completion import Choice
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.picker import pick

TITLES = ("No model backend was found. Which one will you use?", "Which model backend?")
PROBLEM_ROWS = 5
"""Of what went wrong with the last choice; the rest is cut."""
OTHER = "Another server"
STARTER = "Starter model"
ANYWAY = "All the same"
_CHOICES = (
    Choice("Ollama", "on this machine: run `ollama serve` and `ollama pull qwen3`"),
    Choice("llama.cpp", "on this machine: run `llama-server -m MODEL.gguf --jinja --port 8080`"),
    Choice(STARTER, "a small one that is fetched now ({size}) and runs inside Yarrow"),
    Choice("Anthropic", "with a key in ANTHROPIC_API_KEY"),
    Choice("OpenAI", "with a key in OPENAI_API_KEY"),
    Choice("Gemini", "with a key in GEMINI_API_KEY"),
    Choice(OTHER, "that speaks OpenAI's chat completions"),
)
_PROVIDERS = {
    "Ollama": "ollama",
    "llama.cpp": "llamacpp",
    STARTER: "local",
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
    is_sure: bool = False
    """Whether the person takes it though it was tried and did not work."""


class Doubt(Struct, frozen=True):
    """What speaks against an answer; an empty sentence is nothing."""

    sentence: str = ""
    is_final: bool = False
    """Whether the answer cannot be taken; else it is taken when it is given once more."""


class Asked(Struct, frozen=True):
    """What is asked about a server."""

    question: str
    check: Callable[[str, Mapping[str, str]], Awaitable[Doubt]]
    """Given the answer, and those before it by the keys of the configuration file."""


class FirstStart:
    """Asks which backend there is, as often as it is needed; what was answered is kept."""

    def __init__(self, terminal: Terminal, *, size: str, about: Mapping[str, Asked]) -> None:
        """Take the size of the starter model, and what is asked about a server by the key that it is kept under."""
        self._terminal = terminal
        self._choices = [Choice(one.word, one.help.format(size=size)) for one in _CHOICES]
        self._about = about
        self._answers: dict[str, str] = {}
        self._last: Backend | None = None

    async def choose(self, problem: str = "") -> Backend | None:
        """Ask, and say what was wrong with the last choice; None when the person left."""
        choices = self._choices
        if problem:
            choices = [*choices, Choice(ANYWAY, "take the last one: it is written down, for when it works")]
        while True:
            columns = max(self._terminal.output.get_size().columns - 1, 1)
            above = wrap(inert(problem), columns)[:PROBLEM_ROWS]
            picked = await pick(self._terminal, TITLES, choices, above=above)
            if picked == ANYWAY and self._last is not None:
                return replace(self._last, is_sure=True)
            backend = await self._other() if picked == OTHER else _built_in(picked)
            if backend is not None or picked is None:
                self._last = backend
                return backend

    async def _other(self) -> Backend | None:
        asking: PromptSession[str] = PromptSession(input=self._terminal.input, output=self._terminal.output)
        try:
            for key, asked in self._about.items():
                await self._ask(asking, key, asked)
        except (KeyboardInterrupt, EOFError):
            return None
        settings = {key: text for key, text in self._answers.items() if text and key != "model"}
        return Backend("other", {"type": "openai", **settings}, self._answers["model"])

    async def _ask(self, asking: "PromptSession[str]", key: str, asked: Asked) -> None:
        doubted = None
        while True:
            answer = (await asking.prompt_async(asked.question, default=self._answers.get(key, ""))).strip()
            self._answers[key] = answer
            if answer == doubted:
                return
            doubt = await asked.check(answer, self._answers)
            if not doubt.sentence:
                return
            doubted = None if doubt.is_final else answer
            self._terminal.output.write(inert(doubt.sentence) + "; Enter takes it all the same" * (not doubt.is_final))
            self._terminal.output.write_raw("\r\n")
            self._terminal.output.flush()


def _built_in(picked: str | None) -> Backend | None:
    return Backend(_PROVIDERS[picked], needs_starter=picked == STARTER) if picked else None
