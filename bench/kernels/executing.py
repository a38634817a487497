"""What our abstract execution says of a built row: resources, and executed instructions per CTA."""

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from analyzer.execution.profile import ExecutionProfile
from analyzer.frontend.reader import read_module
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Dim3, Launch, Pointer, TensorMap
from analyzer.pipeline.executing import execute_kernel
from analyzer.pipeline.program import LoadedKernel, Program, named_kernels
from kernels.compiling import BUILT
from kernels.recipes import Dim3 as Dim3Tuple
from kernels.recipes import Row, TableError

CACHE = BUILT / "executed"
_VERSION = 1
_STEP_LIMIT = 2_000_000
_LEAST_BUFFER_BYTES = 4096


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """One launch executed: per CTA, the mean over the job's grid; provenance is that of the counts."""

    registers: int
    shared_bytes: int
    warp_instructions_per_cta: float
    opcodes_per_cta: Mapping[str, float]
    provenance: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A built row to execute; grid: the whole of it, or a part that stands for it."""

    row: Row
    grid: Dim3Tuple
    dump: Path
    kernel: str


def execute(job: Job) -> Executed:
    """Execute a job, or read what an earlier run kept of it. Raises TableError and WarplensError."""
    kept = CACHE / f"{_key(job)}.json"
    if kept.exists():
        return msgspec.json.decode(kept.read_bytes(), type=Executed)
    found = _execute(job)
    CACHE.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(msgspec.json.encode(found))
    return found


def _key(job: Job) -> str:
    row = job.row
    said = (_VERSION, _digest(job.dump), job.kernel, job.grid, row.block, row.cluster)
    told = repr((*said, row.dynamic_shared_bytes, row.arguments))
    return hashlib.sha256(told.encode()).hexdigest()[:24]


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _execute(job: Job) -> Executed:
    found = named_kernels(Program(read_module(str(job.dump))).kernels, job.kernel)
    if len(found) != 1:
        raise TableError(f"{job.row.case}: {job.dump.name} has {len(found)} kernels named {job.kernel!r}")
    kernel, row = found[0], job.row
    done = execute_kernel(kernel, launch_of(row, job.grid), step_limit=_STEP_LIMIT)
    if done is None:
        raise TableError(f"{row.case}: {row.arch} cannot be executed")
    ctas = math.prod(job.grid)
    opcodes = _opcodes(kernel, done.profile)
    return Executed(
        registers=kernel.kernel.resources.registers or 0,
        shared_bytes=kernel.kernel.resources.shared_bytes or 0,
        warp_instructions_per_cta=sum(opcodes.values()) / ctas,
        opcodes_per_cta={name: count / ctas for name, count in opcodes.items()},
        provenance=done.profile.provenance.value,
    )


def launch_of(row: Row, grid: Dim3Tuple) -> Launch:
    """A row's launch of this grid as the analyzer takes it."""
    return Launch(
        grid=Dim3(*grid),
        block=Dim3(*row.block),
        cluster=Dim3(*row.cluster) if row.cluster else None,
        dynamic_shared_bytes=row.dynamic_shared_bytes,
        arguments=tuple(Argument(place, _value(row, value)) for place, value in enumerate(row.arguments)),
    )


def _value(row: Row, value: int | float | str) -> ArgumentValue:
    match value:
        case "ptr":
            return Pointer()
        case "tensormap":
            return TensorMap()
        case str():
            elements = max((item for item in row.arguments if isinstance(item, int)), default=0)
            contents = np.zeros(max(_LEAST_BUFFER_BYTES, 4 * elements), np.uint8)
            return Buffer(contents, value)
        case _:
            return value


def _opcodes(kernel: LoadedKernel, profile: ExecutionProfile) -> dict[str, float]:
    """Executed warp instructions of the whole grid by opcode."""
    times = np.zeros(len(kernel.kernel))
    for block, warps in zip(kernel.cfg.blocks, profile.block_warps.tolist(), strict=True):
        times[block.start : block.stop] = warps
    for block_index in {part.block for part in profile.parts}:
        cut = kernel.cfg.blocks[block_index]
        times[cut.start : cut.stop] = 0
    for part in profile.parts:
        times[part.start : part.stop] += part.warps
    totals: dict[str, float] = {}
    for row, count in enumerate(times.tolist()):
        if count:
            name = kernel.kernel.opcode(row).name
            totals[name] = totals.get(name, 0) + count
    return totals
