"""Compare kernels of benchmark suites on Volta with measured cycles, and write docs/volta.md.

    python bench/volta.py [--jobs 2]

Kernels of bench/volta/kernels.cu, whose dump is shipped (traces/volta), against hw_perf.csv of
accel-sim/accel-sim-framework @2260456.
"""

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

from error_metrics import ERROR_COLUMNS, collect_times, format_errors
from kernels.compiling import BUILT
from kernels.recipes import ROOT, TableError
from markdown import render_table
from predictions import write_table
from running import publish_page, run_main

import analyzer
from analyzer.evaluation.case_table import make_launch, read_cases
from analyzer.report.analyze_schema import KernelReport
from analyzer.report.validation_schema import CaseEntry

DUMP = ROOT / "traces" / "volta" / "sm_70" / "kernels.sass"
LAUNCHES = ROOT / "bench" / "volta" / "launches.csv"
COUNTERS = ROOT.parent / "shared" / "data" / "accelsim_v100" / "hw_perf.csv"
PAGE = ROOT / "docs" / "volta.md"
MODELS = ("sm", "amali", "gcom", "mdm", "roofline")
GPU, CLOCK_MHZ = "v100-pcie", 1417
_HEAD = """# Benchmark suites on Volta

Made by `python bench/volta.py`: kernels of the CUDA samples, Rodinia and Parboil, written anew
(bench/volta/kernels.cu), against cycles that the authors of Accel-Sim measured on a Quadro GV100
(accel-sim/accel-sim-framework @2260456, hw_perf.csv). It is predicted as the V100 PCIe, the same chip, at
{clock:,} MHz, at which AccelWattch locked it (recalled). Launches are those of the suites, checked by what
the counters say: `shared` is how many accesses to shared memory our code makes, over what was counted.

The measured code was made by another compiler, and registers are not known, so no row counts in
docs/accuracy.md. No kernel, GPU or architecture of this page taught the models anything, but for one figure:
what an LDC takes on sm_70 (mri_q and quasirandom, which it binds, agree on it). A compiler of today loads
several of sobol's and dct_fast's words at once.

"""
_TAIL = """
Random words stand for the bytes that histogram64 counts, whose bins two lanes ask the same bank for.

What is missing: kernels of a few microseconds (dct_fast, layer_forward) hold what a launch takes until its
first CTA runs, which the counters see and the model does not. inverse_cnd has two warps per scheduler, whose
latencies (conversions, MUFU) are simulators' on sm_70. FP32 work that fills most issue slots (binomial,
sgemm_nt) comes out at .85 to .9. merge_sort_shared searches by data, so that what conflicts in its banks is a
guess.
"""


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """A launch with the hardware counters that were measured for it."""

    suite: str
    kernel: str
    grid: str
    block: str
    shared_bytes: int
    arguments: str
    cycles: float  # Elapsed_Cycles
    shared_accesses: float  # SHRD_ACC, requests to shared memory

    @property
    def columns(self) -> dict[str, object]:
        """Its row in a table of `warplens validate`."""
        return {
            "case": self.kernel,
            "suite": self.suite,
            "dump": str(DUMP),
            "kernel": self.kernel,
            "gpu": GPU,
            "grid": self.grid,
            "block": self.block,
            "dynamic_shared_bytes": self.shared_bytes,
            "arguments": self.arguments,
            "clock_mhz": CLOCK_MHZ,
            "time_us": self.cycles / CLOCK_MHZ,
        }


def load_measured_launches() -> tuple[MeasuredLaunch, ...]:
    """Read all kernels with their counters. Raises TableError if the table is missing."""
    if not COUNTERS.exists():
        raise TableError(f"{COUNTERS} is not there: it lies beside the project")
    with COUNTERS.open(encoding="utf-8", newline="") as file:
        counters = list(csv.DictReader(file))
    with LAUNCHES.open(encoding="utf-8", newline="") as file:
        return tuple(_join_counters(launch, counters) for launch in csv.DictReader(file))


def _join_counters(launch: dict[str, str], counters: list[dict[str, str]]) -> MeasuredLaunch:
    (counted,) = (row for row in counters if launch["measured"] in row["Kernel"])
    return MeasuredLaunch(
        suite=launch["suite"],
        kernel=launch["kernel"],
        grid=launch["grid"],
        block=launch["block"],
        shared_bytes=int(launch["shared_bytes"]),
        arguments=launch["arguments"],
        cycles=float(counted["Elapsed_Cycles"]),
        shared_accesses=float(counted["SHRD_ACC"]),
    )


def render_page(
    rows: tuple[MeasuredLaunch, ...], cases: tuple[CaseEntry, ...], reports: dict[str, KernelReport]
) -> str:
    """Render the page in Markdown."""
    by_case = {case.case: case for case in cases}
    body = [_make_row(row, by_case[row.kernel], reports[row.kernel]) for row in rows]
    errors = [(model, *format_errors(collect_times(cases, model))) for model in MODELS]
    return (
        _HEAD.format(clock=CLOCK_MHZ)
        + render_table(("model", *ERROR_COLUMNS), errors)
        + "\nPredicted over measured:\n\n"
        + render_table(
            ("kernel", "suite", "cycles", "shared", *MODELS, "bound of sm", "cycles by stall"), body
        )
        + _TAIL
    )


def _make_row(row: MeasuredLaunch, case: CaseEntry, report: KernelReport) -> tuple[str, ...]:
    found = {prediction.model: prediction for prediction in case.predictions}
    top = list(found[MODELS[0]].cpi_shares.items())[:3]
    ratios = (f"{found[model].ratio:.2f}" for model in MODELS)
    stalls = ", ".join(f"{cause} {100 * share:.0f}%" for cause, share in top)
    return (
        row.kernel,
        row.suite,
        f"{row.cycles:,.0f}",
        _format_shared_passes(row, report),
        *ratios,
        found[MODELS[0]].bound,
        stalls,
    )


def _format_shared_passes(row: MeasuredLaunch, report: KernelReport) -> str:
    """Format our requests to shared memory over the measured ones."""
    if not row.shared_accesses:
        return ""
    made = sum(access.requests for access in report.memory if access.space == "shared")
    return f"{made / row.shared_accesses:.2f}"


def _execute_kernels(path: Path) -> dict[str, KernelReport]:
    """Analyze the kernels; their reports have the memory counts that the validation lacks."""
    program, found = analyzer.load(str(DUMP)), {}
    for case in read_cases(path):
        options = analyzer.Options(kernels=(case.kernel,), launch=make_launch(case))
        found[case.kernel] = analyzer.analyze(program, GPU, options=options).kernels[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    rows, path = load_measured_launches(), BUILT / "volta.csv"
    BUILT.mkdir(exist_ok=True)
    write_table(path, [row.columns for row in rows])
    found = analyzer.validate(path, models=MODELS, jobs=parser.parse_args().jobs)
    text = render_page(rows, found.cases, _execute_kernels(path))
    publish_page(PAGE, text)


if __name__ == "__main__":
    run_main(main)
