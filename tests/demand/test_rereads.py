"""Data that CTAs read again, where the L2 holds what they read between and where it does not."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analyzer
from analyzer.demand.rereads import Rereads, find_rereads
from analyzer.demand.sectored_cache import CacheGeometry
from analyzer.hardware.gpu_database import load_gpu
from analyzer.report.analyze_schema import PredictionEntry

GPU = load_gpu("rtx-a4000")
N_ROWS, ROW_WORDS = 1536, 1 << 18
WARP_BYTES = 128
L1 = CacheGeometry(size_bytes=4096, line_bytes=128, sector_bytes=32, ways=32)


def predict(folder: Path, ctas: int, sweeps: int) -> tuple[PredictionEntry, PredictionEntry]:
    """Predict CTAs of a warp that read 128 bytes of their own of each row, so many times over.

    On the GPU, and on one whose L2 has 64 times the size.
    """
    dump = folder / "sweeps.sass"
    shutil.copy(Path(__file__).with_name("sweeps_86.txt"), dump)
    arguments = {2: N_ROWS, 3: ROW_WORDS, 4: sweeps}
    launch = analyzer.Launch(grid=ctas, block=32, arguments=arguments, l2_is_cold=True)
    settings = ["l2.size_bytes=x64"]
    (kernel,) = analyzer.whatif(
        str(dump), GPU.key, settings=settings, launch=launch, elasticity=False
    ).kernels
    (point,) = kernel.points
    assert point.prediction is not None
    return kernel.base, point.prediction


@pytest.mark.parametrize("waves", [1, 3])
def test_what_the_l2_does_not_hold_comes_from_the_dram_in_each_sweep(tmp_path: Path, waves: int) -> None:
    ctas, sweeps = 768 * waves, 32
    found, with_large_l2 = predict(tmp_path, ctas, sweeps)
    moved_us = sweeps * ctas * N_ROWS * WARP_BYTES / GPU.dram_read_gbps.value / 1e3
    assert found.bound == "DRAM"
    assert found.time_us == pytest.approx(moved_us, rel=0.1)
    assert with_large_l2.bound == "L2"
    assert with_large_l2.time_us < 0.5 * found.time_us


def test_the_l2_is_nothing_to_who_reads_once(tmp_path: Path) -> None:
    found, with_large_l2 = predict(tmp_path, 768, 1)
    assert found.time_us == pytest.approx(with_large_l2.time_us, rel=0.02)


@given(
    n_sectors=st.integers(200, 400),
    n_kept=st.integers(16, 512),
    times=st.floats(1.5, 100.0),
    seen=st.integers(1, 3),
)
def test_a_cyclic_sweep_loses_all_or_nothing(n_sectors: int, n_kept: int, times: float, seen: int) -> None:
    """Whether the recording ends before the second sweep or not."""
    l2 = CacheGeometry(size_bytes=32 * n_kept, line_bytes=32, sector_bytes=32, ways=n_kept)
    sectors = np.tile(np.arange(n_sectors, dtype=np.uint64) * np.uint64(128), seen)
    found = find_rereads(sectors, np.arange(len(sectors)), L1, l2, times)
    if n_sectors <= n_kept:
        assert found == Rereads()
    else:
        assert found.dram_factor == pytest.approx(times)
        assert found.waiting_share == pytest.approx((times - 1.0) / times)


def test_what_the_l1_would_hold_was_perhaps_read_again_there() -> None:
    l2 = CacheGeometry(size_bytes=64, line_bytes=32, sector_bytes=32, ways=2)
    sectors = np.arange(32, dtype=np.uint64) * np.uint64(128)
    assert find_rereads(sectors, np.arange(32), L1, l2, 10.0) == Rereads()
    assert find_rereads(sectors, np.arange(32), L1, l2, 1.0) == Rereads()
