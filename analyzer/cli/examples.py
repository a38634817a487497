"""Examples at the end of each command's help."""


def make_examples(*lines: str) -> str:
    """Return an epilog of commands, each on a line of its own, which click does not fold.

    They run in the root of a checkout; tests run them.
    """
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
