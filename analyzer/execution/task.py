"""What is executed, and how."""

from msgspec import Struct

from analyzer.execution.budget import STEP_LIMIT
from analyzer.execution.guesses import Guesser
from analyzer.execution.image import ConstantImage
from analyzer.execution.program import CompiledKernel
from analyzer.execution.warps import Shape


class ExecutionOptions(Struct, frozen=True, kw_only=True):
    """How to execute.

    closes_loops: take alike iterations at once; off only to check that it changes nothing.
    max_warps: execute every CTA of a grid of no more warps than these; None leaves it to `sampling`.
    """

    guesser: Guesser
    closes_loops: bool = True
    step_limit: int = STEP_LIMIT
    max_warps: int | None = None


class Task(Struct, frozen=True, eq=False):
    """A launch of a compiled kernel."""

    kernel: CompiledKernel
    image: ConstantImage
    shape: Shape
    options: ExecutionOptions
