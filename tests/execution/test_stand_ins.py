"""Places that words of each lane name: what random words come to, and what bounds them."""

from math import exp

import numpy as np
import pytest
from against_oracle import load_packed_dump

from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.sampling.gather_estimate import estimate_table_size
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Dim3, Launch, Pointer
from analyzer.ir.opcode import AddressSpace
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program

N_CTAS, THREADS = 64, 256
N = N_CTAS * THREADS * 8
BINS_BYTES = 256 * 4


@pytest.fixture(name="loaded", scope="module")
def loaded_fixture() -> Program:
    return load_packed_dump("bins_86")


def run(loaded: Program, name: str, *values: ArgumentValue) -> ExecutionProfile:
    arguments = tuple(Argument(place, value) for place, value in enumerate(values))
    launch = Launch(grid=Dim3(N_CTAS), block=Dim3(THREADS), dynamic_shared_bytes=0, arguments=arguments)
    found = execute_kernel(loaded[name], launch)
    assert found is not None
    return found.profile


def samples() -> Buffer:
    return Buffer(np.random.default_rng(1).integers(0, 256, N, dtype=np.uint8), "samples.npy")


def the(accesses: tuple[MemoryAccess, ...], space: AddressSpace, *, guessed: bool = True) -> MemoryAccess:
    """The one access to a memory of which addresses are guessed."""
    chosen = [a for a in accesses if a.space is space and (a.provenance is not Provenance.EXACT) is guessed]
    return chosen[-1]


def test_bins_of_bytes_are_as_those_of_random_samples(loaded: Program) -> None:
    guessed = the(run(loaded, "counted", Pointer(), Pointer(), N).accesses, AddressSpace.GLOBAL)
    given = run(loaded, "counted", samples(), Pointer(), N).accesses
    truth = next(access for access in given if access.row == guessed.row)
    assert guessed.provenance is Provenance.ASSUMED
    assert guessed.sectors == pytest.approx(truth.sectors, rel=0.02)
    assert guessed.wavefronts == pytest.approx(truth.wavefronts, rel=0.05)
    assert guessed.unique_bytes == truth.unique_bytes == BINS_BYTES


def test_bins_that_the_code_bounds_are_few_bytes_of_the_grid(loaded: Program) -> None:
    traffic = run(loaded, "counted", Pointer(), Pointer(), N).traffic
    assert traffic is not None
    assert traffic.unique_sectors == (N + BINS_BYTES) // 32


def test_lanes_that_meet_in_shared_memory_go_one_by_one(loaded: Program) -> None:
    guessed = the(run(loaded, "counted_in_shared", Pointer(), Pointer(), N).accesses, AddressSpace.SHARED)
    given = run(loaded, "counted_in_shared", samples(), Pointer(), N).accesses
    truth = next(
        access for access in given if access.row == guessed.row and access.space is AddressSpace.SHARED
    )
    assert guessed.wavefronts == pytest.approx(truth.wavefronts, rel=0.05)
    assert (guessed.wavefronts or 0) > 2 * guessed.requests


def test_each_block_has_bins_of_its_own(loaded: Program) -> None:
    guessed = the(run(loaded, "counted_apart", Pointer(), Pointer(), N).accesses, AddressSpace.GLOBAL)
    assert guessed.unique_bytes == pytest.approx(N_CTAS * BINS_BYTES, rel=0.01)


def test_samples_in_floating_point_lie_between_0_and_1(loaded: Program) -> None:
    guessed = the(run(loaded, "sorted_into", Pointer(), Pointer(), N, 256.0).accesses, AddressSpace.GLOBAL)
    assert guessed.unique_bytes == BINS_BYTES
    assert guessed.sectors == pytest.approx(20.4 * guessed.requests, rel=0.02)  # 32 (1 - (31 / 32)^32)


def test_where_nothing_bounds_an_index_each_lane_has_a_sector_of_its_own(loaded: Program) -> None:
    guessed = the(run(loaded, "added", Pointer(), Pointer(), Pointer(), N).accesses, AddressSpace.GLOBAL)
    assert guessed.sectors == pytest.approx(guessed.lanes, rel=0.001)
    assert guessed.is_indirect


def test_where_nothing_bounds_an_index_there_is_an_element_for_each_lane(loaded: Program) -> None:
    guessed = the(run(loaded, "added", Pointer(), Pointer(), Pointer(), N).accesses, AddressSpace.GLOBAL)
    n_threads = N_CTAS * THREADS
    assert guessed.table_bytes == guessed.bytes == 4 * n_threads
    assert guessed.unique_bytes == pytest.approx(4 * n_threads, rel=0.01)
    assert guessed.first_touch_share == pytest.approx(4 / 32, rel=0.01)


def test_a_table_of_a_known_size_bounds_an_index(loaded: Program) -> None:
    given = run(loaded, "added", Pointer(), Pointer(), Pointer(1 << 26), N).accesses
    guessed = the(given, AddressSpace.GLOBAL)
    assert guessed.table_bytes == 1 << 26
    assert guessed.unique_bytes == pytest.approx(32 * guessed.lanes, rel=0.01)


@pytest.mark.parametrize("mask", [1023, 16383])
def test_a_mask_bounds_a_hash(loaded: Program, mask: int) -> None:
    profile = run(loaded, "hashed", Pointer(), Pointer(), Pointer(), mask)
    (guessed,) = [access for access in profile.accesses if access.is_indirect]
    assert guessed.table_bytes == pytest.approx(4 * (mask + 1), rel=0.02)


def test_what_is_guessed_is_told(loaded: Program) -> None:
    notes = run(loaded, "added", Pointer(), Pointer(), Pointer(), N).assumptions
    assert any("ptr:BYTES" in note for note in notes)


def test_as_many_places_as_are_new_tell_the_table() -> None:
    table, n = 1000.0, 5000
    assert estimate_table_size(n, table * (1 - exp(-n / table))) == pytest.approx(table, rel=1e-6)
    assert estimate_table_size(n, n) is None
    assert estimate_table_size(n, n / 2) is None


def test_a_swap_mostly_finds_its_slot(loaded: Program) -> None:
    profile = run(loaded, "inserted", Pointer(), Pointer(), (1 << 20) - 1)
    swap = the(profile.accesses, AddressSpace.GLOBAL)
    assert swap.lanes == N_CTAS * THREADS
    assert any("an atomic that is retried succeeds" in branch.rule for branch in profile.unknown_branches)
