"""Offer to run a command again outside the sandbox, as contained in the output of a tool."""

SANDBOX_MARK = "[sandbox: "
"""Start of the last line of an output whose command failed because of the sandbox."""
OUTSIDE_ARGUMENT = "outside: true"
"""Part of that line if the command may run outside the sandbox."""
RERUN_PROMPT = f"Run it again with {OUTSIDE_ARGUMENT}."
"""Prompt that asks the model to do so."""
UNSANDBOXED_BANG = "!!!"
"""Prefix of a line that runs a command of the user outside the sandbox."""
RERUN_OFFER = f"Type {UNSANDBOXED_BANG}COMMAND to run it outside the sandbox."


MODEL_INSTRUCTION = " To run it outside the sandbox"
"""Start of the part of that line that is meant for the model."""


def is_rerun_offered(output: str) -> bool:
    """Return whether an output says that its command can be run again outside the sandbox."""
    last = output.rstrip("\n").rpartition("\n")[2]
    return last.startswith(SANDBOX_MARK) and last.endswith("]") and OUTSIDE_ARGUMENT in last


def strip_instruction(output: str) -> str:
    """Return an output without the part of its last line that is meant for the model only."""
    above, line_end, last = output.rstrip("\n").rpartition("\n")
    return f"{above}{line_end}{last.partition(MODEL_INSTRUCTION)[0]}]" if is_rerun_offered(output) else output
