"""The offer to run a command again outside the sandbox, as it comes with the output of a tool."""

SANDBOX_MARK = "[sandbox: "
"""Begins the last line of an output whose command failed because of the sandbox."""
OUTSIDE_ARGUMENT = "outside: true"
"""Is part of that line when the command may run outside."""
RERUN_PROMPT = f"Run it again with {OUTSIDE_ARGUMENT}."
"""Asks the model to do that."""
UNSANDBOXED_BANG = "!!!"
"""Begins a line that runs a command of the user's outside the sandbox."""
RERUN_OFFER = f"Type {UNSANDBOXED_BANG}COMMAND to run it outside the sandbox."


MODEL_INSTRUCTION = " To run it outside the sandbox"
"""Begins the part of that line that is meant for the model."""


def is_rerun_offered(output: str) -> bool:
    """Whether an output says that its command can be run again outside the sandbox."""
    last = output.rstrip("\n").rpartition("\n")[2]
    return last.startswith(SANDBOX_MARK) and last.endswith("]") and OUTSIDE_ARGUMENT in last


def strip_instruction(output: str) -> str:
    """Return an output without what its last line says to the model alone."""
    above, line_end, last = output.rstrip("\n").rpartition("\n")
    return f"{above}{line_end}{last.partition(MODEL_INSTRUCTION)[0]}]" if is_rerun_offered(output) else output
