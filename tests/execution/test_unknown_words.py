"""Addresses that depend on words that nobody knows: what zeros may stand for, and what they may not."""

import numpy as np
import pytest
from against_oracle import load_packed_dump

from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.traces.address_streams import AddressStream, record_address_stream
from analyzer.ir.launch import Argument, Buffer, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import ExecutedLaunch, execute_kernel
from analyzer.pipeline.loaded_program import Program

N_CTAS = 64
ROW_BYTES = 4096 * 4


@pytest.fixture(name="loaded", scope="module")
def loaded_fixture() -> Program:
    return load_packed_dump("tables_86")


def run(loaded: Program, name: str, **buffers: np.ndarray) -> ExecutedLaunch:
    """Launch with pointers but for the buffers that are given by place, as `at_1`."""
    n_arguments = 4 if name == "gathered_rows" else 3
    given = {int(key.removeprefix("at_")): value for key, value in buffers.items()}
    arguments = tuple(
        Argument(place, Buffer(given[place].view(np.uint8), "x.npy") if place in given else Pointer())
        for place in range(n_arguments)
    )
    found = execute_kernel(
        loaded[name], Launch(grid=Dim3(N_CTAS), block=Dim3(256), dynamic_shared_bytes=0, arguments=arguments)
    )
    assert found is not None
    return found


def of_pool(profile: ExecutionProfile) -> list[MemoryAccess]:
    """Loads from the buffer that the looked-up words lead to: the last ones."""
    loads = [access for access in profile.accesses if not access.is_store]
    return [access for access in loads if access.provenance is not Provenance.EXACT]


def test_a_word_of_the_whole_warp_leaves_the_pattern_of_a_request(loaded: Program) -> None:
    pages = np.arange(N_CTAS, dtype=np.int32)[::-1].copy()
    (guessed,) = of_pool(run(loaded, "paged").profile)
    loads = run(loaded, "paged", at_1=pages).profile.accesses
    (truth,) = (access for access in loads if access.row == guessed.row)
    assert guessed.provenance is Provenance.ASSUMED
    assert (guessed.sectors, guessed.requests) == (truth.sectors, truth.requests)


def test_a_page_may_lie_anywhere(loaded: Program) -> None:
    executed = run(loaded, "paged")
    (guessed,) = of_pool(executed.profile)
    assert guessed.unique_bytes is None
    assert executed.profile.traffic.read_unique_bytes is None
    recorded = stream(executed)
    sectors = recorded.sectors[recorded.rows == guessed.row]
    assert len(np.unique(sectors)) == len(sectors) == 2 * 256 * 4 // 32


def test_a_delay_is_taken_for_a_short_one(loaded: Program) -> None:
    executed = run(loaded, "delayed")
    found = of_pool(executed.profile)
    assert found
    assert {access.provenance for access in found} == {Provenance.ASSUMED}
    assert sum(access.unique_bytes or 0 for access in found) == 64 * N_CTAS * 256 * 4
    assert stream(executed).unknown_requests == ()
    late = run(loaded, "delayed", at_1=np.full(64, 16.0, np.float32))
    rows = {access.row for access in found}
    truth = [access for access in late.profile.accesses if access.row in rows]
    assert sum(access.sectors or 0 for access in found) == sum(access.sectors or 0 for access in truth)


def test_what_stands_in_is_told(loaded: Program) -> None:
    notes = run(loaded, "paged").profile.assumptions
    assert any("the same for all lanes of a warp" in note and "lie anywhere" in note for note in notes)
    assert not any("lie anywhere" in note for note in run(loaded, "delayed").profile.assumptions)
    assert not any("all lanes of a warp" in note for note in run(loaded, "gathered").profile.assumptions)


@pytest.mark.parametrize("name", ["gathered", "gathered_rows"])
def test_words_of_each_lane_lead_anywhere(loaded: Program, name: str) -> None:
    found = of_pool(run(loaded, name).profile)
    assert found
    assert all(access.sectors == pytest.approx(access.lanes, rel=1e-3) for access in found)
    assert {access.table_bytes for access in found} == {float(N_CTAS * 256 * 4)}
    assert {access.provenance for access in found} == {Provenance.ASSUMED}


def stream(executed: ExecutedLaunch) -> AddressStream:
    ready = executed.prepared
    assert ready is not None
    return record_address_stream(ready.compiled, ready.image, ready.shape, (0, 1))
