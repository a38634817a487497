"""Compute what each instruction asks of shared resources: the SM's load/store path, the L2, the DRAM.

A demand is the cycles for which one execution by a warp occupies a resource; for the L2 and the DRAM, the
part of their rate that one busy SM has. Example: 128 bytes that miss the L2, on one of 100 busy SMs at 1000
MHz and 2000 GB/s of DRAM, occupy its part of 20 bytes a cycle for 6.4 cycles.

Factors apply in this order: which sectors miss the L1 and the L2; what the access pattern adds (lone sectors,
merged boxes, spills); what the last launch has left in the L2.
"""

import math
from collections.abc import Mapping
from enum import IntEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.opcode_costs import PIPE_INDEX, PIPES
from analyzer.demand.tcgen05_tiles import is_tcgen05_mma
from analyzer.execution.footprint.request_cost import SECTOR_BYTES, WAVEFRONT_BYTES
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.mbarrier_pipelines import PipelineUse, find_mbarrier_uses
from analyzer.hardware.l2_retention import read_l2_retention
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import (
    ATOMIC_KINDS,
    BULK_WRITE_SEMANTICS,
    GLOBAL_SPACES,
    MEMORY_KINDS,
    SHARED_SPACES,
    AddressSpace,
    Opcode,
    OpKind,
    Semantics,
    is_cta_barrier,
    is_global_load,
)
from analyzer.ir.scheduling import Pipe, SchedClass
from analyzer.models.bounds import convert_to_bytes_per_cycle
from analyzer.models.interface import ModelInput
from analyzer.models.l2_rate import (
    is_async_copy,
    list_bulk_copy_rows,
    mask_ldgsts,
    mask_shared_memory_copies,
)
from analyzer.models.l2_sharing import compute_copy_factors
from analyzer.models.miss_rates import (
    MissRates,
    count_unique_copied_bytes,
    find_gather_miss_rates,
    mask_bulk_writes,
    scale_dram_cycles_to_clock,
)
from analyzer.models.sm.dram_traffic import compute_piece_factors, compute_turnaround_factors
from analyzer.models.sm.global_accesses import iterate_global_accesses
from analyzer.models.sm.l2_requests import compute_request_cycles
from analyzer.models.sm.register_ports import count_port_cycles
from analyzer.models.sm.spill_reuse import SpillAccesses, measure_spill_reuse
from analyzer.models.sm.store_traffic import compute_store_dram_shares
from analyzer.models.sm.wide_products import WideHazards, find_wide_hazards

_GIGA, _MEGA = 1e9, 1e6
# Pipes of the whole SM; their issue cycles in hwdb are those of a sub-core with a fourth of it.
SM_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in (Pipe.LSU, Pipe.TEX, Pipe.TMA))
_REGISTER_BYTES = 4
_ROUNDING_LINES = 0.02  # of a request's mean lines, where a part of the grid stands for all of it


class StepKind(IntEnum):
    """Kind of request that the last instruction of a step makes."""

    NONE = 0
    RESULT = 1  # of a pipe of the sub-core, guarded by a scoreboard
    SHARED_MEMORY = 2
    LOAD = 3
    STORE = 4
    CTA_BARRIER = 5
    MBARRIER_WAIT = 6  # for a phase of a pipeline
    MBARRIER_ARRIVE = 7
    MBARRIER_COMMIT = 8  # arrives when the warp's products are done
    BULK_COPY_IN = 9  # arrives when its bytes are there
    BULK_COPY_OUT = 10  # to global memory; the copy engine queues by itself
    FENCE = 11  # waits for the way of the stores of its warp before it
    FULL_FENCE = 12  # the same, and for its own way to the L2
    WIDE_PRODUCT = 13  # see `wide_products`
    DISPATCHED_RESULT = 14  # of the XU, which shares a port with loads through the L1


OUTGOING_KINDS = (int(StepKind.STORE), int(StepKind.BULK_COPY_OUT))


class SharedCopyWaits(Struct, frozen=True, eq=False):
    """How LDGSTS wait for the DRAM where CTAs share what they copy, [n] each; 0 for others."""

    miss_shares: FloatArray  # of them, those that wait for the DRAM
    batch_cycles: FloatArray  # beyond its latency, until the slowest line of a batch is there


class ResourceDemand(Struct, frozen=True, eq=False):
    """Demand of one execution of each instruction by a warp, arrays [n]."""

    step_kind: NDArray[np.int8]  # see `StepKind`
    mbarrier_uses: Mapping[int, PipelineUse]  # by row
    commit_cycles: float  # from the end of the last product's interval to its arrival at an mbarrier
    async_mma_cycles: FloatArray  # interval of a product that its warp does not wait for
    load_store_cycles: FloatArray  # of the SM's load/store path, for barriers too
    tag_cycles: FloatArray  # of the tags of the L1
    write_cycles: FloatArray  # of the load/store path, when the data of an LDGSTS are there
    l2_cycles: FloatArray  # of the part of its rate that one busy SM has
    dram_cycles: FloatArray  # likewise
    atomic_cycles: FloatArray  # of the L2's unit for a line
    sm_pipes: frozenset[int]  # pipes that belong to the SM, not to a sub-core
    spill_cycles: FloatArray  # latency of an access to local memory beyond that of the L1
    cold_share: float  # of the data, what the last launch has not left in the L2
    has_unknown_tiles: bool  # of a product, whose place in the matrices is not known
    copied_miss_share: float  # of the copy engine's copies, those that wait for the DRAM
    shared_copy_waits: SharedCopyWaits
    port_cycles: tuple[float, ...]  # of the register file's ports
    wide_hazards: WideHazards  # on results of IMAD.WIDE beside warpgroup products


def measure_resource_demand(
    model_input: ModelInput, miss_rates: MissRates, clock_mhz: float, *, mean_load_share: float
) -> ResourceDemand:
    """Compute the demand of each instruction.

    mean_load_share: work of the mean SM that has any over that of the busiest one.
    """
    kernel, costs, arch = model_input.kernel, model_input.costs, model_input.arch
    ids = kernel.opcode_ids
    subcores = arch.limits.subcores_per_sm.value
    on_path = np.isin(costs.pipe[ids], list(SM_PIPES))
    load_store = np.where(on_path, costs.issue_cycles[ids] / subcores, 0.0)
    acts = _classify_rows(model_input)
    lines = _count_lines(model_input)
    tags = _compute_tag_cycles(model_input, load_store)
    stored_lines = np.where(acts == StepKind.STORE, lines, 0.0)
    held = _compute_line_cycles(
        model_input, stored_lines, arch.memory.lines_per_store_pass.value, arch.memory.store_line_cycles.value
    )
    ldgsts = _measure_ldgsts(model_input, lines)
    load_store += _compute_extra_load_store_cycles(model_input, load_store, held, ldgsts)
    spills, cold_share = measure_spill_reuse(model_input), _compute_cold_share(model_input)
    copied_share = _find_copied_dram_share(model_input, miss_rates)
    l2_share, dram_share = _compute_traffic_shares(model_input, miss_rates, spills, cold_share, copied_share)
    load_store += _compute_l1_fill_cycles(model_input, l2_share)
    load_store[_mask_barrier_rows(model_input)] = arch.memory.barrier_path_cycles.value
    per_cycle = _GIGA / (clock_mhz * _MEGA)
    sms = min(model_input.gpu.sm_count, max(1, model_input.grid_ctas))
    copies = list_bulk_copy_rows(model_input)
    l2 = _compute_l2_bytes_per_cycle(model_input, clock_mhz, sms)
    is_copied = mask_shared_memory_copies(model_input)
    factors = compute_copy_factors(model_input)
    l2_copied = _compute_l2_bytes_per_cycle(model_input, clock_mhz, sms, factors.requested)
    dram = model_input.gpu.dram_read_gbps.value * per_cycle / sms
    moved = (model_input.access_bytes.global_bytes + model_input.access_bytes.local_bytes) * mean_load_share
    slowest = arch.memory.copy_stream_factor.value * dram
    l2_cycles = moved * l2_share / np.where(is_copied, l2_copied, l2)
    l2_cycles += np.where(is_copied, moved * dram_share * factors.missed / l2, 0.0)
    by_lines = _compute_line_cycles(
        model_input,
        stored_lines,
        arch.memory.lines_per_pass.value,
        _compute_l2_store_line_cycles(model_input),
    )
    l2_cycles = np.maximum(l2_cycles, by_lines)
    lookups = np.where(is_copied, factors.lookups + factors.missed_requests * dram_share, 1.0)
    passed_lines = lines * l2_share * mean_load_share * lookups
    requests = compute_request_cycles(model_input, passed_lines, clock_mhz, sms)
    l2_cycles = np.maximum(l2_cycles, requests)
    l2_cycles[copies] = np.maximum(l2_cycles, moved * dram_share / slowest)[copies]
    l2_cycles = np.maximum(l2_cycles, _compute_copy_engine_cycles(model_input) * mean_load_share)
    dram_bytes = moved * dram_share
    dram_bytes *= compute_turnaround_factors(model_input, dram_bytes, np.isin(acts, OUTGOING_KINDS))
    return ResourceDemand(
        step_kind=acts,
        mbarrier_uses=find_mbarrier_uses(model_input.mbarrier_pipelines),
        commit_cycles=_compute_commit_cycles(model_input),
        async_mma_cycles=_compute_async_mma_cycles(model_input),
        load_store_cycles=load_store,
        tag_cycles=np.where(ldgsts.rows, ldgsts.tag_cycles, tags),
        write_cycles=ldgsts.write_cycles,
        l2_cycles=l2_cycles,
        dram_cycles=dram_bytes / dram,
        atomic_cycles=_compute_atomic_cycles(model_input) * sms * mean_load_share,
        sm_pipes=SM_PIPES,
        spill_cycles=spills.added_latency_cycles,
        cold_share=cold_share,
        has_unknown_tiles=has_unknown_tiles(model_input),
        copied_miss_share=_find_copied_miss_share(model_input, copied_share) * cold_share,
        shared_copy_waits=_find_shared_copy_waits(model_input, dram_share, cold_share),
        port_cycles=_count_port_cycles(model_input),
        wide_hazards=find_wide_hazards(model_input),
    )


def _compute_traffic_shares(
    model_input: ModelInput,
    miss_rates: MissRates,
    spills: SpillAccesses,
    cold_share: float,
    copied_share: float,
) -> tuple[FloatArray, FloatArray]:
    """Compute the shares of each instruction's bytes that the L2 and the DRAM move, [n] each."""
    l2_share, dram_share = _find_miss_rates(model_input, miss_rates)
    copies, is_local, memory = list_bulk_copy_rows(model_input), spills.is_local, model_input.arch.memory
    dram_share[copies] = copied_share * _compute_merged_sector_share(model_input)[copies]
    dram_share *= compute_piece_factors(model_input)
    dram_share *= cold_share
    l2_share[is_local] = spills.l1_miss_rate[is_local]
    dram_share[is_local] = spills.dram_share[is_local] * memory.spill_dram_factor.value
    return l2_share, dram_share


def _compute_l2_bytes_per_cycle(
    model_input: ModelInput, clock_mhz: float, busy_sms: int, factor: float = 1.0
) -> float:
    """Return the rate of the L2 for a busy SM: shares of idle SMs too, up to the width of its port.

    factor: on the L2's time for each byte.
    """
    whole = _compute_l2_bytes_per_cycle_of_gpu(model_input, clock_mhz) / factor
    port = model_input.arch.memory.l2_port_bytes_per_cycle.value
    return max(whole / model_input.gpu.sm_count, min(port, whole / busy_sms))


def _compute_l2_bytes_per_cycle_of_gpu(model_input: ModelInput, clock_mhz: float) -> float:
    return convert_to_bytes_per_cycle(model_input.gpu.compute_l2_gbps(clock_mhz), clock_mhz)


def find_min_l2_share(model_input: ModelInput, clock_mhz: float) -> float:
    """Return the least share of its part of the L2's rate that a busy SM needs: its port takes no more."""
    whole = _compute_l2_bytes_per_cycle_of_gpu(model_input, clock_mhz)
    port = model_input.arch.memory.l2_port_bytes_per_cycle.value
    return min(1.0, whole / model_input.gpu.sm_count / port)


def _compute_l2_store_line_cycles(model_input: ModelInput) -> float:
    """Return the cycles of an SM's share of the L2 for a line of a scattered store.

    The measured cycles include the factor by which stores count there, so it is divided out.
    """
    return model_input.arch.memory.l2_store_line_cycles.value / model_input.gpu.find_l2_store_factor()


def _mask_barrier_rows(model_input: ModelInput) -> NDArray[np.bool_]:
    """Mark barriers of a CTA, which take the same path as memory instructions, [n]."""
    barriers = model_input.kernel.form_table.make_opcode_mask(is_cta_barrier)
    return barriers[model_input.kernel.opcode_ids]


def _count_port_cycles(model_input: ModelInput) -> tuple[float, ...]:
    """Count the cycles of register ports; 0 for code with matrix products, whose reads are not measured."""
    if model_input.demand.tensor_fma:
        return (0.0,) * len(model_input.kernel)
    pipes = model_input.costs.pipe[model_input.kernel.opcode_ids].tolist()
    n_banks = int(model_input.arch.limits.register_banks.value)
    window = model_input.arch.issue.operand_window_cycles
    window_cycles = None if window is None else int(window.value)
    return tuple(count_port_cycles(model_input.cfg, pipes, n_banks, window_cycles).tolist())


def _classify_rows(model_input: ModelInput) -> NDArray[np.int8]:
    kernel = model_input.kernel
    of_opcode = np.zeros(len(kernel.form_table.opcodes), dtype=np.int8)
    for number, opcode in enumerate(kernel.form_table.opcodes):
        act = StepKind.NONE
        if PIPES[model_input.costs.pipe[number]] is Pipe.LSU:
            act = StepKind.SHARED_MEMORY
        if model_input.costs.fence_cycles[number]:
            act = StepKind.FULL_FENCE if model_input.costs.is_full_fence[number] else StepKind.FENCE
        if opcode.kind in MEMORY_KINDS and opcode.space in (*GLOBAL_SPACES, AddressSpace.LOCAL):
            is_store = opcode.kind in (OpKind.STORE, OpKind.REDUCTION)
            act = StepKind.STORE if is_store else StepKind.LOAD
            if opcode.semantics in BULK_WRITE_SEMANTICS:
                act = StepKind.BULK_COPY_OUT
        of_opcode[number] = act
    acts = of_opcode[kernel.opcode_ids]
    for row in np.flatnonzero(acts).tolist():
        form = kernel.decode_form(row)
        if form.is_never_executed:
            # what ptxas writes between products and LDGSTS, `@!PT LDS RZ, [RZ]`, has its turn on the path
            is_shared_load = form.opcode.kind is OpKind.LOAD and form.opcode.space in SHARED_SPACES
            acts[row] = StepKind.SHARED_MEMORY if is_shared_load else StepKind.NONE
    for row, use in find_mbarrier_uses(model_input.mbarrier_pipelines).items():
        acts[row] = _STEP_KIND_BY_SEMANTICS[use.semantics]
    return acts


_STEP_KIND_BY_SEMANTICS = {
    Semantics.MBARRIER_WAIT: StepKind.MBARRIER_WAIT,
    Semantics.MBARRIER_ARRIVE: StepKind.MBARRIER_ARRIVE,
    Semantics.MBARRIER_COMMIT: StepKind.MBARRIER_COMMIT,
    Semantics.MBARRIER_COPY: StepKind.BULK_COPY_IN,
}


def _compute_async_mma_cycles(model_input: ModelInput) -> FloatArray:
    """Compute the interval of asynchronous products and of copies to tensor memory between them, [n].

    Where it is not known which warp issues the tensor core's products, each issues a part of them.
    """
    costs = model_input.costs
    n_issuing_warps = model_input.occupancy.warps_per_cta if model_input.profile is None else 1
    queued = _mask_tensor_core_opcodes(model_input) | model_input.kernel.form_table.make_opcode_mask(
        _is_tensor_core_copy
    )
    cycles = np.where(queued, costs.issue_cycles / n_issuing_warps, costs.wgmma_cycles)
    return cycles[model_input.kernel.opcode_ids]


def _mask_tensor_core_opcodes(model_input: ModelInput) -> NDArray[np.bool_]:
    return model_input.kernel.form_table.make_opcode_mask(is_tcgen05_mma)


def _is_tensor_core_copy(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.TENSOR_CORE_COPY


def _compute_commit_cycles(model_input: ModelInput) -> float:
    """Return the latency of a tcgen05 or warpgroup commit.

    The latency of a product includes the wait that follows, so that is subtracted.
    """
    costs, chosen = model_input.costs, _mask_tensor_core_opcodes(model_input)
    if not chosen.any():
        return 0.0
    waits = model_input.arch.sched[SchedClass.MBARRIER].latency_cycles.value
    return max(0.0, float((costs.latency_cycles - costs.issue_cycles)[chosen].max(initial=0.0)) - waits)


def _compute_line_cycles(
    model_input: ModelInput, lines: FloatArray, free_lines: float, cycles_each: float
) -> FloatArray:
    """Compute the cycles for lines of a request to global memory beyond the first ones, [n]."""
    cycles = np.maximum(lines - free_lines, 0.0) * cycles_each
    cycles[model_input.access_bytes.global_bytes == 0] = 0.0
    cycles[_list_copy_engine_rows(model_input)] = 0.0  # the copy engine has a path of its own
    return cycles


def _compute_extra_load_store_cycles(
    model_input: ModelInput, base: FloatArray, by_lines: FloatArray, ldgsts: "_LdgstsDemand"
) -> FloatArray:
    """Compute the cycles of the load/store path beyond those of a request's first pass, [n]."""
    arch, moved = model_input.arch, model_input.access_bytes
    form_table, ids = model_input.kernel.form_table, model_input.kernel.opcode_ids
    phases = np.array([_count_phases(opcode) for opcode in form_table.opcodes], dtype=float)[ids]
    more = arch.memory.shared_pass_cycles.value
    shared = _compute_pass_cycles(base, moved.shared_bytes / WAVEFRONT_BYTES, phases, more)
    by_bytes = np.maximum(
        _count_requested_bytes(model_input) / arch.memory.l1_bytes_per_cycle_per_sm.value - base, 0.0
    )
    passes, share = _count_load_passes(model_input)
    by_passes = np.where(passes > 0, _compute_pass_cycles(base, passes, phases, more) * share, by_bytes)
    by_copied_lines = np.maximum(ldgsts.path_cycles - base, 0.0)
    extra = np.where(ldgsts.rows, by_copied_lines, shared + np.maximum(by_lines, by_passes))
    extra[_list_copy_engine_rows(model_input)] = 0.0
    return extra


class _LdgstsDemand(Struct, frozen=True, eq=False):
    """What LDGSTS take of an SM's path, by instruction, [n]; 0 for others. See `LoadStorePath`."""

    rows: NDArray[np.bool_]
    path_cycles: FloatArray  # for lines, of those that do not fill whole rows of shared memory, or by the L1
    tag_cycles: FloatArray  # for lines, of those that do
    write_cycles: FloatArray  # of the banks, when data for rows that are not filled are there


def _measure_ldgsts(model_input: ModelInput, lines: FloatArray) -> _LdgstsDemand:
    memory, moved = model_input.arch.memory, model_input.access_bytes
    each = memory.copy_line_path_cycles
    line_cycles = lines * (0.0 if each is None else each.value)
    writes = moved.shared_bytes / WAVEFRONT_BYTES * memory.shared_pass_cycles.value
    rows, fills_rows = mask_ldgsts(model_input), _mask_line_copies(model_input)
    others = rows & ~fills_rows
    by_l1 = np.where(
        _mask_copies_by_l1(model_input) & (line_cycles > 0), np.maximum(line_cycles, writes), 0.0
    )
    return _LdgstsDemand(
        rows=rows,
        path_cycles=np.where(others, line_cycles, by_l1),
        tag_cycles=np.where(fills_rows, line_cycles, 0.0),
        write_cycles=np.where(others, writes, 0.0),
    )


def _mask_line_copies(model_input: ModelInput) -> NDArray[np.bool_]:
    """Mark LDGSTS whose bytes fill rows of 128 bytes of shared memory, [n]; these are written beside reads.

    What goes to padded rows, as by 16 bytes against bank conflicts, is not: it takes its turn at the banks.
    """
    found = np.zeros(len(model_input.kernel), dtype=np.bool_)
    for access in () if model_input.profile is None else model_input.profile.accesses:
        if access.space in SHARED_SPACES and access.lines is not None and access.requests:
            rows = access.lines / access.requests
            fewest = math.ceil(access.bytes / access.requests / WAVEFRONT_BYTES)
            found[access.row] = rows <= fewest + _ROUNDING_LINES
    return found & mask_ldgsts(model_input)


def _mask_copies_by_l1(model_input: ModelInput) -> NDArray[np.bool_]:
    """Mark LDGSTS whose data the L1 keeps, [n]: each line that comes is a wavefront on the path.

    By Nsight Compute the path has 25.8 wavefronts in a step of 32x32x32 tiles, 12 of them of LDSM, 3 of
    predicated LDS, and 8 of two such LDGSTS of four lines; of LDGSTS that bypass the L1 it has none.
    """
    kernel = model_input.kernel
    found: NDArray[np.bool_] = kernel.form_table.make_opcode_mask(_is_copy_by_l1)
    return found[kernel.opcode_ids]


def _is_copy_by_l1(opcode: Opcode) -> bool:
    return is_async_copy(opcode) and "BYPASS" not in opcode.modifiers


def _compute_pass_cycles(base: FloatArray, passes: FloatArray, phases: FloatArray, more: float) -> FloatArray:
    """Compute the cycles that passes of `more` cycles each take beyond the base, [n].

    The passes of a wide load without conflicts follow its first, whose cycles are the base. Passes that
    conflicts add hide the part of the base beyond one pass.
    """
    follow = (np.minimum(passes, phases) - 1.0) * more
    cycles: FloatArray = np.maximum(np.maximum(follow, passes * more - base), 0.0)
    return cycles


def _count_phases(opcode: Opcode) -> int:
    """Count the passes of a load by all lanes; the issue cycles of a matrix load include all of its own."""
    is_matrix = opcode.sched_class is SchedClass.SHARED_MATRIX
    return 1 if is_matrix else max(1, opcode.width_bytes // _REGISTER_BYTES)


def _count_requested_bytes(model_input: ModelInput) -> FloatArray:
    """Count the bytes that the lanes of a request to global memory ask for, [n]."""
    asked = model_input.costs.global_bytes[model_input.kernel.opcode_ids].copy()
    for access, runs in iterate_global_accesses(model_input):
        asked[access.row] = access.bytes / runs
    asked[model_input.access_bytes.global_bytes == 0] = 0.0
    return asked


def _compute_l1_fill_cycles(model_input: ModelInput, l2_share: FloatArray) -> FloatArray:
    """Compute the cycles of the load/store path in which missed lines are written into the L1, [n]."""
    form_table, ids = model_input.kernel.form_table, model_input.kernel.opcode_ids
    loads = form_table.make_opcode_mask(is_global_load)
    rows = model_input.access_bytes.global_bytes / WAVEFRONT_BYTES
    return np.where(loads[ids], rows * l2_share * model_input.arch.memory.line_fill_cycles.value, 0.0)


def _compute_tag_cycles(model_input: ModelInput, base: FloatArray) -> FloatArray:
    """Compute the cycles of the L1's tags, [n]; 0 for what they never hold up.

    A load that hits what is still on its way into the L1 is looked up again when that has come. Example:
    naive products of 32x32 threads take 1.3 cycles of an H200's SM for each LDG, one word for all lanes or
    128 bytes that 32 warps share; those of 16x16 threads 1.5, which are their passes through the banks.
    """
    each = model_input.arch.memory.second_look_cycles
    again = np.zeros(len(base))
    if each is not None and model_input.cache_rates is not None:
        for row, rates in model_input.cache_rates.by_row.items():
            again[row] = max(0.0, 1.0 - rates.l1_request_share - rates.l1_miss_rate) * each.value
    loads = model_input.kernel.form_table.make_opcode_mask(is_global_load)[model_input.kernel.opcode_ids]
    again *= np.where(loads, model_input.access_bytes.global_bytes / WAVEFRONT_BYTES, 0.0)
    return np.where(loads & again.any(), base + again, 0.0)


def _count_load_passes(model_input: ModelInput) -> tuple[FloatArray, FloatArray]:
    """Count passes of a load from global memory through the banks of the L1, 0 where unknown, [n].

    The second array is the share of executions that make a request, [n].
    """
    passes, share = np.zeros(len(model_input.kernel)), np.ones(len(model_input.kernel))
    for access, runs in iterate_global_accesses(model_input):
        is_load = model_input.kernel.find_opcode(access.row).kind is OpKind.LOAD
        if is_load and access.requests and access.wavefronts:
            passes[access.row] = access.wavefronts / access.requests
            share[access.row] = access.requests / runs
    return passes, share


def _count_lines(model_input: ModelInput) -> FloatArray:
    """Count the lines of a request to global memory, [n]; without addresses, the fewest for its bytes."""
    lines = model_input.access_bytes.global_bytes / (4.0 * SECTOR_BYTES)
    for access, runs in iterate_global_accesses(model_input):
        if access.lines is not None:
            lines[access.row] = access.lines / runs
    if model_input.cache_rates is not None:
        for row, rates in model_input.cache_rates.by_row.items():
            lines[row] = rates.lines_per_request
    return lines


def _compute_atomic_cycles(model_input: ModelInput) -> FloatArray:
    """Compute the cycles of the L2's atomic unit for a request, over the units that work in parallel, [n].

    Floating-point additions of lanes to one word are serialized; integer ones are combined, some at a time.
    """
    found, memory = np.zeros(len(model_input.kernel)), model_input.arch.memory
    for access, runs in iterate_global_accesses(model_input):
        opcode = model_input.kernel.find_opcode(access.row)
        is_engine = opcode.semantics is Semantics.BULK_REDUCTION
        if (is_engine or opcode.kind in ATOMIC_KINDS) and access.sectors and access.requests:
            units = max(1.0, _count_atomic_target_bytes(access) / memory.atomic_slice_bytes.value)
            cycles = memory.atomic_line_cycles.value * (0.5 + 0.5 * access.sectors / access.requests)
            passes = 0.0 if is_engine else (access.wavefronts or 0) / access.requests
            if opcode.flops:
                cycles += max(0.0, passes - 1.0) * memory.atomic_float_cycles.value
            else:
                cycles *= max(1.0, passes / memory.atomic_combined_lanes.value)
            found[access.row] = cycles * access.requests / runs / units
    return found


def _count_atomic_target_bytes(access: MemoryAccess) -> float:
    """Count the bytes of memory that an atomic accesses; with unknown addresses, no two accesses coincide."""
    if access.unique_bytes is None and access.is_indirect:
        return float((access.sectors or 0) * SECTOR_BYTES)
    return float(access.unique_bytes or 0)


def _find_miss_rates(model_input: ModelInput, miss_rates: MissRates) -> tuple[FloatArray, FloatArray]:
    """Return the shares of each instruction's sectors that go beyond the L1 and beyond the L2, [n] each."""
    n = len(model_input.kernel)
    l2, dram = np.full(n, miss_rates.l1_miss_rate), np.full(n, miss_rates.dram_share)
    if model_input.cache_rates is not None:
        for row, found in model_input.cache_rates.by_row.items():
            l2[row], dram[row] = found.l1_miss_rate, found.dram_share
    looked_up = find_gather_miss_rates(model_input)
    for row, served in looked_up.items():
        l2[row], dram[row] = served.l1_miss_rate, served.dram_share
    for row, share in compute_store_dram_shares(model_input, looked_up).items():
        l2[row], dram[row] = 1.0, share
    return l2, dram


def _compute_merged_sector_share(model_input: ModelInput) -> FloatArray:
    """Compute the share of the sectors of boxes that remains where adjacent boxes share sectors, [n]."""
    left = model_input.access_bytes.box_sector_utilization.copy()
    for access, _ in iterate_global_accesses(model_input):
        if access.unique_sectors and access.unique_bytes and access.sectors:
            apart = access.sectors / access.bytes
            left[access.row] = min(1.0, access.unique_sectors / access.unique_bytes / apart)
    return left


def _list_copy_engine_rows(model_input: ModelInput) -> list[int]:
    """List the copies of the copy engine in either direction."""
    return list_bulk_copy_rows(model_input) + np.flatnonzero(mask_bulk_writes(model_input)).tolist()


def _compute_copy_engine_cycles(model_input: ModelInput) -> FloatArray:
    """Compute the cycles in which the copy engine makes requests, [n]; a short row of a box takes one."""
    each = model_input.arch.memory.copy_request_cycles
    return model_input.access_bytes.tma_requests * (each.value if each is not None else 0.0)


def _find_copied_dram_share(model_input: ModelInput, miss_rates: MissRates) -> float:
    """Return the DRAM share of copied bytes: each tile once per wave of CTAs.

    Where the tiles of a product are not known (a table of tiles, or sizes, that nobody gave), the CTAs that
    run together are taken to be a square of tiles: n of them ask for 2 n tiles, of which 2 sqrt(n) differ.
    Of products whose tiles are known, with 128 to 148 CTAs, .075 to .144 differ; that is .09 and .08.
    """
    if model_input.mbarrier_pipelines is None:
        return miss_rates.dram_share
    if (share := model_input.mbarrier_pipelines.distinct_tile_share) is not None:
        return share
    if not has_unknown_tiles(model_input):
        return miss_rates.dram_share
    resident = model_input.occupancy.count_wave_ctas(model_input.gpu.sm_count)
    return min(miss_rates.dram_share, 1.0 / math.sqrt(min(resident, max(1, model_input.grid_ctas))))


def has_unknown_tiles(model_input: ModelInput) -> bool:
    """Return whether bulk copies feed matrix products with tiles at unknown places."""
    pipelines = model_input.mbarrier_pipelines
    return (
        pipelines is not None
        and pipelines.distinct_tile_share is None
        and bool(list_bulk_copy_rows(model_input))
        and model_input.dominant_tensor_rate is not None
    )


def _find_copied_miss_share(model_input: ModelInput, copied_share: float) -> float:
    """Return the share of copies that wait for the DRAM where nothing is in the L2 yet.

    CTAs that share tiles ask for them in step: the first one misses, and the others wait for the same fill.
    Products with one buffer of 128 x 256 x 64 on B200 (NVIDIA/tilus, examples/blackwell_matmul v1) take 2,390
    cycles a step; with the mean latency of L2 and DRAM they came out at 1,870, with the DRAM's at 2,330.
    copied_share: of the copied bytes, those that come from DRAM.
    """
    pipelines = model_input.mbarrier_pipelines
    has_known_tiles = pipelines is not None and pipelines.distinct_tile_share is not None
    return 1.0 if has_known_tiles or has_unknown_tiles(model_input) else copied_share


def _find_shared_copy_waits(
    model_input: ModelInput, dram_share: FloatArray, cold_share: float
) -> SharedCopyWaits:
    """Find how LDGSTS wait for the DRAM, [n] each, whose lines other CTAs copy as well.

    The same as for copies of the copy engine: no CTA gets ahead of the one that waits for the DRAM at each
    step. Those behind find their lines in the L2, go faster, catch up, and wait for the same fill. On
    architectures where nobody has measured it, LDGSTS wait by their own bytes.
    """
    batch = model_input.arch.memory.dram_batch_cycles
    if batch is None:
        return SharedCopyWaits(np.zeros(len(dram_share)), np.zeros(len(dram_share)))
    cycles = scale_dram_cycles_to_clock(model_input, batch.value)
    is_from_dram = mask_ldgsts(model_input) & (dram_share > 0)
    shared = np.clip(cold_share - dram_share, 0.0, 1.0)
    return SharedCopyWaits(
        miss_shares=np.where(is_from_dram, cold_share, 0.0),
        batch_cycles=np.where(is_from_dram, cycles * shared, 0.0),
    )


def _count_bytes_beyond_l1(model_input: ModelInput, profile: ExecutionProfile) -> float:
    """Count the bytes of all sectors requested beyond the L1, an upper limit of different ones."""
    recorded = {} if model_input.cache_rates is None else model_input.cache_rates.by_row
    total = 0.0
    for access in profile.accesses:
        if access.space in GLOBAL_SPACES:
            share = recorded[access.row].l1_miss_rate if access.row in recorded else 1.0
            total += math.inf if access.sectors is None else access.sectors * SECTOR_BYTES * share
    return total


def _compute_cold_share(model_input: ModelInput) -> float:
    """Compute the share of this launch's data that the previous launch has not left in the L2."""
    profile = model_input.profile
    if profile is None or profile.traffic is None or model_input.l2_is_cold:
        return 1.0
    sectors, retention = profile.traffic.unique_sectors, read_l2_retention(model_input.gpu)
    if sectors is None:
        return float(_count_bytes_beyond_l1(model_input, profile) > retention.kept_bytes)
    return retention.compute_lost_share(count_unique_copied_bytes(model_input) + sectors * SECTOR_BYTES)
