"""Software pipelines between the warps of a CTA, synchronized by mbarriers.

A pipeline is a set of mbarriers, its stages, that the same instructions use in turn: iteration i of a loop
uses stage i modulo the number of stages.
"""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.ir.opcode import Semantics


class PipelineRamp(Struct, frozen=True):
    """Iterations at the ends of a loop in which an instruction at an mbarrier is skipped.

    A loop of ten iterations that copies two tiles ahead skips its copy in the last two: leading_skips is 0,
    trailing_skips 2.
    """

    leading_skips: int  # iterations before the first active one
    trailing_skips: int  # iterations after the last active one
    is_per_loop_entry: bool  # each time that the loop is entered; else over all iterations together
    is_predicated: bool  # warps execute it in skipped iterations, predicated off; else they branch around it
    # Active iterations, however long the loop is, if these are fewer than the skipped ones; else 0. Then the
    # shorter one of leading and trailing skips says where they are.
    n_active_iterations: int = 0

    def is_skipped_in_iteration(self, iteration: int, n_iterations: int) -> bool:
        """Return whether the instruction is skipped in one of `n_iterations` iterations."""
        first, stop = self.leading_skips, n_iterations - self.trailing_skips
        if self.n_active_iterations and self.leading_skips <= self.trailing_skips:
            stop = first + self.n_active_iterations
        elif self.n_active_iterations:
            first = stop - self.n_active_iterations
        return not first <= iteration < stop

    def compute_active_share(self, n_iterations: float) -> float:
        """Return the share of `n_iterations` iterations in which the instruction is active."""
        if self.n_active_iterations:
            return min(1.0, self.n_active_iterations / max(1.0, n_iterations))
        return max(0.0, 1.0 - (self.leading_skips + self.trailing_skips) / max(1.0, n_iterations))


class MbarrierPipeline(Struct, frozen=True):
    """Mbarriers that are used in turn."""

    n_stages: int  # number of mbarriers
    # Waits of a warp that pass before anything has arrived, since they ask for the phase before the first.
    n_free_waits: int


class PipelineUse(Struct, frozen=True):
    """Use of a pipeline by one instruction."""

    pipeline: int  # its index in `MbarrierPipelines.pipelines`
    semantics: Semantics
    expected_bytes: float  # bytes that one execution announces, on average
    warp_share: float  # share of the warps that reach it which are not predicated off, the ramp left aside
    ramp: PipelineRamp | None = None
    iteration_share: float = 1.0  # share of the loop's iterations in which it is active, if known
    n_target_ctas: float = 1.0  # CTAs to which a copy is multicast


class MbarrierPipelines(Struct, frozen=True):
    """Pipelines of a kernel, and the instructions that use them."""

    pipelines: tuple[MbarrierPipeline, ...]
    uses: Mapping[int, PipelineUse]  # by row
    matrix_descriptors: Mapping[int, int]  # shared memory descriptors of matrix products, by row
    # Share of the tiles that CTAs of a wave copy which is left if each tile is counted once; None if unknown.
    distinct_tile_share: float | None
    box_pitches: Mapping[int, tuple[int, ...]] = {}  # of copies, by row (see `BoxOrigins`)


def find_mbarrier_uses(pipelines: MbarrierPipelines | None) -> Mapping[int, PipelineUse]:
    """Return the instructions that use pipelines, by row; none where no pipelines are known."""
    return {} if pipelines is None else pipelines.uses
