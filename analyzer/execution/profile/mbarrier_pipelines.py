"""Mbarriers that instructions go through in turn: what is known of a kernel's pipelines between its warps."""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.ir.opcode import Semantics


class PipelineRamp(Struct, frozen=True):
    """Rounds before the first one in which it is done, and after the last one.

    every_time: each time that the loop is gone through; else of all rounds together. is_guarded: warps come
    to it in all rounds, and it is predicated off in these; else they do not come to it. few: rounds in which
    it is done, however long the loop, where these are fewer than the others: then only the shorter one of
    before and after says where.
    """

    leading_skips: int
    trailing_skips: int
    is_per_loop_entry: bool
    is_predicated: bool
    n_active_iterations: int = 0

    def is_skipped(self, iteration: int, n_iterations: int) -> bool:
        """Whether it is not done in a round, by its number among so many."""
        first, stop = self.leading_skips, n_iterations - self.trailing_skips
        if self.n_active_iterations and self.leading_skips <= self.trailing_skips:
            stop = first + self.n_active_iterations
        elif self.n_active_iterations:
            first = stop - self.n_active_iterations
        return not first <= iteration < stop

    def compute_active_share(self, n_iterations: float) -> float:
        """Of so many rounds, those in which it is done."""
        if self.n_active_iterations:
            return min(1.0, self.n_active_iterations / max(1.0, n_iterations))
        return max(0.0, 1.0 - (self.leading_skips + self.trailing_skips) / max(1.0, n_iterations))


class MbarrierPipeline(Struct, frozen=True):
    """Mbarriers that are used in turn.

    barriers: how many; free_waits: waits of a warp that pass before anything has arrived, for it asks for the
    phase before the first.
    """

    n_stages: int
    n_free_waits: int


class PipelineUse(Struct, frozen=True):
    """An instruction at a ring; expected_bytes: that it announces, in the mean; n_ctas: to which a copy goes.

    share: of the warps that come to it, those that do it, but for odd_ends of its loop, where it is left out;
    part: of its rounds, those in which warps that come to it do it, as far as it is told.
    """

    pipeline: int
    semantics: Semantics
    expected_bytes: float
    warp_share: float
    ramp: PipelineRamp | None = None
    iteration_share: float = 1.0
    n_target_ctas: float = 1.0


class MbarrierPipelines(Struct, frozen=True):
    """Rings of a kernel, and the instructions that use them, by row.

    descriptors: of products of the tensor core, by row. distinct_share: of the tiles that CTAs of a wave
    copy, those that no other of them copies too; None where their coordinates are not known. pitches: from
    one box of a tensor to the next, of copies, by row (see `BoxOrigins`).
    """

    pipelines: tuple[MbarrierPipeline, ...]
    uses: Mapping[int, PipelineUse]
    matrix_descriptors: Mapping[int, int]
    distinct_tile_share: float | None
    box_pitches: Mapping[int, tuple[int, ...]] = {}
