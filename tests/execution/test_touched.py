"""Sectors that the first CTAs of a grid touch: by proven boxes as by all CTAs, and as an execution of them."""

import pytest
from against_oracle import load_packed_dump
from msgspec.structs import replace
from paths import TRACES

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.profile.cta_boxes import CtaBox
from analyzer.execution.sampling.execution_task import ExecutionOptions, ExecutionTask
from analyzer.execution.sampling.launch_executor import execute_launch
from analyzer.execution.sampling.launch_preparation import prepare_launch
from analyzer.execution.sampling.touched_sectors import (
    TouchedSectors,
    execute_touched_sectors,
    find_touched_in_log,
)
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel, load

DEDISPERSION = "measured/sm_80/dd-a100-8ec57070f381.sass"
CONVOLUTION = "measured/sm_86/cm15-a4000-5c6c88cb6734.sass"


def pointers() -> tuple[Argument, ...]:
    return tuple(Argument(place, Pointer()) for place in range(3))


def launched(path: str, grid: Dim3, block: Dim3) -> tuple[LoadedKernel, Launch]:
    (kernel,) = load(str(TRACES / path)).kernels
    return kernel, Launch(grid=grid, block=block, dynamic_shared_bytes=0, arguments=pointers())


def task_of(kernel: LoadedKernel, launch: Launch, window: Dim3) -> ExecutionTask:
    ready = prepare_launch(kernel.cfg, kernel.loops, launch)
    options = ExecutionOptions(branch_decider=BranchDecider(ready.compiled))
    return ExecutionTask(ready.compiled, ready.image, replace(ready.shape, grid=window), options)


@pytest.mark.parametrize(
    ("path", "grid", "block", "windows"),
    [
        (DEDISPERSION, Dim3(900, 20), Dim3(32, 2), (Dim3(900, 3), Dim3(900, 1), Dim3(450))),
        (CONVOLUTION, Dim3(64, 160), Dim3(64), (Dim3(64, 9), Dim3(64, 4), Dim3(33))),
    ],
)
def test_windows_touch_what_their_ctas_touch(
    path: str, grid: Dim3, block: Dim3, windows: tuple[Dim3, ...]
) -> None:
    check_windows(*launched(path, grid, block), windows)


@pytest.mark.parametrize("length", [1101, 514])
def test_windows_of_rows_that_are_aligned_in_turn(length: int) -> None:
    """Boxes hold every other or fourth CTA."""
    (kernel,) = (own for own in load_packed_dump("odd_rows_90").kernels if own.cfg.kernel.name == "odd_rows")
    arguments = (*pointers()[:2], Argument(2, length))
    launch = Launch(grid=Dim3(1001), block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    check_windows(kernel, launch, (Dim3(103), Dim3(60), Dim3(3)))


def test_windows_of_pages_that_nobody_knows_are_not_known() -> None:
    (kernel,) = (
        own for own in load_packed_dump("pages_90").kernels if own.cfg.kernel.name == "readers_of_pages"
    )
    arguments = (*pointers(), Argument(3, 8))
    launch = Launch(grid=Dim3(8, 500), block=Dim3(128), dynamic_shared_bytes=0, arguments=arguments)
    windows = (Dim3(8, 100), Dim3(8, 50))
    assert execute_touched_sectors(task_of(kernel, launch, windows[0]), windows, ()) is None


def check_windows(kernel: LoadedKernel, launch: Launch, windows: tuple[Dim3, ...]) -> None:
    executed = execute_kernel(kernel, launch, max_warps=1)
    assert executed is not None
    boxes = executed.profile.cta_boxes
    assert boxes
    found = execute_touched_sectors(task_of(kernel, launch, windows[0]), windows, boxes)
    assert found == execute_touched_sectors(task_of(kernel, launch, windows[0]), windows, ())
    assert executed.memory_log is not None
    assert found == find_touched_in_log(executed.memory_log, windows)
    assert found == tuple(alone(kernel, launch, window) for window in windows)


def alone(kernel: LoadedKernel, launch: Launch, window: Dim3) -> TouchedSectors:
    """Of the CTAs of a window executed by themselves, in the whole grid's dimensions."""
    task = task_of(kernel, launch, window)
    compiled, image, shape = task.kernel, task.image, task.shape
    profile = execute_launch(
        kernel.cfg, kernel.loops, replace(launch, grid=window), shape, image, task.options, compiled
    ).profile
    traffic = profile.traffic
    assert traffic is not None
    assert traffic.read_unique_sectors is not None
    assert traffic.written_unique_sectors is not None
    assert traffic.unique_sectors is not None
    return TouchedSectors(
        traffic.read_unique_sectors,
        traffic.written_unique_sectors,
        traffic.unique_sectors,
        float(traffic.read_bytes),
    )


def test_boxes_are_cut_at_a_window() -> None:
    box = CtaBox((1, 0, 0), (9, 4, 0))
    assert box.clip_to_window((5, 3, 1)) == CtaBox((1, 0, 0), (4, 2, 0))
    assert box.contains_ctas_of_window((2, 1, 1))
    assert not box.contains_ctas_of_window((1, 5, 1))
    assert CtaBox((1, 0, 0), (9, 4, 0), (4, 2, 1)).clip_to_window((8, 4, 1)) == CtaBox(
        (1, 0, 0), (5, 2, 0), (4, 2, 1)
    )
