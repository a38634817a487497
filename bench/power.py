"""Hold the power model against measured powers and clocks, and write docs/power.md.

    python bench/power.py

Four comparisons: power of one pipe or level of memory at a time (an H200, traces/h200), clocks of single
launches (an H100 by Nsight Compute, traces/h100), power of 14 kernels of benchmark suites (a GV100,
AccelWattch's measurements), and the clocks that open records of large products imply, by card and limit.
It needs what bench/h100.py and bench/volta.py compile.
"""

import csv
import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import volta
from groundtruth.records import CODE
from kernels.compiling import BUILT
from markdown import render_table
from predictions import write_table

from analyzer.evaluation.case_table import Case, load_case_gpu, make_launch, read_cases
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.schema import WorkEnergy
from analyzer.ir.launch import Timing
from analyzer.ir.scheduling import TensorRate
from analyzer.models.interface import ModelInput
from analyzer.models.power import (
    LaunchWork,
    compute_watts,
    find_clock_share,
    find_limited_clock,
    find_power_limit_w,
    find_tensor_energy_pj,
    measure_launch_work,
)
from analyzer.pipeline.gpu_binding import Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import find_kernels, load
from analyzer.pipeline.options import Options

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "power.md"
_ACCELWATTCH = ROOT.parent / "shared" / "data" / "accelsim_v100" / "hw_power_validation_volta.csv"
_NCU_GPU = "h100-sxm"
_MOST_TENSOR_MHZ = 1850.0  # kernels without products run faster: they need not be analyzed
_LEAST_US = 15.0  # shorter launches are over before their clock settles
_BUSY_SHARE = 0.95  # of the tensor cores' time, in large products of cuBLAS
_FLOAT_BUSY_SHARE = 0.9  # of FFMA's rate on cards of 64 lanes; 0.64 of it on those of 128


@dataclass(frozen=True)
class Record:
    """What an open record says of a card under large products: a clock in MHz, as read or as implied."""

    gpu: str
    rate: TensorRate | None  # None: FP32 without tensor cores
    limit_w: float
    low_mhz: float
    high_mhz: float
    source: str


_TORCH = "zzc0721/torch-performance-test-data"
_AIC = "ai-dynamo/aiconfigurator @095f58a"
BF16, FP8, INT8 = TensorRate.BF16, TensorRate.FP8, TensorRate.INT8
RECORDS = (
    Record("a100-80gb-sxm", BF16, 400, 1230, 1270, f"{_TORCH}: 259 to 266 TFLOPS"),
    Record("a100-80gb-sxm", INT8, 400, 1310, 1390, f"{_AIC}: 541 to 585 TOPS (SmoothQuant)"),
    Record("a100-40gb-pcie", BF16, 250, 960, 1100, f"{_TORCH}: 234 to 241 TFLOPS at 4096, 198 to 215 above"),
    Record("a10", BF16, 150, 790, 860, "54 to 56 TFLOPS"),
    Record("a10", None, 150, 1150, 1250, "14 TFLOPS"),
    Record("a40", BF16, 300, 1500, 1560, "Vidur: 126 TFLOPS"),
    Record("rtx-a6000", BF16, 300, 1460, 1540, f"{_TORCH}: 120 to 123 TFLOPS"),
    Record("rtx-a6000", None, 300, 1720, 1800, f"{_TORCH}: 23.9 to 24 TFLOPS"),
    Record("rtx-a4000", BF16, 140, 1170, 1280, f"{_TORCH}: 56 to 61 TFLOPS"),
    Record("l40s", BF16, 350, 1950, 2050, f"{_AIC}: 279 TFLOPS"),
    Record("l40s", FP8, 350, 1480, 1580, f"{_AIC}: 420 TFLOPS"),
    Record("l40s", None, 350, 1930, 2040, f"{_TORCH}: 46.9 TFLOPS"),
    Record("rtx-4090", None, 450, 2450, 2520, f"{_TORCH}: 54 to 56 TFLOPS"),
    Record("l4", BF16, 72, 940, 1050, f"{_TORCH}: 52 to 59 TFLOPS"),
    Record("l4", None, 72, 1080, 1200, f"{_TORCH}: 10.7 to 12.5 TFLOPS"),
    Record("h100-sxm", BF16, 700, 1350, 1420, "traces/h100/power.jsonl.xz: 702 to 712 TFLOPS"),
    Record("h100-sxm", FP8, 700, 1190, 1275, "traces/h100/power.jsonl.xz: 1,258 TFLOPS"),
    Record("h100-pcie", BF16, 350, 985, 1111, f"{_TORCH}: 437 to 493 TFLOPS"),
    Record("b200", BF16, 1000, 1330, 1380, "NVIDIA/tilus @0e3eace: 8192-cubes, two-SM products and cuBLAS"),
    Record("b200", FP8, 1000, 1300, 1450, f"{_AIC}: 2,890 to 3,330 TFLOPS"),
    Record("rtx-5090", BF16, 400, 2550, 2650, "gau-nernst/learn-cuda @a7e755c: 4096-cubes"),
    Record("rtx-pro-6000-blackwell-server", BF16, 600, 2170, 2280, f"{_TORCH}: 407 to 417 TFLOPS"),
    Record("t4", TensorRate.F16, 70, 1060, 1130, "DeepBench: 43 to 46 TFLOPS"),
    Record("t4", None, 70, 930, 990, "DeepBench: 4.67 TFLOPS"),
    Record("v100-pcie", None, 250, 1350, 1420, f"{_TORCH}, V100S: 13.6 TFLOPS"),
)  # fmt: skip


@dataclass(frozen=True)
class SetClock:
    """A run at a clock that was set: what it took of time and energy."""

    mhz: float
    seconds: float
    joules: float


# The forward pass of a stage of GPT-3 175B in BF16, where the power limit does not lower the clock:
# ml-energy/zeus @38cb3f9, sosp24_data/emulation/stage_profile/gpt3-175b+{a100_sxm,a40}_bf16.csv.
SET_CLOCKS = {
    "a100-80gb-sxm": (
        SetClock(1305, 0.051970, 22.181),
        SetClock(1260, 0.053566, 20.794),
        SetClock(1200, 0.056063, 19.260),
        SetClock(1140, 0.058891, 18.359),
        SetClock(1080, 0.062039, 17.513),
        SetClock(1005, 0.066486, 17.781),
        SetClock(930, 0.071648, 17.931),
        SetClock(855, 0.077731, 18.239),
    ),
    "a40": (
        SetClock(1440, 0.114067, 33.489),
        SetClock(1305, 0.120279, 30.064),
        SetClock(1200, 0.127391, 28.491),
        SetClock(1080, 0.137306, 27.427),
        SetClock(960, 0.149460, 28.084),
        SetClock(855, 0.164405, 29.053),
    ),
}
_MATCHED_MHZ = {
    "a100-80gb-sxm": 1260,
    "a40": 1440,
}  # the clock at which the model's power is the measured one

_PIPES_TEXT = """\
A second of each. The true clock is `clock64` over `globaltimer`: with matrix products it is .90 to .92 of
what NVML says, whatever the power. Data are random words where not zeros."""
_CLOCKS_TEXT = """\
Clocks by Nsight Compute, of launches of {least_us:.0f} us and more whose code is here, and what the model
says of their work in their measured time: {n} kernels, mean error {error:.1%}, bias
{bias:.2f}. The limit of 1,000 W is fitted to them. Kernels without matrix products run at 1,946
to 1,980 MHz."""
_SUITES_TEXT = """\
Power by AccelWattch (accel-sim/accel-sim-framework @2260456, hw_power_validation_volta.csv) of kernels
written anew (docs/volta.md), in the time that was measured: mean error {error:.0%}, bias
{bias:.2f}. Wattchmen (arXiv 2603.26435) says 14 % for itself and 32 % for AccelWattch, of other
kernels. These rows set the figures of sm_70, a compromise: products, which read shared memory most, draw
more than the model says, others with shared memory less."""
_SET_TEXT = """\
A stage of GPT-3 175B at clocks that were set (ml-energy/zeus @38cb3f9,
sosp24_data/emulation/stage_profile, forward), for the energy of its work that meets the power at
{matched}. These rows set nothing. The A100's
voltage rises from where the model has it, and below the energy grows by {slope:.0f} W of time: what the card
takes without work, apart from its clocks. The A40's voltage rises from some 1,080 MHz on, not from 1,430:
the energies of sm_86 are those of an A10, an A40 and others at once, which 1,080 MHz does not fit
together."""
_RECORDS_TEXT = """\
A throughput over the rate of its unit is a clock: {busy:.0%} of the tensor cores' time is taken, and
of FFMA's rate what the same library reaches on cards without a limit. By these rows the figures of the
architectures but sm_70 and sm_90 were fitted, each with a handful of them: they say how well one set of
energies holds for all cards of an architecture, not how well it holds for others."""


def main() -> None:
    """Write the page."""
    sections = (
        *compare_pipes(),
        *compare_set_clocks(),
        *compare_clocks(),
        *compare_suites(),
        *compare_records(),
    )
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    head = page.split("<!-- measured -->")[0]
    PAGE.write_text(head + "<!-- measured -->\n" + "\n\n".join(sections) + "\n", encoding="utf-8")


# ---- one pipe at a time


_PIPES = {
    "ffma_random": ("lane_pj", 1.0),
    "imad_random": ("lane_pj", 1.0),
    "lop3_random": ("lane_pj", 1.0),
    "mufu": ("lane_pj", 1.0),
    "dfma_random": ("double_lane_pj", 1.0),
    "l2_read_random": ("l2_byte_pj", 1.0),
    "lds_random": ("shared_byte_pj", 0.25),  # ptxas joined three of four loads of the same words
    "hmma_bf16_random": (BF16, 1.0),
    "wgmma_bf16_random": (BF16, 1.0),
    "wgmma_bf16_random_half_sms": (BF16, 1.0),
    "wgmma_e4m3_random": (FP8, 1.0),
    "wgmma_s8_random": (INT8, 1.0),
    "wgmma_tf32_random": (TensorRate.TF32, 1.0),
}


def compare_pipes() -> Iterator[str]:
    """Yield the section of the H200's power by pipe."""
    gpu = load_gpu("h200-sxm")
    energy = _find_energy(gpu)
    with lzma.open(ROOT / "traces" / "h200" / "power_pipes.jsonl.xz", "rt") as file:
        rows = {row["workload"]: row for row in map(json.loads, file) if "workload" in row}
    lines = []
    for name, row in rows.items():
        watts = ""
        if (pipe := _PIPES.get(name)) is not None:
            which, share = pipe
            is_product = isinstance(which, TensorRate)
            each = (
                find_tensor_energy_pj(energy, which)
                if isinstance(which, TensorRate)
                else getattr(energy, which).value
            )
            work = LaunchWork(
                row["rate_per_s"] * share * each,
                0.0,
                gpu.sm_count,
                find_clock_share(gpu, BF16 if is_product else None),
            )
            watts = f"{compute_watts(gpu, energy, work, row['sm_clock_mhz'], 1.0):,.0f}"
        lines.append(
            (
                name,
                f"{row['nvml_sm_mhz']:,.0f}",
                f"{row['sm_clock_mhz']:,.0f}",
                f"{row['instant_w']:,.0f}",
                watts,
            )
        )
    yield "## One pipe at a time: an H200 (700 W)"
    yield _PIPES_TEXT
    yield render_table(("workload", "MHz by NVML", "true MHz", "W", "W by the model"), lines)


# ---- clocks that were set


def compare_set_clocks() -> Iterator[str]:
    """Yield the section of a stage of training at clocks that were set."""
    lines = []
    for key, runs in SET_CLOCKS.items():
        for run, watts in zip(runs, compute_set_watts(key), strict=True):
            measured = run.joules / run.seconds
            lines.append(
                (key, f"{run.mhz:,.0f}", f"{measured:.0f}", f"{watts:.0f}", f"{watts / measured:.2f}")
            )
    last, knee = SET_CLOCKS["a100-80gb-sxm"][-1], SET_CLOCKS["a100-80gb-sxm"][4]
    matched = " and ".join(f"{mhz:,} MHz ({key})" for key, mhz in _MATCHED_MHZ.items())
    yield "## Power at clocks that were set"
    yield _SET_TEXT.format(matched=matched, slope=(last.joules - knee.joules) / (last.seconds - knee.seconds))
    yield render_table(("GPU", "MHz", "W", "W by the model", "ratio"), lines)


def compute_set_watts(key: str) -> list[float]:
    """Return the power of the runs of a GPU by the model, in their measured time."""
    gpu, runs = load_gpu(key), SET_CLOCKS[key]
    energy = _find_energy(gpu)
    (known,) = (run for run in runs if run.mhz == _MATCHED_MHZ[key])

    def draw(core_pj: float, run: SetClock) -> float:
        return compute_watts(gpu, energy, LaunchWork(core_pj, 0.0, gpu.sm_count), run.mhz, run.seconds)

    without = draw(0.0, known)
    each = (draw(1e12, known) - without) * 1e-12
    core_pj = (known.joules / known.seconds - without) / each
    return [draw(core_pj, run) for run in runs]


# ---- single launches


def compare_clocks() -> Iterator[str]:
    """Yield the section of the H100's clocks by Nsight Compute."""
    with lzma.open(ROOT / "traces" / "h100" / "ncu.jsonl.xz", "rt") as file:
        measured = {
            row["case_id"]: row["metrics"]
            for row in map(json.loads, file)
            if isinstance(row.get("metrics"), dict)
            and float(row["metrics"]["gpu__time_duration.sum"]) * 1e-3 >= _LEAST_US
            and float(row["metrics"]["gpc__cycles_elapsed.avg.per_second"]) * 1e-6 < _MOST_TENSOR_MHZ
        }
    with (CODE / f"all-{_NCU_GPU}.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["l2"] == "warm" and row["case"] in measured]
    table = BUILT / "power-h100.csv"
    write_table(table, [{**row, "counted": "yes"} for row in rows])
    lines, ratios = [], []
    for case, bound in bind_cases(read_cases(table)):
        metrics = measured[case.name]
        mhz = float(metrics["gpc__cycles_elapsed.avg.per_second"]) * 1e-6
        seconds = float(metrics["gpu__time_duration.sum"]) * 1e-9
        if bound.dominant_tensor_rate is None:
            continue
        found = solve_clock(bound, seconds, mhz)
        ratios.append(found / mhz)
        lines.append((case.name, f"{mhz:,.0f}", f"{found:,.0f}", f"{found / mhz:.2f}"))
    error = float(np.abs(np.array(ratios) - 1.0).mean())
    yield "## Single launches with matrix products: an H100 (700 W, 1,000 W for some 40 ms)"
    yield _CLOCKS_TEXT.format(least_us=_LEAST_US, n=len(ratios), error=error, bias=np.mean(ratios))
    yield render_table(("kernel", "MHz", "by the model", "ratio"), sorted(lines, key=lambda line: line[1]))


def solve_clock(bound: ModelInput, seconds: float, mhz: float) -> float:
    """Return the clock that the model gives a launch which took so long at another clock."""
    energy, gpu = _find_energy(bound.gpu), bound.gpu
    work = measure_launch_work(bound, energy)
    dram = min(seconds, work.dram_pj / energy.dram_byte_pj.value / (gpu.sustained_dram_gbps.value * 1e9))
    most = gpu.find_clock_mhz(tensor=None).value * work.clock_share
    power = gpu.file.power
    assert power is not None
    limit_w = find_power_limit_w(power, lasts=bound.timing is Timing.INTERVAL)
    return find_limited_clock(
        gpu, energy, work, most, limit_w, lambda at_mhz: max(seconds * mhz / at_mhz, dram)
    ).clock_mhz


def bind_cases(cases: Sequence[Case]) -> Iterator[tuple[Case, ModelInput]]:
    """Yield the model inputs of rows, dump by dump."""
    for dump, group in groupby(
        sorted(cases, key=lambda case: str(case.dump)), key=lambda case: str(case.dump)
    ):
        program = load(dump)
        for case in group:
            (loaded,) = find_kernels(program.kernels, case.kernel) if case.kernel else program.kernels
            (counted,) = KernelAnalyzer(Options(launch=make_launch(case))).count_launches(loaded)
            bound = bind_to_gpu(counted, load_case_gpu(case))
            if not isinstance(bound, Refusal):
                yield case, bound


# ---- suites


_ACCELWATTCH_NAMES = {
    "walsh_shared": "fastWalshTransform_k1",
    "walsh_global": "fastWalshTransform_k2",
    "histogram64": "histogram_k1",
    "quasirandom": "quasirandomGenerator_k1",
    "inverse_cnd": "quasirandomGenerator_k2",
    "binomial": "binomialOptions_k1",
    "sobol": "sobolQRNG_k1",
    "merge_sort_shared": "mergeSort_k1",
    "dct_fast": "dct8x8_k1",
    "layer_forward": "backprop_k1",
    "adjust_weights": "backprop_k2",
    "hotspot": "hotspot_k1",
    "sgemm_nt": "parboil_sgemm_k1",
    "mri_q": "parboil_mriq_k1",
}


def compare_suites() -> Iterator[str]:
    """Yield the section of AccelWattch's measured powers, at the measured times of Accel-Sim."""
    with _ACCELWATTCH.open(newline="", encoding="utf-8") as file:
        measured = {row[""]: float(row["mean HW_power"]) for row in csv.DictReader(file)}
    table = BUILT / "power-volta.csv"
    write_table(
        table,
        [
            {**row.columns, "suite": "volta", "dump": str(BUILT / str(row.columns["dump"]))}
            for row in volta.load_measured_launches()
        ],
    )
    lines, ratios = [], []
    for case, bound in bind_cases(read_cases(table)):
        energy = _find_energy(bound.gpu)
        watts = compute_watts(
            bound.gpu, energy, measure_launch_work(bound, energy), case.clock_mhz or 0.0, case.time_us * 1e-6
        )
        real = measured[_ACCELWATTCH_NAMES[case.name]]
        ratios.append(watts / real)
        lines.append((case.name, f"{real:.0f}", f"{watts:.0f}", f"{watts / real:.2f}"))
    error = float(np.abs(np.array(ratios) - 1.0).mean())
    yield "## Kernels of benchmark suites: a GV100 at 1,417 MHz"
    yield _SUITES_TEXT.format(error=error, bias=np.mean(ratios))
    yield render_table(("kernel", "W", "W by the model", "ratio"), lines)


# ---- records of large products


def compare_records() -> Iterator[str]:
    """Yield the section of clocks that large products imply."""
    lines = []
    for record in RECORDS:
        clock = find_product_clock(record)
        middle = 0.5 * (record.low_mhz + record.high_mhz)
        name = "FP32" if record.rate is None else record.rate.value
        lines.append(
            (
                *(
                    record.gpu,
                    name,
                    f"{record.limit_w:.0f}",
                    f"{record.low_mhz:,.0f} to {record.high_mhz:,.0f}",
                ),
                *(f"{clock:,.0f}", f"{clock / middle:.2f}", record.source),
            )
        )
    yield "## Clocks that large products imply"
    yield _RECORDS_TEXT.format(busy=_BUSY_SHARE)
    yield render_table(("GPU", "products", "W", "MHz", "by the model", "ratio", "source"), lines)


def find_product_clock(record: Record) -> float:
    """Return the clock of a large product of random data, tiles of 128 x 256 or 128 x 128, by the model."""
    gpu = load_gpu(record.gpu)
    energy = _find_energy(gpu)
    share = find_clock_share(gpu, record.rate)
    per_second = _find_work_per_hertz(gpu, energy, record.rate)
    work = LaunchWork(
        per_second * 1e6,
        0.05 * gpu.peak_dram_gbps.value * 1e9 * energy.dram_byte_pj.value,
        gpu.sm_count,
        share,
    )
    clock = gpu.file.clock
    tops = (clock.boost_mhz, clock.sustained_mhz, clock.sustained_tensor_mhz)
    most = max(figure.value for figure in tops if figure is not None) * share

    def draw_seconds(at_mhz: float) -> float:
        return 1.0 / at_mhz  # a million cycles' work

    fixed = LaunchWork(work.core_pj, 0.0, work.n_sms, share)
    return find_limited_clock(
        gpu, energy, fixed, most, record.limit_w - work.dram_pj * 1e-12, draw_seconds
    ).clock_mhz


def _find_work_per_hertz(gpu: Gpu, energy: WorkEnergy, rate: TensorRate | None) -> float:
    """Return the core energy in picojoules of what all SMs do in a cycle."""
    arch = gpu.arch
    assert arch is not None
    if rate is None:
        lanes = 64 if arch.name in ("sm_70", "sm_75", "sm_80") else 128
        fma = lanes * (_FLOAT_BUSY_SHARE if lanes == 64 else 0.64 if arch.name != "sm_90" else 0.95)
        each = (
            energy.lane_pj.value * 1.15 + energy.shared_byte_pj.value * 0.5 + energy.l2_byte_pj.value * 0.06
        )
        return gpu.sm_count * fma * each
    figure = gpu.find_tensor_fma_per_cycle(rate)
    assert figure is not None
    input_bytes = 1.0 if rate in (FP8, INT8) else 2.0
    by_warp = arch.warp_mma_share.value == 1.0
    tile_bytes = input_bytes * (1 / 128 + 1 / 128 if by_warp else 1 / 128 + 1 / 256)  # per multiply-add
    each = find_tensor_energy_pj(energy, rate) + tile_bytes * (
        energy.l2_byte_pj.value + energy.shared_byte_pj.value
    )
    if by_warp:  # LDSM of warps' tiles of 64 x 64, and the instructions
        each += (
            input_bytes * 2 / 64 * energy.shared_byte_pj.value
            + energy.lane_pj.value * 32 / 2048 * 1.4 * input_bytes / 2
        )
    return gpu.sm_count * figure.value * _BUSY_SHARE * each


def _find_energy(gpu: Gpu) -> WorkEnergy:
    energy = None if gpu.arch is None else gpu.arch.energy
    if energy is None:
        raise LookupError(f"{gpu.key}: no energies")
    return energy


if __name__ == "__main__":
    main()
