"""Hold AMALI, GCoM and MDM against what AMALI's authors measured and print, and write docs/papers.md.

    python bench/papers.py [--jobs 2]

Kernels of a layer of Llama-3-8B on an A100, rebuilt in kind (bench/papers/gemm.cu, elementwise.cu), against
the cycles that the authors of AMALI (Cao et al., ISCA 2025) publish beside their code: ShihengCao/AMALi
@5046c88, HW/llama3-8b-2048_10_m.csv and llama3-8b-4096_10_m.csv, column Average, the first layer's launch of
each kernel (bench/papers/llama3_a100.csv). Beside them, products and GELU that LLMCompass measured on an A100
(../shared/data/llmcompass), by kernels of the same kind.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from error_metrics import ERROR_COLUMNS, format_errors
from kernels.compiling import BUILT, CompileUnit, find_dump_path
from kernels.recipes import ROOT, TableError
from markdown import render_table
from predictions import compile_missing, write_table
from running import publish_page, run_main

import analyzer
from analyzer.baselines import amali, gcom, mdm
from analyzer.baselines.interval_model import IntervalOptions, predict_by_intervals
from analyzer.evaluation.case_table import Case, load_case_gpu, make_launch, read_cases
from analyzer.evaluation.error_metrics import CaseTimes
from analyzer.models.interface import ModelInput, Prediction
from analyzer.pipeline import Options
from analyzer.pipeline.gpu_binding import Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer

SOURCES = ROOT / "bench" / "papers"
LAUNCHES = SOURCES / "llama3_a100.csv"
LLMCOMPASS = ROOT.parent / "shared" / "data" / "llmcompass"
HEAD, NOTES = SOURCES / "head.md", SOURCES / "notes.md"
PAGE = ROOT / "docs" / "papers.md"
ARCH = "sm_80"
AMALI_GPU, AMALI_CLOCK_MHZ = "a100-80gb-pcie", 1065
LLMCOMPASS_GPU, LLMCOMPASS_CLOCK_MHZ = "a100-80gb-sxm", 1410
READINGS: dict[str, IntervalOptions] = {
    "amali": amali.OPTIONS,
    "letter": amali.LETTER,
    "gcom": gcom.OPTIONS,
    "mdm": mdm.OPTIONS,
}
KINDS = {"product": "products (GEMM)", "elementwise": "elementwise (ELE)"}
AMALI, OTHERS = "AMALI's authors", "LLMCompass"
_TILE_M, _TILE_N, _TILE_K, _STAGES = 128, 256, 64, 3  # of LLMCompass's products, whose kernels are not told
_MIN_ROWS, _MIN_COLUMNS = 256, 1024  # of products that such tiles suit
_MIN_GELU_ELEMENTS = 1 << 26  # below, the host's launches take longer
_GELU_ELEMENTS_PER_CTA = 512
# MAPE that AMALI's section 6.3 prints, %: by kind and model.
PRINTED = {
    ("product", "amali"): 17.84,
    ("elementwise", "amali"): 27.29,
    ("product", "gcom"): 183.95,
    ("elementwise", "gcom"): 77.81,
}
_TERMS = {
    "latency": "S_I",
    "issue": "issue",
    "functional units and L1": "units, L1",
    "NoC and DRAM": "NoC, DRAM",
    "launch": "KLL",
    "divergence": "ID",
}
_MIDDLE = """
`sm` stands there for the difference between our kernels and the measured ones.

## Kernel by kernel

Predicted over measured, and the share of each term in `amali`'s cycles.

"""


@dataclass(frozen=True, slots=True)
class PaperLaunch:
    """A launch that AMALI's authors measured, and the kernel that stands for it."""

    case: str
    kind: str  # one of `KINDS`
    origin: str  # who measured it
    measured_kernel: str
    kernel: str
    defines: tuple[str, ...]
    grid: str
    block: str
    dynamic_shared_bytes: int
    arguments: str
    time_us: float

    @property
    def unit(self) -> CompileUnit:
        """Source and defines of its kernel."""
        source = SOURCES / ("gemm.cu" if self.defines else "elementwise.cu")
        return CompileUnit("papers", ARCH, source, self.defines, ("-std=c++17",))

    @property
    def is_profiled(self) -> bool:
        """True where Nsight Compute measured it: at the base clock, with flushed caches."""
        return self.origin == AMALI

    @property
    def columns(self) -> dict[str, object]:
        """Its row in a table of `warplens validate`."""
        return {
            "case": self.case,
            "suite": "papers",
            "dump": find_dump_path(self.unit).relative_to(BUILT),
            "kernel": self.kernel,
            "gpu": AMALI_GPU if self.is_profiled else LLMCOMPASS_GPU,
            "grid": self.grid,
            "block": self.block,
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "arguments": self.arguments,
            "l2": "cold" if self.is_profiled else "warm",
            "timing": "ncu" if self.is_profiled else "interval",
            "clock_mhz": AMALI_CLOCK_MHZ if self.is_profiled else LLMCOMPASS_CLOCK_MHZ,
            "time_us": self.time_us,
            "note": self.kind,
        }


def read_launches() -> tuple[PaperLaunch, ...]:
    """Return all launches, AMALI's first. Raises TableError where LLMCompass's data are missing."""
    if not LLMCOMPASS.is_dir():
        raise TableError(f"{LLMCOMPASS} is not there: it lies beside the project")
    return (*_read_amali_launches(), *_read_products(), *_read_gelu())


def _read_amali_launches() -> Iterator[PaperLaunch]:
    with LAUNCHES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield PaperLaunch(
                case=row["case"],
                kind=row["kind"],
                origin=AMALI,
                measured_kernel=row["measured_kernel"],
                kernel=row["kernel"],
                defines=tuple(row["defines"].split()),
                grid=row["grid"],
                block=row["block"],
                dynamic_shared_bytes=int(row["dynamic_shared_bytes"]),
                arguments=row["arguments"],
                time_us=float(row["cycles"]) / AMALI_CLOCK_MHZ,
            )


def _read_products() -> Iterator[PaperLaunch]:
    """Return the products that fill tiles; columns: M, N, K, time in ms."""
    tiles = {"TILE_M": _TILE_M, "TILE_N": _TILE_N, "TILE_K": _TILE_K, "STAGES": _STAGES}
    defines = tuple(f"{name}={value}" for name, value in (tiles | {"MMA_K": 16, "B_BY_ROWS": 0}).items())
    for row in _read_rows("matmul_A100.csv"):
        m, n, k = map(int, row[:3])
        if m >= _MIN_ROWS and n >= _MIN_COLUMNS:
            yield PaperLaunch(
                case=f"matmul_{m}x{n}x{k}",
                kind="product",
                origin=OTHERS,
                measured_kernel="cuBLAS",
                kernel="multiply",
                defines=defines,
                grid=f"{m // _TILE_M};{n // _TILE_N};1",
                block="256;1;1",
                dynamic_shared_bytes=(_TILE_M + _TILE_N) * _TILE_K * 2 * _STAGES,
                arguments=f'["ptr", "ptr", "ptr", {m}, {n}, {k}]',
                time_us=float(row[3].removesuffix("ms")) * 1e3,
            )


def _read_gelu() -> Iterator[PaperLaunch]:
    """Return the large ones; columns: elements, elements in a nanosecond."""
    for row in _read_rows("gelu_A100.csv"):
        n = int(row[0])
        if n >= _MIN_GELU_ELEMENTS:
            yield PaperLaunch(
                case=f"gelu_{n}",
                kind="elementwise",
                origin=OTHERS,
                measured_kernel="PyTorch",
                kernel="vectors_gelu",
                defines=(),
                grid=f"{n // _GELU_ELEMENTS_PER_CTA};1;1",
                block="128;1;1",
                dynamic_shared_bytes=0,
                arguments=f'["ptr", "ptr", {n}]',
                time_us=n / float(row[1]) * 1e-3,
            )


def _read_rows(name: str) -> Iterator[list[str]]:
    with (LLMCOMPASS / name).open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            yield [cell.strip() for cell in row]


def write_launch_table(launches: Sequence[PaperLaunch], jobs: int) -> Path:
    """Compile what is not built yet, and write the launches as a table of `warplens validate`."""
    compile_missing([one.unit for one in launches], jobs)
    path = BUILT / "papers.csv"
    write_table(path, [one.columns for one in launches])
    return path


def make_model_input(case: Case) -> ModelInput:
    """Execute a row's kernel and return what models are given. Raises TableError if it cannot be placed."""
    options = Options(kernels=(case.kernel,), launch=make_launch(case))
    (counted,) = KernelAnalyzer(options).count_launches(analyzer.load(str(case.dump))[case.kernel])
    placed = bind_to_gpu(counted, load_case_gpu(case))
    if isinstance(placed, Refusal):
        raise TableError(f"{case.name}: {placed.reason}")
    return placed


def predict_readings(case: Case) -> dict[str, Prediction]:
    """Return the prediction of each of `READINGS`."""
    model_input = make_model_input(case)
    return {name: predict_by_intervals(model_input, options).prediction for name, options in READINGS.items()}


def render_page(
    launches: Sequence[PaperLaunch], found: Sequence[dict[str, Prediction]], sm_times: Sequence[float]
) -> str:
    """Render the page in Markdown; sm_times: in microseconds."""
    times_by_model = {name: [predictions[name].time_us for predictions in found] for name in READINGS} | {
        "sm": list(sm_times)
    }
    scores = [
        (
            KINDS[kind],
            origin,
            name,
            _format_printed(kind, origin, name),
            *format_errors(_select_times(kind, origin, launches, times)),
        )
        for origin in (AMALI, OTHERS)
        for kind in KINDS
        for name, times in times_by_model.items()
    ]
    rows = [
        (*_format_launch(one), *_format_prediction(one, predictions), f"{sm_us / one.time_us:.2f}")
        for one, predictions, sm_us in zip(launches, found, sm_times, strict=True)
    ]
    return (
        HEAD.read_text(encoding="utf-8").format(
            rows=sum(one.is_profiled for one in launches), clock=AMALI_CLOCK_MHZ
        )
        + render_table(("kernels", "measured by", "model", "printed", *ERROR_COLUMNS), scores)
        + _MIDDLE
        + render_table(("launch", "measured kernel", "us", *READINGS, *_TERMS.values(), "sm"), rows)
        + NOTES.read_text(encoding="utf-8")
    )


def _format_printed(kind: str, origin: str, name: str) -> str:
    printed = PRINTED.get((kind, "amali" if name == "letter" else name)) if origin == AMALI else None
    return "" if printed is None else f"{printed:.1f}%"


def _select_times(
    kind: str, origin: str, launches: Sequence[PaperLaunch], times_us: Sequence[float]
) -> CaseTimes:
    rows = [
        (one.time_us, time)
        for one, time in zip(launches, times_us, strict=True)
        if (one.kind, one.origin) == (kind, origin)
    ]
    measured, predicted = np.array(rows).T
    return CaseTimes(measured_us=measured, predicted_us=predicted, low_us=predicted, high_us=predicted)


def _format_launch(one: PaperLaunch) -> tuple[str, ...]:
    return one.case, one.measured_kernel, f"{one.time_us:,.1f}"


def _format_prediction(one: PaperLaunch, predictions: dict[str, Prediction]) -> tuple[str, ...]:
    whole, terms = predictions["amali"].cycles, predictions["amali"].bounds_cycles
    return (
        *(f"{found.time_us / one.time_us:.2f}" for found in predictions.values()),
        *(f"{100 * terms.get(name, 0.0) / whole:.0f}%" for name in _TERMS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    jobs = parser.parse_args().jobs
    launches = read_launches()
    path = write_launch_table(launches, jobs)
    found = [predict_readings(case) for case in read_cases(path)]
    sm_times = [
        case.predictions[0].time_us for case in analyzer.validate(path, models=("sm",), jobs=jobs).cases
    ]
    text = render_page(launches, found, sm_times)
    publish_page(PAGE, text)


if __name__ == "__main__":
    run_main(main)
