"""Rows of a table whose places nobody knows come from where such rows lie: the DRAM, unless given otherwise."""

import lzma
from pathlib import Path

import numpy as np
import pytest

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import PredictionEntry

PACKED = Path(__file__).parents[1] / "execution" / "kernels"
N_PAGES = 1 << 18
PAGE_BYTES = 256 * 4


def predicted(
    folder: Path, *arguments: str, gpu: str = "rtx-a4000", n_pages: int = N_PAGES
) -> PredictionEntry:
    launch = Launch(grid=Dim3(n_pages), block=Dim3(256), arguments=tuple(map(parse_argument, arguments)))
    return launched(folder, "tables_86", "paged", gpu, launch)


def launched(folder: Path, name: str, kernel: str, gpu: str, launch: Launch) -> PredictionEntry:
    path = folder / f"{name}.sass"
    path.write_bytes(lzma.decompress((PACKED / f"{name}.txt.xz").read_bytes()))
    options = Options(launch=launch, models=("sm",), kernels=(kernel,))
    (found,) = analyzer.analyze(str(path), gpu, options=options).kernels
    (prediction,) = found.predictions
    return prediction


def test_pages_that_nobody_names_take_as_long_as_pages_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "pages.npy", np.arange(N_PAGES, dtype=np.int32))
    guessed, given = predicted(tmp_path), predicted(tmp_path, f"1=@{tmp_path / 'pages.npy'}")
    assert guessed.bound == "DRAM"
    assert guessed.time_us == pytest.approx(given.time_us, rel=0.05)
    least_us = 2 * N_PAGES * PAGE_BYTES / load_gpu("rtx-a4000").file.memory.bandwidth_gbps.value / 1e3
    assert guessed.time_us > least_us


@pytest.mark.parametrize(("kernel", "bound"), [("tiles_of_pages", "DRAM"), ("readers_of_pages", "L2")])
def test_pages_come_from_dram_once_for_each_word_that_names_them(
    tmp_path: Path, kernel: str, bound: str
) -> None:
    """Of tiles each page of each head is read once, whatever tiles do as a rule; of the others by eight CTAs."""
    n_pages, heads = 1 << 13, 8
    np.save(tmp_path / "pages.npy", np.random.default_rng(1).permutation(n_pages).astype(np.int32))
    times = {}
    for table in ("ptr", f"@{tmp_path / 'pages.npy'}"):
        arguments = tuple(parse_argument(f"{at}={word}") for at, word in ((1, table), (3, str(heads))))
        launch = Launch(grid=Dim3(heads, n_pages), block=Dim3(128), arguments=arguments)
        found = launched(tmp_path, "pages_90", kernel, "h100", launch)
        assert found.bound == bound
        times[table] = found.time_us
    guessed, given = times.values()
    assert guessed == pytest.approx(given, rel=0.05)


def test_what_asks_for_less_than_the_l2_holds_finds_it_there(tmp_path: Path) -> None:
    """Whichever pages these are: the last launch has left them."""
    n_pages = 8192
    np.save(tmp_path / "pages.npy", np.arange(n_pages, dtype=np.int32))
    given = f"1=@{tmp_path / 'pages.npy'}"
    found = [predicted(tmp_path, *args, gpu="rtx-4090", n_pages=n_pages) for args in ((), (given,))]
    assert found[0].time_us == pytest.approx(found[1].time_us, rel=0.1)
    assert found[0].bound != "DRAM"


N_SAMPLES = 1 << 26


def of_bins(folder: Path, kernel: str, n_ctas: int, *values: str, gpu: str = "rtx-a4000") -> PredictionEntry:
    arguments = tuple(parse_argument(f"{place}={value}") for place, value in enumerate(values))
    launch = Launch(grid=Dim3(n_ctas), block=Dim3(256), arguments=arguments)
    return launched(folder, "bins_86", kernel, gpu, launch)


def test_bins_that_all_lanes_share_queue_at_their_part_of_the_l2(tmp_path: Path) -> None:
    shared = of_bins(tmp_path, "counted", 384, "ptr", "ptr", f"{N_SAMPLES}")
    apart = of_bins(tmp_path, "counted_apart", 384, "ptr", "ptr", f"{N_SAMPLES}")
    assert shared.bound == "atomics"
    assert shared.time_us > 10 * apart.time_us


def test_lanes_that_gather_anywhere_bring_a_sector_each(tmp_path: Path) -> None:
    n_ctas = N_SAMPLES // 256
    anywhere = of_bins(tmp_path, "hashed", n_ctas, "ptr", "ptr", "ptr", "-1")
    small = of_bins(tmp_path, "hashed", n_ctas, "ptr", f"ptr:{1 << 20}", "ptr", "-1")
    least_us = 32 * N_SAMPLES / load_gpu("rtx-a4000").file.memory.bandwidth_gbps.value / 1e3
    assert anywhere.time_us > least_us
    assert small.time_us < 0.5 * least_us


def test_what_the_l1_serves_again_is_not_asked_of_the_l2(tmp_path: Path) -> None:
    """64 MB, of which three are asked for each: a grid that is looked at in parts does not tell them apart."""
    n_ctas = 1 << 15
    found = of_bins(tmp_path, "averaged", n_ctas, "ptr", "ptr", "777", gpu="rtx-5090")
    least_us = 2 * 256 * 4 * n_ctas / load_gpu("rtx-5090").file.memory.bandwidth_gbps.value / 1e3
    assert found.bound != "DRAM"
    assert found.time_us < least_us


def test_a_grid_looked_at_in_parts_is_no_guess_as_a_whole(tmp_path: Path) -> None:
    """What depends on the unknown branch of a sort is: the interval is no wider than that of a small grid."""
    small, large = (of_bins(tmp_path, "swapped", n, "ptr", "1024", "2048") for n in (1 << 12, 1 << 18))
    widths = [found.time_us_high / found.time_us_low for found in (small, large)]
    assert 1.2 < widths[1] < 1.2 * widths[0]


def test_an_atomic_reads_what_it_adds_to_once(tmp_path: Path) -> None:
    """Sectors that a store writes in part may have to be read first: an atomic has read them."""
    path = tmp_path / "bins.sass"
    path.write_bytes(lzma.decompress((PACKED / "bins_86.txt.xz").read_bytes()))
    launch = Launch(grid=Dim3(1 << 18), block=Dim3(256), arguments=(parse_argument(f"3={1 << 26}"),))
    options = Options(launch=launch, models=("sm",), kernels=("added",))
    report = analyzer.whatif(
        str(path), "rtx-a4000", settings=["memory.partial_write_factor=2"], elasticity=False, options=options
    )
    (found,) = report.kernels
    (point,) = found.points
    assert point.prediction is not None
    assert point.prediction.time_us == pytest.approx(found.base.time_us, rel=0.01)
