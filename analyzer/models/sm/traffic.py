"""What each instruction asks of what the sub-cores share: the SM's load/store path, the L2, the DRAM."""

import math
from collections.abc import Iterator, Mapping
from enum import IntEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.accesses import WAVEFRONT_BYTES
from analyzer.demand.costs import PIPE_INDEX, PIPES, FloatArray
from analyzer.execution.profile import ExecutionProfile, MemoryAccess
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.rings import RingUse
from analyzer.ir.machine import Pipe, SchedClass
from analyzer.ir.opcode import (
    ATOMIC_KINDS,
    BULK_WRITES,
    GLOBAL_SPACES,
    MEMORY_KINDS,
    Opcode,
    OpKind,
    Semantics,
    Space,
)
from analyzer.models.base import Situation
from analyzer.models.contention import noc_bytes_per_cycle
from analyzer.models.placement import (
    Placement,
    beyond_l2_cycles,
    bulk_writes,
    copied_unique_bytes,
    l2_kept_share,
    looked_up_placements,
)
from analyzer.models.sm.ports import port_cycles
from analyzer.models.sm.spills import find_spills
from analyzer.models.sm.stores import stored_shares

_GIGA, _MEGA = 1e9, 1e6
# Pipes of the whole SM; their issue cycles in hwdb are those of a sub-core with a fourth of it.
SM_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in (Pipe.LSU, Pipe.TEX, Pipe.TMA))
_REGISTER_BYTES = 4


class Act(IntEnum):
    """What the last instruction of a step asks of the SM."""

    NONE = 0
    RESULT = 1  # of a pipe of the sub-core, guarded by a scoreboard
    SHARED = 2
    LOAD = 3
    STORE = 4
    BARRIER = 5
    WAIT = 6  # for a ring of mbarriers
    ARRIVE = 7
    COMMIT = 8  # arrives when the warp's products are done
    COPY = 9  # arrives when its bytes are there
    COPY_OUT = 10  # to global memory; the copy engine queues by itself


OUTWARD = (int(Act.STORE), int(Act.COPY_OUT))


class Traffic(Struct, frozen=True, eq=False):
    """Of each instruction's execution by a warp, [n].

    act: see `Act`; ring_uses: of mbarriers, by row; commit_cycles: from the end of the last product's
    interval to its arrival there; matrix_cycles: interval of a product that its warp does not wait for;
    path_cycles: of the SM's load/store path, barriers among them; tag_cycles: of the tags of its L1;
    l2_cycles, dram_cycles: of the part of their rate that one busy SM has; atomic_cycles: of the L2's unit
    for a line; sm_pipes: pipes that belong to the SM; spill_cycles: that an access to local memory takes
    longer than from the L1; spread_cycles: that a copy to shared memory takes longer than another at most;
    lost_share: of the data, that which the last launch has not left in the L2; copied_dram_share: of what
    the copy engine brings; port_cycles: of the register file's ports.
    """

    act: NDArray[np.int8]
    ring_uses: Mapping[int, RingUse]
    commit_cycles: float
    matrix_cycles: FloatArray
    path_cycles: FloatArray
    tag_cycles: FloatArray
    l2_cycles: FloatArray
    dram_cycles: FloatArray
    atomic_cycles: FloatArray
    sm_pipes: frozenset[int]
    spill_cycles: FloatArray
    spread_cycles: FloatArray
    lost_share: float
    copied_dram_share: float
    port_cycles: list[float]


def measure_traffic(
    situation: Situation, placement: Placement, clock_mhz: float, *, balance: float
) -> Traffic:
    """balance: mean CTAs of an SM that has any over those of the busiest one."""
    kernel, costs, arch = situation.kernel, situation.costs, situation.arch
    ids = kernel.opcode_ids
    subcores = arch.limits.subcores_per_sm.value
    on_path = np.isin(costs.pipe[ids], list(SM_PIPES))
    path = np.where(on_path, costs.issue_cycles[ids] / subcores, 0.0)
    acts = _acts(situation)
    by_lines = _line_cycles(situation)
    tags = np.where(by_lines > 0, path + by_lines, 0.0)
    is_store = acts == Act.STORE
    held = by_lines * np.where(is_store, arch.memory.store_line_cycles.value, 1.0)
    path += _extra_path(situation, path, held * arch.memory.line_path_share.value)
    spills, lost = find_spills(situation), _lost_from_l2(situation)
    is_local = spills.is_local
    l2_share, dram_share = _shares(situation, placement)
    path += _fill_cycles(situation, l2_share)
    path[_barrier_rows(situation)] = arch.memory.barrier_path_cycles.value
    copies, copied_share = _copies(situation), _copied_dram_share(situation, placement)
    dram_share[copies] = copied_share * _joined_sectors(situation)[copies]
    lone = _lone_sectors(situation)
    dram_share *= 1.0 + lone * (arch.memory.lone_sector_dram_factor.value - 1.0)
    dram_share *= lost
    l2_share[is_local] = spills.l2_share[is_local]
    dram_share[is_local] = spills.dram_share[is_local] * arch.memory.spill_dram_factor.value
    per_cycle = _GIGA / (clock_mhz * _MEGA)
    sms = min(situation.gpu.sm_count, max(1, situation.grid_ctas))
    l2 = _l2_bytes_per_cycle(situation, clock_mhz, sms)
    dram = situation.gpu.dram_sustained.value * per_cycle / sms
    moved = (situation.moved.global_bytes + situation.moved.local_bytes) * balance
    slowest = arch.memory.copy_stream_factor.value * dram
    l2_cycles = moved * l2_share / l2
    by_lines *= np.where(is_store, _l2_line_cycles(situation), 0.0)
    l2_cycles = np.maximum(l2_cycles, by_lines)
    l2_cycles[copies] = np.maximum(l2_cycles, moved * dram_share / slowest)[copies]
    l2_cycles = np.maximum(l2_cycles, _engine_cycles(situation) * balance)
    return Traffic(
        act=acts,
        ring_uses=_ring_uses(situation),
        commit_cycles=_commit_cycles(situation),
        matrix_cycles=_matrix_cycles(situation),
        path_cycles=path,
        tag_cycles=tags,
        l2_cycles=l2_cycles,
        dram_cycles=moved * dram_share / dram,
        atomic_cycles=_atomic_cycles(situation) * sms * balance,
        sm_pipes=SM_PIPES,
        spill_cycles=spills.added_cycles,
        spread_cycles=_spread_cycles(situation, dram_share),
        lost_share=lost,
        copied_dram_share=copied_share * lost,
        port_cycles=_port_cycles(situation),
    )


def _l2_bytes_per_cycle(situation: Situation, clock_mhz: float, busy_sms: int) -> float:
    """What a busy SM gets of the L2: shares of those without a CTA too, up to its port's width."""
    whole = noc_bytes_per_cycle(situation, clock_mhz)
    port = situation.arch.memory.l2_port_bytes_per_cycle.value
    return max(whole / situation.gpu.sm_count, min(port, whole / busy_sms))


def _l2_line_cycles(situation: Situation) -> float:
    """Cycles of an SM's share of the L2 for a line of a scattered store, before stores count for more than
    loads there: what a line was seen to take holds that."""
    factor = situation.gpu.file.l2.store_factor
    return situation.arch.memory.l2_store_line_cycles.value / (1.0 if factor is None else factor.value)


def _barrier_rows(situation: Situation) -> NDArray[np.bool_]:
    """Barriers of a CTA: the same queues lead to them as to memory."""
    barriers = situation.kernel.vocabulary.mask(lambda opcode: opcode.sched is SchedClass.CTA_BARRIER)
    return barriers[situation.kernel.opcode_ids]


def _port_cycles(situation: Situation) -> list[float]:
    """None for code with matrix products: these read the same ports in a way that nobody has measured."""
    if situation.demand.tensor_fma:
        return [0.0] * len(situation.kernel)
    pipes = situation.costs.pipe[situation.kernel.opcode_ids].tolist()
    n_banks = int(situation.arch.limits.register_banks.value)
    cycles: list[float] = port_cycles(situation.cfg, pipes, n_banks).tolist()
    return cycles


def _acts(situation: Situation) -> NDArray[np.int8]:
    kernel = situation.kernel
    of_opcode = np.zeros(len(kernel.vocabulary.opcodes), dtype=np.int8)
    for number, opcode in enumerate(kernel.vocabulary.opcodes):
        act = Act.NONE
        if PIPES[situation.costs.pipe[number]] is Pipe.LSU:
            act = Act.SHARED
        if opcode.kind in MEMORY_KINDS and opcode.space in (*GLOBAL_SPACES, Space.LOCAL):
            is_store = opcode.kind in (OpKind.STORE, OpKind.REDUCTION)
            act = Act.STORE if is_store else Act.LOAD
            if opcode.semantics in BULK_WRITES:
                act = Act.COPY_OUT
        of_opcode[number] = act
    acts = of_opcode[kernel.opcode_ids]
    for row, use in _ring_uses(situation).items():
        acts[row] = _SIGNALS[use.meaning]
    return acts


def _ring_uses(situation: Situation) -> Mapping[int, RingUse]:
    return {} if situation.rings is None else situation.rings.uses


_SIGNALS = {
    Semantics.MBARRIER_WAIT: Act.WAIT,
    Semantics.MBARRIER_ARRIVE: Act.ARRIVE,
    Semantics.MBARRIER_COMMIT: Act.COMMIT,
    Semantics.MBARRIER_COPY: Act.COPY,
}


def _matrix_cycles(situation: Situation) -> FloatArray:
    """Products of warpgroups and of the tensor core run on while their warp does not wait, [n]; so do copies
    to tensor memory, which come between products in their order.

    Where nobody knows which warp makes the tensor core's products, each makes a part of them.
    """
    costs = situation.costs
    makers = situation.occupancy.warps_per_cta if situation.profile is None else 1
    queued = _tensor_core_opcodes(situation) | situation.kernel.vocabulary.mask(
        lambda opcode: opcode.sched is SchedClass.TENSOR_CORE_COPY
    )
    cycles = np.where(queued, costs.issue_cycles / makers, costs.matrix_cycles)
    return cycles[situation.kernel.opcode_ids]


def _tensor_core_opcodes(situation: Situation) -> NDArray[np.bool_]:
    return situation.kernel.vocabulary.mask(lambda opcode: opcode.sched is SchedClass.MMA_TENSOR_CORE)


def _commit_cycles(situation: Situation) -> float:
    """The latency of a product is told until its waiting warp goes on."""
    costs, chosen = situation.costs, _tensor_core_opcodes(situation)
    if not chosen.any():
        return 0.0
    waits = situation.arch.sched[SchedClass.MBARRIER].latency_cycles.value
    return max(0.0, float((costs.latency_cycles - costs.issue_cycles)[chosen].max(initial=0.0)) - waits)


def _line_cycles(situation: Situation) -> FloatArray:
    """Cycles for the lines of a request to global memory beyond those that come at once, [n]."""
    memory = situation.arch.memory
    sectors = situation.moved.global_bytes / SECTOR_BYTES
    more = np.maximum(_lines(situation, sectors) - memory.lines_per_pass.value, 0.0)
    cycles = np.where(sectors > 0, more * memory.line_pass_cycles.value, 0.0)
    cycles[_engine_rows(situation)] = 0.0  # the copy engine has a path of its own
    return cycles


def _extra_path(situation: Situation, base: FloatArray, by_lines: FloatArray) -> FloatArray:
    """Cycles of the load/store path beyond those of a request's first pass."""
    arch, moved = situation.arch, situation.moved
    vocabulary, ids = situation.kernel.vocabulary, situation.kernel.opcode_ids
    phases = np.array([_phases(opcode) for opcode in vocabulary.opcodes], dtype=float)[ids]
    more = arch.memory.shared_pass_cycles.value
    shared = _pass_cycles(base, moved.shared_bytes / WAVEFRONT_BYTES, phases, more)
    by_bytes = np.maximum(_asked_bytes(situation) / arch.memory.l1_bytes_per_cycle_per_sm.value - base, 0.0)
    passes, share = _load_passes(situation)
    by_passes = np.where(passes > 0, _pass_cycles(base, passes, phases, more) * share, by_bytes)
    extra = np.where(_is_ldgsts(situation), 0.0, shared + np.maximum(by_lines, by_passes))
    extra[_engine_rows(situation)] = 0.0
    return extra


def _is_ldgsts(situation: Situation) -> NDArray[np.bool_]:
    kernel = situation.kernel
    found: NDArray[np.bool_] = kernel.vocabulary.mask(lambda opcode: opcode.kind is OpKind.ASYNC_COPY)
    return found[kernel.opcode_ids]


def _pass_cycles(base: FloatArray, passes: FloatArray, phases: FloatArray, more: float) -> FloatArray:
    """Cycles that passes of `more` each take beyond the base, [n].

    The passes of a wide load without conflicts follow its first, whose cycles are the base; those that
    conflicts add hide what the base has beyond a pass.
    """
    follow = (np.minimum(passes, phases) - 1.0) * more
    cycles: FloatArray = np.maximum(np.maximum(follow, passes * more - base), 0.0)
    return cycles


def _phases(opcode: Opcode) -> int:
    """Of a load of all lanes; the issue cycles of a load of matrices are of all of them."""
    is_matrix = opcode.sched is SchedClass.SHARED_MATRIX
    return 1 if is_matrix else max(1, opcode.width_bytes // _REGISTER_BYTES)


def _global_accesses(situation: Situation) -> Iterator[tuple[MemoryAccess, float]]:
    """What reached global memory, and how often warps executed its instruction."""
    if situation.profile is None:
        return
    for access in situation.profile.accesses:
        runs = float(situation.profile.block_warps[situation.cfg.block_of[access.row]])
        if access.space in GLOBAL_SPACES and runs:
            yield access, runs


def _asked_bytes(situation: Situation) -> FloatArray:
    """Bytes that the lanes of a request to global memory ask for, [n]."""
    asked = situation.costs.global_bytes[situation.kernel.opcode_ids].copy()
    for access, runs in _global_accesses(situation):
        asked[access.row] = access.bytes / runs
    asked[situation.moved.global_bytes == 0] = 0.0
    return asked


def _fill_cycles(situation: Situation, l2_share: FloatArray) -> FloatArray:
    """Cycles of the load/store path in which loads write what they miss into the L1, [n]."""
    vocabulary, ids = situation.kernel.vocabulary, situation.kernel.opcode_ids
    loads = vocabulary.mask(lambda opcode: opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES)
    rows = situation.moved.global_bytes / WAVEFRONT_BYTES
    return np.where(loads[ids], rows * l2_share * situation.arch.memory.line_fill_cycles.value, 0.0)


def _load_passes(situation: Situation) -> tuple[FloatArray, FloatArray]:
    """Of loads from global memory: passes of a request through the banks of the L1, 0 where they are not
    known, and the share of executions that ask for anything, both [n]."""
    passes, share = np.zeros(len(situation.kernel)), np.ones(len(situation.kernel))
    for access, runs in _global_accesses(situation):
        is_load = situation.kernel.opcode(access.row).kind is OpKind.LOAD
        if is_load and access.requests and access.wavefronts:
            passes[access.row] = access.wavefronts / access.requests
            share[access.row] = access.requests / runs
    return passes, share


def _lone_sectors(situation: Situation) -> FloatArray:
    """Of requests that load from global memory, the part that asks for one sector and no other, [n].

    Their neighbours come from other warps at another time: the DRAM opens a row for each. So it does for
    each line of which lanes that go anywhere ask for one sector.
    """
    lone = np.zeros(len(situation.kernel))
    caches = {} if situation.caches is None else situation.caches.accesses
    for access, _ in _global_accesses(situation):
        if not access.is_store and access.requests and access.sectors:
            scatters = access.is_looked_up and access.row in caches
            lines = caches[access.row].lines if scatters else 1.0
            lone[access.row] = max(0.0, 2.0 - access.sectors / access.requests / lines)
    return lone


def _lines(situation: Situation, sectors: FloatArray) -> FloatArray:
    """Cache lines of a request to global memory, [n]; without addresses as few as its bytes allow."""
    lines = sectors / 4.0
    if situation.caches is not None:
        for row, rates in situation.caches.accesses.items():
            lines[row] = rates.lines
    return lines


def _atomic_cycles(situation: Situation) -> FloatArray:
    """Cycles of the unit of the L2 that serves a request's line, over those that work side by side, [n].

    Lanes that add floating-point numbers to one word go one after the other; those that add whole numbers
    are combined on their way, some at a time.
    """
    found, memory = np.zeros(len(situation.kernel)), situation.arch.memory
    for access, runs in _global_accesses(situation):
        opcode = situation.kernel.opcode(access.row)
        is_engine = opcode.semantics is Semantics.BULK_REDUCTION
        if (is_engine or opcode.kind in ATOMIC_KINDS) and access.sectors and access.requests:
            units = max(1.0, _spread_bytes(access) / memory.atomic_slice_bytes.value)
            cycles = memory.atomic_line_cycles.value * (0.5 + 0.5 * access.sectors / access.requests)
            turns = 0.0 if is_engine else (access.wavefronts or 0) / access.requests
            if opcode.flops:
                cycles += max(0.0, turns - 1.0) * memory.atomic_float_cycles.value
            else:
                cycles *= max(1.0, turns / memory.atomic_combined_lanes.value)
            found[access.row] = cycles * access.requests / runs / units
    return found


def _spread_bytes(access: MemoryAccess) -> float:
    """Of the memory that an atomic goes to; where words that nobody knows lead anywhere, no two meet."""
    if access.unique_bytes is None and access.is_looked_up:
        return float((access.sectors or 0) * SECTOR_BYTES)
    return float(access.unique_bytes or 0)


def _shares(situation: Situation, placement: Placement) -> tuple[FloatArray, FloatArray]:
    """Of each instruction's sectors, those that go beyond the L1 and beyond the L2."""
    n = len(situation.kernel)
    l2, dram = np.full(n, placement.l2_share), np.full(n, placement.dram_share)
    if situation.caches is not None:
        for row, found in situation.caches.accesses.items():
            l2[row], dram[row] = found.l2_share, found.dram_share
    looked_up = looked_up_placements(situation)
    for row, served in looked_up.items():
        l2[row], dram[row] = served.l2_share, served.dram_share
    for row, share in stored_shares(situation, looked_up).items():
        l2[row], dram[row] = 1.0, share
    return l2, dram


def _copies(situation: Situation) -> list[int]:
    uses = _ring_uses(situation).items()
    return [row for row, use in uses if use.meaning is Semantics.MBARRIER_COPY]


def _joined_sectors(situation: Situation) -> FloatArray:
    """Of the sectors of boxes, those that are left where boxes side by side meet in them, [n]."""
    left = situation.moved.density.copy()
    for access, _ in _global_accesses(situation):
        if access.unique_sectors and access.unique_bytes and access.sectors:
            apart = access.sectors / access.bytes
            left[access.row] = min(1.0, access.unique_sectors / access.unique_bytes / apart)
    return left


def _engine_rows(situation: Situation) -> list[int]:
    """Copies of the engine in either direction."""
    return _copies(situation) + np.flatnonzero(bulk_writes(situation)).tolist()


def _engine_cycles(situation: Situation) -> FloatArray:
    """Cycles in which the copy engine makes its requests, [n]: short rows of a box take as long as lines."""
    each = situation.arch.memory.copy_request_cycles
    return situation.moved.engine_lines * (each.value if each is not None else 0.0)


def _spread_cycles(situation: Situation, dram_share: FloatArray) -> FloatArray:
    is_copy, spread = _is_ldgsts(situation), situation.arch.memory.dram_spread_cycles
    if spread is None:
        return np.zeros(len(is_copy))
    is_copy[_copies(situation)] = True
    cycles = beyond_l2_cycles(situation, spread.value)
    return np.where(is_copy, cycles * np.minimum(1.0, dram_share), 0.0)


def _copied_dram_share(situation: Situation, placement: Placement) -> float:
    """Of the copy engine's bytes: each tile once for a wave of CTAs, else as other loads are served."""
    share = None if situation.rings is None else situation.rings.distinct_share
    return placement.dram_share if share is None else share


def _asked_of_l2(situation: Situation, profile: ExecutionProfile) -> float:
    """Bytes of all sectors that are asked for beyond the L1, which different ones are no more than."""
    recorded = {} if situation.caches is None else situation.caches.accesses
    total = 0.0
    for access in profile.accesses:
        if access.space in GLOBAL_SPACES:
            share = recorded[access.row].l2_share if access.row in recorded else 1.0
            total += math.inf if access.sectors is None else access.sectors * SECTOR_BYTES * share
    return total


def _lost_from_l2(situation: Situation) -> float:
    """Of all that this launch touches, the part that the last one has not left in the L2."""
    profile = situation.profile
    if profile is None or profile.traffic is None or situation.l2_is_cold:
        return 1.0
    sectors, l2 = profile.traffic.unique_sectors, situation.gpu.file.l2
    kept = l2_kept_share(situation)
    if sectors is None:
        return float(_asked_of_l2(situation, profile) > kept * l2.size_bytes.value)
    touched = copied_unique_bytes(situation) + sectors * SECTOR_BYTES
    used = touched / l2.size_bytes.value
    lost = l2.lost_share.value if l2.lost_share is not None else kept
    return float(used > kept) if lost <= kept else min(1.0, max(0.0, (used - kept) / (lost - kept)))
