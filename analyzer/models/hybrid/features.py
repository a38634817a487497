"""What the correction of `sm` reads of a launch: dimensionless numbers, none of which names a GPU.

Three groups, one row per launch:

    shares    cycles by stall over all cycles (the CPI stack), and the least of each resource over them
    grid      CTAs over SMs, waves, CTAs that the last wave lacks, occupancy, warps of a CTA
    data      footprint over the L2, written part, part that is written where it is read, part from DRAM

Ratios of a GPU's own figures (bandwidths, latencies, sizes) are left out: few GPUs teach, so they tell these
apart, and errors on GPUs left out were larger with them.

Invariant: a launch on a GPU that is the same but for a common factor on its clock and its bandwidths has the
same row, except for the fixed time of a launch.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from analyzer.demand.opcode_costs import PIPES
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.profile.execution_profile import GlobalTraffic
from analyzer.hardware.l2_retention import read_l2_retention
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.bounds import (
    ATOMICS_BOUND,
    DRAM_BOUND,
    ISSUE_BOUND,
    L2_BOUND,
    LOAD_STORE_BOUND,
    REGISTER_PORTS_BOUND,
)
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.miss_rates import count_unique_copied_bytes
from analyzer.models.model_result import ModelResult

Row = NDArray[np.float64]
STALLS = tuple(Stall)
# Names of bounds as `sm` gives them; what else it gives is the busiest pipe.
_BOUNDS = (DRAM_BOUND, L2_BOUND, LOAD_STORE_BOUND, ISSUE_BOUND, REGISTER_PORTS_BOUND, ATOMICS_BOUND)
_PIPE_NAMES = frozenset(pipe.value for pipe in PIPES)
_LEAST = 1e-4  # below it, ratios are taken to be equal

FEATURE_NAMES = (
    *(f"stall {stall.value}" for stall in STALLS),
    *(f"bound {name}" for name in _BOUNDS),
    "bound busiest pipe",
    "log2 time over launch",
    "log2 CTAs over SMs",
    "log2 waves",
    "ceiling of waves over waves",
    "empty part of the last wave",
    "occupancy",
    "log2 CTAs per SM",
    "log2 warps of a CTA",
    "log2 instructions of a warp",
    "log2 CTA dispatch over time",
    "log2 one warp's waves over time",
    "log2 parts one after another over time",
    "active lanes",
    "log2 footprint over L2",
    "log2 footprint over kept L2",
    "written part",
    "part written where read",
    "DRAM part",
    "log2 sector use",
)

INSTRUCTIONS_COLUMN = FEATURE_NAMES.index("log2 instructions of a warp")


def compute_features(result: ModelResult) -> Row:
    """Return the row of a launch that `sm` simulated, in order of `FEATURE_NAMES`."""
    model_input, prediction = result.model_input, result.prediction
    values = (
        *_list_shares(prediction.cpi_stack, prediction.bounds_cycles, prediction.cycles),
        *_list_grid_features(model_input, prediction.cycles, prediction.clock_mhz),
        *_list_serial_features(result),
        *_list_data_features(model_input, prediction.bounds_cycles),
    )
    return np.array(values, dtype=np.float64)


def _list_shares(stack: Mapping[Stall, float], bounds: Mapping[str, float], cycles: float) -> list[float]:
    pipes = [bound for name, bound in bounds.items() if name in _PIPE_NAMES]
    return [
        *(stack.get(stall, 0.0) / cycles for stall in STALLS),
        *(bounds.get(name, 0.0) / cycles for name in _BOUNDS),
        max(pipes, default=0.0) / cycles,
    ]


def _list_grid_features(model_input: ModelInput, cycles: float, clock_mhz: float) -> list[float]:
    launch, occupancy = model_input.gpu.file.launch, model_input.occupancy
    waves = model_input.waves
    whole = max(1.0, math.ceil(waves))
    dispatch = model_input.grid_ctas / launch.ctas_per_us.value * clock_mhz
    return [
        _log2(cycles / (launch.overhead_us.value * clock_mhz)),
        _log2(model_input.grid_ctas / model_input.gpu.sm_count),
        _log2(waves),
        whole / waves if waves > 1.0 else 1.0,
        whole - waves if waves > 1.0 else 0.0,
        occupancy.theoretical_occupancy,
        _log2(occupancy.ctas_per_sm),
        _log2(occupancy.warps_per_cta),
        _log2(model_input.demand.instructions),
        _log2(dispatch / cycles),
    ]


def _list_serial_features(result: ModelResult) -> list[float]:
    """Return what the launch would take without overlap, over its time, and the part of lanes that work."""
    model_input, prediction, timeline = result.model_input, result.prediction, result.timeline
    counts, cycles = model_input.execution_counts, prediction.cycles
    waits = 0.0 if timeline is None else timeline.waits.sum(axis=1)
    warp = float((counts * (1.0 + waits)).sum())
    bounds, profile = prediction.bounds_cycles, model_input.profile
    launch = prediction.cpi_stack.get(Stall.LAUNCH, 0.0)
    serial = launch + warp + bounds.get(DRAM_BOUND, 0.0) + bounds.get(L2_BOUND, 0.0)
    lanes = 1.0
    if profile is not None and profile.block_executions.any():
        lanes = float(profile.block_active_lanes.sum() / (WARP_SIZE * profile.block_executions.sum()))
    whole_waves = max(1.0, math.ceil(model_input.waves))
    return [_log2(warp * whole_waves / cycles), _log2(serial / cycles), lanes]


def _list_data_features(model_input: ModelInput, bounds: Mapping[str, float]) -> list[float]:
    l2_bytes = model_input.gpu.file.l2.size_bytes.value
    traffic = None if model_input.profile is None else model_input.profile.traffic
    footprint, written, both = _measure_footprint(model_input, traffic)
    requested = model_input.demand.global_bytes * model_input.grid_ctas * _count_warps(model_input)
    dram, l2 = bounds.get(DRAM_BOUND, 0.0), bounds.get(L2_BOUND, 0.0)
    return [
        _log2(footprint / l2_bytes),
        _log2(footprint / read_l2_retention(model_input.gpu).kept_bytes),
        written,
        both,
        dram / (dram + l2) if dram + l2 else 0.0,
        _log2(footprint / requested) if requested and footprint else 0.0,
    ]


def _measure_footprint(model_input: ModelInput, traffic: GlobalTraffic | None) -> tuple[float, float, float]:
    """Return the distinct bytes, the part of them that is written, and the part both read and written."""
    copied = count_unique_copied_bytes(model_input)
    if traffic is None or traffic.unique_sectors is None:
        return copied + (model_input.access_bytes.unique_global_bytes or 0.0), 0.0, 0.0
    read, written = traffic.read_unique_sectors or 0, traffic.written_unique_sectors or 0
    total = max(1.0, traffic.unique_sectors + copied / SECTOR_BYTES)
    return total * SECTOR_BYTES, written / total, max(0.0, read + written - traffic.unique_sectors) / total


def _count_warps(model_input: ModelInput) -> int:
    return -(-model_input.block_threads // WARP_SIZE)


def _log2(ratio: float) -> float:
    return math.log2(max(ratio, _LEAST))
