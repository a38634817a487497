"""The ALU while products of a warpgroup run (traces/h100, docs/h100.md)."""

from pathlib import Path

import pytest
from kernel_launches import KernelLaunch, make_model_input, predict_with_model
from paths import format_dump

from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import parse_setting, with_settings

PRODUCT = "HGMMA.64x64x16.F32.BF16 R88, gdesc[UR8], R88"  # 32 cycles
# so that all products are issued before what runs beside them
ENDLESS_QUEUE = with_settings(
    load_gpu("h100"), [parse_setting("warpgroup_contention.max_queued_products=1000")]
)
N_PRODUCTS = 64
LINE_CYCLES = 4_000  # 32 KB of code: the SM's instruction cache holds it


def measure_cycles(tmp_path: Path, products: list[str], line: str, alone: int) -> float:
    """Return the cycles of four warps that start some products and go on with one line, for LINE_CYCLES."""
    lines = [line.format(2 + number % 16) for number in range(LINE_CYCLES // alone)]
    path = tmp_path / f"beside{len(products)}.sass"
    path.write_text(format_dump("sm_90", *products, *lines, "EXIT"))
    launched = KernelLaunch(path, "kernel", "h100", (1,), (128,), dynamic_shared_bytes=65536)
    return predict_with_model(make_model_input(launched, ENDLESS_QUEUE), "sm").cycles


def measure_delay(tmp_path: Path, line: str, alone: int) -> float:
    """Return what each product adds to the time of the lines that run beside it."""
    beside = measure_cycles(tmp_path, [PRODUCT] * N_PRODUCTS, line, alone)
    return (beside - measure_cycles(tmp_path, [], line, alone)) / N_PRODUCTS


def test_the_alu_takes_longer_beside_products(tmp_path: Path) -> None:
    """In 32 cycles it does 32 / 1.8 cycles of work; the first few pass before it starts."""
    delay = measure_delay(tmp_path, "FMNMX R{}, R30, R31, !PT", 2)
    assert delay == pytest.approx(32 * (1 - 1 / 1.8), rel=0.2)
