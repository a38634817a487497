"""Compare tunable FP32 matrix products with a tuner's sweeps on three GPUs, and write docs/gemm.md.

    python bench/gemm.py [--jobs 2]

Configurations of bench/gemm/gemm.cu, compiled by nvcc 13, against times of CLBlast's Xgemm in
AutoTuningAssociation/benchmark_hub @8eeb99e, gemm: the fastest ones of each GPU, and others by a hash,
many of them from the fastest fifth.
"""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from error_metrics import ERROR_COLUMNS, collect_times, format_errors
from kernels.compiling import BUILT, CompileUnit, find_dump_path
from kernels.recipes import ROOT
from kernels.sweeps import SWEEPS, read_sweep, sample_configurations
from markdown import render_table
from predictions import compile_rows, write_table
from running import publish_page, run_main

import analyzer
from analyzer.evaluation.error_metrics import CaseTimes, evaluate_choice
from analyzer.report.validation_schema import CaseEntry, ValidationReport

SOURCE = ROOT / "bench" / "gemm" / "gemm.cu"
PAGE = ROOT / "docs" / "gemm.md"
SWEEP = SWEEPS / "gemm.parquet"
MODELS = ("sm", "amali", "gcom", "mdm", "roofline")
KINDS = ("nothing", "A", "B", "A and B")
_SIZE = 4096
_TUNED = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN", "SA", "SB")
_FIXED_PARAMETERS = {"KWI": 2, "STRM": 0, "STRN": 0, "PRECISION": 32}
_MAX_RESULTS_PER_THREAD = 128
_N_FASTEST, _N_OF_FASTEST_FIFTH, _N_OF_OTHERS = 4, 16, 24
_HEAD = """# Tunable matrix products on three GPUs

Made by `python bench/gemm.py`: products of 4096-square matrices in FP32 by configurations of CLBlast's
Xgemm, written anew (bench/gemm/gemm.cu), against the times of whole tuning sweeps
(AutoTuningAssociation/benchmark_hub @8eeb99e). The fastest configurations of each GPU and
others by a hash, {rows} rows. Operands come through the L1 or through shared memory, in accesses of 4 to 16
bytes: what the load/store path costs decides most of them.

Of the measured code nothing but its source is known: NVIDIA's OpenCL compiler made it. What nvcc 13 makes
of ours may differ in registers, and so in CTAs per SM; products of more than {sums} sums per thread, which
spill, are left out. No row of this page is counted in docs/accuracy.md.

What was learned here, from all configurations of the sweeps that read through the L1 alone or through shared
memory alone: what a pass of a load costs (`request_cost.py` in execution/footprint, `resource_demand.py` in
models/sm, the issue cycles of LDG on sm_75 in hwdb), and the clocks, from configurations whose bank conflicts
alone say how long they take:
{clocks}.
The laptop's conflicts speak of 1,740; its clock falls with the power that a kernel draws, and one in the
middle is taken.

"""
_TAIL = """
What is missing: how many registers the measured code takes; the power limit, which slows kernels by what
their products draw; which lines of the L1 the CTAs of an SM take from each other. Of the whole sweep on the
RTX 2080 Ti, 15,000 configurations of 1,000 CTAs and more, whose FFMA take up to .55 of the cycles of their
accesses, take as long as passes and fills alone say (medians of .97 to 1.07 by kind, but for 76 rows). Of 20
others in CTAs of 128 threads and more, whose FFMA take .7 or more, `sm` comes out at .84 in the mean (.72 to
1.08). A clock of 1,600 MHz, lowered by the power that both units draw together, would explain it; no clock
or power was measured. One in CTAs of 64 threads with 128 sums each, predicted best on the TITAN RTX, takes as
long as its products and its accesses together. Why is not understood.
"""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU of the sweeps."""

    name: str  # in the sweeps
    gpu: str  # in hwdb
    arch: str
    clock_mhz: int  # inferred from the times of configurations with bank conflicts


DEVICES = (
    Device("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti", "sm_75", 1920),
    Device("NVIDIA TITAN RTX", "titan-rtx", "sm_75", 1850),
    Device("NVIDIA GeForce RTX 3060 Laptop GPU", "rtx-3060-laptop", "sm_86", 1500),
)


@dataclass(frozen=True, slots=True)
class MeasuredConfiguration:
    """A configuration of a sweep and its time."""

    values: tuple[int, ...]  # parameters, in the order of `_TUNED`
    time_us: float

    def __getitem__(self, name: str) -> int:
        return self.values[_TUNED.index(name)]

    @property
    def case(self) -> str:
        return "-".join(map(str, self.values))

    @property
    def results_per_thread(self) -> int:
        """Elements of the product that a thread computes."""
        return self["MWG"] * self["NWG"] // (self["MDIMC"] * self["NDIMC"])

    @property
    def shared_operands(self) -> str:
        """The operands that it keeps in shared memory, one of `KINDS`."""
        return KINDS[self["SA"] + 2 * self["SB"]]

    def make_unit(self, arch: str) -> CompileUnit:
        """Return source and defines of its kernel."""
        defines = tuple(f"{name}={value}" for name, value in zip(_TUNED, self.values, strict=True))
        return CompileUnit("gemm", arch, SOURCE, defines, ("-std=c++17",))


def select_configurations(device: Device) -> tuple[MeasuredConfiguration, ...]:
    """Return a sample of the configurations of a GPU. Raises TableError."""
    return sample_configurations(_read_configurations(device), _N_FASTEST, _N_OF_FASTEST_FIFTH, _N_OF_OTHERS)


def _read_configurations(device: Device) -> Iterator[MeasuredConfiguration]:
    for cells in read_sweep(SWEEP, (*_TUNED, *_FIXED_PARAMETERS, "t_med"), device.name):
        one = MeasuredConfiguration(tuple(int(cells[name]) for name in _TUNED), cells["t_med"] * 1e3)
        if one.results_per_thread <= _MAX_RESULTS_PER_THREAD and all(
            cells[name] == value for name, value in _FIXED_PARAMETERS.items()
        ):
            yield one


def _make_columns(device: Device, one: MeasuredConfiguration) -> dict[str, object]:
    return {
        "case": f"{device.gpu}/{one.case}",
        "suite": "gemm",
        "dump": find_dump_path(one.make_unit(device.arch)).relative_to(BUILT),
        "kernel": "gemm",
        "gpu": device.gpu,
        "grid": f"{_SIZE // one['MWG']};{_SIZE // one['NWG']};1",
        "block": f"{one['MDIMC']};{one['NDIMC']};1",
        "arguments": f'[{_SIZE}, {_SIZE}, {_SIZE}, 1.0, 0.5, "ptr", "ptr", "ptr"]',
        "clock_mhz": device.clock_mhz,
        "time_us": one.time_us,
        "note": one.shared_operands,
    }


def list_rows() -> list[dict[str, object]]:
    """Return the configurations as rows of a table for `validate`, each with its `unit` to compile."""
    return [
        {**_make_columns(device, one), "unit": one.make_unit(device.arch)}
        for device in DEVICES
        for one in select_configurations(device)
    ]


def render_page(report: ValidationReport) -> str:
    """Render the page in Markdown."""
    clocks = ", ".join(f"{device.clock_mhz:,} MHz ({device.gpu})" for device in DEVICES)
    whole, kinds = [], []
    for device in DEVICES:
        for model in MODELS:
            times = collect_times(_select_device_cases(device, report.cases), model)
            whole.append((device.gpu, model, *format_errors(times), _format_tuning_loss(times)))
    for kind in KINDS:
        cases = [case for case in report.cases if case.note == kind]
        for device in DEVICES:
            times = collect_times(_select_device_cases(device, cases), MODELS[0])
            kinds.append((kind, device.gpu, *format_errors(times)))
    return (
        _HEAD.format(rows=report.rows, sums=_MAX_RESULTS_PER_THREAD, clocks=clocks)
        + "## Models\n\n"
        + render_table(("GPU", "model", *ERROR_COLUMNS, "loss of predicted best"), whole)
        + f"\n## `{MODELS[0]}` by what shared memory holds\n\n"
        + render_table(("in shared memory", "GPU", *ERROR_COLUMNS), kinds)
        + _TAIL
    )


def _select_device_cases(device: Device, cases: Iterable[CaseEntry]) -> list[CaseEntry]:
    return [case for case in cases if case.gpu == device.gpu]


def _format_tuning_loss(times: CaseTimes) -> str:
    """Format how much longer than the fastest configuration the one takes that is predicted fastest."""
    return f"{100 * evaluate_choice(times.measured_us.tolist(), times.predicted_us.tolist()).loss:.1f}%"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    jobs = parser.parse_args().jobs
    path = BUILT / "gemm.csv"
    write_table(path, compile_rows(list_rows(), jobs))
    text = render_page(analyzer.validate(path, models=MODELS, jobs=jobs))
    publish_page(PAGE, text)


if __name__ == "__main__":
    run_main(main)
