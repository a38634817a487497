"""What a model answers: a prediction with the stalls that it is summed from."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.copies import LINE_BYTES, copied_ahead_bytes
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.hardware.schema import Figure
from analyzer.ir.machine import Basis, Pipe
from analyzer.isa.mma import UNKNOWN_TILE_M, UNKNOWN_TILE_N
from analyzer.models.base import Prediction, Situation, largest_first, weakest
from analyzer.models.bounds import DRAM, bytes_per_cycle, gpu_bounds, sm_bounds
from analyzer.models.placement import Placement, assumed_placement, placement_note
from analyzer.models.residuals import scattered_atomics_share
from analyzer.models.stalls import StallProfile
from analyzer.models.walk import WarpWalk

# What a model itself may be off by on top of memory placement: not yet measured, so wide.
MODEL_ERROR = 0.35
_NEARLY = 1.01
_MOSTLY = 0.75


class Verdict(Struct, frozen=True, kw_only=True, eq=False):
    """A prediction with the situation, the stalls and the walk that it rests on."""

    situation: Situation
    prediction: Prediction
    stalls: StallProfile
    walk: WarpWalk


class Range(Struct, frozen=True):
    """Cycles with all requests served in L1, and with all of them from DRAM; is_whole: with the model's own
    error in it.
    """

    low_cycles: float
    high_cycles: float
    is_whole: bool = False


def clock_mhz(situation: Situation) -> float:
    """SM clock under this kernel's load."""
    return _clock(situation).value


def _clock(situation: Situation) -> Figure:
    """The launch's own where it says one, else the GPU's."""
    if situation.clock_mhz is not None:
        return Figure(value=situation.clock_mhz, basis=Basis.MEASURED, source="the launch")
    rate = situation.tensor_rate
    return situation.gpu.clock(tensor=rate, fills_float=rate is None and _fills_float(situation))


def _fills_float(situation: Situation) -> bool:
    """Whether FP32 work takes most of the time of a launch that is bound by throughput."""
    if situation.gpu.file.clock.sustained_float_mhz is None:
        return False
    placement, demand = assumed_placement(situation), situation.demand
    boost_mhz = situation.gpu.file.clock.boost_mhz.value
    bounds = sm_bounds(situation, situation.grid_ctas / situation.gpu.sm_count, placement, demand)
    bounds |= gpu_bounds(situation, situation.grid_ctas, placement, boost_mhz, demand)
    traffic = None if situation.profile is None else situation.profile.traffic
    if traffic is not None and situation.dram_read_sectors is not None:
        sectors = situation.dram_read_sectors + (traffic.written_unique_sectors or 0)
        bounds[DRAM] = sectors * SECTOR_BYTES / bytes_per_cycle(situation.gpu.dram, boost_mhz)
    return bounds.get(Pipe.FMA.value, 0.0) > _MOSTLY * max(bounds.values(), default=0.0)


def make_prediction(
    situation: Situation,
    model: str,
    stalls: StallProfile,
    *,
    bound: str,
    bounds_cycles: dict[str, float],
    span: Range,
    placement: Placement,
    notes: tuple[str, ...] = (),
) -> Prediction:
    """The prediction whose cycles are the sum of the stalls.

    The interval spans from all of memory's requests hitting L1 to all of them going to DRAM, widened by
    what the model itself may be off.
    """
    clock = _clock(situation)
    cycles, occupancy = stalls.total_cycles, situation.occupancy
    error = 0.0 if span.is_whole else MODEL_ERROR
    return Prediction(
        gpu=situation.gpu.key,
        model=model,
        cycles=cycles,
        time_us=cycles / clock.value,
        time_us_low=min(span.low_cycles, cycles) / clock.value * (1 - error),
        time_us_high=max(span.high_cycles, cycles) / clock.value * (1 + error),
        bound=bound,
        occupancy=occupancy.share,
        occupancy_limiter=occupancy.limiter.value,
        ctas_per_sm=occupancy.ctas_per_sm,
        waves=situation.waves,
        clock_mhz=clock.value,
        cpi_stack=stalls.stack(),
        bounds_cycles=largest_first(bounds_cycles),
        basis=weakest(clock.basis, situation.gpu.dram.basis, Basis.ASSUMED),
        assumptions=(*_assumptions(situation, placement, knows_all=span.is_whole), *notes),
    )


def _assumptions(situation: Situation, placement: Placement, *, knows_all: bool) -> tuple[str, ...]:
    notes = list(situation.counts.assumptions)
    if situation.grid is None:
        notes.append(f"grid not given: one full wave, {situation.grid_ctas} CTAs")
    resources = situation.kernel.resources
    if situation.block is None:
        notes.append(f"block size not given: {situation.block_threads} threads")
    if not resources.registers_exact:
        notes.append("registers read off the code; add -res-usage text for the exact number")
    if resources.shared_bytes is None:
        notes.append("static shared memory not given: none assumed")
    if situation.demand.global_bytes:
        notes.append(placement_note(situation, placement, queues_atomics=knows_all))
    if situation.kernel.control_words is None:
        notes.append("no hex words in the dump: waits follow from register latencies, not control codes")
    return (*notes, *_left_open(situation))


def _left_open(situation: Situation) -> Iterator[str]:
    """What addresses, copies and products leave open."""
    if scattered_atomics_share(situation):
        yield (
            "atomics at addresses that come from data are taken to meet as random ones do; where more do, "
            "each waits for the one before (--arg WHICH=@data.npy settles it)"
        )
    if _has_copies_of_unknown_size(situation):
        yield "bulk copies (TMA): their bytes do not stand in the code and are left out"
    if (rows := _short_boxes(situation)).size:
        more = f" and {rows.size - 1} more" if rows.size > 1 else ""
        yield (
            f"boxes copied at {int(situation.kernel.addresses[rows[0]]):#06x}{more} are taken to lie side by "
            f"side, and so to have rows of {_row_bytes(situation, int(rows[0])):.0f} bytes: "
            "--arg WHICH=tensormap:TYPE:EXTENTS:BOX settles it"
        )
    if situation.guessed_tiles:
        tile = f"{UNKNOWN_TILE_M}x{UNKNOWN_TILE_N}"
        yield f"tcgen05 instructions whose tile is not a constant: {situation.guessed_tiles}, {tile} taken"
    ahead = 0.0 if situation.rings is None else copied_ahead_bytes(situation.rings)
    if ahead > situation.shared_bytes:
        yield (
            f"copies put at least {ahead:,.0f} bytes into shared memory; the launch "
            f"gives {situation.shared_bytes:,}: say --dynamic-shared, or more CTAs are taken to fit than do"
        )


def _short_boxes(situation: Situation) -> NDArray[np.int64]:
    """Copies of boxes that nobody described, whose rows are shorter than a line."""
    moved = situation.moved
    is_short = moved.engine_lines * LINE_BYTES > moved.global_bytes * moved.density * _NEARLY
    placed = [] if situation.profile is None else [a.row for a in situation.profile.accesses if a.sectors]
    is_short[placed] = False
    return np.flatnonzero(is_short & (situation.weights > 0))


def _row_bytes(situation: Situation, row: int) -> float:
    moved = situation.moved
    return float(moved.global_bytes[row] * moved.density[row] / moved.engine_lines[row])


def _has_copies_of_unknown_size(situation: Situation) -> bool:
    """Whether a copy is executed whose mbarrier does not tell how much comes."""
    is_copy = situation.costs.is_bulk_copy[situation.kernel.opcode_ids] > 0
    is_unknown = (situation.moved.global_bytes == 0) & (situation.weights > 0)
    return bool((is_copy & is_unknown).any())
