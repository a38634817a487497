"""Loops taken in closed form, and grids proven by boxes, come to what executing each iteration and CTA does."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from against_oracle import ARCHS, count_warp_classes, load_packed_dump, run_machine
from hypothesis import example, given, settings
from hypothesis import strategies as st
from launches import LAUNCHES, RandomLaunch, make_random_launch
from paths import TRACES

from analyzer import load
from analyzer.execution.machine import cta_batch
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.sampling import cta_equivalence
from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel

LOOPS = sorted(LAUNCHES.keys() - {"in_place", "recursion", "recursion_linear", "calls"})
GRIDS = (
    "early_return",
    "grid_stride_2d",
    "grid_stride_3d",
    "shapes",
    "ragged",
    "reduce",
    "triangles",
    "min_max",
)


def said(profile: ExecutionProfile) -> tuple[object, ...]:
    """All that a profile counts."""
    return (
        profile.block_executions.tolist(),
        profile.block_active_lanes.tolist(),
        profile.block_provenance,
        profile.loop_entries.tolist(),
        [
            (
                a.row,
                a.space,
                a.requests,
                a.lanes,
                a.bytes,
                a.sectors,
                a.wavefronts,
                a.unique_bytes,
                a.provenance,
            )
            for a in profile.accesses
            if a.requests
        ],
        profile.traffic,
    )


@settings(max_examples=25)
@given(name=st.sampled_from(LOOPS), seed=st.integers(0, 10_000), arch=st.sampled_from(ARCHS))
@example(name="gotos", seed=5, arch=120)  # an inner loop is entered in iterations taken at once
@example(name="dynamic_shared", seed=1, arch=75)  # shared memory begins at zero
def test_closing_loops_changes_nothing(name: str, seed: int, arch: int) -> None:
    launch = make_random_launch(name, Random(seed))
    assert said(run_machine(arch, launch)) == said(run_machine(arch, launch, closes_loops=False)), str(launch)


@pytest.mark.parametrize(("name", "values"), [
    ("squares", (0, 40_000)), ("geometric", (0, 1 << 30, 1 << 31)), ("stages3", (0, 700)),
    ("stages5", (0, 700)), ("stage_modulo", (0, 900, 7)), ("wraps", (0, 900, 77)), ("bits", (0, 500)),
    ("unsigned_down", (0, 900, 3)), ("countsu64", (0, 2_000)), ("min_max", (0, 300, 200)),
])  # fmt: skip
@pytest.mark.parametrize("arch", ARCHS)
def test_closing_long_loops_changes_nothing(name: str, values: tuple[int, ...], arch: int) -> None:
    launch = RandomLaunch(name, LAUNCHES[name][0], values, (1, 1, 1), (64, 1, 1))
    assert said(run_machine(arch, launch)) == said(run_machine(arch, launch, closes_loops=False)), str(launch)


@pytest.mark.parametrize("name", ["stages3", "stages5"])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_ring_of_stages_is_gone_round_at_once(name: str, arch: int) -> None:
    """Far more rounds than are executed one by one."""
    launch = RandomLaunch(name, LAUNCHES[name][0], (0, 70_000_000), (1, 1, 1), (64, 1, 1))
    assert run_machine(arch, launch).provenance is Provenance.EXACT


@pytest.mark.parametrize("arch", ARCHS)
def test_a_grid_is_cut_where_its_shared_memory_takes_too_much_room(
    arch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = replace(make_random_launch("reduce", Random(3)), grid=(7, 1, 1), values=(0, 200))
    whole = said(run_machine(arch, launch))
    batches: list[int] = []
    start = AbstractMachine.start

    def counted(self: AbstractMachine) -> None:
        batches.append(len(self.batch.cta_numbers))
        start(self)

    monkeypatch.setattr(AbstractMachine, "start", counted)
    for module in (cta_equivalence, cta_batch):
        monkeypatch.setattr(module, "MAX_TRACKED_SHARED_BYTES", 600_000)  # of 228 KiB each
    assert said(run_machine(arch, launch)) == whole
    assert batches == [7, 2, 2, 2, 1]


@settings(max_examples=25)
@given(
    name=st.sampled_from(GRIDS),
    seed=st.integers(0, 10_000),
    grid=st.tuples(st.integers(3, 12), st.integers(1, 5), st.integers(1, 3)),
    arch=st.sampled_from(ARCHS),
)
def test_boxes_stand_for_the_whole_grid(name: str, seed: int, grid: tuple[int, int, int], arch: int) -> None:
    launch = replace(make_random_launch(name, Random(seed)), grid=grid)
    whole, boxes = run_machine(arch, launch, max_warps=1 << 20), run_machine(arch, launch, max_warps=2)
    assert whole.provenance is Provenance.EXACT
    if boxes.provenance is not Provenance.EXACT:
        return
    assert boxes.block_executions.tolist() == whole.block_executions.tolist(), str(launch)
    assert boxes.block_active_lanes.tolist() == whole.block_active_lanes.tolist(), str(launch)
    assert sum(count_warp_classes(boxes).values()) == sum(count_warp_classes(whole).values()), str(launch)
    own = {(a.row, a.space): a for a in whole.accesses}
    for access in boxes.accesses:
        other = own[access.row, access.space]
        if access.provenance is Provenance.EXACT:
            assert (access.requests, access.lanes) == (other.requests, other.lanes), str(launch)
            for field in ("sectors", "wavefronts", "unique_bytes"):
                if getattr(access, field) is not None:
                    assert getattr(access, field) == getattr(other, field), f"{launch}: {field} of {access}"


def test_warps_that_leave_a_loop_one_after_the_other_do_not_keep_it_open() -> None:
    (kernel,) = (found for found in load_packed_dump("handed_90").kernels if found.name == "stairs")
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, 1), Argument(3, 4096))
    launch = Launch(grid=Dim3(120), block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    closed = execute_kernel(kernel, launch, step_limit=600)
    plain = execute_kernel(kernel, launch, closes_loops=False)
    assert closed is not None
    assert plain is not None
    assert said(closed.profile) == said(plain.profile)


def test_loops_with_assumed_ends_are_closed_around_each_other() -> None:
    """Nobody says how large the products of a group are; all three loops make as many trips as the user says."""
    (kernel,) = load(str(TRACES / "triton" / "sm_90" / "grouped_gemm.sass")).kernels
    launch = Launch(grid=Dim3(2), block=Dim3(128), dynamic_shared_bytes=0)
    few, plain = (
        execute_kernel(kernel, launch, trips=(TripCountRule(9),), closes_loops=closes)
        for closes in (True, False)
    )
    many = execute_kernel(kernel, launch, trips=(TripCountRule(100),), step_limit=40_000)
    assert few is not None
    assert plain is not None
    assert many is not None
    assert said(few.profile) == said(plain.profile)
    assert many.profile.block_executions.max() == 8 * 100**3


def test_what_nobody_knows_need_not_be_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, what is computed from them, and branches of divisions that depend on it."""
    (kernel,) = load_packed_dump("divided_products_80").kernels
    launch = Launch(
        grid=Dim3(24),
        block=Dim3(32),
        dynamic_shared_bytes=0,
        arguments=(*(Argument(place, Pointer()) for place in range(3)), Argument(3, 40)),
    )
    lost: list[bool] = []
    loses = AbstractMachine.forget_if_unknown

    def noted(*what: Any) -> bool:
        lost.append(loses(*what))
        return lost[-1]

    monkeypatch.setattr(AbstractMachine, "forget_if_unknown", noted)
    few = execute_kernel(kernel, launch)
    monkeypatch.setattr(AbstractMachine, "forget_if_unknown", lambda *_: False)
    all_of_it = execute_kernel(kernel, launch)
    assert few is not None
    assert all_of_it is not None
    assert sum(lost) > 20
    assert said(few.profile) == said(all_of_it.profile)
