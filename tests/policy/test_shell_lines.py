"""Rules for commands: what is denied alone is denied however a line spells it, and what only mentions it runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.config.settings import AllowedCall
from yarrow.policy.permission.decision import match_rules
from yarrow.policy.permission.path_rules import CallDescription, ToolKind
from yarrow.policy.permission.shell_line import spellings

DENY_PUSH = {"bash(git push*)": "deny"}


def verdict(line: str, rules: dict[str, str], **more: Any) -> str:
    """The rule that matches a line; empty for none."""
    request = CallDescription("bash", ToolKind.SHELL, False, line, AllowedCall("bash", line, "/w"), **more)
    found = match_rules(rules, request)
    return found.rule if found else ""


COMMANDS = [
    *("git push", "git push origin main", "rm -rf build", "npm publish --tag next", "terraform apply -auto-approve"),
    *('git commit -m "a  b"', "sudo rm -rf /var/x", "kubectl delete pod 'a b'", "env", "A=1 make deploy", "curl a|sh"),
    *(
        "psql -c 'drop table x;'",
        "echo $(date)",
        "git  push",
        "docker rm $(docker ps -q)",
        "cat a > b",
        "./deploy prod",
    ),
]
PREFIXES = [
    *("", "sudo ", "sudo -u deploy ", "sudo -E --user deploy ", "env ", "env -i A=1 ", "A=1 B='x y' ", "command "),
    *("exec ", "exec -a x ", "nohup ", "time ", "time -p ", "nice -n 5 ", "timeout 5 ", "timeout -k 5 -s KILL 9m "),
    *(
        "setsid ",
        "builtin ",
        "stdbuf -oL ",
        "! ",
        "{ ",
        "/usr/bin/env ",
        "'sudo' ",
        "\\command ",
        "2>&1 ",
        ">/dev/null ",
    ),
]
AROUND = [
    *(
        "{}",
        "  {}  ",
        "\t{}",
        "true; {}",
        "true && {}",
        "false || {}",
        "yes | {}",
        "sleep 1 & {}",
        "true\n{}",
        "{}; true",
    ),
    *("{} && true", "{} &", "({})", "( true; {} )", "{{ {}; }}", "x=$({})", "`{}`", 'echo "$({})"', "diff <({}) b"),
    *("if true; then {}; fi", "for x in a b; do {}; done", "while {}; do :; done", "case a in a) {};; esac"),
    *("f() {{ {}; }}; f", "true |& {}", "true;{}", "true&&{}", "{} # done", "# first\n{}", "cat <<E\nbody\nE\n{}"),
    *("bash <<'E'\n{}\nE", "cat <<E\n$({})\nE", "echo 'it'\"'\"'s'; {}", "echo a\\;b; {}", "{} 2>&1", "{} >log 2>&1"),
]
WITHIN = ["{}", "bash -c '{}'", 'sh -ec "{}"', "eval '{}'", "sudo bash -c '{}'"]


def quoted(words: list[str], marks: list[str]) -> str:
    """Words between blanks, each of the plain ones with marks around it or within."""
    written = (
        mark.format(word, word[0], word[1:]) if word.replace("-", "").isalnum() else word
        for word, mark in zip(words, marks, strict=True)
    )
    return " ".join(written)


MARKS = ["{0}", "'{0}'", '"{0}"', "{1}''{2}", "\\{0}", "$'{0}'", '{1}"{2}"', "{1}\\\n{2}"]


@given(st.data())
def test_a_denied_command_is_denied_in_any_spelling(data: st.DataObject) -> None:
    command = data.draw(st.sampled_from(COMMANDS))
    pattern = data.draw(st.sampled_from([command, f"{command[:-1]}*", f"{command.split()[0]}*", f"*{command[2:]}"]))
    rules = {f"bash({pattern})": data.draw(st.sampled_from(["deny", "ask"]))}
    assert verdict(command, rules)
    line = command
    plain = not set(command) & set("'\"$|;<>=") and command.split() == command.split(" ")
    if plain:
        words = command.split()
        marks = [data.draw(st.sampled_from(MARKS)) for _ in words]
        line = quoted(words, marks)
        if line == command:
            line = data.draw(st.sampled_from([" ", "   ", "\t", " \\\n "])).join(words)
    # A redirection more is another command where the pattern names one.
    prefixes, around = ([one for one in each if ">" not in one or ">" not in command] for each in (PREFIXES, AROUND))
    for prefix in data.draw(st.lists(st.sampled_from(prefixes), max_size=3)):
        line = prefix + line
    if plain and not set(line) & set("'\"\\$\n"):
        line = data.draw(st.sampled_from(WITHIN)).format(line)
    line = data.draw(st.sampled_from(around)).format(line)
    assert verdict(line, rules), line


INNOCENT = [
    *("git status", "git commit -m 'git push'", 'git commit -m "then git push; done"', "echo git push", "man git push"),
    *(
        "grep -rn 'git push' docs",
        "git log --grep='x; git push'",
        "# git push\nls",
        "ls # then git push",
        "command -v git",
    ),
    *("sed 's/a;git push/b/' x", "awk '{print; git push}' x", "echo a\\;git push", "echo 'it'\"'\"'s; git push'"),
    *("cat > note.md <<'EOF'\nRun:\ngit push\nEOF", "cat <<EOF > x\ngit push\nEOF\nls", "echo '$(git push)'"),
    *(
        "git commit -m \"$(cat <<'EOF'\nDon't (yet\ngit push\nEOF\n)\"",
        "python - <<'E'\ngit push\nE",
        'echo "\\$(git push)"',
    ),
    *(
        "git stash push",
        "git pushed",
        "gitk push",
        "python3 -c 'git push'",
        "printf '%s\\n' \"git push\"",
        "echo `ls` git push",
    ),
    *(
        "for x in git push; do echo $x; done",
        "rg -e 'git push' | wc -l",
        "test -f 'git push' && ls",
        "ls 'a\ngit push'",
    ),
    *(
        "make push",
        "bash scripts/git-push",
        "alias gp='git push'",
        "git config alias.p 'push'",
        "echo \"a' ; git push '\"",
    ),
    *(
        "docker run --rm x git push-to-checkout-help-less",
        "[[ $x == 'git push' ]] && ls",
        "x='git push'",
        "ls > 'git push'",
    ),
]


@pytest.mark.parametrize("line", INNOCENT)
def test_a_line_that_only_mentions_a_command_is_not_denied(line: str) -> None:
    assert not verdict(line, {"bash(git push)": "deny", "bash(git push *)": "deny"})


@pytest.mark.parametrize("line", ["git push; true", "git  push; true", "true; git push"])
def test_case_rs_m6_a_deny_rule_sees_each_command_of_a_line(line: str) -> None:
    assert verdict(line, DENY_PUSH) == "bash(git push*)"
    assert verdict(line, {"bash(git push*)": "ask"}) == "bash(git push*)"
    assert not verdict("git status", DENY_PUSH)


@pytest.mark.parametrize("line", ["true; git push", "sudo git push", "git  push", "bash -c 'git push'", "'git' push"])
def test_auto_rules_match_only_whole_lines(line: str) -> None:
    assert not verdict(line, {"bash(git push)": "auto"}, is_sandboxed=True)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "find . -name x -exec git push \\;",
            "env -S 'git push' x",
            "echo a | xargs -n 1 git push",
            "/usr/bin/git push",
        ),
        *(
            "watch -n 5 git push",
            "su -c 'git push' me",
            "function f { git push; }",
            "git push>log",
            "$(git push)x",
            "a=(`git push`)",
        ),
    ],
)
def test_wrappers_that_run_a_command(line: str) -> None:
    assert verdict(line, DENY_PUSH)


PIECES = [
    *(
        "git push",
        " ",
        "\n",
        "\t",
        "\x0b",
        "\u2003",
        "\0",
        ";",
        "&",
        "&&",
        "|",
        ">",
        ">>",
        "<",
        "<<",
        "<<-",
        "<<<",
        "E",
        "'",
        '"',
    ),
    *(
        "$(",
        "${",
        "$'",
        '$"',
        "`",
        "(",
        ")",
        "{",
        "}",
        "\\",
        "#",
        "sudo",
        "env",
        "-S",
        "-c",
        "bash",
        "eval",
        "find",
        "-exec",
        "=",
        "ü",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_is_parsed_to_its_end(line: str) -> None:
    assert all(isinstance(one, str) for one in spellings(line))


@pytest.mark.parametrize(
    "piece", ["$(", "${", "`", "(", "bash -c '", 'eval "', "sudo ", "find -exec ", "<<E\n", "a;", "${x:-$("]
)
def test_deep_and_long_lines_are_parsed(piece: str) -> None:
    line = piece * (20_000 // len(piece)) + "\ngit push"
    assert sum(map(len, spellings(line))) < 20 * len(line)
