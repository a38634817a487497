"""Judge WaveTune on machines whose times are known and on an H100's measured configurations.

    python bench/wavetune.py            everything, into the results of docs/wavetune.md (about two minutes)
    python bench/wavetune.py speed      the last section alone, for a machine that is quiet
    python bench/wavetune.py profile    traces/h100/gemm_profile.csv and gemm_wavetune.npz, from the traces

Times of the machine that runs this are also given over one addition of numpy on as many elements as there are
macro configurations, in the same run.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from choice_quality import judge_choices
from discrete_events import measure_step_share, simulate_gaussian_grids
from markdown import render_table
from numpy.typing import NDArray
from synthetic_machine import SyntheticMachine, draw_machine
from tuning_data import h100_sweep

from analyzer.files import write_file
from analyzer.hardware.gpu_database import load_gpu
from analyzer.tuning.artifact import pack_artifact, save_artifact
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.kernel_space import Integers, TunableKernel, find_kernel
from analyzer.tuning.plan import PlanOptions, make_plan
from analyzer.tuning.samples import Samples, format_samples
from analyzer.tuning.wave_model import FitOptions, FitVariant, fit, measure_fit_error

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "wavetune.md"
HEADING, SPEED_HEADING = "## Results\n", "### Speed\n"
TRACES = ROOT / "traces" / "h100"
VARIANTS = tuple(FitVariant)
SEEDS = (0, 1, 2, 3)
NOISE = 0.02
N_SHAPES = 2000
GEMM_VALUES = {
    "BLOCK_SIZE_M": (64, 128, 256),
    "BLOCK_SIZE_N": (64, 128, 256),
    "BLOCK_SIZE_K": (32, 64),
    "num_stages": (2, 3, 4),
}
# (M, N, K) of products and the sequence lengths of attention in the paper's test sets (section 5.1).
GEMM_RANGES = ((64, 16_384), (384, 8192), (2048, 8192))
LENGTHS = (64, 16_384)
HEADS = (16, 32, 64, 128)
INTERVALS = (1, 2, 3, 4)

Floats = NDArray[np.float64]


def main() -> None:
    """Write the results, or the profile."""
    if sys.argv[1:] == ["profile"]:
        write_profile()
        return
    if sys.argv[1:] == ["speed"]:
        head = PAGE.read_text(encoding="utf-8").partition(SPEED_HEADING)[0]
        write_file(PAGE, [(head + write_speed()).encode()])
        return
    sections = (
        write_simulation,
        write_oracle_shares,
        write_ranges,
        write_h100_plan,
        write_h100_sweeps,
        write_speed,
    )
    results = []
    for section in sections:
        begin = perf_counter()
        results.append(section())
        print(f"{section.__name__}: {perf_counter() - begin:.1f} s", file=sys.stderr)
    head = PAGE.read_text(encoding="utf-8").partition(HEADING)[0]
    text = f"{head}{HEADING}\nMade by `python bench/wavetune.py`.\n\n" + "\n".join(results)
    write_file(PAGE, [text.encode()])


def write_profile() -> None:
    """Write the H100's plan as a profile, and its artifact."""
    samples = h100_sweep.load_plan()
    write_file(TRACES / "gemm_profile.csv", (piece.encode() for piece in format_samples([samples])))
    save_artifact(fit(samples, h100_sweep.N_SMS).pack(), TRACES / "gemm_wavetune.npz")


def write_simulation() -> str:
    """Return figures 3 and 4: how steps wear down, and what a step and a line make of it."""
    waves = (1, 2, 3, 5, 10, 20)
    rows, errors = [], []
    for variance in (0, 1, 5, 10, 25, 50):
        times = simulate_gaussian_grids(132, 21, mean=50.0, deviation=variance**0.5, repeats=40)
        share = measure_step_share(times, 132)
        rows.append([str(variance), *(f"{share[wave - 1]:.2f}" for wave in waves)])
        grids = np.arange(1, len(times) + 1)
        step = 50.0 * np.ceil(grids / 132)
        slope, start = np.polyfit(grids, times, 1)
        wave = (grids - 1) // 132 + 1
        for name, model in (("step", step), ("line", slope * grids + start)):
            off = np.abs(model / times - 1)
            errors.append([str(variance), name, *(f"{100 * off[wave == w].mean():.1f} %" for w in waves)])
    return (
        "### Dispatch with variance (figures 3 and 4)\n\n"
        "Simulated: 132 SMs, blocks of mean 50 and this variance, each started on the SM that is free "
        "first. Part of a wave's rise that comes with the first block of the next wave (a staircase has "
        "1.00, a line 0.01):\n\n"
        + render_table(["variance", *(f"after wave {wave}" for wave in waves)], rows)
        + "\nMean error of a step of 50 per wave, and of one line through all grids:\n\n"
        + render_table(["variance", "model", *(f"wave {wave}" for wave in waves)], errors)
    )


def write_oracle_shares() -> str:
    """Return figure 10: the model and what remains of it, on machines whose times are known."""
    rows = []
    for name, values, waves, intervals in (
        ("flash_attention", {}, 30, 3),
        ("gemm", GEMM_VALUES, 40, 4),
    ):
        for seed in SEEDS:
            machine = draw_machine(seed)
            kernel = find_kernel(name)
            options = PlanOptions(waves=waves, intervals=intervals, values=values, heads=(16, 64))
            samples = measure_plan(machine, kernel, options, seed)
            shapes = draw_shapes(name, seed)
            times = Times(machine, kernel, samples, shapes)
            shares = [times.judge(FitOptions(variant=variant)) for variant in VARIANTS]
            plain = times.judge(FitOptions(is_relative=False))
            rows.append(
                [
                    f"{name}, machine {seed}",
                    f"{machine.n_sms}",
                    f"{len(samples):,}",
                    *(
                        f"{100 * share:.1f} %"
                        for share in (shares[0], plain, *shares[1:], times.best_fixed())
                    ),
                ]
            )
    head = [
        "kernel",
        "SMs",
        "samples",
        "WaveTune",
        "absolute",
        "linear",
        "step",
        "step, with L",
        "best fixed",
    ]
    return (
        "### Against the oracle on synthetic machines (figure 10)\n\n"
        f"Geometric mean of the oracle's time over the choice's, {N_SHAPES:,} shapes in the paper's ranges; "
        f"profiles have {100 * NOISE:.0f} % noise, judged is without. `absolute`: WaveTune by least squares "
        "of absolute errors (`--squares absolute`). `linear`: one bilinear function for all waves, `step`: "
        "the mean time of a wave; both by absolute errors. `best fixed`: the one configuration that is best "
        "for all shapes together, known only afterwards. Printed in the paper for attention on five GPUs, as "
        "a share of its oracle: WaveTune "
        "92 %, linear 80 %, step 70 %.\n\n" + render_table(head, rows)
    )


class Times:
    """Exact times of all configurations of a profile on the shapes to judge by."""

    def __init__(
        self, machine: SyntheticMachine, kernel: TunableKernel, samples: Samples, shapes: Integers
    ) -> None:
        self.machine, self.space, self.samples, self.shapes = machine, kernel.space, samples, shapes
        configs = np.unique(np.concatenate([samples.macros, samples.micros], axis=1), axis=0)
        self.times = np.stack([self._time(np.broadcast_to(c, (len(shapes), len(c)))) for c in configs])
        self.best = self.times.min(axis=0)

    def _time(self, configs: Integers) -> Floats:
        n = len(self.space.macro_parameters)
        return self.machine.compute_times(self.space, self.shapes, configs[:, :n], configs[:, n:])

    def judge(self, options: FitOptions) -> float:
        """Return the share of the oracle that a fit's choices reach."""
        chooser = Chooser(fit(self.samples, self.machine.n_sms, options).pack())
        taken = self._time(chooser.list_configs(chooser.choose_batch(self.shapes)))
        return mean_ratio(self.best / taken)

    def best_fixed(self) -> float:
        """Return the share of the best single configuration."""
        return float(np.exp(np.log(self.best / self.times).mean(axis=1)).max())


def mean_ratio(ratio: Floats) -> float:
    """Return the geometric mean of what is known."""
    return float(np.exp(np.nanmean(np.log(ratio))))


def measure_plan(
    machine: SyntheticMachine, kernel: TunableKernel, options: PlanOptions, seed: int
) -> Samples:
    """Return the plan for a machine, measured with noise."""
    gpu = load_gpu("h100")
    count = msgspec.structs.replace(gpu.file.sm.count, value=machine.n_sms)
    file = msgspec.structs.replace(gpu.file, sm=msgspec.structs.replace(gpu.file.sm, count=count))
    plan = make_plan(kernel, msgspec.structs.replace(gpu, file=file), options)
    return machine.measure(plan.samples, noise=NOISE, seed=seed)


def draw_shapes(
    name: str, seed: int, lengths: tuple[int, int] = LENGTHS, heads: Sequence[int] = HEADS
) -> Integers:
    """Return shapes of a kernel [N_SHAPES, inputs]: sizes of products even, lengths log-even."""
    draw = np.random.default_rng(seed)
    if name == "gemm":
        return np.column_stack([draw.integers(low, high + 1, N_SHAPES) for low, high in GEMM_RANGES])
    length = np.exp(draw.uniform(np.log(lengths[0]), np.log(lengths[1]), N_SHAPES)).astype(np.int64)
    return np.column_stack([np.ones(N_SHAPES, np.int64), draw.choice(heads, N_SHAPES), length, length])


def write_ranges() -> str:
    """Return figure 11: what the profiled waves and sub-intervals are worth."""
    kernel, machine = find_kernel("flash_attention"), draw_machine(SEEDS[0])
    tables = []
    for lengths in ((64, 1023), (1024, 16_384)):
        shapes, rows = draw_shapes("flash_attention", 7, lengths, (16,)), []
        for waves in (1, 2, 5, 10, 20):
            cells = []
            for intervals in INTERVALS:
                options = PlanOptions(waves=waves, intervals=intervals, heads=(16,))
                samples = measure_plan(machine, kernel, options, 7)
                cells.append(f"{100 * Times(machine, kernel, samples, shapes).judge(FitOptions()):.1f} %")
            rows.append([str(waves), *cells])
        head = ["W", *(f"I = {intervals}" for intervals in INTERVALS)]
        tables.append(f"Lengths {lengths[0]:,} to {lengths[1]:,}:\n\n{render_table(head, rows)}")
    return (
        "### Waves and sub-intervals of the profile (figure 11)\n\n"
        f"Attention of 16 heads on synthetic machine {SEEDS[0]} ({machine.n_sms} SMs), share of the "
        "oracle:\n\n" + "\n".join(tables)
    )


def write_h100_plan() -> str:
    """Return what the H100's measured plan says of real shapes that it did not measure."""
    plan, sweep = h100_sweep.load_plan(), h100_sweep.load_sweep("gemm")
    known = np.unique(np.concatenate([plan.macros, plan.micros], axis=1), axis=0)
    configs = np.concatenate([sweep.macros, sweep.micros], axis=1)
    in_plan = np.array([(known == config).all(axis=1).any() for config in configs])
    unaligned = (sweep.shapes % 16 != 0).any(axis=1) & (sweep.shapes[:, 0] == 1000)
    groups = {
        "all 28": np.ones(len(sweep), dtype=bool),
        "M >= 512, aligned": (sweep.shapes[:, 0] >= 512) & ~unaligned,
        "M < 512": sweep.shapes[:, 0] < 512,
        "1000 x 4104 x 2056": unaligned,
    }
    rows = []
    for variant in VARIANTS:
        tables = fit(plan, h100_sweep.N_SMS, FitOptions(variant=variant))
        chooser = Chooser(tables.pack())
        judged = [judge_choices(chooser, sweep.select(in_plan & group)) for group in groups.values()]
        rows.append(
            [
                variant.value,
                f"{100 * measure_fit_error(tables, plan):.1f} %",
                *(f"{100 * q.share_of_best:.1f} % ({100 * q.prediction_error:.0f} %)" for q in judged),
            ]
        )
    head = ["model", "error on the plan", *groups]
    return (
        "### A real plan, judged on real shapes\n\n"
        "3,456 launches of an H100's GEMM plan (W = 12, I = 3, four loop counts, six tiles, four pairs of "
        "warps and stages; traces/h100/README.md) are fitted; 28 products of the sweep there, none of them "
        "in the plan, are chosen for. Best measured time of these 24 configurations over the choice's, and "
        "in brackets the mean error of the predicted time. Shapes of few rows read weights from DRAM that "
        "the plan's nearly square grids find in the L2; rows of 2,056 and 4,104 elements are not aligned to "
        "16, so copies are not staged and other code runs: a profile holds for what it measured.\n\n"
        + render_table(head, rows)
    )


def write_h100_sweeps() -> str:
    """Return fits to half the shapes of each sweep, judged on the other half."""
    rows = []
    for name in h100_sweep.SWEEPS:
        samples = h100_sweep.load_sweep(name)
        halves = h100_sweep.split_shapes(samples)
        ratios: dict[str, list[Floats]] = {variant.value: [] for variant in VARIANTS}
        fixed = []
        for half in (0, 1):
            taught, judged = samples.select(halves != half), samples.select(halves == half)
            for variant in VARIANTS:
                chooser = Chooser(fit(taught, h100_sweep.N_SMS, FitOptions(variant=variant)).pack())
                quality = judge_choices(chooser, judged)
                ratios[variant.value].append(quality.best_us / quality.chosen_us)
            fixed.append(judge_fixed(taught, judged))
        shares = [mean_ratio(np.concatenate(parts)) for parts in (*ratios.values(), fixed)]
        rows.append(
            [name, str(len(samples.number_shapes()[0])), *(f"{100 * share:.1f} %" for share in shares)]
        )
    return (
        "### Sweeps that are no plan\n\n"
        "Four sweeps on an H100, fitted to every other shape and judged on the rest, and the reverse: the "
        "best measured time over the choice's (where the chosen configuration has a gap, the next one of the "
        "ranking). With 3 to 14 shapes, waves lack the samples that (8) needs, and most buckets have the fit "
        "of "
        "all waves. `best fixed`: the configuration that is best on the shapes that teach.\n\n"
        + render_table(["sweep", "shapes", *(variant.value for variant in VARIANTS), "best fixed"], rows)
    )


def judge_fixed(taught: Samples, judged: Samples) -> Floats:
    """Return the best time over that of the configuration with the least mean loss on the teaching shapes."""
    parts = [np.concatenate([part.macros, part.micros], axis=1) for part in (taught, judged)]
    configs, config = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
    config = config.reshape(-1)
    own, other = config[: len(taught)], config[len(taught) :]
    shapes, shape = taught.number_shapes()
    best = np.full(len(shapes), np.inf)
    np.minimum.at(best, shape, taught.time_us)
    loss = np.bincount(own, np.log(taught.time_us / best[shape]), len(configs))
    count = np.bincount(own, minlength=len(configs))
    order = np.argsort(
        np.where(count >= 0.7 * len(shapes), loss / np.maximum(count, 1), np.inf), kind="stable"
    )
    rank = np.argsort(order)
    result = []
    for number in range(len(judged.number_shapes()[0])):
        rows = np.flatnonzero(judged.number_shapes()[1] == number)
        first = rows[rank[other[rows]].argmin()]
        result.append(judged.time_us[rows].min() / judged.time_us[first])
    return np.array(result)


def write_speed() -> str:
    """Return how long fits and choices take, and the artifact's size."""
    rows = []
    for label, samples, n_sms, ranges in list_speed_cases():
        begin = perf_counter()
        tables = fit(samples, n_sms)
        fit_s = perf_counter() - begin
        artifact = tables.pack()
        draw = np.random.default_rng(0)
        shapes = np.column_stack([draw.integers(low, high + 1, 8000) for low, high in ranges])
        rows.append([label, f"{len(samples):,}", f"{fit_s:.2f} s", f"{len(pack_artifact(artifact)):,}"])
        rows[-1] += time_choices(Chooser(artifact), shapes)
    head = ["kernel", "samples", "fit", "bytes", "macros", "new shape us", "over one addition"]
    head += ["seen us", "held us", "batch us"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        begin = perf_counter()
        save_artifact(artifact, path)
        Chooser(path)
        load_ms = 1e3 * (perf_counter() - begin)
    return (
        f"{SPEED_HEADING}\n"
        "One shared core of a virtual machine (AMD EPYC, two cores; Python 3.11, numpy 2.4). Choices: the "
        "shortest mean of 40 in a row. `new shape`: every input drawn anew, nothing kept from an earlier "
        "choice; `over one addition`: of two vectors of as many elements as macro configurations, with an "
        "output, in the same run. `seen`: a shape that was chosen for before (of products one of the same "
        "units of tiles, such as 16 rows). `held`: `Chooser.fix`, all inputs but the first held. `batch`: "
        f"one shape of 1,000 new ones. Writing and loading an artifact takes {load_ms:.0f} ms.\n\n"
        + render_table(head, rows)
    )


def list_speed_cases() -> Iterator[tuple[str, Samples, int, tuple[tuple[int, int], ...]]]:
    """Yield label, samples, SMs and ranges of the inputs."""
    machine = draw_machine(SEEDS[0])
    options = PlanOptions(values=GEMM_VALUES)
    yield (
        "gemm, synthetic",
        measure_plan(machine, find_kernel("gemm"), options, 0),
        machine.n_sms,
        GEMM_RANGES,
    )
    sweep = h100_sweep.load_sweep
    yield "gemm, H100 sweep", sweep("gemm"), h100_sweep.N_SMS, GEMM_RANGES
    moe = ((1, 16_384), (8, 128), (1, 10), (768, 8192), (1280, 7168))
    yield "grouped_gemm, H100 sweep", sweep("grouped_gemm"), h100_sweep.N_SMS, moe
    attention = ((1, 4), (16, 128), LENGTHS, LENGTHS)
    yield "flash_attention, H100 sweep", sweep("causal attention"), h100_sweep.N_SMS, attention


def time_choices(chooser: Chooser, shapes: Integers) -> list[str]:
    """Return macro configurations, and times of a choice in microseconds."""
    inputs = [tuple(shape) for shape in shapes.tolist()]
    n_macros = len(chooser.artifact.description.macros)
    first, second, result = np.ones(n_macros), np.ones(n_macros), np.empty(n_macros)
    addition = shortest_us(np.add, [(first, second, result)] * 4000)
    new = shortest_us(chooser.choose, inputs)
    seen = shortest_us(chooser.choose, inputs[-1:] * 4000)
    names = chooser.space.inputs[1:]
    held = chooser.fix(up_to=4096, **dict(zip(names, inputs[0][1:], strict=True)))
    fixed = shortest_us(held, [(1 + number % 4096,) for number in range(4000)])
    batch = min(
        shortest_us(chooser.choose_batch, [(shapes[at : at + 1000],)], 1) for at in range(0, 8000, 1000)
    )
    times = (f"{new:.1f}", f"{new / addition:.0f}", f"{seen:.2f}", f"{fixed:.2f}", f"{batch / 1000:.2f}")
    return [str(n_macros), *times]


def shortest_us(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], in_a_row: int = 40
) -> float:
    """Return the shortest mean time of a few calls in a row: the machine is shared."""
    best = float("inf")
    for start in range(0, len(arguments) - in_a_row + 1, in_a_row):
        part = arguments[start : start + in_a_row]
        begin = perf_counter()
        for each in part:
            function(*each)
        best = min(best, (perf_counter() - begin) / in_a_row)
    return 1e6 * best


if __name__ == "__main__":
    main()
