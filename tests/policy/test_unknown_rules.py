"""Rules for unknown tools are reported, since they have no effect."""

from yarrow.policy.permission.decision import describe_unknown_tools

TOOLS = ("read", "bash", "deploy")


def test_only_rules_for_unknown_tools_are_reported() -> None:
    rules = {"read": "ask", "read(a*)": "deny", "*": "ask", "*(x)": "deny", "deploy(x)": "auto"}
    assert describe_unknown_tools(rules, TOOLS) == []
    assert describe_unknown_tools({"Bash(rm*)": "deny"}, TOOLS) == [
        "permissions.rules: 'Bash(rm*)' has no effect: unknown tool 'Bash'; did you mean 'bash'?"
    ]
    assert describe_unknown_tools({"fetch": "deny", "(x)": "deny"}, TOOLS) == [
        "permissions.rules: 'fetch' has no effect: unknown tool 'fetch'; use one of bash, deploy, read",
        "permissions.rules: '(x)' has no effect: unknown tool ''; use one of bash, deploy, read",
    ]
