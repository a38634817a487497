"""Contention of resident warps: for functional units and the L1 (GCoM), and for what lies beyond it (MDM).

GCoM's part is equations 7 to 13 of AMALI (Cao et al., ISCA 2025). AMALI does not print MDM's formulas; they
follow the authors' artifact (github.com/wanglu1991/MDM-functional-simulator): the misses in flight of all SMs
queue at the NoC and the DRAM, where a request waits for half of the queue on average. MSHRs do not run out
(AMALI's table 2: unlimited).
"""

import numpy as np
from msgspec import Struct

from analyzer.baselines.intervals import Intervals
from analyzer.demand.opcode_costs import PIPES
from analyzer.ir.arrays import FloatArray, make_read_only
from analyzer.ir.scheduling import Pipe
from analyzer.models.bounds import convert_to_bytes_per_cycle
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.l2_rate import compute_launch_l2_gbps
from analyzer.models.miss_rates import MissRates
from analyzer.models.stalls import StallAccumulator

ISSUE_RATE_PER_CYCLE = 1.0  # warp instructions per cycle and sub-core: AMALI table 2, single-issue
_MEMORY_PIPES = frozenset({Pipe.LSU, Pipe.TMA, Pipe.TMEM})


class IssueCycles(Struct, frozen=True, eq=False):
    """Cycles to issue each interval for x warps, [k]."""

    uncontended: FloatArray
    contended: FloatArray  # at the resource with most contention
    # Column of that pipe, `L1_COLUMN` for the L1, -1 if no resource takes longer than issue.
    limiting_column: "np.ndarray[tuple[int], np.dtype[np.int64]]"

    def __post_init__(self) -> None:
        make_read_only(self.uncontended, self.contended, self.limiting_column)


L1_COLUMN = len(PIPES)


def compute_issue_cycles(model_input: ModelInput, intervals: Intervals, n_warps: float) -> IssueCycles:
    """Compute equations 7 to 11 for x resident warps of an SM."""
    limits, memory = model_input.arch.limits, model_input.arch.memory
    active = min(n_warps, limits.subcores_per_sm.value) * ISSUE_RATE_PER_CYCLE
    base = intervals.instructions * n_warps / active
    of_pipes = intervals.pipe_cycles * n_warps / active
    of_l1 = np.ceil(intervals.l1_bytes / memory.l1_bytes_per_cycle_per_sm.value) * n_warps
    every = np.column_stack((of_pipes, of_l1))
    winner = every.argmax(axis=1)
    most = np.maximum(every.max(axis=1), base)
    return IssueCycles(base, most, np.where(most > base, winner, -1))


def add_structural_contention(
    accumulator: StallAccumulator,
    model_input: ModelInput,
    intervals: Intervals,
    issued: IssueCycles,
    times: float,
) -> float:
    """Add S_ComStruct and S_MemStruct (12, 13) to the instructions that contend; return their cycles."""
    ids = model_input.kernel.opcode_ids
    pipe = model_input.costs.pipe[ids].astype(np.int64)
    excess = (issued.contended - issued.uncontended) * intervals.executions * times
    moved = model_input.access_bytes.global_bytes + model_input.access_bytes.local_bytes
    winner = issued.limiting_column[intervals.interval_of_row]
    is_l1 = winner == L1_COLUMN
    use = np.where(is_l1, moved, np.where(winner == pipe, intervals.issue_cycles, 0.0))
    whole = np.bincount(intervals.interval_of_row, weights=use, minlength=len(excess))
    share = np.divide(use, whole[intervals.interval_of_row], out=np.zeros_like(use), where=use > 0)
    cycles = share * excess[intervals.interval_of_row]
    for stall, columns in _COLUMNS_BY_STALL.items():
        accumulator.add_row_cycles(stall, np.where(np.isin(winner, columns), cycles, 0.0))
    return float(cycles.sum())


def _group_columns_by_stall() -> dict[Stall, list[int]]:
    """Group columns by the stall that contention for them is shown as (AMALI section 4.6)."""
    found: dict[Stall, list[int]] = {Stall.LG_THROTTLE: [L1_COLUMN]}
    for column, pipe in enumerate(PIPES):
        stall = Stall.LG_THROTTLE if pipe in _MEMORY_PIPES else Stall.MATH_PIPE_THROTTLE
        stall = Stall.TEX_THROTTLE if pipe is Pipe.TEX else stall
        stall = Stall.BRANCH_RESOLVING if pipe is Pipe.CBU else stall
        found.setdefault(stall, []).append(column)
    return found


_COLUMNS_BY_STALL = _group_columns_by_stall()


class WaveLoad(Struct, frozen=True, kw_only=True):
    """Equal waves: warps on a busy SM, busy SMs, and number of waves."""

    warps_per_sm: float
    n_busy_sms: float
    n_waves: float


def add_memory_contention(
    accumulator: StallAccumulator,
    model_input: ModelInput,
    intervals: Intervals,
    miss_rates: MissRates,
    clock_mhz: float,
    wave_load: WaveLoad,
    covered: FloatArray,
) -> float:
    """Add S_MSHR + S_NoC + S_DRAM as mio_throttle (AMALI equation 24); return their cycles.

    covered[k]: cycles of interval k that are attributed already, to issue and to contention; the queues of a
    memory interval cost what exceeds those of all its parts. A memory interval runs as often as its most
    executed part, in whose runs the others take part. Misses are counted in lines.
    """
    n = int(intervals.memory_interval[-1]) + 1
    runs = np.zeros(n)
    np.maximum.at(runs, intervals.memory_interval, intervals.executions)

    def of_memory(values: FloatArray) -> FloatArray:
        whole = np.bincount(intervals.memory_interval, weights=values * intervals.executions, minlength=n)
        return np.divide(whole, runs, out=np.zeros(n), where=runs > 0)

    line = model_input.arch.memory.line_bytes.value
    lines = miss_rates.l1_miss_rate / line * wave_load.warps_per_sm
    reads, writes = of_memory(intervals.read_bytes) * lines, of_memory(intervals.written_bytes) * lines
    service_cycles = _compute_line_service_cycles(model_input, miss_rates, clock_mhz)
    queue = service_cycles * wave_load.n_busy_sms * (reads + writes) * 0.5
    cycles = np.maximum(queue - of_memory(covered), 0.0) * runs * wave_load.n_waves
    of_row = intervals.memory_interval[intervals.interval_of_row]
    moved = model_input.access_bytes.global_bytes * intervals.executions[intervals.interval_of_row]
    whole = np.bincount(of_row, weights=moved, minlength=n)
    share = np.divide(moved, whole[of_row], out=np.zeros_like(moved), where=moved > 0)
    charged = share * cycles[of_row]
    accumulator.add_row_cycles(Stall.MIO_THROTTLE, charged)
    return float(charged.sum())


def _compute_line_service_cycles(model_input: ModelInput, miss_rates: MissRates, clock_mhz: float) -> float:
    """Return the cycles for which one line occupies the NoC, and the DRAM if it misses the L2."""
    line, dram_gbps = model_input.arch.memory.line_bytes.value, model_input.gpu.peak_dram_gbps.value
    l2_gbps = compute_launch_l2_gbps(model_input, miss_rates, clock_mhz)
    return line / convert_to_bytes_per_cycle(l2_gbps, clock_mhz) + miss_rates.dram_share * (
        line / convert_to_bytes_per_cycle(dram_gbps, clock_mhz)
    )
