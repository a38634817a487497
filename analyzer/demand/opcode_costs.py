"""Costs of each opcode on one GPU as arrays, so that a kernel's demand is a few array sums."""

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from analyzer.hardware.gpu import Gpu, compute_mma_issue_cycles, find_sched_timing
from analyzer.hardware.schema import Arch
from analyzer.ir.arrays import FloatArray, make_read_only
from analyzer.ir.module import FormTable
from analyzer.ir.opcode import (
    GLOBAL_SPACES,
    MEMORY_KINDS,
    SHARED_SPACES,
    AddressSpace,
    Opcode,
    OpKind,
    Semantics,
)
from analyzer.ir.scheduling import WARP_SIZE, Completion, Pipe, SchedClass

PIPES = tuple(Pipe)
PIPE_INDEX = {pipe: i for i, pipe in enumerate(PIPES)}


class OpcodeCosts(Struct, frozen=True, eq=False):
    """Costs of the opcodes of a form table on one GPU; all arrays are [n_opcode], read-only."""

    pipe: NDArray[np.int8]  # index into `PIPES`
    alternate_pipe: NDArray[np.int8]  # pipe that takes the instruction as well, or -1
    issue_cycles: FloatArray  # for which it holds its pipe of one sub-core
    latency_cycles: FloatArray
    wgmma_cycles: FloatArray  # issue_cycles of warpgroup products, whose warp does not wait; else 0
    tensor_cycles: FloatArray  # issue_cycles of matrix instructions; else 0
    has_fixed_latency: NDArray[np.bool_]  # no scoreboard: stall counts cover its latency
    fence_cycles: FloatArray  # for which a warp waits at a memory fence, from the last store before it
    is_full_fence: NDArray[np.bool_]  # waits as long where no store is on its way
    is_long_scoreboard: NDArray[np.bool_]
    is_memory_load: NDArray[np.bool_]
    # With all lanes active:
    flops: FloatArray
    tensor_fma: FloatArray
    global_bytes: FloatArray
    shared_bytes: FloatArray
    local_bytes: FloatArray
    is_tma_copy: FloatArray  # 1 for TMA copies, else 0

    def __post_init__(self) -> None:
        make_read_only(*astuple(self))


def build_opcode_costs(form_table: FormTable, gpu: Gpu, arch: Arch) -> OpcodeCosts:
    """Build the costs of all opcodes of a module on one GPU."""
    rows = [_OpcodeCostRow(opcode, gpu, arch) for opcode in form_table.opcodes]

    def column(name: str) -> FloatArray:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    return OpcodeCosts(
        pipe=np.array([row.pipe for row in rows], dtype=np.int8),
        alternate_pipe=np.array([row.alternate for row in rows], dtype=np.int8),
        issue_cycles=column("issue_cycles"),
        latency_cycles=column("latency_cycles"),
        wgmma_cycles=np.array(
            [row.issue_cycles if row.opcode.sched_class is SchedClass.MMA_WARPGROUP else 0.0 for row in rows]
        ),
        tensor_cycles=np.array([row.issue_cycles if row.opcode.mma_shape else 0.0 for row in rows]),
        has_fixed_latency=np.array([row.has_fixed_latency for row in rows], dtype=bool),
        fence_cycles=np.array([_find_fence_cycles(row.opcode, gpu, arch) for row in rows]),
        is_full_fence=form_table.make_opcode_mask(_is_full_fence),
        is_long_scoreboard=np.array([row.is_long for row in rows], dtype=bool),
        is_memory_load=np.array([_is_memory_load(row.opcode) for row in rows], dtype=bool),
        flops=column("flops"),
        tensor_fma=column("tensor_fma"),
        global_bytes=np.array([_count_bytes(o, GLOBAL_SPACES) for o in form_table.opcodes], dtype=np.float64),
        shared_bytes=np.array([_count_bytes(o, SHARED_SPACES) for o in form_table.opcodes], dtype=np.float64),
        local_bytes=np.array([_count_bytes(o, _LOCAL_SPACES) for o in form_table.opcodes], dtype=np.float64),
        is_tma_copy=np.array([_is_tma_copy(o) for o in form_table.opcodes], dtype=np.float64),
    )


_LOCAL_SPACES = frozenset({AddressSpace.LOCAL})


class _OpcodeCostRow:
    """Costs of one opcode."""

    __slots__ = (
        "alternate",
        "flops",
        "has_fixed_latency",
        "is_long",
        "issue_cycles",
        "latency_cycles",
        "opcode",
        "pipe",
        "tensor_fma",
    )

    def __init__(self, opcode: Opcode, gpu: Gpu, arch: Arch) -> None:
        figures = find_sched_timing(arch, opcode.sched_class)
        self.opcode = opcode
        self.pipe = PIPE_INDEX[figures.pipe]
        self.alternate = -1 if figures.alternate_pipe is None else PIPE_INDEX[figures.alternate_pipe]
        self.issue_cycles = figures.issue_cycles.value
        self.latency_cycles = figures.latency_cycles.value
        self.has_fixed_latency = figures.completion is Completion.FIXED
        self.is_long = figures.completion is Completion.LONG_SCOREBOARD
        self.flops = float(opcode.flops * WARP_SIZE)
        self.tensor_fma = 0.0
        if opcode.mma_shape is not None:
            self.tensor_fma = opcode.mma_shape.n_fmas / opcode.mma_shape.n_warps
            self.flops = 2.0 * self.tensor_fma
            cost = compute_mma_issue_cycles(gpu, arch, opcode.sched_class, opcode.mma_shape)
            if cost is not None:
                self.issue_cycles = cost.cycles


def _find_fence_cycles(opcode: Opcode, gpu: Gpu, arch: Arch) -> float:
    """Return the cycles until the stores before a fence are visible in its scope, without queues.

    The CTA's own SM sees them at once; the GPU where they have been to the L2 and back.
    """
    if opcode.semantics is not Semantics.MEMORY_FENCE or "CTA" in opcode.modifiers:
        return 0.0
    cycles = (gpu.file.memory.l2_latency_cycles or arch.memory.l2_latency_cycles).value
    return cycles + (arch.memory.system_fence_cycles.value if "SYS" in opcode.modifiers else 0.0)


def _is_full_fence(opcode: Opcode) -> bool:
    """Return whether a fence goes to the L2 in any case.

    Sequential consistency (.SC) orders fences of several SMs; acquire and release (.ALL) order what the warp
    itself has done.
    """
    return opcode.semantics is Semantics.MEMORY_FENCE and "ALL" not in opcode.modifiers


def _is_tma_copy(opcode: Opcode) -> bool:
    """Return whether a bulk copy accesses global memory; tensor core copies stay within the SM."""
    return opcode.kind is OpKind.BULK_COPY and opcode.space in GLOBAL_SPACES


def _is_memory_load(opcode: Opcode) -> bool:
    """Return whether results come from global memory, whose latency depends on the cache level."""
    if opcode.sched_class is SchedClass.ASYNC_COPY:
        return True
    return opcode.kind in {OpKind.LOAD, OpKind.ATOMIC, OpKind.ASYNC_COPY} and opcode.space in GLOBAL_SPACES


def _count_bytes(opcode: Opcode, spaces: frozenset[AddressSpace]) -> float:
    """Count the bytes of one warp instruction; LDGSTS counts in global and in shared memory."""
    if opcode.kind not in MEMORY_KINDS or opcode.kind is OpKind.BULK_COPY:
        return 0.0
    here = opcode.space in spaces
    if opcode.kind is OpKind.ASYNC_COPY and spaces is SHARED_SPACES:
        here = True
    return float(opcode.width_bytes * WARP_SIZE) if here else 0.0
