"""Reads at places that words of a buffer select, which the user gave."""

import numpy as np
import pytest
from numpy.typing import NDArray
from paths import TRACES

import analyzer
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Buffer, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel

BLOCK = 256
N_WORDS = 1 << 20
SECTOR_BYTES, WORD_BYTES = 32, 4


@pytest.fixture(name="kernel", scope="module")
def kernel_fixture() -> LoadedKernel:
    return analyzer.load(str(TRACES / "cuda" / "sm_80" / "report16.sass"))["random_access"]


def read_table(kernel: LoadedKernel, words: NDArray[np.int32]) -> MemoryAccess:
    """Return the second read, whose places the words name."""
    buffer = Buffer(words.view(np.uint8), "words.npy")
    values = (Pointer(), buffer, Pointer(), len(words))
    launch = Launch(
        grid=Dim3(len(words) // BLOCK),
        block=Dim3(BLOCK),
        dynamic_shared_bytes=0,
        arguments=tuple(Argument(place, value) for place, value in enumerate(values)),
    )
    found = execute_kernel(kernel, launch)
    assert found is not None
    return [access for access in found.profile.accesses if not access.is_store][1]


@pytest.mark.parametrize("table_words", [1 << 14, 1 << 20, 1 << 24])
def test_random_words_that_are_given_read_a_table_of_their_extent(
    kernel: LoadedKernel, table_words: int
) -> None:
    words = np.random.default_rng(7).integers(0, table_words, N_WORDS).astype(np.int32)
    access = read_table(kernel, words)
    assert access.address_provenance is Provenance.EXACT
    if table_words * WORD_BYTES < 1 << 20:  # all bytes are counted one by one
        assert access.unique_bytes == table_words * WORD_BYTES
    else:
        assert access.table_bytes == pytest.approx(table_words * WORD_BYTES, rel=0.02)
        distinct = len(np.unique(words // (SECTOR_BYTES // WORD_BYTES))) * SECTOR_BYTES
        assert access.unique_bytes == pytest.approx(distinct, rel=0.05)


def test_lanes_in_even_steps_do_not_gather(kernel: LoadedKernel) -> None:
    """As of columns: the rest of each sector is read by others, wherever the columns begin."""
    bases = np.random.default_rng(7).integers(0, 1 << 24, N_WORDS // 4)
    words = (bases[:, None] + np.arange(4) * 16).ravel().astype(np.int32)
    access = read_table(kernel, words)
    assert access.unique_bytes is None
    assert not access.is_indirect
