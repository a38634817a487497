"""Run launches by abstract execution and by the oracle, and compare their counts."""

import lzma
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

from launches import RandomLaunch, make_random_launch
from oracle import Oracle, OracleResult, totals

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel, Program, load

KERNELS = Path(__file__).resolve().parent / "kernels"
ARCHS = (75, 90, 120)
WarpCounts = Counter[tuple[tuple[int, int], ...]]


def load_packed_dump(name: str) -> Program:
    """Load one of the compressed dumps beside their sources, such as `nests_75`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.txt"
        path.write_bytes(lzma.decompress((KERNELS / f"{name}.txt.xz").read_bytes()))
        return load(str(path))


@cache
def load_program(arch: int) -> Program:
    """Load the dump of `control.cu`: cuobjdump -sass -elf, without encodings and unused sections."""
    return load_packed_dump(f"control_{arch}")


@cache
def find_kernel(arch: int, name: str) -> LoadedKernel:
    return next(k for k in load_program(arch).kernels if k.name.startswith(f"_Z{len(name)}{name}"))


def make_seeded_launch(name: str, seed: int) -> RandomLaunch:
    return make_random_launch(name, Random(f"{name}{seed}"))


def run_machine(arch: int, launch: RandomLaunch, **options: object) -> ExecutionProfile:
    with_buffers = bool(options.pop("with_buffers", True))
    found = execute_kernel(
        find_kernel(arch, launch.kernel),
        launch.to_launch(with_buffers=with_buffers),
        **options,  # type: ignore[arg-type]
    )
    assert found is not None
    return found.profile


def run_oracle(arch: int, launch: RandomLaunch) -> OracleResult:
    arguments, buffers = launch.pack_constants()
    return Oracle(
        find_kernel(arch, launch.kernel).kernel, arch, launch.grid, launch.block, arguments, buffers
    ).run()


def list_block_starts(arch: int, name: str) -> list[int]:
    return [block.start for block in find_kernel(arch, name).cfg.blocks]


def count_warp_classes(profile: ExecutionProfile) -> WarpCounts:
    """Count warps by their (executions, lanes) of each block."""
    found: WarpCounts = Counter()
    for warp_class in profile.warp_classes:
        executions, lanes = warp_class.block_counts.tolist(), warp_class.block_active_lanes.tolist()
        found[tuple(zip(executions, lanes, strict=True))] += warp_class.n_warps
    return found


def find_differences(
    arch: int, launch: RandomLaunch, profile: ExecutionProfile, truth: OracleResult
) -> list[str]:
    """Return a line for each count that differs from the oracle's or is not exact."""
    found = []
    if profile.provenance is not Provenance.EXACT:
        found.append(f"counts are {profile.provenance}: {profile.unknown_branches} {profile.assumptions}")
    wanted = totals(truth, list_block_starts(arch, launch.kernel))
    if count_warp_classes(profile) != wanted:
        found.append(f"blocks of warps: {count_warp_classes(profile)} for {wanted}")
    accesses = {(a.row, a.space.value): a for a in profile.accesses if a.requests}
    for key in sorted(accesses.keys() | truth.memory.keys()):
        own, want = accesses.get(key), truth.memory.get(key)
        if own is None or want is None:
            found.append(f"{key}: {own} for {want}")
            continue
        unique = want.unique_bytes if key[1] == "global" else own.unique_bytes
        got = (own.requests, own.lanes, own.bytes, own.unique_bytes, own.provenance)
        if got != (want.requests, want.lanes, want.lanes * want.width, unique, Provenance.EXACT):
            found.append(f"{key}: {own} for {want.requests}, {want.lanes}, {want.width}, {unique}")
    return [f"{launch}: {text}" for text in found]


def sum_block_counts(arch: int, name: str, truth: OracleResult) -> list[tuple[int, int]]:
    """Return (executions, lanes) of each block, summed over the grid."""
    return [
        (sum(runs[row] for runs, _ in truth.warps), sum(lanes[row] for _, lanes in truth.warps))
        for row in list_block_starts(arch, name)
    ]
