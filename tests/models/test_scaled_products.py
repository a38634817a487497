"""Products with block scales: what is copied into tensor memory for them takes its turn among them."""

from functools import cache
from pathlib import Path

import pytest

import analyzer
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.ir.scheduling import SchedClass, TensorRate
from analyzer.report.analyze_schema import PredictionEntry

DUMP = Path(__file__).parent / "scaled_products_100.txt"
BATCHES, TILES, PRODUCTS, COPIES = 1000, 8, 4, 12
COLUMNS = 256
LATENCY_CYCLES = 300.0  # of a commit and a wait, at most


@cache
def predicted() -> PredictionEntry:
    launch = Launch(grid=Dim3(148), block=Dim3(128), arguments=(Argument(0, BATCHES),))
    (kernel,) = analyzer.analyze(str(DUMP), "b200", options=analyzer.Options(launch=launch)).kernels
    return kernel.predictions[0]


def test_copies_of_scales_queue_among_products() -> None:
    arch = load_gpu("b200").arch
    assert arch is not None
    copies = COPIES * arch.sched[SchedClass.TENSOR_CORE_COPY].issue_cycles.value
    least = TILES * (PRODUCTS * COLUMNS / 2 + copies)
    assert least < predicted().cycles / BATCHES < least + LATENCY_CYCLES


def test_products_run_at_no_more_than_the_clock_that_tensor_cores_leave() -> None:
    b200 = load_gpu("b200")
    assert b200.arch is not None
    assert b200.arch.energy is not None
    share = b200.arch.energy.tensor_clock_share
    assert share is not None
    assert predicted().clock_mhz <= share.value * b200.file.clock.boost_mhz.value


@pytest.mark.parametrize("gpu", ["h100-sxm", "l40s"])
def test_where_nobody_knows_it_all_products_share_a_clock(gpu: str) -> None:
    found = load_gpu(gpu)
    assert found.find_clock_mhz(tensor=TensorRate.FP8) is found.find_clock_mhz(tensor=TensorRate.BF16)
