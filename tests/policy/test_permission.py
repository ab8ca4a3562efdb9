"""The decision about a call: what wins over what, and the laws no settings can break."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yarrow.config.project_trust import remove_loosened
from yarrow.config.settings import AllowedCall, PermissionMode
from yarrow.policy.permission.decision import Allow, Ask, Decision, Deny, decide
from yarrow.policy.permission.path_rules import CallDescription, ToolKind

ASK, AUTO, DENY, PLAN = PermissionMode.ASK, PermissionMode.AUTO, PermissionMode.DENY, PermissionMode.PLAN


def shell(command: str = "make", *, contained: bool = False) -> CallDescription:
    like = AllowedCall("bash", command, "/w", uncontained=not contained)
    return CallDescription("bash", ToolKind.SHELL, False, command, like, is_sandboxed=contained)


def file(tool: str = "write", path: str = "/w/a", *, outside: bool = False) -> CallDescription:
    like = AllowedCall(tool, path.rpartition("/")[0], "/w")
    return CallDescription(tool, ToolKind.FILE, tool == "read", path, like, is_outside=outside)


def other(*, read_only: bool = False) -> CallDescription:
    return CallDescription("deploy", ToolKind.OTHER, read_only, "{}", AllowedCall("deploy", "{}", "/w"))


def decided(
    call: CallDescription, rules: dict[str, str] | None = None, mode: PermissionMode = ASK, *allowed: AllowedCall
) -> type[Decision]:
    return type(decide(call, mode=mode, rules=rules or {}, allowed=allowed))


@pytest.mark.parametrize(
    ("call", "by_mode"),
    [
        (file("read"), (Allow, Allow, Allow, Allow)),
        (file("read", outside=True), (Ask, Ask, Deny, Ask)),
        (file(), (Allow, Allow, Deny, Deny)),
        (file(outside=True), (Ask, Ask, Deny, Deny)),
        (shell(), (Ask, Allow, Deny, Deny)),
        (shell(contained=True), (Allow, Allow, Deny, Deny)),
        (other(), (Ask, Allow, Deny, Deny)),
        (other(read_only=True), (Allow, Allow, Allow, Allow)),
    ],
)
def test_without_rules(call: CallDescription, by_mode: tuple[type[Decision], ...]) -> None:
    assert tuple(decided(call, mode=mode) for mode in (ASK, AUTO, DENY, PLAN)) == by_mode


@pytest.mark.parametrize(
    ("call", "rules", "expected"),
    [
        (shell(), {"bash": "auto"}, Allow),
        (shell("ls"), {"bash(ls)": "auto"}, Ask),  # a pattern grants nothing where there is no sandbox
        (shell("ls", contained=True), {"bash": "ask", "bash(ls)": "auto"}, Allow),
        (shell("lsx", contained=True), {"bash": "ask", "bash(ls)": "auto"}, Ask),
        (shell("git status", contained=True), {"bash": "ask", "bash(git *)": "auto"}, Allow),
        (shell("git push x", contained=True), {"bash(git *)": "auto", "bash(git push*)": "ask"}, Ask),
        (shell("git push", contained=True), {"bash(git push)": "auto", "bash(git*)": "deny"}, Deny),
        (shell("rm -r\nx"), {"bash(rm*)": "deny", "bash": "auto"}, Deny),
        (file("write", "/w/docs/a"), {"write(/w/docs/*)": "ask"}, Ask),
        (file("write", "/w/docs/a"), {"*": "ask", "write": "auto"}, Allow),
        (file("write", "/w/docs/a"), {"*": "ask"}, Ask),
        (file("read", "/etc/hosts", outside=True), {"read": "auto"}, Ask),
        (file("read", "/etc/hosts", outside=True), {"read(/etc/hosts)": "auto"}, Allow),
        (file("write", "/w/a"), {"write(/w/?)": "deny", "write(/w/[a])": "deny"}, Allow),  # only * means more
    ],
)
def test_rules_by_precedence(call: CallDescription, rules: dict[str, str], expected: type[Decision]) -> None:
    assert decided(call, rules) is expected


@pytest.mark.parametrize(
    "tail", [";x", "&&x", "|x", "$(x)", "`x`", "\nx", ">f", "<f", "'x'", '"x"', "{a,b}", "*", "\\", "é"]
)
def test_a_command_with_a_metacharacter_matches_no_auto_rule(tail: str) -> None:
    call = shell(f"git status {tail}", contained=True)
    assert decided(call, {"bash": "ask", "bash(git *)": "auto"}) is Ask


def test_allowed_calls_match_narrowly() -> None:
    call = shell("make test")
    assert decided(call, {}, ASK, call.allow_key) is Allow
    assert decided(call, {"bash": "ask"}, ASK, call.allow_key) is Allow
    assert decided(call, {"bash(make*)": "deny"}, ASK, call.allow_key) is Deny
    assert decided(call, {}, PLAN, call.allow_key) is Deny
    assert decided(shell("make test "), {}, ASK, call.allow_key) is Ask


def test_a_call_allowed_in_a_sandbox_is_asked_about_outside() -> None:
    inside, outside = shell(contained=True), shell()
    asking = {"bash": "ask"}
    assert decided(inside, asking, ASK, inside.allow_key) is Allow
    assert decided(inside, asking, ASK, outside.allow_key) is Allow
    assert decided(outside, asking, ASK, outside.allow_key) is Allow
    assert decided(outside, asking, ASK, inside.allow_key) is Ask
    assert decided(outside, {}, ASK, AllowedCall("bash", "make", "/w")) is Ask  # kept before the two were distinguished


def test_reasons_name_their_rule_or_mode() -> None:
    assert decide(shell(), mode=ASK, rules={}, allowed=()) == Ask("it runs without a sandbox")
    assert decide(shell(), mode=ASK, rules={"bash": "ask"}, allowed=()) == Ask('rule "bash": ask')
    outside = decide(file(path="/etc/x", outside=True), mode=ASK, rules={}, allowed=())
    assert outside == Ask("/etc/x is outside the workspace")


# ---- laws ----

TOOLS = st.sampled_from(["bash", "write", "read", "deploy", "*"])
PATTERNS = st.lists(st.sampled_from(["git", " ", "*", "/w", "/", "a", "ls", ";"]), max_size=4).map("".join)
RULES = st.dictionaries(
    st.one_of(TOOLS, st.builds("{}({})".format, TOOLS, PATTERNS)), st.sampled_from(["auto", "ask", "deny"]), max_size=5
)
SUBJECTS = st.lists(st.sampled_from(["git", " ", "ls", "/w", "/", "a", ";", "\n"]), max_size=4).map("".join)
CALLS = st.one_of(
    st.builds(shell, SUBJECTS, contained=st.booleans()),
    st.builds(file, st.sampled_from(["read", "write"]), SUBJECTS.map("/{}".format), outside=st.booleans()),
    st.builds(other, read_only=st.booleans()),
)
MODES = st.sampled_from([ASK, AUTO, DENY, PLAN])
STRICTNESS = {Allow: 0, Ask: 1, Deny: 2}


@given(CALLS, RULES, st.booleans(), st.sampled_from([DENY, PLAN]))
def test_plan_and_deny_never_run_writing_tools(
    call: CallDescription, rules: dict[str, str], allowed: bool, mode: PermissionMode
) -> None:
    decision = decided(call, rules, mode, *([call.allow_key] if allowed else []))
    assert call.is_read_only or decision is Deny
    assert mode is PLAN or decision is not Ask


@given(CALLS, RULES, st.sampled_from([ASK, AUTO, PLAN]))
def test_deny_rules_override_allowed_calls(call: CallDescription, rules: dict[str, str], mode: PermissionMode) -> None:
    if decided(call, rules, mode) is Deny:
        assert decided(call, rules, mode, call.allow_key) is Deny


@given(CALLS, RULES, RULES, MODES)
def test_a_bare_deny_wins_over_every_rule(
    call: CallDescription, rules: dict[str, str], more: dict[str, str], mode: Any
) -> None:
    assert decided(call, {**rules, **more, call.tool: "deny"}, mode, call.allow_key) is Deny


@given(SUBJECTS, RULES)
def test_no_pattern_allows_a_shell_without_a_sandbox(command: str, rules: dict[str, str]) -> None:
    patterned = {rule: word for rule, word in rules.items() if "(" in rule}
    assert decided(shell(command), patterned) is not Allow


FILE_MODES = st.one_of(st.none(), st.sampled_from(["ask", "deny", "plan"]))


@example(file("read", outside=True), {}, {}, "deny", "plan")
@given(CALLS, RULES, RULES, FILE_MODES, FILE_MODES)
def test_a_projects_rules_never_widen(
    call: CallDescription,
    users: dict[str, str],
    projects: dict[str, str],
    users_mode: str | None,
    projects_mode: str | None,
) -> None:
    """Whatever a project's file says, no call is decided less strictly than by the user's own file alone."""

    def layer(rules: dict[str, str], mode: str | None) -> dict[str, Any]:
        return {"permissions": {"rules": rules} | ({"mode": mode} if mode else {})}

    kept, _ = remove_loosened(layer(projects, projects_mode), layer(users, users_mode))
    own: dict[str, Any] = kept["permissions"]
    mode = own.get("mode", users_mode or "ask")
    alone = decided(call, users, PermissionMode(users_mode or "ask"))
    together = decided(call, users | own["rules"], PermissionMode(mode))
    assert STRICTNESS[together] >= STRICTNESS[alone]
