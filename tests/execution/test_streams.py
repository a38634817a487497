"""Address streams: the sectors of the profile, in turns, within limits."""

import numpy as np
import pytest
from paths import TRACES

import analyzer
from analyzer.execution.machine.prepared_launch import PreparedLaunch
from analyzer.execution.sampling.launch_preparation import prepare_launch
from analyzer.execution.traces.address_streams import (
    AddressStream,
    StreamLimits,
    find_co_resident_ctas,
    record_address_stream,
)
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.ir.opcode import AddressSpace
from analyzer.pipeline.launch_execution import execute_kernel

REPORT16 = TRACES / "cuda" / "sm_80" / "report16.sass"
EXACTNESS = TRACES / "cuda" / "sm_80" / "exactness.sass"
EVERYTHING = StreamLimits(max_sectors=10**9, max_actions=10**9)
SECTOR = 32


def prepared(path: str, kernel: str, launch: Launch) -> PreparedLaunch:
    loaded = analyzer.load(path)[kernel]
    return prepare_launch(loaded.cfg, loaded.loops, launch)


def recorded(
    ready: PreparedLaunch, ctas: tuple[int, ...], limits: StreamLimits | None = None
) -> AddressStream:
    return record_address_stream(ready.compiled, ready.image, ready.shape, ctas, limits=limits)


def launch(grid: Dim3, block: Dim3, **arguments: int) -> Launch:
    given = tuple(Argument(int(place[1:]), value) for place, value in arguments.items())
    return Launch(grid=grid, block=block, arguments=given, dynamic_shared_bytes=0)


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        ("vector_add", launch(Dim3(5), Dim3(256), _3=1200)),
        ("naive_transpose", launch(Dim3(3, 2), Dim3(32, 8), _2=45, _3=70)),
        ("matmul_naive", launch(Dim3(2, 3), Dim3(16, 16), _3=37)),
        ("matmul_tiled", launch(Dim3(3, 3), Dim3(16, 16), _3=40)),
        ("atomic_hotspot", launch(Dim3(4), Dim3(128), _1=450)),
    ],
)
def test_all_ctas_together_ask_for_the_sectors_of_the_profile(kernel: str, given: Launch) -> None:
    loaded = analyzer.load(str(REPORT16))[kernel]
    executed = execute_kernel(loaded, given)
    assert executed is not None
    assert given.grid is not None
    ready = prepare_launch(loaded.cfg, loaded.loops, given)
    stream = recorded(ready, tuple(range(given.grid.count)), EVERYTHING)
    assert stream.is_complete
    wanted = {
        access.row: (access.requests, access.sectors)
        for access in executed.profile.accesses
        if access.space in (AddressSpace.GLOBAL, AddressSpace.GENERIC, AddressSpace.LOCAL) and access.sectors
    }
    found = {
        row: (len(np.unique(stream.request_numbers[stream.rows == row])), int((stream.rows == row).sum()))
        for row in np.unique(stream.rows).tolist()
    }
    assert found == wanted


def test_warps_take_turns() -> None:
    ready = prepared(str(REPORT16), "vector_add", launch(Dim3(4), Dim3(64), _3=256))
    stream = recorded(ready, (1, 3))
    assert stream.ctas == (1, 3)
    starts = np.flatnonzero(np.diff(stream.request_numbers, prepend=-1))
    assert stream.warps[starts].tolist() == [0, 1, 2, 3] * 3  # two loads and a store
    assert np.diff(stream.rows[starts]).tolist().count(0) == 3 * 3
    assert stream.is_store[starts].tolist() == [False] * 8 + [True] * 4
    first = stream.sectors[stream.request_numbers == 0]
    second = stream.sectors[stream.request_numbers == 2]  # the first warp of CTA 3
    assert np.diff(first).tolist() == [SECTOR] * 3
    assert (second - first).tolist() == [2 * 64 * 4] * 4


def test_requests_whose_addresses_data_decides_go_anywhere() -> None:
    ready = prepared(str(REPORT16), "random_access", launch(Dim3(1), Dim3(64), _3=64))
    stream = recorded(ready, (0,))
    assert stream.unknown_requests == ()
    sectors = [np.unique(stream.sectors[stream.rows == row]) for row in np.unique(stream.rows)]
    assert sorted(map(len, sectors)) == [8, 8, 64]  # indices, results, and what each lane reads by itself


def test_limits_cut_long_loops_always_at_the_same_place() -> None:
    given = launch(Dim3(1000), Dim3(256), _2=256000, _3=1_000_000)
    ready = prepared(str(EXACTNESS), "row_sums_64", given)
    few = StreamLimits(max_sectors=20_000)
    first, again = recorded(ready, (0,), few), recorded(ready, (0,), few)
    assert first.stop_reason == "more than 20,000 sectors"
    assert not first.is_complete
    assert 20_000 < len(first) < 40_000
    assert np.array_equal(first.sectors, again.sectors)
    short = recorded(ready, (0,), StreamLimits(max_actions=100))
    assert short.stop_reason == "more than 100 instructions"
    assert len(short) < len(first)


def test_ctas_of_the_first_wave_go_to_sms_in_turn() -> None:
    assert find_co_resident_ctas(1000, n_sms=108, ctas_per_sm=3) == (0, 108, 216)
    assert find_co_resident_ctas(200, n_sms=108, ctas_per_sm=3) == (0, 108)
    assert find_co_resident_ctas(5, n_sms=108, ctas_per_sm=3) == (0,)
    assert find_co_resident_ctas(1000, n_sms=108, ctas_per_sm=3, sm=5) == (5, 113, 221)


def test_as_many_whole_ctas_as_the_limit_holds_and_one_at_least() -> None:
    limits = StreamLimits(max_sectors=1000)
    for sectors, n_ctas in ((100.0, 8), (300.0, 3), (1000.0, 1), (1e9, 1)):
        ctas = find_co_resident_ctas(5000, n_sms=10, ctas_per_sm=8, sectors_per_cta=sectors, limits=limits)
        assert len(ctas) == n_ctas
