"""What is executed, and how."""

from dataclasses import dataclass

from analyzer.execution.budget import STEP_LIMIT
from analyzer.execution.guesses import Guesser
from analyzer.execution.image import ConstantImage
from analyzer.execution.program import CompiledKernel
from analyzer.execution.warps import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """How to execute.

    closes_loops: take alike iterations at once; off only to check that it changes nothing.
    max_warps: execute every CTA of a grid of no more warps than these; None leaves it to `sampling`.
    """

    guesser: Guesser
    closes_loops: bool = True
    step_limit: int = STEP_LIMIT
    max_warps: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A launch of a compiled kernel."""

    kernel: CompiledKernel
    image: ConstantImage
    shape: Shape
    options: ExecutionOptions
