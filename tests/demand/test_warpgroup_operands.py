"""What products of warpgroups fetch from shared memory may take longer than the products."""

import pytest
from paths import TRACES

import analyzer

SM_90 = TRACES / "triton" / "sm_90"
# FMA of a warp's tensor core in a cycle (H100: 2,048 of an SM)
RATE = 512


@pytest.mark.parametrize(
    ("dump", "interval"),
    [
        # cycles of 64 x N: to multiply N / 2; to fetch 16 for the rows of A and N / 4 for the columns of B
        ("matmul_two_stages", 24.0),  # N = 32
        ("matmul_one_stage", 32.0),  # N = 64
        ("matmul_large_tile", 128.0),  # N = 256
    ],
)
def test_products_take_no_less_than_their_operands(dump: str, interval: float) -> None:
    (found,) = analyzer.analyze(str(SM_90 / f"{dump}.sass"), "h100").kernels
    tensor = found.pipes["tensor"]
    assert tensor.cycles / tensor.operations == pytest.approx(interval)


def test_operands_in_registers_are_not_fetched() -> None:
    """Attention with scores of 64 x 32: queries and probabilities stay in registers."""
    (found,) = analyzer.analyze(str(SM_90 / "flash_attention_full.sass"), "h100").kernels
    assert found.pipes["tensor"].cycles * RATE == pytest.approx(found.tensor_fma)
