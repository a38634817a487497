"""Hold AMALI, GCoM and MDM against what AMALI's authors measured and print, and write docs/papers.md.

    python bench/papers.py [--jobs 2]

Kernels of a layer of Llama-3-8B on an A100, rebuilt in kind (bench/papers/gemm.cu, elementwise.cu), against
the cycles that the authors of AMALI (Cao et al., ISCA 2025) publish beside their code: ShihengCao/AMALi
@5046c88, HW/llama3-8b-2048_10_m.csv and llama3-8b-4096_10_m.csv, column Average, the first layer's launch of
each kernel (bench/papers/llama3_a100.csv).
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from error_metrics import ERROR_COLUMNS, format_errors
from kernels.compiling import BUILT, CompileUnit, find_dump_path
from kernels.recipes import ROOT, TableError
from markdown import render_table
from predictions import compile_missing, write_table

import analyzer
from analyzer.evaluation.case_table import Case, load_case_gpu, make_launch, read_cases
from analyzer.evaluation.error_metrics import CaseTimes
from analyzer.models.interface import ModelInput, Prediction
from analyzer.models.interval_model import IntervalOptions, predict_by_intervals
from analyzer.models.predictors import amali, gcom, mdm
from analyzer.pipeline import Options
from analyzer.pipeline.gpu_binding import Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer

SOURCES = ROOT / "bench" / "papers"
LAUNCHES = SOURCES / "llama3_a100.csv"
HEAD, NOTES = SOURCES / "head.md", SOURCES / "notes.md"
PAGE = ROOT / "docs" / "papers.md"
GPU, ARCH, CLOCK_MHZ = "a100-80gb-pcie", "sm_80", 1065
READINGS: dict[str, IntervalOptions] = {
    "amali": amali.OPTIONS,
    "letter": amali.LETTER,
    "gcom": gcom.OPTIONS,
    "mdm": mdm.OPTIONS,
}
KINDS = {"product": "products (GEMM)", "elementwise": "elementwise (ELE)"}
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
`sm` on the same launches, for the difference between our kernels and the measured ones: {sm}.

## Kernel by kernel

Predicted over measured, and the share of each term in `amali`'s cycles.

"""


@dataclass(frozen=True, slots=True)
class PaperLaunch:
    """A launch that AMALI's authors measured, and the kernel that stands for it."""

    case: str
    kind: str  # one of `KINDS`
    measured_kernel: str
    kernel: str
    defines: tuple[str, ...]
    grid: str
    block: str
    dynamic_shared_bytes: int
    arguments: str
    cycles: float

    @property
    def unit(self) -> CompileUnit:
        """Source and defines of its kernel."""
        source = SOURCES / ("gemm.cu" if self.defines else "elementwise.cu")
        return CompileUnit("papers", ARCH, source, self.defines, ("-std=c++17",))

    @property
    def columns(self) -> dict[str, object]:
        """Its row in a table of `warplens validate`."""
        return {
            "case": self.case,
            "suite": "papers",
            "dump": find_dump_path(self.unit).relative_to(BUILT),
            "kernel": self.kernel,
            "gpu": GPU,
            "grid": self.grid,
            "block": self.block,
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "arguments": self.arguments,
            "l2": "cold",
            "timing": "ncu",
            "clock_mhz": CLOCK_MHZ,
            "time_us": self.cycles / CLOCK_MHZ,
            "note": self.kind,
        }


def read_paper_launches() -> tuple[PaperLaunch, ...]:
    """Return all launches of `LAUNCHES`."""
    with LAUNCHES.open(encoding="utf-8", newline="") as file:
        return tuple(
            PaperLaunch(
                case=row["case"],
                kind=row["kind"],
                measured_kernel=row["measured_kernel"],
                kernel=row["kernel"],
                defines=tuple(row["defines"].split()),
                grid=row["grid"],
                block=row["block"],
                dynamic_shared_bytes=int(row["dynamic_shared_bytes"]),
                arguments=row["arguments"],
                cycles=float(row["cycles"]),
            )
            for row in csv.DictReader(file)
        )


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
    scores = [
        (KINDS[kind], name, _format_printed(kind, name), *format_errors(_select_times(kind, launches, times)))
        for kind in KINDS
        for name, times in _list_times(found).items()
    ]
    sm = "; ".join(
        f"{KINDS[kind]} {cells[1]}, bias {cells[4]}"
        for kind in KINDS
        for cells in [format_errors(_select_times(kind, launches, sm_times))]
    )
    rows = [
        (*_format_launch(one), *_format_prediction(one, predictions))
        for one, predictions in zip(launches, found, strict=True)
    ]
    return (
        HEAD.read_text(encoding="utf-8").format(rows=len(launches), clock=CLOCK_MHZ)
        + render_table(("kernels", "model", "printed", *ERROR_COLUMNS), scores)
        + _MIDDLE.format(sm=sm)
        + render_table(("launch", "measured kernel", "cycles", *READINGS, *_TERMS.values()), rows)
        + NOTES.read_text(encoding="utf-8")
    )


def _list_times(found: Sequence[dict[str, Prediction]]) -> dict[str, list[float]]:
    """Return predicted times in microseconds by reading."""
    return {name: [predictions[name].time_us for predictions in found] for name in READINGS}


def _format_printed(kind: str, name: str) -> str:
    printed = PRINTED.get((kind, "amali" if name == "letter" else name))
    return "" if printed is None else f"{printed:.1f}%"


def _select_times(kind: str, launches: Sequence[PaperLaunch], times_us: Sequence[float]) -> CaseTimes:
    rows = [
        (one.cycles / CLOCK_MHZ, time)
        for one, time in zip(launches, times_us, strict=True)
        if one.kind == kind
    ]
    measured, predicted = np.array(rows).T
    return CaseTimes(measured_us=measured, predicted_us=predicted, low_us=predicted, high_us=predicted)


def _format_launch(one: PaperLaunch) -> tuple[str, ...]:
    return one.case, one.measured_kernel, f"{one.cycles:,.0f}"


def _format_prediction(one: PaperLaunch, predictions: dict[str, Prediction]) -> tuple[str, ...]:
    measured_us, terms = one.cycles / CLOCK_MHZ, predictions["amali"].bounds_cycles
    whole = predictions["amali"].cycles
    return (
        *(f"{found.time_us / measured_us:.2f}" for found in predictions.values()),
        *(f"{100 * terms.get(name, 0.0) / whole:.0f}%" for name in _TERMS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    jobs = parser.parse_args().jobs
    launches = read_paper_launches()
    path = write_launch_table(launches, jobs)
    found = [predict_readings(case) for case in read_cases(path)]
    sm_times = [
        case.predictions[0].time_us for case in analyzer.validate(path, models=("sm",), jobs=jobs).cases
    ]
    text = render_page(launches, found, sm_times)
    PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    try:
        main()
    except TableError as error:
        sys.exit(f"error: {error}")
