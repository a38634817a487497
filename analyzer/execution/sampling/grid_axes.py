"""Axes of a grid that its code makes for itself, as where a matrix product orders its tiles in groups.

A launch of one dimension whose code cuts the CTA's number into a tile's row and column would hold each of
them, and all that follows from it for each thread, once for every CTA. Put in order, the CTAs are rows and
columns, and what depends on the row is the same along it.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.lowering.step import Step, Value
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.register_state import RegisterView

IntArray = NDArray[np.int64]

MIN_CTAS_TO_SPLIT = 64
_MAX_EXAMINED_COLUMNS = 16
_MIN_AXIS_EXTENT_CTAS = 4  # fewer save little, and might hide a better cut


class GridAxesFound(Exception):
    """CTAs in `order`, cut into rows and columns of `shape`, are held in less room."""

    def __init__(self, order: IntArray, shape: tuple[int, int]) -> None:
        super().__init__(f"{shape[0]} x {shape[1]} CTAs")
        self.cta_order, self.shape = order, shape


class GridAxesFinder(ExecutionListener):
    """Looks at what is computed of a CTA's number and a thread's, while CTAs are held one by one."""

    def __init__(self, n_ctas: int) -> None:
        self.n_ctas = n_ctas
        self.n_columns_left = _MAX_EXAMINED_COLUMNS

    def on_step(self, step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView) -> None:
        """Raises GridAxesFound where an input splits the CTAs evenly into some that share it."""
        if not view.group.has_all_warps:
            return
        if self.n_columns_left <= 0 or all(result.size <= self.n_ctas for result in results):
            return
        columns = [word for word in words if word.shape == (self.n_ctas, 1, 1, 1)]
        for column in columns:
            self.n_columns_left -= 1
            shape = self._find_split(column.reshape(-1))
            if shape is not None:
                raise GridAxesFound(np.argsort(column.reshape(-1), kind="stable"), shape)

    def _find_split(self, column: Value) -> tuple[int, int] | None:
        values, counts = np.unique(column, return_counts=True)
        each = self.n_ctas // len(values)
        if min(len(values), each) < _MIN_AXIS_EXTENT_CTAS or bool((counts != each).any()):
            return None
        return len(values), each
