"""Every row of the table of secret variables, its near misses, and provider keys under whatever name."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.policy.environment import ProviderKeys, child_environment, search_environment, unsandboxed_environment
from yarrow.policy.secret_names import (
    NAME_PARTS,
    NAME_WORDS,
    VALUE_PARTS,
    VALUE_STARTS,
    is_secret_variable,
    without_secrets,
)

LONG = "abcdefgh0123456789abcdefgh0123456789"
VALUES = [
    *(
        "sk-proj-" + LONG,
        "sk_live_51Habcdefghijklmnop",
        "rk_test_abcdefgh1",
        "whsec_abcdefgh",
        "SG.abcdefghijklmnop.abcdefghijklmnop",
    ),
    *(
        "ghp_" + LONG,
        "github_pat_1",
        "glpat-" + LONG,
        "gldt-" + LONG,
        "xoxb-1",
        "xapp-1-A",
        "AKIA0123456789ABCDEF",
        "AIza" + LONG,
    ),
    *(
        "ASIA0123456789ABCDEF",
        "ya29." + LONG,
        "npm_" + LONG,
        "pypi-" + LONG,
        "hf_" + LONG,
        "gsk_" + LONG,
        "xai-" + LONG,
    ),
    *(
        "r8_" + LONG,
        "pplx-" + LONG,
        "nvapi-" + LONG,
        "tvly-" + LONG,
        "dor_v1_" + LONG,
        "dop_v1_" + LONG,
        "shpat_" + LONG,
    ),
    *(
        "hvs." + LONG,
        "ATATT3" + LONG,
        "lin_api_" + LONG,
        "dckr_pat_" + LONG,
        "glsa_" + LONG,
        "tskey-" + LONG,
        "sntrys_" + LONG,
    ),
    *(
        "key-" + "0123456789abcdef" * 2,
        "sq0atp-" + LONG,
        "AGE-SECRET-KEY-1QQ",
        "eyJhbGciOiJI.eyJzdWIiOiIx",
        "Bearer " + LONG,
    ),
    *("postgres://u:p@host/db", "redis://:p4ss@host", "https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/2"),
    *("https://hooks.slack.com/services/T0/B0/x", "https://discord.com/api/webhooks/1/x", " sk-proj-" + LONG),
    *(
        "-----BEGIN OPENSSH PRIVATE KEY-----\nx",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        "a\n-----BEGIN PRIVATE KEY-----",
    ),
    *(
        "DefaultEndpointsProtocol=https;AccountKey=abcdefgh==",
        "Server=x;User=a;Password=hunter2;",
        "host=h user=u password=hunter2",
    ),
    *(
        "jdbc:postgresql://h/db?user=u&password=hunter2",
        "Endpoint=sb://x/;SharedAccessKey=abcd",
        "https://h/c?sv=1&sig=" + LONG,
    ),
    *(
        '{"type": "service_account", "private_key": "abcd"}',
        '{"auths":{"h":{"auth":"dXNlcjpw"}}}',
        "apiVersion: v1\nclient-key-data: abcd",
    ),
    *("//registry.npmjs.org/:_authToken=abcd", "-Dapi_key=hunter2"),
]
NAMES = [
    *(
        "SSHPASS",
        "DB_PW",
        "DB_PWD",
        "MYSQL_PWD",
        "PGPASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
    ),
    *(
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_PAT",
        "AZURE_DEVOPS_EXT_PAT",
        "NPM_TOKEN",
        "NODE_AUTH_TOKEN",
        "NPM_CONFIG__AUTH",
    ),
    *(
        "SENTRY_DSN",
        "GOOGLE_CREDENTIALS",
        "GCP_CREDS",
        "DOCKER_AUTH_CONFIG",
        "AZURE_STORAGE_CONNECTION_STRING",
        "DB_CONN_STR",
    ),
    *(
        "VAULT_TOKEN",
        "REDISCLI_AUTH",
        "SESSION_COOKIE",
        "apiKey",
        "dbPassword",
        "TF_VAR_db_password",
        "ANSIBLE_VAULT_PASSPHRASE",
    ),
    *(
        "RAILS_MASTER_KEY",
        "SECRET_KEY_BASE",
        "OTP",
        "WALLET_MNEMONIC",
        "OPENAIAPIKEY",
        "HF_TOKEN",
        "TWINE_PASSWORD",
        "X_SAS",
    ),
]
ORDINARY = {
    "PATH": "/usr/bin:/bin:/home/u/key/bin",
    "TERM": "xterm",
    "KEYTIMEOUT": "1",
    "GPG_TTY": "/dev/pts/1",
    "SSH_TTY": "/dev/pts/1",
    "SSH_AUTH_SOCK": "/run/agent",
    "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22",
    "MONKEY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYBOARD": "us",
    "LESSKEY": "/x",
    "COMPASS": "north",
    "PASSENGER_ENV": "x",
    "GIT_AUTHOR_NAME": "A. Keyes",
    "OAUTHLIB_INSECURE_TRANSPORT": "1",
    "PATTERN": "x",
    "PWD": "/home/u/x",
    "OLDPWD": "/",
    "AWS_PROFILE": "dev",
    "AWS_REGION": "eu-central-1",
    "KUBECONFIG": "/home/u/.kube/config",
    "DATABASE_URL": "postgres://localhost:5432/dev",
    "REDIS_URL": "redis://localhost:6379/0",
    "IMAGE": "registry.example:5000/app@sha256:0123",
    "HTTP_PROXY": "http://proxy:3128",
    "LS_COLORS": "rs=0:di=01;34:*.sig=01;31:*.key=00;90:*.pwd=1",
    "PS1": r"\u@\h:\w\$ ",
    "JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8 -Dapp.password.policy=strict",
    "NODE_OPTIONS": "--max-old-space-size=4096",
    "SK": "sk-short",
    "GITHUB_ACTIONS": "true",
    "GITHUB_SHA": "0123456789abcdef0123456789abcdef01234567",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "MAIL": "a:b@example.com",
    "BUILD_KEYWORDS": "token ring",
}


def matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def test_every_row_of_the_table_has_an_example() -> None:
    assert [row for row in VALUE_STARTS if not any(matches(rf"^\s*(?:{row})", value) for value in VALUES)] == []
    assert [row for row in VALUE_PARTS if not any(matches(row, value) for value in VALUES)] == []


@pytest.mark.parametrize("value", VALUES)
def test_a_variable_with_a_secret_value_is_dropped(value: str) -> None:
    assert is_secret_variable("PLAIN", value)
    assert without_secrets({"PLAIN": value}, frozenset()) == {}


@pytest.mark.parametrize("name", [*NAMES, *NAME_WORDS, *(f"A_{word.upper()}_B" for word in NAME_WORDS)])
def test_case_rs_s1_a_variable_with_a_secret_name_is_dropped(name: str) -> None:
    assert child_environment({name: "x"}).get(name) is None
    assert child_environment({name: "x"}, [name])[name] == "x"


def test_every_part_of_a_name_counts_anywhere() -> None:
    for part in NAME_PARTS:
        told = re.sub(r"\(\?!iz\)|\(\?:ing\)\?|\?", "", part)
        assert is_secret_variable(f"my{told}s", "")


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_variable_is_passed(name: str) -> None:
    assert without_secrets(ORDINARY, frozenset())[name] == ORDINARY[name]


KEY = "abcdefgh-12345-providerkey"
names = st.sampled_from(["WORKAI", "COPY", "PLAIN", "OPENAI_API_KEY", "X"])
values = st.sampled_from([KEY, f"Bearer {KEY}", f"--key={KEY} --x", f"{KEY}\n", "ordinary", ""])


@given(st.dictionaries(names, values), st.lists(names), st.booleans())
def test_a_provider_key_is_in_no_environment(variables: dict[str, str], passed: list[str], by_value: bool) -> None:
    keys = ProviderKeys(
        frozenset({"WORKAI", "OPENAI_API_KEY"}), frozenset([KEY] if by_value else []), frozenset({"WORKAI"})
    )
    made = child_environment(variables, passed, keys)
    assert "WORKAI" not in made
    if by_value:
        holders = {name for name, value in made.items() if KEY in value}
        assert holders <= {"OPENAI_API_KEY"} & set(passed)
        assert not any(KEY in value for value in unsandboxed_environment(variables, keys, passed).values())
    assert "OPENAI_API_KEY" not in made or "OPENAI_API_KEY" in passed
    for name in passed:
        if name in variables and name != "WORKAI" and (name == "OPENAI_API_KEY" or KEY not in variables[name]):
            assert made[name] == variables[name]


def test_a_search_gets_no_secret_variable() -> None:
    given_ones: dict[str, Any] = dict.fromkeys(["A", "WORKAI", "ENV", "LESSOPEN", "RIPGREP_CONFIG_PATH"], KEY)
    assert search_environment({**given_ones, "PATH": "/bin", "HOME": "/h"}) == {"PATH": "/bin", "HOME": "/h"}


@pytest.mark.parametrize(
    "name",
    ["DBPASS", "SMTPPASS", "MYKEY", "AUTHKEY", "SSHKEY", "APP_KEY2", "DBPWD", "DBPASS_1", "MYKEYS", "KEY1", "X_PW2"],
)
def test_a_secret_word_may_be_joined_or_numbered(name: str) -> None:
    assert is_secret_variable(name, "x")


@pytest.mark.parametrize(
    "name", ["BYPASS", "COMPASS_2", "OLDPWD", "LESSKEY", "HOTKEYS", "MONKEY", "PUBKEY", "KEYBOARD"]
)
def test_ordinary_words_with_a_similar_ending_are_not_secret(name: str) -> None:
    assert not is_secret_variable(name, "x")
