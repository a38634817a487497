"""What long work tells of its progress."""

from collections.abc import Callable

# Gets the steps that are done, all steps (0: not known), and what is being worked on.
ProgressCallback = Callable[[int, int, str], None]


def ignore_progress(done: int, total: int, text: str) -> None:
    """Take progress, and show it nowhere."""
