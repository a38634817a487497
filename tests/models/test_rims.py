"""Sectors that CTAs share: rims of tiles that they read, columns that they write."""

import lzma
from pathlib import Path

import pytest
from kernel_launches import KernelLaunch, make_model_input

from analyzer.models.predictors.sm import predict

PACKED = Path(__file__).parents[1] / "execution" / "kernels"
SIDE = 4096


def unpacked(folder: Path, name: str) -> Path:
    path = folder / f"{name}.sass"
    path.write_bytes(lzma.decompress((PACKED / f"{name}.txt.xz").read_bytes()))
    return path


@pytest.fixture
def rims(tmp_path: Path) -> KernelLaunch:
    """Rows of 34 words by 32 lanes: the last trips ask for little, or nothing."""
    path = unpacked(tmp_path, "rims_86")
    grid, block = (SIDE // 32, SIDE // 32), (32, 8)
    return KernelLaunch(path, "rims", "rtx-a4000", grid, block, (f"2={SIDE}", f"3={SIDE}"))


def test_a_load_that_no_lane_makes_moves_nothing(rims: KernelLaunch) -> None:
    situation = make_model_input(rims)
    rows = situation.access_bytes.is_predicated_off.nonzero()[0].tolist()
    assert [situation.kernel.find_opcode(row).name for row in rows] == ["LDG", "STS"]
    assert (situation.execution_counts[rows] > 0).all()
    assert not situation.access_bytes.global_bytes[rows].any()
    assert not situation.access_bytes.shared_bytes[rows].any()


def test_what_the_dram_brings_is_what_windows_of_ctas_touch(rims: KernelLaunch) -> None:
    """No more than that, though two in three sectors of a row of a tile are touched in part."""
    situation = make_model_input(rims)
    assert situation.dram_read_sectors is not None
    moved = 32 * situation.dram_read_sectors + 4 * SIDE * SIDE
    found = predict(situation).prediction
    needed_us = moved / situation.gpu.sustained_dram_gbps.value / 1e3
    assert found.bounds_cycles["DRAM"] / found.cycles * found.time_us == pytest.approx(needed_us, rel=0.02)
    assert found.time_us < 1.3 * needed_us


@pytest.mark.parametrize("ctas", [4096, 65_536])
def test_columns_that_ctas_write_side_by_side_leave_the_l2_as_whole_sectors(
    tmp_path: Path, ctas: int
) -> None:
    """An SM's own CTAs write to an eighth of each."""
    path = unpacked(tmp_path, "columns_86")
    situation = make_model_input(KernelLaunch(path, "columns", "rtx-a4000", (ctas,), (256,)))
    found = predict(situation).prediction
    read, written = 4 * 1024 * ctas, 4 * 256 * ctas
    needed_us = (read + written) / situation.gpu.sustained_dram_gbps.value / 1e3
    assert found.bounds_cycles["DRAM"] / found.cycles * found.time_us == pytest.approx(needed_us, rel=0.05)
