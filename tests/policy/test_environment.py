"""The environment of a command: no secrets, and nothing that causes an interactive prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.policy.environment import FIXED_VARIABLES, child_environment
from yarrow.policy.secret_names import is_secret_variable

ORDINARY = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/u",
    "LANG": "en_US.UTF-8",
    "PWD": "/home/u/task-manager-service-api-long",
    "VIRTUAL_ENV": "/home/u/task-manager-service-api-long/.venv",
    "SSH_AUTH_SOCK": "/run/agent",
    "TOKENIZERS_PARALLELISM": "false",
    "GIT_AUTHOR_NAME": "A. Keyes",
    "KEYBOARD": "us",
    "GIT_CONFIG_KEY_0": "user.name",
    "HTTP_PROXY": "http://proxy:3128",
    "MONKEY": "1",
}
SECRET = [
    ("OPENAI_API_KEY", "x"),
    ("ANTHROPIC_API_KEY", "x"),
    ("GEMINI_API_KEY", "x"),
    ("MY_TOKEN", "x"),
    ("my_token", "x"),
    ("AWS_SECRET_ACCESS_KEY", "x"),
    ("DB_PASSWORD", "x"),
    ("DB_PWD", "x"),
    ("OPENAIAPIKEY", "x"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "/x.json"),
    ("GITHUB_PAT", "x"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=x"),
    ("PLAIN", "sk-proj-0123456789abcdef"),
    ("PLAIN", "ghp_0123456789abcdef0123"),
    ("DATABASE_URL", "postgres://u:p@host/db"),
    ("PLAIN", "-----BEGIN RSA PRIVATE KEY-----\n"),
]


def test_case_X_04_ordinary_variables_are_passed() -> None:
    assert child_environment(ORDINARY).items() >= ORDINARY.items()


@pytest.mark.parametrize(("name", "value"), SECRET)
def test_case_X_04_secrets_are_not_passed_unless_named(name: str, value: str) -> None:
    variables = {**ORDINARY, name: value}
    assert name not in child_environment(variables)
    assert value not in child_environment(variables).values()
    assert child_environment(variables, [name])[name] == value


def test_variables_prevent_interactive_prompts() -> None:
    given_ones = {"PAGER": "less", "EDITOR": "vi", "SSH_ASKPASS": "/bin/ask", "BASH_ENV": "/x", "TERM": "xterm"}
    made = child_environment(given_ones)
    assert made == FIXED_VARIABLES
    assert made["GIT_TERMINAL_PROMPT"] == "0"


def test_the_user_may_pass_a_secret_variable() -> None:
    made = child_environment({"PAGER": "less", "BASH_ENV": "/x"}, ["PAGER", "BASH_ENV", "EDITOR"])
    assert made["PAGER"] == "less"
    assert made["BASH_ENV"] == "/x"
    assert made["EDITOR"] == "true"


@given(st.text(max_size=20), st.sampled_from(["", "_"]), st.sampled_from(["TOKEN", "SECRET", "PASSWORD", "API_KEY"]))
def test_a_secret_word_is_recognized_after_any_prefix(before: str, between: str, word: str) -> None:
    assert is_secret_variable(before + "_" + between + word, "")
