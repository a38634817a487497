"""Exit codes of every subcommand, as ruff and mypy have them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the end of a command means to a script."""

    CLEAN = 0
    GATE_TRIPPED = 1  # the answer was written, and a limit that the user set does not hold
    FAILED = 2  # usage, input or a tool failed; with --strict also a warning
    INTERRUPTED = 130  # by Ctrl-C: 128 + SIGINT, as shells have it
