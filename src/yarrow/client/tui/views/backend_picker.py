"""First start: lets the user choose a model backend when none was found."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from textwrap import wrap

from msgspec import Struct
from msgspec.structs import replace
from prompt_toolkit import PromptSession

from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.client.tui.editor.completion import CompletionItem
from yarrow.client.tui.live_screen import Terminal
from yarrow.client.tui.views.list_view import pick

TITLES = (
    "Welcome to Yarrow. No model is set up yet. Where should answers come from?",
    "Where should answers come from?",
)
CHOICE_TITLES = ("Choose a model of this server", "Choose a model")
MAX_PROBLEM_ROWS = 5
"""Maximum rows of the problem with the last choice; the rest is truncated."""
OTHER_SERVER = "Other OpenAI-compatible server"
STARTER_MODEL = "Starter model"
TAKE_ANYWAY = "Save it anyway"
_LOCAL_PROVIDERS = {"Ollama": "ollama", "llama.cpp": "llamacpp", STARTER_MODEL: "local"}


class BackendChoice(Struct, frozen=True):
    """Backend to configure."""

    provider: str
    """Id of the provider."""
    settings: Mapping[str, str] = {}
    """Settings of a provider that is not built in, as in the configuration file."""
    model: str = ""
    needs_starter: bool = False
    """True if the starter model must be downloaded."""
    is_sure: bool = False
    """True if the user accepts the backend although it was tried and did not work."""


class HostedBackend(Struct, frozen=True):
    """Hosted server that needs a key."""

    title: str
    provider: str
    """Id of the provider."""
    variable: str
    """Environment variable with the key."""
    extra: str = ""
    """Extra of Yarrow's package that it requires."""


class AnswerProblem(Struct, frozen=True):
    """Problem with an answer; an empty sentence means that there is none."""

    sentence: str = ""
    is_final: bool = False
    """True if the answer cannot be accepted; otherwise entering it again accepts it."""
    choices: Sequence[str] = ()
    """Answers to choose from in place of an empty one; a single one is taken."""


class BackendQuestion(Struct, frozen=True):
    """Question about a server."""

    question: str
    check: Callable[[str, Mapping[str, str]], Awaitable[AnswerProblem]]
    """Returns the problem with an answer; also receives the answers so far, by key of the configuration file."""


class BackendPicker:
    """Asks for a backend, as often as needed; earlier answers are kept."""

    def __init__(
        self,
        terminal: Terminal,
        *,
        size: str,
        hosted: Sequence[HostedBackend],
        questions: Mapping[str, BackendQuestion],
    ) -> None:
        """`size` is that of the starter model; `questions` about a server are by key of the configuration file."""
        self._terminal = terminal
        self._choices = [
            CompletionItem("Ollama", "on this machine; first run `ollama serve` and `ollama pull qwen3`"),
            CompletionItem("llama.cpp", "on this machine; first run `llama-server -m MODEL.gguf --jinja --port 8080`"),
            CompletionItem(STARTER_MODEL, f"tiny, for trying things out; downloads {size}"),
            *(CompletionItem(one.title, _describe_hosted(one)) for one in hosted),
            CompletionItem(OTHER_SERVER),
        ]
        self._providers = _LOCAL_PROVIDERS | {one.title: one.provider for one in hosted}
        self._questions = questions
        self._answers: dict[str, str] = {}
        self._last: BackendChoice | None = None
        self._picked = ""
        """Word of the last choice, which is selected when the list is shown again."""

    async def choose(self, problem: str = "") -> BackendChoice | None:
        """Ask for a backend and show the problem with the last choice; return None if the user leaves."""
        choices = self._choices
        if problem:
            choices = [
                *choices,
                CompletionItem(TAKE_ANYWAY, "keep the last choice, although its test failed"),
            ]
        while True:
            columns = max(self._terminal.output.get_size().columns - 1, 1)
            above = wrap(sanitize(problem), columns)[:MAX_PROBLEM_ROWS]
            picked = await pick(self._terminal, TITLES, choices, present=self._picked, above=above)
            if picked == TAKE_ANYWAY and self._last is not None:
                return replace(self._last, is_sure=True)
            self._picked = picked or self._picked
            backend = await self._ask_other_server() if picked == OTHER_SERVER else self._make_built_in(picked)
            if backend is not None or picked is None:
                self._last = backend
                return backend

    def _make_built_in(self, picked: str | None) -> BackendChoice | None:
        return BackendChoice(self._providers[picked], needs_starter=picked == STARTER_MODEL) if picked else None

    async def _ask_other_server(self) -> BackendChoice | None:
        session: PromptSession[str] = PromptSession(input=self._terminal.input, output=self._terminal.output)
        try:
            for key, asked in self._questions.items():
                await self._ask_question(session, key, asked)
        except (KeyboardInterrupt, EOFError):
            return None
        settings = {key: text for key, text in self._answers.items() if text and key != "model"}
        return BackendChoice("other", {"type": "openai", **settings}, self._answers["model"])

    async def _ask_question(self, session: "PromptSession[str]", key: str, question: BackendQuestion) -> None:
        rejected = None
        while True:
            answer = (await session.prompt_async(question.question, default=self._answers.get(key, ""))).strip()
            self._answers[key] = answer
            if answer == rejected:
                return
            problem = await question.check(answer, self._answers)
            if problem.choices:
                answer = await self._pick_answer(problem.choices)
                self._answers[key] = answer
                if answer:
                    return
                continue
            if not problem.sentence:
                return
            rejected = None if problem.is_final else answer
            self._terminal.output.write(
                sanitize(problem.sentence) + "; press Enter again to use it anyway" * (not problem.is_final)
            )
            self._terminal.output.write_raw("\r\n")
            self._terminal.output.flush()

    async def _pick_answer(self, choices: Sequence[str]) -> str:
        """Return the only choice, else the one that the user picks; empty if none is picked."""
        if len(choices) == 1:
            return choices[0]
        return await pick(self._terminal, CHOICE_TITLES, [CompletionItem(one) for one in choices]) or ""


def _describe_hosted(backend: HostedBackend) -> str:
    extra = f", and the extra `{backend.extra}`" if backend.extra else ""
    return f"API key in {backend.variable}{extra}"
