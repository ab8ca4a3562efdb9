"""Skills: which are found, what of them is read, and what is wrong with others."""

import os

import pytest
from project import Project

from yarrow.prompt.markdown_resources import MAX_FRONT_MATTER_BYTES, MAX_LINE_CHARACTERS
from yarrow.prompt.resource_directories import SessionDirectories
from yarrow.prompt.skills import MAX_LIST_BYTES, SKILL_KIND, find_skill_directories, format_skills, read_skills
from yarrow.prompt.system_prompt import read_prompt_sources


def found(project: Project) -> dict[str, str]:
    skills, warnings = read_skills(project.places())
    assert warnings == ()
    return {skill.name: skill.description for skill in skills}


def warning(project: Project) -> str:
    skills, (only,) = read_skills(project.places())
    assert skills == ()
    return only


def test_skills_are_found_in_the_users_and_the_projects_directories(project: Project) -> None:
    project.skill(project.users / "skills" / "d")
    project.skill(project.root / ".agents" / "skills" / "c")
    project.skill(project.root / "src" / ".yarrow" / "skills" / "b")
    project.skill(project.cwd / ".agents" / "skills" / "a")
    project.skill(project.home / "code" / ".agents" / "skills" / "above-the-root")
    (project.users / "skills" / "no-skill").mkdir()
    project.write(project.users / "skills" / "README.md", "x")
    assert list(found(project)) == ["a", "b", "c", "d"]


def test_the_prompt_has_a_line_for_each_skill(project: Project) -> None:
    path = project.skill(project.users / "skills" / "pdf", "'Reads: pdf,\n\n  all of them'")
    skills, _ = read_skills(project.places())
    assert format_skills(skills).endswith(f"it:\n- pdf: Reads: pdf, all of them ({path})")
    assert format_skills(()) == ""


def test_only_the_front_matter_is_read(project: Project) -> None:
    path = project.skill(project.users / "skills" / "a", body="x" * 200_000)
    with path.open("r+b") as file:
        file.seek(MAX_FRONT_MATTER_BYTES)
        file.write(b"\xff\xfe---\n")
    assert found(project) == {"a": "does it"}


def test_other_entries_are_skipped_and_plain_texts_need_no_quotes(project: Project) -> None:
    content = "---\r\ndescription: >\r\n  yes\r\n  12\r\nmetadata:\r\n  tags: [a, {b: c}]\r\nversion: 1.0\r\n---\r\n"
    project.write(project.users / "skills" / "a" / "SKILL.md", content)
    assert found(project) == {"a": "yes 12"}


def test_a_long_description_is_truncated(project: Project) -> None:
    project.skill(project.users / "skills" / "a", "x" * 1_000)
    assert found(project) == {"a": "x" * (MAX_LINE_CHARACTERS - 3) + "..."}


def test_the_users_skill_precedes_the_projects(project: Project) -> None:
    project.skill(project.users / "skills" / "a", "mine")
    project.skill(project.root / ".agents" / "skills" / "a", "theirs")
    (skill,), (warning,) = read_skills(project.places())
    assert skill.description == "mine"
    assert warning == (
        "~/code/project/.agents/skills/a/SKILL.md is skipped: ~/.yarrow/skills/a/SKILL.md has the same name"
    )


def test_home_as_the_project_lists_each_skill_once(project: Project) -> None:
    project.skill(project.users / "skills" / "a")
    skills, warnings = read_skills(
        SessionDirectories.make(home=project.home, user_directory=project.users, cwd=project.home)
    )
    assert [skill.name for skill in skills] == ["a"]
    assert warnings == ()


def test_the_name_is_that_of_the_folder(project: Project) -> None:
    folder = project.users / "skills" / "a"
    project.write(folder / "SKILL.md", "---\nname: other\ndescription: d\n---\n")
    (skill,), (warning,) = read_skills(project.places())
    assert skill.name == "a"
    assert warning == "~/.yarrow/skills/a/SKILL.md sets the name 'other', but the name of its folder, a, is used"


@pytest.mark.parametrize("name", ["a b", "_a", "é", "a\nb", "x" * 65, "a\udcff"])
def test_invalid_names_are_omitted(project: Project, name: str) -> None:
    project.skill(project.users / "skills" / name)
    text = warning(project)
    assert "is not a valid name; use only letters, digits and _.-" in text
    assert "\n" not in text
    text.encode()


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ndescription: *c"


@pytest.mark.parametrize(
    ("front", "why"),
    [
        ("description: *a", "has front matter with a YAML alias"),
        (BOMB, "has front matter with a YAML anchor or tag"),
        ("description: !!python/object/apply:os.system ['true']", "has front matter with a YAML anchor or tag"),
        ("description: !!str x", "has front matter with a YAML anchor or tag"),
        ("metadata: !x {a: b}", "has front matter with a YAML anchor or tag"),
        ("- a\n- b", "has front matter that is not a mapping of strings"),
        ("only text", "has front matter that is not a mapping of strings"),
        ("", "has front matter that is not a mapping of strings"),
        ("a: " + "[" * 9 + "]" * 9, "has front matter that is not a mapping of strings"),
        ("a: " + "[" * 3_000, "has front matter that is"),
        ("{" * 3_000, "has front matter "),
        ("? [a]\n: b\ndescription: c", "has front matter with a key that is not a string"),
        ("description: a\n\tb: c", "has front matter that is not valid YAML (line 3)"),
        ("description: a: b", "has front matter that is not valid YAML (line 2)"),
        ("description: 'a", "has front matter that is not valid YAML (line"),
        ("description: \x01", "has front matter that is not valid YAML"),
        ("description: [a, b]", "is skipped: its front matter has no description"),
        ("description:", "is skipped: its front matter has no description"),
        ("name: a", "is skipped: its front matter has no description"),
        ("description: " + "x" * MAX_FRONT_MATTER_BYTES, "has front matter without a closing ---"),
    ],
)
def test_invalid_front_matter_is_reported(project: Project, front: str, why: str) -> None:
    project.write(project.users / "skills" / "a" / "SKILL.md", f"---\n{front}\n---\nBody\n")
    text = warning(project)
    assert text.startswith(f"~/.yarrow/skills/a/SKILL.md {why}")
    assert "\n" not in text


def test_missing_front_matter_is_reported(project: Project) -> None:
    project.write(project.users / "skills" / "a" / "SKILL.md", "Just text.\n")
    assert "has no description" in warning(project)


def test_no_symlink_of_a_project_leads_out_of_it(project: Project) -> None:
    outside = project.base / "outside"
    project.skill(outside / "a")
    (project.root / ".agents").mkdir()
    (project.root / ".agents" / "skills").symlink_to(outside)
    assert warning(project) == "~/code/project/.agents/skills is a symlink that leads out of the project"
    (project.root / ".agents" / "skills").unlink()
    (project.root / ".agents" / "skills").mkdir()
    (project.root / ".agents" / "skills" / "a").symlink_to(outside / "a")
    assert warning(project) == "~/code/project/.agents/skills/a/SKILL.md is a symlink that leads out of the project"
    (project.users / "skills").symlink_to(outside)
    (project.root / ".agents" / "skills" / "a").unlink()
    assert found(project) == {"a": "does it"}


def test_fifos_are_not_opened(project: Project) -> None:
    folder = project.root / ".agents" / "skills" / "a"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "SKILL.md")
    os.mkfifo(project.users / "skills")
    assert warning(project) == "~/code/project/.agents/skills/a/SKILL.md is not a regular file"


def test_the_number_of_skills_is_limited(project: Project) -> None:
    for number in range(SKILL_KIND.max_count + 2):
        project.skill(project.users / "skills" / f"s{number:03}")
    skills, (warning,) = read_skills(project.places())
    assert len(skills) == SKILL_KIND.max_count
    assert warning == "~/.yarrow/skills/s100/SKILL.md and later files are skipped: the limit is 100 skills"


def test_the_bytes_of_skill_lines_are_limited(project: Project) -> None:
    for number in range(90):
        project.skill(project.users / "skills" / f"s{number}", "\U0001f600" * MAX_LINE_CHARACTERS)
    skills, (warning,) = read_skills(project.places())
    assert MAX_LIST_BYTES - 1_500 < sum(len(skill.format_line().encode()) for skill in skills) <= MAX_LIST_BYTES
    assert warning.endswith(f"and later skills are skipped: their list is limited to {MAX_LIST_BYTES} bytes")


def test_skills_outside_the_working_directory_can_be_read(project: Project) -> None:
    project.skill(project.cwd / ".agents" / "skills" / "inner")
    project.skill(project.root / ".agents" / "skills" / "middle")
    project.skill(project.base / "real" / "linked")
    (project.users / "skills").mkdir()
    (project.users / "skills" / "linked").symlink_to(project.base / "real" / "linked")
    places = project.places()
    expected = (project.base / "real" / "linked", project.root / ".agents" / "skills" / "middle")
    assert find_skill_directories(places) == expected
    project.write(project.cwd / "AGENTS.md", "a")
    gathered = read_prompt_sources(places)
    assert gathered.readable == expected
    assert [skill.name for skill in gathered.skills] == ["inner", "linked", "middle"]
    assert [file.text for file in gathered.context] == ["a"]
    assert gathered.warnings == ()


def test_a_symlink_created_during_the_scan_is_not_followed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    skills = project.root / ".agents" / "skills"
    project.skill(skills / "a")
    outside = project.base / "outside"
    project.skill(outside / "a")

    def exchanged(*_: object) -> bool:
        (skills / "a").rename(project.base / "aside")
        (skills / "a").symlink_to(outside / "a")
        return False

    monkeypatch.setattr(SessionDirectories, "is_secret", exchanged)
    assert "~/code/project/.agents/skills/a/SKILL.md cannot be read" in warning(project)
