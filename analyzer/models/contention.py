"""Stalls of resident warps that contend: for functional units and the L1 (GCoM), beyond it (MDM).

GCoM's part is AMALI's equations 7 to 13. MDM's own formulas stand in none of our papers; the reading here
follows the authors' published artifact (github.com/wanglu1991/MDM-functional-simulator, read for its
arithmetic): the misses in flight of all SMs queue at the NoC and the DRAM, whole where they exceed the
MSHRs, half on average where they do not; misses beyond the MSHRs wait in batches.
"""

import math

import numpy as np
from msgspec import Struct

from analyzer.demand.costs import PIPES, FloatArray
from analyzer.ir.machine import Pipe
from analyzer.models.base import Situation, Stall
from analyzer.models.intervals import Intervals
from analyzer.models.placement import Placement, memory_latency_cycles
from analyzer.models.stalls import StallLedger

ISSUE_RATE = 1.0  # warp instructions per cycle and sub-core: AMALI table 2, single-issue
_MEMORY_PIPES = frozenset({Pipe.LSU, Pipe.TMA, Pipe.TMEM})
_GIGA = 1e9
_MEGA = 1e6


class IssueCycles(Struct, frozen=True, eq=False):
    """Cycles to issue each interval for x warps [k]: without contention, and for what contends most.

    winner[k]: column of the pipe that does, `L1_COLUMN` for the L1, -1 where nothing takes longer than issue.
    """

    base: FloatArray
    most: FloatArray
    winner: "np.ndarray[tuple[int], np.dtype[np.int64]]"


L1_COLUMN = len(PIPES)


def issue_cycles(situation: Situation, intervals: Intervals, x: float) -> IssueCycles:
    """Equations 7 to 11 for x resident warps of an SM."""
    limits, memory = situation.arch.limits, situation.arch.memory
    active = min(x, limits.subcores_per_sm.value) * ISSUE_RATE
    base = intervals.instructions * x / active
    of_pipes = intervals.pipe_cycles * x / active
    of_l1 = np.ceil(intervals.l1_bytes / memory.l1_bytes_per_cycle_per_sm.value) * x
    every = np.column_stack((of_pipes, of_l1))
    winner = every.argmax(axis=1)
    most = np.maximum(every.max(axis=1), base)
    return IssueCycles(base, most, np.where(most > base, winner, -1))


def add_structural(
    ledger: StallLedger, situation: Situation, intervals: Intervals, issued: IssueCycles, times: float
) -> float:
    """S_ComStruct and S_MemStruct (12, 13), charged to the instructions that contend; their cycles."""
    ids = situation.kernel.opcode_ids
    pipe = situation.costs.pipe[ids].astype(np.int64)
    excess = (issued.most - issued.base) * intervals.runs * times
    moved = situation.moved.global_bytes + situation.moved.local_bytes
    winner = issued.winner[intervals.of_row]
    is_l1 = winner == L1_COLUMN
    use = np.where(is_l1, moved, np.where(winner == pipe, intervals.issue_cycles, 0.0))
    whole = np.bincount(intervals.of_row, weights=use, minlength=len(excess))
    share = np.divide(use, whole[intervals.of_row], out=np.zeros_like(use), where=use > 0)
    cycles = share * excess[intervals.of_row]
    for stall, columns in _COLUMNS.items():
        ledger.add_rows(stall, np.where(np.isin(winner, columns), cycles, 0.0))
    return float(cycles.sum())


def _columns() -> dict[Stall, list[int]]:
    """Pipes by the stall that contention for them shows as (AMALI section 4.6)."""
    found: dict[Stall, list[int]] = {Stall.LG_THROTTLE: [L1_COLUMN]}
    for column, pipe in enumerate(PIPES):
        stall = Stall.LG_THROTTLE if pipe in _MEMORY_PIPES else Stall.MATH_PIPE_THROTTLE
        stall = Stall.TEX_THROTTLE if pipe is Pipe.TEX else stall
        stall = Stall.BRANCH_RESOLVING if pipe is Pipe.CBU else stall
        found.setdefault(stall, []).append(column)
    return found


_COLUMNS = _columns()


class Crowd(Struct, frozen=True, kw_only=True):
    """Equal waves: warps on a busy SM, busy SMs, and how often such a wave comes."""

    warps: float
    busy_sms: float
    times: float


def add_memory_contention(
    ledger: StallLedger,
    situation: Situation,
    intervals: Intervals,
    placement: Placement,
    clock_mhz: float,
    crowd: Crowd,
    covered: FloatArray,
) -> float:
    """S_MSHR + S_NoC + S_DRAM as mio_throttle (AMALI equation 24); their cycles.

    covered[k]: cycles of interval k that are charged already, to issue and to contention; the queues of a
    memory interval cost what goes beyond those of all its parts. Misses are counted in lines; writes occupy
    NoC and DRAM but no MSHR.
    """
    n = int(intervals.memory[-1]) + 1

    def of_memory(values: FloatArray) -> FloatArray:
        return np.bincount(intervals.memory, weights=values, minlength=n).astype(np.float64)

    line = situation.arch.memory.line_bytes.value
    lines = placement.l2_share / line * crowd.warps
    reads, writes = of_memory(intervals.read_bytes) * lines, of_memory(intervals.written_bytes) * lines
    mshrs = _mshrs(situation)
    is_divergent = reads > mshrs
    queue = (
        _service_cycles(situation, placement, clock_mhz)
        * crowd.busy_sms
        * (np.minimum(reads, mshrs) + writes)
    )
    queue *= np.where(is_divergent, 1.0, 0.5)
    latency = memory_latency_cycles(situation, placement) + queue
    batches = np.where(is_divergent, _mean_batch(reads, mshrs) - 1.0, 0.0) * latency
    runs = np.zeros(n)
    runs[intervals.memory] = intervals.runs
    cycles = np.maximum(queue + batches - of_memory(covered), 0.0) * runs * crowd.times
    of_row = intervals.memory[intervals.of_row]
    moved = situation.moved.global_bytes
    whole = np.bincount(of_row, weights=moved, minlength=n)
    share = np.divide(moved, whole[of_row], out=np.zeros_like(moved), where=moved > 0)
    charged = share * cycles[of_row]
    ledger.add_rows(Stall.MIO_THROTTLE, charged)
    return float(charged.sum())


def _mshrs(situation: Situation) -> float:
    figure = situation.arch.memory.mshrs_per_sm
    return math.inf if figure is None else figure.value


def _service_cycles(situation: Situation, placement: Placement, clock_mhz: float) -> float:
    """Cycles that one line occupies the NoC, and the DRAM where it misses the L2."""
    line = situation.arch.memory.line_bytes.value
    per_cycle = _GIGA / (clock_mhz * _MEGA)
    dram = placement.dram_share * line / (situation.gpu.dram.value * per_cycle)
    return line / noc_bytes_per_cycle(situation, clock_mhz) + dram


def noc_bytes_per_cycle(situation: Situation, clock_mhz: float) -> float:
    """Bytes between L2 and SMs per SM cycle, of the whole GPU: the L2's rate, else all SMs' ports."""
    whole = situation.gpu.file.l2.bandwidth_gbps
    if whole is None:
        return situation.arch.memory.l2_bytes_per_cycle_per_sm.value * situation.gpu.sm_count
    return whole.value * _GIGA / (clock_mhz * _MEGA)


def _mean_batch(requests: FloatArray, mshrs: float) -> FloatArray:
    """Mean over requests j = 1 ... R of ceil(j / MSHRs)."""
    if math.isinf(mshrs):
        return np.ones_like(requests)
    full = np.floor(requests / mshrs)
    rest = requests - full * mshrs
    whole = mshrs * full * (full + 1) / 2 + rest * (full + 1)
    mean: FloatArray = np.divide(whole, requests, out=np.ones_like(requests), where=requests > 0)
    return mean
