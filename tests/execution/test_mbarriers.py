"""Rings of mbarriers as the sources of the kernels have them."""

from pathlib import Path

import pytest
from against_oracle import load_packed_dump
from paths import TRACES

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.execution.lowering.slicing import has_mbarrier_waits
from analyzer.execution.mbarriers.pipeline_search import find_mbarrier_pipelines
from analyzer.execution.profile.mbarrier_pipelines import MbarrierPipeline, MbarrierPipelines
from analyzer.execution.sampling.launch_preparation import prepare_launch
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.opcode import Semantics
from analyzer.pipeline.launch_execution import execute_kernel

BLACKWELL = TRACES / "blackwell"
FAST_CU = TRACES / "measured" / "sm_90"
GEMM = ("4096", "4096", "4096", "ptr", "ptr", "ptr", "0")


def rings_of(path: Path, kernel: str, grid: int, block: int, *arguments: str) -> MbarrierPipelines:
    loaded = analyzer.load(str(path))[kernel]
    values = tuple(parse_argument(f"{place}={value}") for place, value in enumerate(arguments))
    ready = prepare_launch(
        loaded.cfg, loaded.loops, Launch(grid=Dim3(grid), block=Dim3(block), arguments=values)
    )
    found = find_mbarrier_pipelines(ready.compiled, ready.image, ready.shape)
    assert found is not None
    return found


def bytes_at(rings: MbarrierPipelines) -> set[float]:
    return {use.expected_bytes for use in rings.uses.values() if use.expected_bytes}


def meanings(rings: MbarrierPipelines, ring: int) -> set[Semantics]:
    return {use.semantics for use in rings.uses.values() if use.pipeline == ring}


def test_a_pipeline_has_a_ring_of_full_and_one_of_empty_buffers() -> None:
    steps = 100
    found = rings_of(
        BLACKWELL / "mainloop_128x128x64_4.sass", "mainloop", 1, 128, "tensormap", "tensormap", f"{steps}"
    )
    full, empty, finished = (
        next(
            place
            for place in range(3)
            if arrival in meanings(found, place) and found.pipelines[place] == ring
        )
        for arrival, ring in (
            (Semantics.MBARRIER_COPY, MbarrierPipeline(4, 0)),
            (Semantics.MBARRIER_COMMIT, MbarrierPipeline(4, 4)),  # all buffers are empty at first
            (Semantics.MBARRIER_COMMIT, MbarrierPipeline(1, 0)),
        )
    )
    assert len({full, empty, finished}) == 3
    assert Semantics.MBARRIER_ARRIVE in meanings(found, full)
    assert bytes_at(found) == {2 * 128 * 64 * 2}
    assert {(value >> 17 & 0x3F) * 8 for value in found.matrix_descriptors.values()} == {128}


@pytest.mark.parametrize("steps", [12, 100, 2048])
def test_what_is_waited_for_before_a_loop_looks_ahead_is_done_once(steps: int) -> None:
    """Of the waits in a loop those for the first buffer; the others were looked at a round earlier."""
    path = BLACKWELL / "mainloop_64x64x64_6.sass"
    found = rings_of(path, "mainloop", 1, 128, "tensormap", "tensormap", f"{steps}")
    waits = [use for use in found.uses.values() if use.semantics is Semantics.MBARRIER_WAIT]
    ends = [use.ramp for use in waits if use.ramp is not None]
    assert [(one.leading_skips, one.n_active_iterations) for one in ends] == [(0, 1)] * 2
    assert {one.is_skipped(0, steps) for one in ends} == {False}
    assert {one.is_skipped(number, steps) for one in ends for number in range(1, steps)} == {True}


def test_tiles_that_two_ctas_copy_count_once() -> None:
    arguments = ("tensormap", "tensormap", "100")
    path = BLACKWELL / "mainloop_128x128x64_4.sass"
    alone, both = (rings_of(path, "mainloop", grid, 128, *arguments).distinct_tile_share for grid in (1, 2))
    assert (alone, both) == (1.0, 0.5)


def test_tiles_of_their_own_are_all_different() -> None:
    found = rings_of(BLACKWELL / "tma_4x16k.sass", "tma", 148, 32, "tensormap", "1771")
    assert found.pipelines == (MbarrierPipeline(4, 0),)
    assert bytes_at(found) == {16384}
    assert found.distinct_tile_share == 1.0


@pytest.mark.parametrize(
    ("kernel", "source", "roles"), [("tile_sums", "tensormap", 2), ("pingpong_sums", "ptr", 3)]
)
def test_warp_groups_that_hand_stages_over(kernel: str, source: str, roles: int) -> None:
    """Four stages of boxes of 64 x 32 floats: traces/cuda/specialized.cu."""
    path = TRACES / "cuda" / "sm_90" / "specialized.cubin"
    found = rings_of(path, kernel, 4, roles * 128, source, "ptr", "16", "64")
    assert MbarrierPipeline(4, 0) in found.pipelines
    assert bytes_at(found) == {64 * 32 * 4}
    assert any(use.semantics is Semantics.MBARRIER_COPY for use in found.uses.values())
    assert found.distinct_tile_share == 1.0


def test_barriers_of_the_library_tell_bytes_in_one_lane() -> None:
    """Other lanes of the warp hold tokens of earlier arrivals where that lane holds the bytes."""
    found = rings_of(FAST_CU / "fast_cu_article-k2-h100-4096.sass", "library_gemm", 4096, 128, *GEMM)
    assert found.pipelines == (MbarrierPipeline(1, 0), MbarrierPipeline(1, 0))
    assert bytes_at(found) == {64 * 64 * 2}


def test_a_queue_that_is_filled_by_arrivals() -> None:
    found = rings_of(FAST_CU / "fast_cu_article-k4-h100-4096.sass", "library_gemm", 1024, 256, *GEMM)
    assert found.pipelines == (MbarrierPipeline(5, 0), MbarrierPipeline(5, 0))
    assert bytes_at(found) == {2 * 128 * 64 * 2}


def test_a_launch_is_heard_while_it_is_executed() -> None:
    """Of a kernel whose slice says all that it tells its mbarriers: one execution does for both."""
    loaded = analyzer.load(str(TRACES / "triton" / "sm_100" / "matmul.sass"))["matmul"]
    sizes = tuple(parse_argument(f"{place}=512") for place in range(3, 9))
    executed = execute_kernel(loaded, Launch(grid=Dim3(16), block=Dim3(128), arguments=sizes))
    assert executed is not None
    assert executed.prepared is not None
    assert executed.mbarrier_recorder is not None
    ready = executed.prepared
    alone = find_mbarrier_pipelines(ready.compiled, ready.image, ready.shape)
    assert alone is not None
    assert alone.uses
    assert (
        find_mbarrier_pipelines(ready.compiled, ready.image, ready.shape, executed.mbarrier_recorder) == alone
    )


def test_most_kernels_have_none() -> None:
    report16 = analyzer.load(str(TRACES / "cuda" / "sm_90" / "report16.sass"))
    assert not any(has_mbarrier_waits(loaded.cfg) for loaded in report16.kernels)


def test_other_ctas_tell_what_the_first_one_does_not_come_to() -> None:
    """The first CTA copies one tile: the loop over four at a time is not among what it does."""
    loaded = load_packed_dump("triangle_90")["triangle"]
    arguments = (parse_argument("0=tensormap"), parse_argument("1=ptr"))
    ready = prepare_launch(
        loaded.cfg, loaded.loops, Launch(grid=Dim3(64), block=Dim3(64), arguments=arguments)
    )
    executed = execute_kernel(loaded, Launch(grid=Dim3(64), block=Dim3(64), arguments=arguments))
    assert executed is not None
    first = find_mbarrier_pipelines(ready.compiled, ready.image, ready.shape)
    found = find_mbarrier_pipelines(
        ready.compiled, ready.image, ready.shape, classes=executed.profile.warp_classes
    )
    assert first is not None
    assert found is not None
    assert copies(first) < copies(found)
    assert {found.uses[row].pipeline for row in copies(found)} == {found.uses[min(copies(first))].pipeline}
    assert {ring.n_stages for ring in found.pipelines} == {2}


def copies(rings: MbarrierPipelines) -> set[int]:
    return {row for row, use in rings.uses.items() if use.semantics is Semantics.MBARRIER_COPY}


def products(step: str, grid: int, block: int) -> MbarrierPipelines:
    path = BLACKWELL / f"products_{step}.cubin"
    (kernel,) = analyzer.load(str(path)).kernels
    arguments = ("tensormap", "tensormap", "ptr", "4096", "4096", "4096")
    return rings_of(path, kernel.name, grid, block, *arguments)


def test_copies_ahead_end_before_their_loop_does() -> None:
    """Four buffers: three tiles are copied before the loop, and the last three rounds copy none."""
    found = products("3_stages", 512, 128)
    ends = {found.uses[row].ramp for row in copies(found)} - {None}
    assert ends
    assert all(odd.leading_skips == 0 and odd.trailing_skips for odd in ends if odd is not None)
    waits = {use.ramp for use in found.uses.values() if use.semantics is Semantics.MBARRIER_WAIT} - {None}
    assert any(odd.leading_skips for odd in waits if odd is not None)  # the first free buffers need no wait


def test_what_one_cta_of_a_pair_announces_for_both_counts_half_in_each() -> None:
    """256 x 64 of A and 256 x 64 of B, of two bytes each, for two CTAs."""
    found = products("5_pairs", 512, 192)
    announced = {use.expected_bytes * use.warp_share for use in found.uses.values() if use.expected_bytes > 4}
    assert announced == {2 * 256 * 64 * 2 / 2}
