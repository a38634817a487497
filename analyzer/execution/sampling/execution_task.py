"""What is executed, and how."""

from msgspec import Struct

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.machine.budget import DEFAULT_STEP_LIMIT
from analyzer.execution.machine.cta_batch import LaunchShape


class ExecutionOptions(Struct, frozen=True, kw_only=True):
    """How to execute.

    closes_loops: take alike iterations at once; off only to check that it changes nothing.
    max_warps: execute every CTA of a grid of no more warps than these; None leaves it to `sampling`.
    """

    branch_decider: BranchDecider
    accelerates_loops: bool = True
    step_limit: int = DEFAULT_STEP_LIMIT
    max_exhaustive_warps: int | None = None


class ExecutionTask(Struct, frozen=True, eq=False):
    """A launch of a compiled kernel."""

    kernel: CompiledKernel
    image: ConstantImage
    shape: LaunchShape
    options: ExecutionOptions
