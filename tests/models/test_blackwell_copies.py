"""Copies to shared memory on a B200, as others measured them: rows of SemiAnalysisAI/microbench-blackwell @9a068d85."""

from dataclasses import dataclass

import pytest
from kernel_launches import KernelLaunch, make_model_input, predict_with_model
from msgspec.structs import replace
from paths import TRACES

DUMPS = TRACES / "blackwell"


@dataclass(frozen=True)
class Row:
    """clock_mhz: at which the cycles were counted; l2_is_cold: of what it copies nothing lies in the L2."""

    dump: str
    grid: int
    block: int
    arguments: tuple[str, ...]
    cycles: float
    clock_mhz: float
    l2_is_cold: bool


FEW_BYTES = Row("tma_4x1k", 148, 32, ("0=tensormap", "1=14169"), 3_819_847, 1965.0, l2_is_cold=True)
ONE_TILE = Row("tma_1x64k", 148, 32, ("0=tensormap", "1=221"), 596_165, 1965.0, l2_is_cold=True)
WORDS = Row("ldgsts_4x4", 148, 64, ("1=14168", f"2={148 * 64 * 4}"), 3_383_227, 1965.0, l2_is_cold=True)
STEPS = 131_072 // 64
MAIN_LOOP = Row(
    "mainloop_64x64x64_6",
    1,
    128,
    ("0=tensormap", "1=tensormap", f"2={STEPS}"),
    STEPS * 140.3,
    1280.0,
    l2_is_cold=False,
)


@pytest.mark.parametrize("row", [FEW_BYTES, ONE_TILE, WORDS, MAIN_LOOP], ids=lambda row: row.dump)
def test_copies_come_as_fast_as_measured(row: Row) -> None:
    """Few bytes in flight; all that an SM gets in one tile; buffers whose barriers are looked at early."""
    kernel = row.dump.split("_")[0]
    launched = KernelLaunch(
        DUMPS / f"{row.dump}.sass", kernel, "b200", (row.grid,), (row.block,), row.arguments
    )
    situation = replace(make_model_input(launched), l2_is_cold=row.l2_is_cold, clock_mhz=row.clock_mhz)
    assert predict_with_model(situation, "sm").cycles == pytest.approx(row.cycles, rel=0.11)
