"""Chains of warpgroup products: the result is there some cycles after the product's turn at the tensor core.

`warpgroup_chain_90.txt` are two of the collector's micro-benchmarks (micro_src.py, `wgmma_source`), compiled by
nvcc 13.0 for sm_90a: a loop of fence, one product on the same accumulator, commit and wait. What an H100 took
for a round stands in traces/h100/micro.json.xz.
"""

from functools import cache
from pathlib import Path

import pytest

import analyzer
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer

DUMP = Path(__file__).parent / "warpgroup_chain_90.txt"
SHORT, LONG = 20, 520


@cache
def cycles(columns: int, rounds: int, model: str) -> float:
    arguments = (Argument(0, Pointer()), Argument(1, Pointer()), Argument(2, rounds), Argument(3, 0))
    launch = Launch(grid=Dim3(1), block=Dim3(128), dynamic_shared_bytes=65536, arguments=arguments)
    options = analyzer.Options(kernels=(f"lat_HGMMA_64x{columns}x16_BF16",), launch=launch, models=(model,))
    (kernel,) = analyzer.analyze(str(DUMP), "h100", options=options).kernels
    return kernel.predictions[0].cycles


@pytest.mark.parametrize("model", ["sm", "warp"])
@pytest.mark.parametrize(("columns", "measured"), [(64, 106.06), (128, 138.97)])
def test_a_round_takes_what_was_measured(columns: int, measured: float, model: str) -> None:
    round_cycles = (cycles(columns, LONG, model) - cycles(columns, SHORT, model)) / (LONG - SHORT)
    assert round_cycles == pytest.approx(measured, rel=0.02)
