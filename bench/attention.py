"""Compare attention on an RTX 5090 with the throughputs that its author prints, and write docs/attention.md.

    python bench/attention.py

Four steps of bench/attention/attention.cu, compiled by nvcc 13 for sm_120a. No row of bench/kernels is an
attention kernel; one figure of hwdb was calibrated on the first two steps (see the page).
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from kernels.compiling import BUILT, CompileUnit, find_dump_path
from markdown import render_table
from predictions import compile_rows, predict_rows
from running import publish_page, run_main

from analyzer.report.validation_schema import CaseEntry

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "bench" / "attention" / "attention.cu"
PAGE = ROOT / "docs" / "attention.md"
_HEADS, _QUERIES, _KEYS, _SIZE = 32, 4096, 8192, 128
_FLOPS = 4.0 * _HEADS * _QUERIES * _KEYS * _SIZE
_TILE_BYTES = 64 * _SIZE * 2
_JOBS = 2
_HEAD = """# Attention on an RTX 5090

Made by `python bench/attention.py`: forward attention with mma.sync, 32 heads of 128, 4,096 queries and 8,192
keys in BF16, written anew (bench/attention/attention.cu), against the throughputs that gau-nernst prints for
four such steps (learn-cuda, 07_attention, README at 19b2a2d; RTX 5090 with a power cap of 400 W, CUDA 12.9).
Registers and instructions of the original are not compared, so a few percent may be the code's.

"""
_TAIL = """
The first two steps taught one figure: that an RTX 5090 takes half of the passes that bank conflicts add to
LDSM (`matrix_conflict_share` in hwdb/arch/sm_120.toml). With all of them, as a B300 takes them, the first
step would need 1.6 times its measured time. Products (learn_cuda_sm80) say the same, less sharply. The clock
under tensor work (2,600 MHz) is from matrix products with the same power cap. Nothing else was learned here.
"""


@dataclass(frozen=True, slots=True)
class LadderStep:
    """A version of the attention kernel, and the throughput that its author prints for it."""

    number: int
    title: str
    tflops: float
    tiles: int  # in shared memory at once

    @property
    def time_us(self) -> float:
        return _FLOPS / self.tflops / 1e6

    @property
    def unit(self) -> CompileUnit:
        """Source and defines of its kernel."""
        return CompileUnit("attention", "sm_120a", SOURCE, (f"STEP={self.number}",), ("-std=c++17",))


STEPS = (
    LadderStep(1, "plain tiles, waited for one by one", 142.87, 2),
    LadderStep(2, "tiles permuted against bank conflicts", 181.11, 2),
    LadderStep(3, "keys and values copied ahead", 189.84, 3),
    LadderStep(4, "LDSM of four matrices", 194.33, 3),
)


def _make_columns(step: LadderStep) -> dict[str, object]:
    return {
        "case": step.number,
        "dump": find_dump_path(step.unit).relative_to(BUILT),
        "kernel": "attention",
        "gpu": "rtx-5090",
        "grid": f"{_HEADS * _QUERIES // 64};1;1",
        "block": "128;1;1",
        "dynamic_shared_bytes": step.tiles * _TILE_BYTES,
        "arguments": f'["ptr", "ptr", "ptr", "ptr", {_HEADS}, {_QUERIES}, {_KEYS}]',
        "time_us": step.time_us,
    }


def list_rows() -> list[dict[str, object]]:
    """Return the steps as rows of a table of `warplens validate`, each with its `unit` to compile."""
    return [{**_make_columns(step), "unit": step.unit} for step in STEPS]


def render_page(answers: dict[str, CaseEntry]) -> str:
    """Render the page in Markdown."""
    columns = ("step", "what it adds", "measured us", "predicted us", "predicted / measured", "bound")
    rows = []
    for step in STEPS:
        (found,) = answers[str(step.number)].predictions
        times = (f"{step.time_us:,.0f}", f"{found.time_us:,.0f}", f"{found.time_us / step.time_us:.2f}")
        rows.append((str(step.number), step.title, *times, found.bound))
    return _HEAD + render_table(columns, rows) + _TAIL


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    text = render_page(predict_rows(BUILT / "attention.csv", compile_rows(list_rows(), _JOBS), _JOBS))
    publish_page(PAGE, text)


if __name__ == "__main__":
    run_main(main)
