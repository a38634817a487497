"""Task of an execution: a compiled kernel, its launch and options."""

from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.machine.budget import DEFAULT_STEP_LIMIT
from analyzer.execution.machine.cta_batch import LaunchShape
from analyzer.execution.profile.cta_boxes import CtaBox


class ExecutionOptions(Struct, frozen=True, kw_only=True):
    """Options of an execution."""

    branch_decider: BranchDecider
    accelerates_loops: bool = True  # execute equal iterations at once; false only to check that results agree
    step_limit: int = DEFAULT_STEP_LIMIT
    # Largest grid, in warps, of which every CTA is executed; None for the default of `cta_samples`.
    max_exhaustive_warps: int | None = None
    # Execute one CTA of each of these boxes, without a proof that it stands for all (none: some CTAs of the
    # grid), and estimate no gathers: for the ends of an interval. None to find the best sample.
    rough_boxes: tuple[CtaBox, ...] | None = None


class ExecutionTask(Struct, frozen=True, eq=False):
    """A launch of a compiled kernel."""

    kernel: CompiledKernel
    image: ConstantImage
    shape: LaunchShape
    options: ExecutionOptions

    def with_step_limit(self, limit: int) -> "ExecutionTask":
        """Return the task with another limit of steps."""
        return replace(self, options=replace(self.options, step_limit=limit))
