"""Rows of a table whose places nobody knows come from where such rows lie: the DRAM, unless given otherwise."""

import lzma
from pathlib import Path

import numpy as np
import pytest

import analyzer
from analyzer.execution.argument_text import parse_argument
from analyzer.hardware.load import load_gpu
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.report import PredictionEntry

PACKED = Path(__file__).parents[1] / "execution" / "kernels" / "tables_86.txt.xz"
N_PAGES = 1 << 18
PAGE_BYTES = 256 * 4


def predicted(
    folder: Path, *arguments: str, gpu: str = "rtx-a4000", n_pages: int = N_PAGES
) -> PredictionEntry:
    path = folder / "tables.sass"
    path.write_bytes(lzma.decompress(PACKED.read_bytes()))
    launch = Launch(grid=Dim3(n_pages), block=Dim3(256), arguments=tuple(map(parse_argument, arguments)))
    options = Options(launch=launch, models=("sm",), kernels=("paged",))
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


def test_what_asks_for_less_than_the_l2_holds_finds_it_there(tmp_path: Path) -> None:
    """Whichever pages these are: the last launch has left them."""
    n_pages = 8192
    np.save(tmp_path / "pages.npy", np.arange(n_pages, dtype=np.int32))
    given = f"1=@{tmp_path / 'pages.npy'}"
    found = [predicted(tmp_path, *args, gpu="rtx-4090", n_pages=n_pages) for args in ((), (given,))]
    assert found[0].time_us == pytest.approx(found[1].time_us, rel=0.1)
    assert found[0].bound != "DRAM"
