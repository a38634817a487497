"""Math pipes and shared memory while products of a warpgroup run (traces/h100, docs/h100.md)."""

from pathlib import Path

import pytest
from kernel_launches import KernelLaunch, make_model_input, predict_with_model
from paths import format_dump

from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import parse_setting, with_settings

IN_SHARED_MEMORY = "HGMMA.64x64x16.F32.BF16 R88, gdesc[UR8], R88"  # 32 cycles, of which it reads all
IN_REGISTERS = "HGMMA.64x128x16.F32.BF16 R88, R64, gdesc[UR12].tnspB, R88"  # 64, of which it reads half
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


def measure_delay(tmp_path: Path, product: str, line: str, alone: int) -> float:
    """Return what each product adds to the time of the lines that run beside it."""
    beside = measure_cycles(tmp_path, [product] * N_PRODUCTS, line, alone)
    return (beside - measure_cycles(tmp_path, [], line, alone)) / N_PRODUCTS


@pytest.mark.parametrize(
    ("line", "alone", "factor"),
    [
        ("FMNMX R{}, R30, R31, !PT", 2, 1.8),
        ("IMAD R{}, R30, R31, R32", 2, 1.8),
        ("MUFU.EX2 R{}, R30", 8, 1.37),
    ],
)
def test_math_takes_longer_beside_products(tmp_path: Path, line: str, alone: int, factor: float) -> None:
    """In 32 cycles it does 32 / factor cycles of work; the first few pass before it starts."""
    assert measure_delay(tmp_path, IN_SHARED_MEMORY, line, alone) == pytest.approx(
        32 * (1 - 1 / factor), rel=0.2
    )


@pytest.mark.parametrize(("product", "taken"), [(IN_SHARED_MEMORY, 0.76 * 32), (IN_REGISTERS, 0.5 * 64)])
def test_products_take_cycles_of_shared_memory(tmp_path: Path, product: str, taken: float) -> None:
    """A product with one operand there takes half of them, one with two nearly all."""
    assert measure_delay(tmp_path, product, "STS.128 [R0], R{}", 16) == pytest.approx(taken, rel=0.2)


@pytest.mark.parametrize(("product", "cycles", "late"), [(IN_SHARED_MEMORY, 32, 32), (IN_REGISTERS, 64, 8)])
def test_shuffles_wait_for_operands_that_are_queued(
    tmp_path: Path, product: str, cycles: float, late: float
) -> None:
    """Each of a chain waits for one product's operands where these take all cycles; hardly with A in registers."""
    chained = "SHFL.BFLY PT, R2, R2, 0x2, 0x1f"  # 24 cycles alone
    assert measure_delay(tmp_path, product, chained, 12) == pytest.approx(
        cycles * (1 - 24 / (24 + late)), rel=0.2
    )
