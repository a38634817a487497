"""What the machine says of a launch, put side by side with what the oracle says."""

import lzma
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

from launches import Drawn, drawn
from oracle import Oracle, Outcome, totals

from analyzer.execution.profile import ExecutionProfile
from analyzer.execution.provenance import Provenance
from analyzer.pipeline.executing import execute_kernel
from analyzer.pipeline.program import LoadedKernel, Program, load

KERNELS = Path(__file__).resolve().parent / "kernels"
ARCHS = (75, 90, 120)
Counts = Counter[tuple[tuple[int, int], ...]]


def unpacked(name: str) -> Program:
    """One of the packed dumps that lie beside their sources, such as `nests_75`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.txt"
        path.write_bytes(lzma.decompress((KERNELS / f"{name}.txt.xz").read_bytes()))
        return load(str(path))


@cache
def program(arch: int) -> Program:
    """The dump of `control.cu`: cuobjdump -sass -elf, without encodings and sections that nobody reads."""
    return unpacked(f"control_{arch}")


@cache
def kernel(arch: int, name: str) -> LoadedKernel:
    return next(k for k in program(arch).kernels if k.name.startswith(f"_Z{len(name)}{name}"))


def launch_of(name: str, seed: int) -> Drawn:
    return drawn(name, Random(f"{name}{seed}"))


def machine(arch: int, launch: Drawn, **options: object) -> ExecutionProfile:
    with_buffers = bool(options.pop("with_buffers", True))
    found = execute_kernel(
        kernel(arch, launch.kernel),
        launch.launch(with_buffers=with_buffers),
        **options,  # type: ignore[arg-type]
    )
    assert found is not None
    return found.profile


def oracle(arch: int, launch: Drawn) -> Outcome:
    arguments, buffers = launch.constants()
    return Oracle(
        kernel(arch, launch.kernel).kernel, arch, launch.grid, launch.block, arguments, buffers
    ).run()


def starts(arch: int, name: str) -> list[int]:
    return [block.start for block in kernel(arch, name).cfg.blocks]


def classes(profile: ExecutionProfile) -> Counts:
    """How many warps have which (executions, lanes) in each block."""
    found: Counts = Counter()
    for one in profile.classes:
        found[tuple(zip(one.block_counts.tolist(), one.block_lanes.tolist(), strict=True))] += one.n_warps
    return found


def differences(arch: int, launch: Drawn, profile: ExecutionProfile, truth: Outcome) -> list[str]:
    """Where the two do not agree, or the machine is not certain."""
    found = []
    if profile.provenance is not Provenance.EXACT:
        found.append(f"counts are {profile.provenance}: {profile.unknown_branches} {profile.assumptions}")
    wanted = totals(truth, starts(arch, launch.kernel))
    if classes(profile) != wanted:
        found.append(f"blocks of warps: {classes(profile)} for {wanted}")
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


def block_totals(arch: int, name: str, truth: Outcome) -> list[tuple[int, int]]:
    """(executions, lanes) of each block over the grid."""
    return [
        (sum(runs[row] for runs, _ in truth.warps), sum(lanes[row] for _, lanes in truth.warps))
        for row in starts(arch, name)
    ]
