"""What long work tells of its progress."""

from collections.abc import Callable

# Gets the steps that are done, all steps (0: not known), and what is being worked on.
ProgressCallback = Callable[[int, int, str], None]


def ignore_progress(done: int, total: int, text: str) -> None:
    """Take progress, and show it nowhere."""


class StepProgress:
    """Counter of steps that tells a callback what is being worked on."""

    def __init__(self, callback: ProgressCallback = ignore_progress, n_steps: int = 0) -> None:
        self.callback, self.n_steps = callback, n_steps
        self.n_begun = 0

    def begin(self, text: str) -> None:
        """Tell of a step that begins; the one before is done."""
        self.n_begun += 1
        self.tell(text)

    def tell(self, text: str) -> None:
        """Tell of a part of the step, or of work before the first one."""
        done = max(0, self.n_begun - 1)
        self.callback(min(done, self.n_steps) if self.n_steps else done, self.n_steps, text)
