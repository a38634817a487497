"""Bytes of TMA copies, from the transaction counts that arrivals at their mbarriers announce.

SASS does not state the size of a bulk tensor copy. But a thread announces the expected bytes at the mbarrier
(PTX ISA, mbarrier.arrive.expect_tx), and the copies that complete there bring as many:

    arrive.expect_tx 32768    two copies at this mbarrier    16384 bytes each

The copies of a pipeline share its bytes by the volume of their boxes, if known, else equally.
"""

from collections.abc import Container, Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.mbarriers.box_pitches import compute_box_volume
from analyzer.execution.profile.mbarrier_pipelines import MbarrierPipelines
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopForest
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import Semantics

LINE_BYTES = 128
# Row of a box in units, and how many there may be: an axis has at most 256 elements (cuTensorMapEncodeTiled).
_BOX_ROW_UNIT_BYTES, _BOX_ROW_UNIT_COUNTS = 16, range(1, 129)
_ELEMENT_BYTES = (1, 2, 4, 8)
_RELATIVE_TOLERANCE = 0.01


class TmaBox(Struct, frozen=True):
    """Bytes that one execution of a copy brings, in rows that are aligned to their size."""

    n_bytes: float
    row_bytes: int

    @property
    def sector_bytes(self) -> float:
        """Bytes of the whole sectors that hold its rows."""
        return self._count_row_units(SECTOR_BYTES) * SECTOR_BYTES

    @property
    def n_l2_requests(self) -> float:
        """Requests to the L2, one for each line of each row."""
        return self._count_row_units(LINE_BYTES)

    def _count_row_units(self, unit: int) -> float:
        return self.n_bytes / self.row_bytes * max(1.0, self.row_bytes / unit)


def find_tma_boxes(pipelines: MbarrierPipelines, copied_bytes: Mapping[int, float]) -> dict[int, TmaBox]:
    """Find the boxes of copies of which only the bytes are known, by row.

    Boxes of a tensor are taken to be adjacent: then the distance between boxes along an axis is their length,
    and the bytes divided by the outer lengths are a row. Copies are left out if a distance along an outer
    axis is unknown, or if the one along the innermost axis contradicts the row.
    copied_bytes: of one execution, by row.
    """
    found: dict[int, TmaBox] = {}
    for row, n_bytes in copied_bytes.items():
        inner, *others = pipelines.box_pitches.get(row, (0,))
        row_bytes = n_bytes / prod(others) if others and all(others) else 0.0
        if _is_near_one_of(row_bytes / _BOX_ROW_UNIT_BYTES, _BOX_ROW_UNIT_COUNTS) and (
            not inner or _is_near_one_of(row_bytes / inner, _ELEMENT_BYTES)
        ):
            found[row] = TmaBox(n_bytes, _BOX_ROW_UNIT_BYTES * round(row_bytes / _BOX_ROW_UNIT_BYTES))
    return found


def with_iteration_shares(
    pipelines: MbarrierPipelines, cfg: Cfg, loop_forest: LoopForest, weights: FloatArray
) -> MbarrierPipelines:
    """Return pipelines with the share of iterations in which operations predicated off at a loop's ends run.

    weights[n]: executions of each instruction.
    """
    uses = dict(pipelines.uses)
    for row, use in pipelines.uses.items():
        loop = loop_forest.loop_of[cfg.block_of[row]]
        if loop is not None and use.ramp is not None and use.ramp.is_predicated:
            n_iterations = _count_loop_iterations(
                cfg, loop_forest.loops[loop], weights, per_entry=use.ramp.is_per_loop_entry
            )
            uses[row] = replace(use, iteration_share=use.ramp.compute_active_share(n_iterations))
    return replace(pipelines, uses=uses)


def count_prefetched_bytes(pipelines: MbarrierPipelines) -> float:
    """Return the least shared memory of a CTA in which copies can fill all stages of their pipelines."""
    stage_bytes = [0.0] * len(pipelines.pipelines)
    copy_pipelines = {
        use.pipeline for use in pipelines.uses.values() if use.semantics is Semantics.MBARRIER_COPY
    }
    for use in pipelines.uses.values():
        if use.pipeline in copy_pipelines and use.semantics is Semantics.MBARRIER_ARRIVE:
            stage_bytes[use.pipeline] = max(
                stage_bytes[use.pipeline], use.expected_bytes * min(1.0, use.warp_share)
            )
    return sum(
        pipeline.n_stages * n_bytes
        for pipeline, n_bytes in zip(pipelines.pipelines, stage_bytes, strict=True)
    )


def _count_loop_iterations(cfg: Cfg, loop: Loop, weights: FloatArray, *, per_entry: bool) -> float:
    """Count a warp's iterations of a loop, per entry or in all.

    In all: if the mean warp enters the loop less than once, the count is that of a warp which does, once.
    """
    n_iterations = float(weights[cfg.blocks[loop.header].start])
    outside = [block for block in cfg.predecessors[loop.header] if block not in loop.blocks]
    entries = sum(float(weights[cfg.blocks[block].start]) for block in outside)
    return n_iterations / entries if 0.0 < entries < (n_iterations if per_entry else 1.0) else n_iterations


def count_copied_bytes(pipelines: MbarrierPipelines, weights: FloatArray) -> dict[int, float]:
    """Count the bytes of one execution of each copy, by row.

    The copies of a pipeline share its announced bytes by the volume of their boxes, if all are known, else
    equally. Copies of pipelines without announced bytes are left out. A multicast copy brings its bytes to
    each of its target CTAs.
    weights[n]: executions of each instruction.
    """
    announced_bytes = [0.0] * len(pipelines.pipelines)
    copies: list[dict[int, float]] = [{} for _ in pipelines.pipelines]
    for row, use in pipelines.uses.items():
        times = use.warp_share * use.iteration_share * float(weights[row])
        if use.semantics is Semantics.MBARRIER_ARRIVE:
            announced_bytes[use.pipeline] += use.expected_bytes * times
        elif use.semantics is Semantics.MBARRIER_COPY:
            copies[use.pipeline][row] = times * use.n_target_ctas
    found: dict[int, float] = {}
    for n_bytes, n_copies_by_row in zip(announced_bytes, copies, strict=True):
        sizes = _compute_box_volumes(pipelines, n_bytes, n_copies_by_row)
        total = sum(sizes[row] * times for row, times in n_copies_by_row.items())
        for row in n_copies_by_row if total and n_bytes else ():
            use = pipelines.uses[row]
            found[row] = use.warp_share * use.iteration_share * n_bytes * sizes[row] / total
    return found


def _compute_box_volumes(
    pipelines: MbarrierPipelines, n_bytes: float, n_copies_by_row: Mapping[int, float]
) -> dict[int, float]:
    """Return the relative box volumes of copies that bring n_bytes together, by row.

    If they are unknown, such that all copies bring equally much to each CTA.
    n_copies_by_row: how often each copy reaches a CTA.
    """
    boxes = {row: pipelines.box_pitches.get(row, (0, 0)) for row in n_copies_by_row}
    volumes = {row: compute_box_volume(pitches) for row, pitches in boxes.items()}
    found = {row: float(volume) for row, volume in volumes.items() if volume is not None}
    inner = {bool(pitches[0]) for pitches in boxes.values()}
    total = sum(volume * n_copies_by_row[row] for row, volume in found.items())
    is_known = inner == {False} or (
        inner == {True} and total > 0 and _is_near_one_of(n_bytes / total, _ELEMENT_BYTES)
    )
    if is_known and len(found) == len(boxes):
        return found
    return {row: 1.0 / pipelines.uses[row].n_target_ctas for row in n_copies_by_row}


def _is_near_one_of(number: float, known: Container[int]) -> bool:
    """Return whether a number is one of the known ones, up to the rounding of mean counts."""
    return round(number) in known and abs(number / round(number) - 1.0) < _RELATIVE_TOLERANCE
