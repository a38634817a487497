"""Execute built rows: their resources, and executed instructions per CTA by abstract execution."""

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.frontend.module_reader import read_module
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Dim3, Launch, Pointer, TensorMap
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel, Program, find_kernels
from kernels.compiling import BUILT
from kernels.recipes import Dim3 as Dim3Tuple
from kernels.recipes import MeasuredRow, TableError

CACHE_FOLDER = BUILT / "executed"
_CACHE_VERSION = 1
_STEP_LIMIT = 2_000_000
_MIN_BUFFER_BYTES = 4096


class ExecutedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Resources and executed instructions of a launch."""

    registers: int  # per thread
    shared_bytes: int  # static
    warp_instructions_per_cta: float  # mean over the executed grid
    opcodes_per_cta: Mapping[str, float]  # executed warp instructions by opcode, mean over the grid
    provenance: str  # of the counts


class ExecutionJob(msgspec.Struct, frozen=True, kw_only=True):
    """A built row to execute."""

    row: MeasuredRow
    grid: Dim3Tuple  # the row's grid, or a part that represents it
    dump: Path
    kernel: str


def execute_cached(job: ExecutionJob) -> ExecutedCounts:
    """Execute a job, or read its cached result. Raises TableError and WarplensError."""
    kept = CACHE_FOLDER / f"{_make_cache_key(job)}.json"
    if kept.exists():
        return msgspec.json.decode(kept.read_bytes(), type=ExecutedCounts)
    found = _execute(job)
    CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(msgspec.json.encode(found))
    return found


def _make_cache_key(job: ExecutionJob) -> str:
    row = job.row
    inputs = (_CACHE_VERSION, _digest(job.dump), job.kernel, job.grid, row.block, row.cluster)
    text = repr((*inputs, row.dynamic_shared_bytes, row.arguments))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _execute(job: ExecutionJob) -> ExecutedCounts:
    found = find_kernels(Program(read_module(str(job.dump))).kernels, job.kernel)
    if len(found) != 1:
        raise TableError(f"{job.row.case}: {job.dump.name} has {len(found)} kernels named {job.kernel!r}")
    kernel, row = found[0], job.row
    done = execute_kernel(kernel, make_launch(row, job.grid), step_limit=_STEP_LIMIT)
    if done is None:
        raise TableError(f"{row.case}: {row.arch} cannot be executed")
    ctas = math.prod(job.grid)
    opcodes = _count_opcodes(kernel, done.profile)
    return ExecutedCounts(
        registers=kernel.kernel.resources.registers or 0,
        shared_bytes=kernel.kernel.resources.shared_bytes or 0,
        warp_instructions_per_cta=sum(opcodes.values()) / ctas,
        opcodes_per_cta={name: count / ctas for name, count in opcodes.items()},
        provenance=done.profile.provenance.value,
    )


def make_launch(row: MeasuredRow, grid: Dim3Tuple) -> Launch:
    """Build a row's launch with this grid."""
    return Launch(
        grid=Dim3(*grid),
        block=Dim3(*row.block),
        cluster=Dim3(*row.cluster) if row.cluster else None,
        dynamic_shared_bytes=row.dynamic_shared_bytes,
        arguments=tuple(
            Argument(place, _make_argument_value(row, value)) for place, value in enumerate(row.arguments)
        ),
    )


def _make_argument_value(row: MeasuredRow, value: int | float | str) -> ArgumentValue:
    match value:
        case "ptr":
            return Pointer()
        case "tensormap":
            return TensorMap()
        case str():
            elements = max((item for item in row.arguments if isinstance(item, int)), default=0)
            contents = np.zeros(max(_MIN_BUFFER_BYTES, 4 * elements), np.uint8)
            return Buffer(contents, value)
        case _:
            return value


def _count_opcodes(kernel: LoadedKernel, profile: ExecutionProfile) -> dict[str, float]:
    """Count executed warp instructions of the whole grid by opcode."""
    times = np.zeros(len(kernel.kernel))
    for block, warps in zip(kernel.cfg.blocks, profile.block_executions.tolist(), strict=True):
        times[block.start : block.stop] = warps
    for block_index in {part.block for part in profile.block_parts}:
        cut = kernel.cfg.blocks[block_index]
        times[cut.start : cut.stop] = 0
    for part in profile.block_parts:
        times[part.start : part.stop] += part.executions
    totals: dict[str, float] = {}
    for row, count in enumerate(times.tolist()):
        if count:
            name = kernel.kernel.find_opcode(row).name
            totals[name] = totals.get(name, 0) + count
    return totals
