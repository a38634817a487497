"""Which CTAs of a grid are executed, and how many of the grid each stands for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.image import ConstantImage
from analyzer.execution.program import CompiledKernel
from analyzer.execution.warps import Shape

if TYPE_CHECKING:
    from analyzer.execution.executor import ExecutionOptions

IntArray = NDArray[np.int64]

WHOLE_WARPS = 16384


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """CTAs by linear number, and weights that sum to the grid.

    is_whole: every CTA; is_proven: the others run as those do, block for block; is_even: and their memory
    requests cost the same.
    """

    numbers: IntArray
    weights: NDArray[np.float64]
    is_whole: bool
    is_proven: bool
    is_even: bool
    notes: tuple[str, ...] = ()


def choose_ctas(
    kernel: CompiledKernel, image: ConstantImage, shape: Shape, options: "ExecutionOptions"
) -> Sample:
    """The whole grid where that is cheap, else CTAs that stand for it."""
    total = shape.grid.count
    if total * shape.warps_per_cta <= (options.max_warps or WHOLE_WARPS):
        return Sample(np.arange(total, dtype=np.int64), np.ones(total), True, True, True)
    raise NotImplementedError
