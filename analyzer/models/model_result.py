"""Result of a model: its prediction, and the stalls and timeline behind it where it has them."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec import UNSET, Struct
from numpy.typing import NDArray

from analyzer.demand.tensor_memory import keeps_allocation_permit
from analyzer.demand.tma_copies import LINE_BYTES, count_prefetched_bytes
from analyzer.hardware.resource_scaling import describe_scaled_figures
from analyzer.hardware.schema import HardwareParameter
from analyzer.ir.launch import Timing
from analyzer.ir.scheduling import Basis, find_weakest_basis
from analyzer.isa.mma_shapes import DEFAULT_TCGEN05_TILE_M, DEFAULT_TCGEN05_TILE_N
from analyzer.models.code_assumptions import describe_code_assumptions
from analyzer.models.interface import ModelInput, Prediction, sort_largest_first
from analyzer.models.launch_overhead import describe_timing
from analyzer.models.miss_rates import MissRates, describe_miss_rates
from analyzer.models.power import describe_power_clock, estimate_launch_clock, make_clock_figure
from analyzer.models.residuals import measure_scattered_atomic_share
from analyzer.models.stalls import StallProfile
from analyzer.models.timeline import WarpTimeline

# Error of a model itself, on top of unknown memory placement: not measured, so wide.
MODEL_ERROR_SHARE = 0.35
_SHORT_ROW_TOLERANCE_FACTOR = 1.01


class SmScaling(Struct, frozen=True, eq=False):
    """How a model's cycles follow from the CTAs of an SM, launch overhead left out (see `waves.py`)."""

    ctas_per_sm: float  # of the mean SM in the launch as it is, CTAs without work left out
    busy_cycles: float  # of the launch as it is
    predict_balanced_cycles: Callable[[int], float]  # of a grid that gives every SM so many CTAs


class ModelResult(Struct, frozen=True, kw_only=True, eq=False):
    """Prediction of one model for one input, with what else the model knows.

    Reports leave out the sections that need an attachment which is None.
    """

    model_input: ModelInput
    prediction: Prediction
    stalls: StallProfile | None = None  # cycles by instruction; None for models that know no instructions
    timeline: WarpTimeline | None = None  # waits of one warp; None for models that simulate no warp
    # Waits of the warps that execute an instruction as they run beside others to which they hand work;
    # None where `timeline` says as much.
    role_timeline: WarpTimeline | None = None
    sm_scaling: SmScaling | None = None  # None for models that do not say what another grid takes
    dram_bytes: float | None = None  # that the launch moves; None: requested bytes by their miss rates
    cold_share: float = 1.0  # of the data that the caches miss, what the last launch has not left in the L2
    n_simulated_steps: int = 0  # what a run costs; 0 for models that simulate nothing


class CycleRange(Struct, frozen=True):
    """Range of a launch's cycles: with all requests served by the L1, and with all of them by DRAM."""

    low_cycles: float
    high_cycles: float
    includes_model_error: bool = False  # the range already is that of measured times


def find_clock_mhz(model_input: ModelInput) -> float:
    """Return the SM clock under this kernel's load."""
    return _find_clock(model_input).value


def _find_clock(model_input: ModelInput) -> HardwareParameter:
    """Return the launch's own clock if given, else a settled one, else what power leaves, else the GPU's."""
    if model_input.clock_mhz is not None:
        return HardwareParameter(value=model_input.clock_mhz, basis=Basis.MEASURED, source="the launch")
    if model_input.settled_clock is not None:
        return model_input.settled_clock
    if (state := estimate_launch_clock(model_input)) is None:
        return model_input.gpu.find_clock_mhz(tensor=model_input.dominant_tensor_rate)
    usual = model_input.gpu.find_clock_mhz(tensor=None)
    return usual if state.clock_mhz == usual.value else make_clock_figure(state.clock_mhz)


def make_prediction(
    model_input: ModelInput,
    model: str,
    stalls: StallProfile,
    *,
    bound: str,
    bounds_cycles: Mapping[str, float],
    cycle_range: CycleRange,
    miss_rates: MissRates,
    cold_share: float = 1.0,
    notes: tuple[str, ...] = (),
) -> Prediction:
    """Make the prediction whose cycles are the sum of the stalls; cold_share: see `ModelResult`.

    Its interval is `cycle_range`, widened by the error of the model itself unless that is included.
    """
    clock = _find_clock(model_input)
    cycles, occupancy = stalls.total_cycles, model_input.occupancy
    error = 0.0 if cycle_range.includes_model_error else MODEL_ERROR_SHARE
    return Prediction(
        gpu=model_input.gpu.key,
        gpu_name=model_input.gpu.name,
        model=model,
        cycles=cycles,
        time_us=cycles / clock.value,
        time_us_low=min(cycle_range.low_cycles, cycles) / clock.value * (1 - error),
        time_us_high=max(cycle_range.high_cycles, cycles) / clock.value * (1 + error),
        bound=bound,
        occupancy=occupancy.theoretical_occupancy,
        occupancy_limiter=occupancy.limiter.value,
        ctas_per_sm=occupancy.ctas_per_sm,
        waves=model_input.waves,
        clock_mhz=clock.value,
        timing=UNSET if model_input.timing is Timing.INTERVAL else model_input.timing,
        cpi_stack=stalls.sum_by_stall(),
        bounds_cycles=sort_largest_first(bounds_cycles),
        basis=find_weakest_basis(clock.basis, model_input.gpu.peak_dram_gbps.basis, Basis.ASSUMED),
        assumptions=(
            *_list_assumptions(
                model_input,
                miss_rates.with_scaled_dram_share(cold_share),
                queues_atomics=cycle_range.includes_model_error,
            ),
            *describe_power_clock(model_input, clock),
            *notes,
        ),
    )


def _list_assumptions(
    model_input: ModelInput, miss_rates: MissRates, *, queues_atomics: bool
) -> tuple[str, ...]:
    """Return the notes of a report on what was assumed about launch, resources and addresses."""
    notes = list(model_input.block_counts.assumptions)
    if model_input.grid is None:
        notes.append(f"grid not given: one full wave, {model_input.grid_ctas} CTAs")
    resources = model_input.kernel.resources
    if model_input.block is None:
        notes.append(f"block size not given: {model_input.block_threads} threads")
    if not resources.has_exact_registers:
        notes.append("registers read off the code; add -res-usage text for the exact number")
    if resources.shared_bytes is None:
        notes.append("static shared memory not given: none assumed")
    if model_input.demand.global_bytes:
        notes.append(describe_miss_rates(model_input, miss_rates, queues_atomics=queues_atomics))
    notes.extend(describe_code_assumptions(model_input))
    notes += [] if (timing := describe_timing(model_input)) is None else [timing]
    notes += describe_scaled_figures(model_input.gpu.scaled_figures)
    return (*notes, *_describe_unknowns(model_input))


def _describe_unknowns(model_input: ModelInput) -> Iterator[str]:
    """Yield notes on unknown addresses, copies and products."""
    if measure_scattered_atomic_share(model_input):
        yield (
            "atomics at addresses that come from data are assumed to meet as random ones do; where more do, "
            "each waits for the one before (--arg WHICH=@data.npy settles it)"
        )
    if _has_copies_of_unknown_size(model_input):
        yield "bulk copies (TMA): their bytes do not stand in the code and are left out"
    if (rows := _find_short_row_copies(model_input)).size:
        more = f" and {rows.size - 1} more" if rows.size > 1 else ""
        yield (
            f"boxes copied at {int(model_input.kernel.addresses[rows[0]]):#06x}{more} are assumed to lie "
            f"side by side, and so to have rows of "
            f"{_estimate_row_bytes(model_input, int(rows[0])):.0f} bytes: "
            "--arg WHICH=tensormap:TYPE:EXTENTS:BOX settles it"
        )
    if model_input.n_unknown_mma_tiles:
        tile = f"{DEFAULT_TCGEN05_TILE_M}x{DEFAULT_TCGEN05_TILE_N}"
        n_unknown = model_input.n_unknown_mma_tiles
        yield (
            f"tcgen05 instructions whose tile is not a constant: {n_unknown}, {tile} taken for each CTA that "
            "works on it"
        )
    if keeps_allocation_permit(model_input.cfg):
        yield (
            "a CTA keeps the right to allocate tensor memory until its products are done: one on an SM at a "
            "time (tcgen05.relinquish_alloc_permit behind the allocation lets others start)"
        )
    prefetched_bytes = (
        0.0
        if model_input.mbarrier_pipelines is None
        else count_prefetched_bytes(model_input.mbarrier_pipelines)
    )
    if prefetched_bytes > model_input.shared_bytes_per_cta:
        yield (
            f"copies put at least {prefetched_bytes:,.0f} bytes into shared memory; the launch "
            f"gives {model_input.shared_bytes_per_cta:,}: say --dynamic-shared, "
            "or more CTAs are assumed to fit than do"
        )


def _find_short_row_copies(model_input: ModelInput) -> NDArray[np.int64]:
    """Return TMA copies of boxes without a given tensor map, whose rows are shorter than a line."""
    moved = model_input.access_bytes
    is_short = (
        moved.tma_requests * LINE_BYTES
        > moved.global_bytes * moved.box_sector_utilization * _SHORT_ROW_TOLERANCE_FACTOR
    )
    known_rows = (
        [] if model_input.profile is None else [a.row for a in model_input.profile.accesses if a.sectors]
    )
    is_short[known_rows] = False
    return np.flatnonzero(is_short & (model_input.execution_counts > 0))


def _estimate_row_bytes(model_input: ModelInput, row: int) -> float:
    moved = model_input.access_bytes
    return float(moved.global_bytes[row] * moved.box_sector_utilization[row] / moved.tma_requests[row])


def _has_copies_of_unknown_size(model_input: ModelInput) -> bool:
    """Return whether a TMA copy is executed whose mbarrier announces no bytes."""
    is_copy = model_input.costs.is_tma_copy[model_input.kernel.opcode_ids] > 0
    is_unknown = (model_input.access_bytes.global_bytes == 0) & (model_input.execution_counts > 0)
    return bool((is_copy & is_unknown).any())
