"""Doubts about a function that is called end where it surely comes back to, and no sooner."""

from functools import cache
from random import Random

import numpy as np
import pytest
from against_oracle import ARCHS, load_packed_dump
from launches import RandomLaunch
from oracle import Oracle, OracleResult

import analyzer
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.opcode import OpKind
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.render.count_provenance import make_counts_line

UNSURE = ("gives_up", "gives_up_below", "recurses", "alternates")
SURE = ("reciprocal", "alike", "quotients")


@cache
def kernels(arch: int) -> dict[str, LoadedKernel]:
    return {kernel.name: kernel for kernel in load_packed_dump(f"functions_{arch}").kernels}


def launch_of(name: str, seed: int) -> RandomLaunch:
    """(in, out, n); n must be such that there is something to run."""
    random = Random(f"{name}{seed}")
    held = np.array([random.randrange(7) for _ in range(256)], np.int32)
    return RandomLaunch(
        name, "ppi", (held, np.zeros(2048, np.int32), random.randint(1, 5)), (1, 1, 1), (64, 1, 1)
    )


def machine(kernel: LoadedKernel, launch: RandomLaunch) -> ExecutionProfile:
    found = execute_kernel(kernel, launch.to_launch(with_buffers=False))
    assert found is not None
    return found.profile


def oracle(kernel: LoadedKernel, arch: int, launch: RandomLaunch) -> OracleResult:
    arguments, buffers = launch.pack_constants()
    return Oracle(kernel.kernel, arch, launch.grid, launch.block, arguments, buffers).run()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", UNSURE)
def test_what_is_exact_is_so_whatever_memory_holds(arch: int, name: str) -> None:
    kernel = kernels(arch)[name]
    for seed in range(6):
        launch = launch_of(name, seed)
        profile, truth = machine(kernel, launch), oracle(kernel, arch, launch)
        assert profile.unknown_branches
        for block, known in zip(kernel.cfg.blocks, profile.block_provenance, strict=True):
            if known is Provenance.EXACT:
                start = block.start
                wanted = [sum(w[start] for w, _ in truth.warps), sum(n[start] for _, n in truth.warps)]
                got = [
                    int(profile.block_executions[block.index]),
                    int(profile.block_active_lanes[block.index]),
                ]
                assert got == wanted, f"{launch}: block {block.index}"


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["gives_up", "gives_up_below"])
def test_behind_a_function_that_may_exit_nothing_is_sure(arch: int, name: str) -> None:
    kernel = kernels(arch)[name]
    profile = machine(kernel, launch_of(name, 0))
    assert set(profile.block_provenance[1:]) == {Provenance.ASSUMED}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", SURE)
def test_behind_the_slow_way_of_a_quotient_counts_are_exact(arch: int, name: str) -> None:
    """What is stored, the loop and the end depend on the launch alone; the slow way and the fast one do not."""
    kernel = kernels(arch)[name]
    cfg, profile = kernel.cfg, machine(kernel, launch_of(name, 0))
    doubted = {n for n, known in enumerate(profile.block_provenance) if known is not Provenance.EXACT}
    assert cfg.calling_blocks
    assert cfg.calling_blocks | {callee for _, callee in cfg.call_edges} <= doubted
    stores = {cfg.block_of[access.row] for access in profile.accesses if access.is_store}
    headers = {loop.header for loop in kernel.loops.loops}
    ends = {b.index for b in cfg.blocks if cfg.kernel.find_opcode(b.stop - 1).kind is OpKind.EXIT}
    assert min(map(len, (stores, headers, ends))) > 0
    assert not doubted & (stores | headers | ends)


def test_counts_that_only_a_slow_way_hangs_on_name_its_branch() -> None:
    options = analyzer.Options(launch=launch_of("alike", 0).to_launch(with_buffers=False), kernels=("alike",))
    (kernel,) = analyzer.analyze(load_packed_dump("functions_90"), "h100", options=options).kernels
    assert kernel.counts.assumed_share == 0
    assert (
        "0% of a warp's time depend on 1 unknown branch (executed 1 of 1 CTAs)"
        in make_counts_line(kernel).plain
    )
