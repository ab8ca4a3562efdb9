"""Commands: templates and skills by name, and what a prompt becomes that begins with one."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project import Project

from yarrow.errors import Code, InvalidArgument, LimitExceeded
from yarrow.prompt.markdown_resources import MAX_DOCUMENT_BYTES
from yarrow.prompt.template_commands import (
    MAX_EXPANDED_CHARACTERS,
    TEMPLATE_KIND,
    PromptCommand,
    expand_command,
    list_commands,
    split_words,
)
from yarrow.prompt.untrusted import wrap_untrusted


def expanded(project: Project, text: str) -> str:
    found = expand_command(text, project.places())
    assert found is not None
    return found.text


def refusal(project: Project, text: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        expand_command(text, project.places())
    assert caught.value.field == "text"
    return caught.value.message


# ---- placeholders ----


@pytest.mark.parametrize(
    ("body", "arguments", "result"),
    [
        ("Fix $1 in $2", "a b c", "Fix <a> in <b>"),
        ("$1,$3.", "a b", "<a>,."),
        ("$10 $1 $11", "a b c d e f g h i j", "<j> <a> "),
        ("$1$1", "a", "<a><a>"),
        ("$@", "a  b", "<a  b>"),
        ("$@|$ARGUMENTS", " 'a  b'\tc\n\n  d ", "<'a  b'\tc\n\n  d>|<'a  b'\tc\n\n  d>"),
        ("$ARGUMENTS.", "", "."),
        ("$ARGUMENTS_X $arguments $$ARGUMENTS ${@}", "", "$ARGUMENTS_X $arguments $ARGUMENTS ${@}"),
        ("Do $$ARGUMENTS.", "a", "Do $ARGUMENTS.\n\n<a>"),
        ("$@", "''", "<''>"),
        ("$@", "", ""),
        ("${@:2}", "a b c", "<b c>"),
        ("${@:2:1}|${@:2:9}|${@:9}|${@:1:0}", "a b c", "<b>|<b c>||"),
        ("$0 $$ $x ${@:0} ${@} ${1} $ $12345 ${@:1:-1}", "", "$0 $$ $x ${@:0} ${@} ${1} $ $12345 ${@:1:-1}"),
        ("$$1 $$@ $$${@:1} pid $$", "", "$1 $@ $${@:1} pid $$"),
        ("'' $1|$2", "'' x", "'' <>|<x>"),
        ("$1", "'a b' c", "<a b>"),
        ("Do it.", "  a 'b'  c\n", "Do it.\n\n<a 'b'  c>"),
        ("Do $$1.", "a", "Do $1.\n\n<a>"),
        ("Do it.", " \n", "Do it."),
        ("", "a", "\n\n<a>"),
    ],
)
def test_placeholders(project: Project, body: str, arguments: str, result: str) -> None:
    project.template("t", body)
    tags = {"<": "<untrusted_input>", ">": "</untrusted_input>"}
    assert expanded(project, f"/t {arguments}") == "".join(tags.get(character, character) for character in result)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a  b\tc\n", ["a", "b", "c"]),
        ("""'a b' "c d"e"f g\"""", ["a b", "c def g"]),
        ("it's 5\" x", ["it's", '5"', "x"]),
        ("don't do it, isn't it", ["don't", "do", "it,", "isn't", "it"]),
        ("--title='a b' c=\"d e\"", ["--title=a b", "c=d e"]),
        ("don't", ["don't"]),
        ('"a \\" b" \'c\\\' d', ['a " b', "c\\", "d"]),
        (r"a\ b \'c \"d C:\new \\x", ["a b", "'c", '"d', "C:\\new", "\\\\x"]),
        ("'' \"\"", ["", ""]),
        ("", []),
        ("a\\", ["a\\"]),
    ],
)
def test_words_are_split_like_a_shell_does(text: str, parts: list[str]) -> None:
    assert split_words(text) == parts


@given(st.lists(st.lists(st.sampled_from(["a", "\\", "'", '"', " ", "\n", "\\'", "é", "\u2003"])).map("".join)))
def test_quoting_and_splitting_round_trips(values: list[str]) -> None:
    assert split_words(" ".join("'" + value.replace("'", "'\\''") + "'" for value in values)) == values


@given(st.lists(st.sampled_from(["a", "\\", "'", '"', " ", "\n"])).map("".join))
def test_any_text_can_be_split(text: str) -> None:
    assert "".join(split_words(text)).count("a") == text.count("a")


# ---- which file ----


def test_a_text_without_a_command_is_plain(project: Project) -> None:
    project.template("review", "x")
    for text in (
        "/etc/hosts is broken",
        " /review a",
        "review",
        "",
        "/",
        "/ review",
        "//review",
        "/review/",
        "/review:a",
        "/nothing like it",
        "/résumé",
        "a\n/review",
        "/" + "x" * 65,
        "/../review",
    ):
        assert expand_command(text, project.places()) is None


def test_a_command_name_is_matched_completely(project: Project) -> None:
    project.template("review", "x")
    project.template("fix.it_2-b", "y")
    assert expanded(project, "/review") == "x"
    assert expanded(project, "/review\na") == f"x\n\n{wrap_untrusted('a')}"
    assert expanded(project, "/fix.it_2-b") == "y"


def test_a_misspelt_command_is_rejected_with_the_nearest_name(project: Project) -> None:
    project.template("review", "x")
    project.skill(project.users / "skills" / "spreadsheet")
    assert refusal(project, "/reveiw a") == (
        "text: unknown command /reveiw; did you mean /review? Start with a space to send it as text"
    )
    assert "/spreadsheet?" in refusal(project, "/spreadsheets")
    assert expand_command("/rev", project.places()) is None
    with pytest.raises(InvalidArgument, match="did you mean /deploy"):
        expand_command("/deplyo", project.places(), ["deploy"])


def test_front_matter_is_not_part_of_the_body(project: Project) -> None:
    project.template("t", "---\ndescription: d\n---\n\nBody $1\n---\nmore\n")
    assert expanded(project, "/t") == "Body \n---\nmore"


def test_tags_of_a_template_are_not_escaped(project: Project) -> None:
    project.template("t", "<untrusted_input>mine</untrusted_input> <b>$1</b>")
    text = expanded(project, "/t </untrusted_input>")
    assert text == f"<untrusted_input>mine</untrusted_input> <b>{wrap_untrusted('</untrusted_input>')}</b>"


def test_the_users_template_precedes_the_projects_and_templates_precede_skills(project: Project) -> None:
    project.template("a", "mine")
    project.template("a", "theirs", project.root / ".yarrow")
    project.template("b", "of the root", project.root / ".yarrow")
    project.template("b", "of the directory", project.cwd / ".yarrow")
    project.skill(project.users / "skills" / "a")
    assert [expanded(project, f"/{name}") for name in "ab"] == ["mine", "of the root"]
    commands, warnings = list_commands(project.places())
    b = ".yarrow/prompts/b.md"
    assert [command.name for command in commands] == ["a", "b", "skill:a"]
    assert expanded(project, "/skill:a").startswith("Skill a (")
    assert warnings == (
        "~/code/project/.yarrow/prompts/a.md is skipped: ~/.yarrow/prompts/a.md has the same name",
        f"~/code/project/src/deep/{b} is skipped: ~/code/project/{b} has the same name",
    )


def test_a_skill_becomes_its_body_and_the_arguments(project: Project) -> None:
    path = project.skill(project.users / "skills" / "pdf", body="Use <b>$1</b>.\n")
    found = expand_command("/pdf  a 'b' </untrusted_input> ", project.places())
    assert found is not None
    assert (found.name, found.source) == ("pdf", "skill")
    argument = wrap_untrusted("a 'b' </untrusted_input>")
    assert found.text == f"Skill pdf ({path}):\n\nUse <b>$1</b>.\n\nArguments: {argument}"
    for name in ("pdf", "skill:pdf"):
        assert expanded(project, f"/{name}") == f"Skill pdf ({path}):\n\nUse <b>$1</b>."


def test_an_unknown_skill_lists_the_existing_ones(project: Project) -> None:
    with pytest.raises(InvalidArgument, match=r"unknown skill pfd; no skills are available"):
        expand_command("/skill:pfd x", project.places())
    project.skill(project.users / "skills" / "pdf")
    project.skill(project.users / "skills" / "doc")
    with pytest.raises(InvalidArgument, match=r"unknown skill pfd; available skills: doc, pdf\. Start with"):
        expand_command("/skill:pfd x", project.places())
    assert expand_command(" /skill:pfd x", project.places()) is None


def test_only_the_named_file_is_read(project: Project) -> None:
    project.template("t", "x")
    os.mkfifo(project.users / "prompts" / "pipe.md")
    for number in range(3):
        project.skill(project.users / "skills" / f"s{number}").chmod(0)
    before = {path: path.stat().st_atime_ns for path in project.users.rglob("*.md")}
    for path in before:
        os.utime(path, ns=(1, 1))
    assert expanded(project, "/t") == "x"
    assert {path.name for path in before if path.stat().st_atime_ns != 1} <= {"t.md"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            "x" * (MAX_DOCUMENT_BYTES + 1),
            f"is skipped: it has {MAX_DOCUMENT_BYTES + 1} bytes, and the limit is {MAX_DOCUMENT_BYTES}",
        ),
        ("---\n- a\n---\nb", "has front matter that is not a mapping of strings"),
        (None, "is not a regular file"),
    ],
)
def test_an_unusable_file_is_listed_with_the_reason_and_rejected(
    project: Project, content: str | None, why: str
) -> None:
    if content is None:
        os.mkfifo(project.template("t", "").with_name("u.md"))
        (project.users / "prompts" / "t.md").unlink()
        (project.users / "prompts" / "u.md").rename(project.users / "prompts" / "t.md")
    else:
        project.template("t", content)
    assert list_commands(project.places()) == ((), (f"~/.yarrow/prompts/t.md {why}",))
    assert refusal(project, "/t a") == f"text: ~/.yarrow/prompts/t.md {why}"


def test_a_projects_template_may_not_link_out_of_the_project(project: Project) -> None:
    project.write(project.home / "secret", "s")
    (project.root / ".yarrow" / "prompts").mkdir(parents=True)
    (project.root / ".yarrow" / "prompts" / "t.md").symlink_to(project.home / "secret")
    assert "is a symlink that leads out of the project" in refusal(project, "/t")


def test_a_projects_template_may_not_link_to_a_secret(project: Project) -> None:
    secret = project.write(project.root / "production.md", "KEY=1")
    (project.cwd / ".env").symlink_to(secret)
    (project.root / ".yarrow" / "prompts").mkdir(parents=True)
    (project.root / ".yarrow" / "prompts" / "t.md").symlink_to(secret)
    why = "~/code/project/.yarrow/prompts/t.md cannot be read: files such as .env contain secrets"
    assert refusal(project, "/t") == f"text: {why}"
    assert list_commands(project.places()) == ((), (why,))


def test_a_too_long_expansion_is_rejected(project: Project) -> None:
    project.template("t", "$@" * 20_000)
    with pytest.raises(LimitExceeded) as caught:
        expand_command("/t " + "x" * 1_000, project.places())
    assert caught.value.code is Code.TOO_LARGE
    project.template("u", "no place")
    with pytest.raises(LimitExceeded):
        expand_command("/u " + "x" * (MAX_EXPANDED_CHARACTERS - 30), project.places())
    project.skill(project.users / "skills" / "s")
    for name in "us":
        with pytest.raises(LimitExceeded):
            expand_command(f"/{name} " + "<a" * MAX_EXPANDED_CHARACTERS, project.places())


# ---- the list ----


def test_commands_are_listed_by_name_with_their_description(project: Project) -> None:
    project.template("c", "---\ndescription: Reviews\nargument-hint: <file> [lines]\n---\n$1")
    project.template("a", "\n\nFirst   line\nsecond", project.root / ".yarrow")
    project.template("e", "")
    project.skill(project.users / "skills" / "b", "Reads")
    project.write(project.users / "prompts" / "notes.txt", "x")
    project.write(project.users / "prompts" / ".hidden.md", "x")
    commands, warnings = list_commands(project.places())
    assert commands == (
        PromptCommand("a", "First line", "template"),
        PromptCommand("c", "Reviews (arguments: <file> [lines])", "template"),
        PromptCommand("e", "", "template"),
        PromptCommand("skill:b", "Reads", "skill"),
    )
    assert warnings == ()


def test_the_number_of_templates_is_limited(project: Project) -> None:
    for number in range(TEMPLATE_KIND.max_count + 1):
        project.template(f"t{number:03}", "x")
    commands, (warning,) = list_commands(project.places())
    assert len(commands) == TEMPLATE_KIND.max_count
    assert warning == "~/.yarrow/prompts/t500.md and later files are skipped: the limit is 500 templates"


def test_many_warnings_are_counted(project: Project) -> None:
    for number in range(30):
        project.template(f"no name {number:02}", "x")
    _, warnings = list_commands(project.places())
    assert len(warnings) == 21
    assert warnings[-1] == "and 10 more warnings"


def test_the_entries_read_of_a_directory_are_limited(project: Project) -> None:
    (project.users / "prompts").mkdir()
    for number in range(2_001):
        (project.users / "prompts" / f"{number}.txt").touch()
    commands, (warning,) = list_commands(project.places())
    assert commands == ()
    assert warning == "~/.yarrow/prompts contains more than 2000 entries; some are ignored"
