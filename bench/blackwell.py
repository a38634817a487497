"""Compare tensor core, copy engine and LDGSTS of a B200 with micro-benchmarks, and write docs/blackwell.md.

    python bench/blackwell.py [--jobs 2]

The kernels of bench/blackwell are compiled by nvcc 13 for selected rows of the measured tables of
SemiAnalysisAI/microbench-blackwell @9a068d85; a time is the table's cycles at the clock of the measurement.
Whole products stand beside what Nsight Compute said of kernels with the same tiles (NVIDIA/tilus @0e3eace).
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from kernels.compiling import BUILT, CompileUnit, find_dump_path
from markdown import render_table
from predictions import compile_rows, predict_rows
from running import publish_page, run_main

from analyzer.ir.arrays import FloatArray
from analyzer.report.validation_schema import CaseEntry

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "blackwell_microbench"
SOURCES = ROOT / "bench" / "blackwell"
PAGE = ROOT / "docs" / "blackwell.md"
_CLOCK_MHZ = 1965.0
# The clock at which the largest tiles of the main loop keep the tensor core busy: its table names none.
_LOOP_CLOCK_MHZ = 1280.0
_N_SMS = 148
_BATCHES = 1000
_COLUMNS = (64, 96, 128, 256)
_DEPTHS = (1, 2, 4, 8, 32, 256)
_STAGES = (2, 3, 4, 6)
_PRODUCT_K = 131_072
_KINDS = {
    "BF16": ("f16", "(1 << 4 | 1 << 7 | 1 << 10)"),
    "E4M3": ("f8f6f4", "(1 << 4)"),
    "S8": ("i8", "(2 << 4 | 1 << 7 | 1 << 10)"),
}
# Whole products of this size in FP16: tiles and roles as in versions 3 to 6 of tilus' blackwell_matmul, whose
# benchmark.py has their duration and SM clock by Nsight Compute.
_PRODUCT_SIZE = 8192
_PRODUCTS = (  # name, defines beside STEP and TILE_N, CTAs of a tile and grid (0: one tile each), us, MHz
    ("one SM, warps with parts", {"STEP": 4, "STAGES": 4}, 1, 0, 813.76, 1410),
    ("one SM, tiles in bands", {"STEP": 4, "STAGES": 4, "BAND": 8}, 1, 0, 776.29, 1400),
    ("one SM, persistent", {"STEP": 6, "STAGES": 4, "PAIRED": 0, "BAND": 8}, 1, _N_SMS, 729.95, 1320),
    ("two SMs, persistent", {"STEP": 6, "STAGES": 5, "BAND": 8}, 2, _N_SMS, 682.85, 1380),
)
_PRODUCT_TILE_M, _PRODUCT_TILE_N, _PRODUCT_TILE_K = 128, 256, 64  # M: of a CTA
_HEAD = """# A B200's tensor core, copy engine and LDGSTS

Made by `python bench/blackwell.py`: kernels of bench/blackwell, written anew and compiled for sm_100a,
against the cycles that SemiAnalysis measured on a B200 (SemiAnalysisAI/microbench-blackwell @9a068d85). The
figures in hwdb/arch/sm_100.toml come from the same tables: this says how well the simulation puts them
together, not how well it would do on rows never seen.

"""
_TAIL = """
The main loop is told twice: as it stands, and each tile with 3 stages and more against itself with 2.
Its table names no clock: at 1,280 MHz its largest tiles keep the tensor core busy.

Whole products are 8192 x 8192 x 8192 in FP16, tiles of 128 x 256 of one SM and of 256 x 256 of two, beside
kernels with the same tiles of NVIDIA/tilus (examples/blackwell_matmul @0e3eace), each at the SM clock that
Nsight Compute read with its time: 1,320 to 1,410 MHz, as the power limit leaves it. They give the L2's rate
in hwdb/gpu/b200.toml. Ours store from registers, theirs by TMA from version 4 on.

Nothing was fitted to this: Modular's pairs that multiply one tile each reach 1,429 TFLOPS, 1,493 where their
stores are double-buffered, and 1,772 where they stay and store one tile while they multiply the next
(modular.com, Matrix Multiplication on Blackwell, parts 3 and 4): 1.24 and 1.19 times. Ours differ by 1.2 at
4096.

What is missing: main loops with four buffers whose operands come from DRAM are 4 to 9 % slow. F4, MXF8 and
MXF4 products are not compiled.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobenchmarkRow:
    """A row of the tables and the launch of our kernel that does the same work."""

    case: str
    group: str  # its row on the page
    source: str  # stem of the file in bench/blackwell
    defines: Mapping[str, object] = field(hash=False)
    grid: int
    block: int
    cluster: int = 1
    shared_bytes: int = 0
    arguments: str
    cycles: float  # of the whole launch, measured
    clock_mhz: float = _CLOCK_MHZ
    l2: str = "cold"

    @property
    def time_us(self) -> float:
        return self.cycles / self.clock_mhz

    @property
    def unit(self) -> CompileUnit:
        """Source and defines of its kernel."""
        defines = tuple(f"{name}={value}" for name, value in self.defines.items())
        return CompileUnit("blackwell", "sm_100a", SOURCES / f"{self.source}.cu", defines, ())


def make_mma_rows() -> Iterator[MicrobenchmarkRow]:
    """Yield rows of tcgen05.mma: cycles of 1,000 batches of `PipelineDepth` instructions each."""
    for name in ("umma_throughput.csv", "umma_throughput_small_depth.csv"):
        for one in _read_table(name):
            depth, m, n = int(one["PipelineDepth"]), int(one["M"]), int(one["N"])
            ctas, layout, kind = int(one["CTAGroup"]), one["ABLayout"], one["Format"]
            if kind not in _KINDS or n not in _COLUMNS or depth not in _DEPTHS:
                continue
            if kind != "BF16" and (n not in (64, 256) or depth not in (1, 256)):
                continue
            word, descriptor = _KINDS[kind]
            yield MicrobenchmarkRow(
                case=f"umma-{kind}-{layout}-{ctas}-{m}-{n}-{depth}",
                group=f"products, {depth} in a batch",
                source="umma",
                defines={
                    "KIND": f'"{word}"',
                    "FORMAT": descriptor,
                    "M": m,
                    "N": n,
                    "GROUP": ctas,
                    "DEPTH": depth,
                    "FROM_TMEM": int(layout == "TS"),
                },
                grid=ctas,
                block=128,
                cluster=ctas,
                arguments=f"[{_BATCHES}]",
                cycles=float(one["CyclesPerMMA"]) * depth * _BATCHES,
            )


def make_ldgsts_rows() -> Iterator[MicrobenchmarkRow]:
    """Yield rows of LDGSTS: cycles of a copy with a fixed number of bytes in flight."""
    for one in _read_table("ldgsts_throughput.csv"):
        ctas, stages, threads, width = (
            int(one[name]) for name in ("CTAsPerSM", "NumStages", "ThreadsPerBlock", "LoadBytes")
        )
        stride = _N_SMS * ctas * threads * width
        batches = round(float(one["LDGSTSTotal"]) * 32 * width / stride)
        yield MicrobenchmarkRow(
            case=f"ldgsts-{ctas}-{stages}-{threads}-{width}",
            group=_name_in_flight_group("LDGSTS", ctas * stages * threads * width),
            source="ldgsts",
            defines={"STAGES": stages, "WIDTH": width},
            grid=_N_SMS * ctas,
            block=threads,
            shared_bytes=stages * threads * width,
            arguments=f'["ptr", {batches}, {stride}]',
            cycles=float(one["SMCyclesAvg"]),
        )


def make_tma_rows() -> Iterator[MicrobenchmarkRow]:
    """Yield rows of TMA: the same copy by the copy engine."""
    for one in _read_table("tma2d_throughput.csv"):
        ctas, stages, width, height = (
            int(one[name]) for name in ("CTAsPerSM", "NumStages", "SmemWidth", "SmemHeight")
        )
        yield MicrobenchmarkRow(
            case=f"tma-{ctas}-{stages}-{width}-{height}",
            group=_name_in_flight_group("TMA", int(one["BytesInFlightPerSM"])),
            source="tma",
            defines={"STAGES": stages, "WIDTH": width, "HEIGHT": height},
            grid=_N_SMS * ctas,
            block=32,
            shared_bytes=stages * width * height * 4,
            arguments=f'["tensormap", {round(float(one["TMAAvgOps"]))}]',
            cycles=float(one["SMCyclesAvg"]),
        )


def make_main_loop_rows() -> Iterator[MicrobenchmarkRow]:
    """Yield rows of CUTLASS's main loop on one SM; only ratios between tiles and stages are meaningful."""
    rows = [
        (tile_m, tile_n, tile_k, stages, float(one["time_ms"]))
        for one in _read_table("cutlass_mainloop_bf16.csv")
        for tile_m, tile_n, tile_k, stages in [
            tuple(int(one[name]) for name in ("TILE_M", "TILE_N", "TILE_K", "STAGES"))
        ]
        if stages in _STAGES and tile_k in (64, 128) and tile_n >= 64
    ]
    for tile_m, tile_n, tile_k, stages, time_ms in rows:
        yield MicrobenchmarkRow(
            case=f"mainloop-{tile_m}-{tile_n}-{tile_k}-{stages}",
            group="main loop",
            source="mainloop",
            defines={"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k, "STAGES": stages},
            grid=1,
            block=128,
            shared_bytes=stages * (tile_m + tile_n) * tile_k * 2,
            arguments=f'["tensormap", "tensormap", {_PRODUCT_K // tile_k}]',
            cycles=time_ms * 1e3 * _LOOP_CLOCK_MHZ,
            clock_mhz=_LOOP_CLOCK_MHZ,
            l2="warm",  # one launch after the other
        )


def make_product_rows() -> Iterator[MicrobenchmarkRow]:
    """Yield rows of whole products whose clock was measured with their time."""
    size = _PRODUCT_SIZE
    for name, defines, ctas, persistent, time_us, clock_mhz in _PRODUCTS:
        rows = _PRODUCT_TILE_M + _PRODUCT_TILE_N // ctas  # of a buffer
        yield MicrobenchmarkRow(
            case=f"product-{name.replace(',', '').replace(' ', '-')}",
            group="whole products",
            source="products",
            defines={**defines, "TILE_N": _PRODUCT_TILE_N},
            grid=persistent or size // _PRODUCT_TILE_M * (size // _PRODUCT_TILE_N),
            block=192,
            cluster=ctas,
            shared_bytes=defines["STAGES"] * rows * _PRODUCT_TILE_K * 2,
            arguments=f'["tensormap", "tensormap", "ptr", {size}, {size}, {size}]',
            cycles=time_us * clock_mhz,
            clock_mhz=clock_mhz,
        )


def _read_table(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def _name_in_flight_group(instruction: str, n_bytes: int) -> str:
    limits = ((4096, "up to 4 KB"), (32768, "8 to 32 KB"), (1 << 40, "48 KB and more"))
    return f"{instruction}, {next(text for limit, text in limits if n_bytes <= limit)} in flight"


def _make_columns(row: MicrobenchmarkRow) -> dict[str, object]:
    return {
        "case": row.case,
        "dump": find_dump_path(row.unit).relative_to(BUILT),
        "kernel": row.source,
        "gpu": "b200",
        "grid": f"{row.grid};1;1",
        "block": f"{row.block};1;1",
        "cluster": f"{row.cluster};1;1" if row.cluster > 1 else "",
        "dynamic_shared_bytes": row.shared_bytes,
        "arguments": row.arguments,
        "time_us": row.time_us,
        "l2": row.l2,
        "clock_mhz": row.clock_mhz,
    }


def list_rows() -> list[MicrobenchmarkRow]:
    """Return all rows, the longest compilations last."""
    rows = [*make_mma_rows(), *make_ldgsts_rows(), *make_tma_rows(), *make_main_loop_rows()]
    rows += make_product_rows()
    rows.sort(key=lambda row: (row.source != "umma", int(row.defines.get("DEPTH", 0))))  # type: ignore[call-overload]
    return rows


def make_columns(row: MicrobenchmarkRow) -> dict[str, object]:
    """Return a row of a table of `warplens validate` with its `unit` to compile."""
    return {**_make_columns(row), "unit": row.unit}


@dataclass(frozen=True, slots=True)
class GroupScore:
    """Errors of the rows of one group."""

    group: str
    rows: int
    error: float  # mean of |predicted / measured - 1|
    bias: float  # mean of predicted / measured
    within_5: float  # share of rows whose error is at most 5 %
    within_10: float


def compute_scores(rows: Sequence[MicrobenchmarkRow], answers: dict[str, CaseEntry]) -> Iterator[GroupScore]:
    """Yield the score of each group, in the order of the rows."""
    for group in dict.fromkeys(row.group for row in rows):
        ratios = np.array(
            [answers[row.case].predictions[0].time_us / row.time_us for row in rows if row.group == group]
        )
        yield _compute_group_score(group, ratios)


def _compute_group_score(group: str, ratios: FloatArray) -> GroupScore:
    off = np.abs(ratios - 1.0)
    near = (float((off <= 0.05).mean()), float((off <= 0.10).mean()))
    return GroupScore(group, len(ratios), float(off.mean()), float(ratios.mean()), *near)


def compute_stage_score(rows: Sequence[MicrobenchmarkRow], answers: dict[str, CaseEntry]) -> GroupScore:
    """Score each main loop relative to the same tile's with two stages.

    Its ratio is predicted over measured, divided by the same ratio with two stages.
    """
    loops = [row for row in rows if row.source == "mainloop"]
    two = {_read_tile_sizes(row): row for row in loops if row.defines["STAGES"] == 2}

    def relative_ratio(row: MicrobenchmarkRow) -> float:
        base = two[_read_tile_sizes(row)]
        ours = [answers[one.case].predictions[0].time_us for one in (row, base)]
        return ours[0] / ours[1] / (row.time_us / base.time_us)

    ratios = np.array([relative_ratio(row) for row in loops if row.defines["STAGES"] != 2])
    return _compute_group_score("main loop, stages of a tile against two", ratios)


def _read_tile_sizes(row: MicrobenchmarkRow) -> tuple[object, ...]:
    return tuple(row.defines[name] for name in ("TILE_M", "TILE_N", "TILE_K"))


def render_page(found: Iterable[GroupScore]) -> str:
    """Render the page in Markdown."""
    head = ("rows", "of them", "mean error", "predicted / measured", "within 5 %", "within 10 %")
    rows = [
        (
            *(one.group, str(one.rows), f"{one.error:.1%}", f"{one.bias:.2f}"),
            *(f"{one.within_5:.0%}", f"{one.within_10:.0%}"),
        )
        for one in found
    ]
    return _HEAD + render_table(head, rows) + _TAIL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    jobs = parser.parse_args().jobs
    if not DATA.is_dir():
        print(f"{DATA} is absent: nothing to compare with", file=sys.stderr)
        return 1
    rows = list_rows()
    answers = predict_rows(BUILT / "blackwell.csv", compile_rows(list(map(make_columns, rows)), jobs), jobs)
    text = render_page([*compute_scores(rows, answers), compute_stage_score(rows, answers)])
    publish_page(PAGE, text)
    return 0


if __name__ == "__main__":
    run_main(main)
