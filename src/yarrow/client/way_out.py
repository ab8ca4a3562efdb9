"""The offer to run a command again outside the sandbox, as it comes with the output of a tool."""

MARK = "[sandbox: "
"""Begins the last line of an output whose command failed because of the sandbox."""
ARGUMENT = "outside: true"
"""Is part of that line when the command may run outside."""
PROMPT = f"Run it again with {ARGUMENT}."
"""Asks the model to do that."""
SIGN = "!!!"
"""Begins a line that runs a command of the user's outside the sandbox."""
OFFER = f"Type {SIGN}COMMAND to run it outside the sandbox."


INSTRUCTION = " To run it outside the sandbox"
"""Begins the part of that line that is meant for the model."""


def is_offered(output: str) -> bool:
    """Whether an output says that its command can be run again outside the sandbox."""
    last = output.rstrip("\n").rpartition("\n")[2]
    return last.startswith(MARK) and last.endswith("]") and ARGUMENT in last


def for_user(output: str) -> str:
    """Return an output without what its last line says to the model alone."""
    above, line_end, last = output.rstrip("\n").rpartition("\n")
    return f"{above}{line_end}{last.partition(INSTRUCTION)[0]}]" if is_offered(output) else output
