"""Axes of a grid that the code computes itself, as a matrix product that orders its tiles in groups.

A launch of one dimension whose code splits the CTA's number into a tile's row and column would hold these,
and all that depends on them, once for each CTA. In the right order the CTAs are rows and columns, and what
depends on the row is uniform along it.

Example: 4096 CTAs with `row = cta % 64; column = cta / 64` become 64 x 64 CTAs; `row` is then held 64 times.
"""

import numpy as np

from analyzer.execution.lowering.step import Step, Value
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.register_state import RegisterView
from analyzer.ir.arrays import IntArray

MIN_CTAS_TO_SPLIT = 64
_MAX_EXAMINED_COLUMNS = 16
_MIN_AXIS_EXTENT_CTAS = 4  # fewer save little, and might hide a better split


class GridAxesFound(Exception):
    """Raised if CTAs in `cta_order`, split into rows and columns of `shape`, take less memory."""

    def __init__(self, order: IntArray, shape: tuple[int, int]) -> None:
        super().__init__(f"{shape[0]} x {shape[1]} CTAs")
        self.cta_order, self.shape = order, shape


class GridAxesFinder(ExecutionListener):
    """Looks for values that depend on the CTA alone and are the same in equally many CTAs each.

    n_ctas: CTAs of the batch, in one column.
    """

    def __init__(self, n_ctas: int) -> None:
        self.n_ctas = n_ctas
        self.n_columns_left = _MAX_EXAMINED_COLUMNS

    def on_step(self, step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView) -> None:
        """Raises GridAxesFound if an input of the step splits the CTAs into rows of equal length."""
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
        """Return the numbers of rows and columns if each value occurs equally often, else None."""
        values, counts = np.unique(column, return_counts=True)
        each = self.n_ctas // len(values)
        if min(len(values), each) < _MIN_AXIS_EXTENT_CTAS or bool((counts != each).any()):
            return None
        return len(values), each
