"""Hold warplens against what one H100 measured (traces/h100), and write docs/h100.md.

    python bench/h100.py [--jobs 2] [--triton /path/to/python]

None of these rows taught any model. Results are kept under a digest of what they follow from; the kernels of
the sweep are compiled by Triton 3.6.0, once, by the interpreter that `--triton` names.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from groundtruth import counters, launch_latency, library, micro, times
from groundtruth.records import CODE, MeasuredLaunch, read_launches, read_lines
from groundtruth.sweep import ALL_SHAPES, SHAPES, compile_rows, make_sweep_launches, select_sweep_rows
from kernels.recipes import ROOT
from markdown import render_table
from running import run_main

from analyzer.report.validation_schema import CaseEntry

PAGE = ROOT / "docs" / "h100.md"
_FINDINGS = ROOT / "bench" / "groundtruth" / "findings.md"  # written by hand, after looking at the rows
_DEFAULT_TRITON = Path("/tmp/tvenv/bin/python")
_SHOWN_RATIO = 1.1  # figures that differ by more are listed
_N_WORST = 12
_HEAD = """# Against an H100

Made by `python bench/h100.py`: an H100 SXM (132 SMs, 700 W, driver 580) measured for this project,
`traces/h100`. Part of the hardware database's figures of Hopper were set by these rows (last section but
one), so this is no held-out check. Rows are samples; a few that were not finished in time are left out.

"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--triton", type=Path, default=_DEFAULT_TRITON)
    parser.add_argument(
        "--all", action="store_true", help="all Triton launches, and larger samples of the others"
    )
    options = parser.parse_args()
    CODE.mkdir(parents=True, exist_ok=True)
    text = "\n".join((_HEAD.rstrip(), *make_sections(options.jobs, options.triton, options.all)))
    PAGE.write_text(text.rstrip() + "\n", encoding="utf-8")
    print(text)


def make_sections(jobs: int, triton: Path, takes_all: bool) -> Iterator[str]:
    """Yield the sections of the page."""
    cases = validate_all(jobs, triton, takes_all)
    yield render_counts(counters.compare_kernels())
    yield render_times(cases)
    yield render_choices(cases)
    yield render_library()
    yield render_launches()
    yield render_figures()
    yield render_clocks()
    yield _FINDINGS.read_text(encoding="utf-8")


def validate_all(jobs: int, triton: Path, takes_all: bool) -> tuple[CaseEntry, ...]:
    """Return all rows whose times are compared."""
    by_family: dict[str, list[MeasuredLaunch]] = defaultdict(list)
    for launch in read_launches():
        by_family[launch.family].append(launch)
    rows = select_sweep_rows(ALL_SHAPES if takes_all else SHAPES)
    compile_rows(rows, triton)
    chosen = {
        "cuda002": by_family["cuda002"],
        "triton": times.sample_launches(by_family["triton"], None if takes_all else times.N_TRITON),
        "wavetune": times.sample_launches(
            by_family["wavetune"], times.N_ALL_WAVETUNE if takes_all else times.N_WAVETUNE
        ),
        "sweep": make_sweep_launches(rows),
    }
    return tuple(
        case
        for name, launches in chosen.items()
        for case in times.validate_launches(CODE, name, launches, times.MODELS, jobs)
    )


# ---- counts ------------------------------------------------------------------------------------------


def render_counts(kernels: Sequence[counters.ComparedKernel]) -> str:
    """Render counts per instruction and per kernel."""
    compared: Counter[str] = Counter()
    for kernel in kernels:
        compared.update(kernel.compared)
    differing = Counter(one.column for kernel in kernels for one in kernel.differences)
    exact = sum(kernel.provenance == kernel.addresses == "exact" for kernel in kernels)
    instructions = [
        (label, f"{compared[column]:,}", f"{differing[column]:,}")
        for column, label in counters.COLUMNS.items()
    ]
    reasons = [
        (counters.COLUMNS[column], reason, f"{count:,}", f"{ratio:.2f}")
        for (column, reason), (count, ratio) in sorted(counters.explain(kernels).items())
    ]
    return (
        f"## Counts\n\n{len(kernels)} kernels that Nsight Compute profiled and whose code is here (the "
        f"other 23 are libraries'), "
        f"SASS instruction by SASS instruction; `analyze` calls all counts and addresses of {exact} of "
        f"them exact.\n\n"
        + render_table(("count of an instruction", "compared", "differ"), instructions)
        + "\nAll that differs, with its reason (ours over the measured one, the median):\n\n"
        + render_table(("count", "reason", "instructions", "ours/measured"), reasons)
        + "\nCounters of whole kernels, those of 1,000 and more; cold caches:\n\n"
        + render_table(("counter", "kernels", "mean error", "median", "bias"), list(_score_counters(kernels)))
        + "\nDuration by Nsight Compute against `--timing ncu --cold-l2`: "
        + _describe_ratios([kernel.sm_us / kernel.ncu_us for kernel in kernels])
        + ".\n\nWhere a resident warp's cycles go, shares of all (mean over kernels):\n\n"
        + render_table(("stall", "measured", "sm", "mean difference"), list(_compare_stalls(kernels)))
    )


def _score_counters(kernels: Sequence[counters.ComparedKernel]) -> Iterator[tuple[str, ...]]:
    for name in counters.METRICS:
        pairs = [
            (kernel.predicted[name], kernel.measured[name])
            for kernel in kernels
            if kernel.measured.get(name, 0) >= counters.MIN_COMPARED and kernel.predicted.get(name, 0) > 0
        ]
        if pairs:
            ratios = np.array([ours / measured for ours, measured in pairs])
            errors = np.abs(ratios - 1)
            bias = np.exp(np.log(ratios).mean())
            yield (
                name,
                str(len(pairs)),
                f"{100 * errors.mean():.1f}%",
                f"{100 * np.median(errors):.1f}%",
                f"{bias:.2f}",
            )


def _describe_ratios(ratios: Sequence[float]) -> str:
    errors = np.abs(np.array(ratios) - 1)
    bias = np.exp(np.log(ratios).mean())
    return f"MAPE {100 * errors.mean():.1f} %, median {100 * np.median(errors):.1f} %, bias {bias:.2f}"


def _compare_stalls(kernels: Sequence[counters.ComparedKernel]) -> Iterator[tuple[str, ...]]:
    names = {name for kernel in kernels for name in (*kernel.stalls_measured, *kernel.stalls_predicted)}
    rows = []
    for name in names:
        pairs = np.array([(k.stalls_measured.get(name, 0), k.stalls_predicted.get(name, 0)) for k in kernels])
        rows.append((*pairs.mean(axis=0), np.abs(pairs[:, 0] - pairs[:, 1]).mean(), name))
    for measured, ours, difference, name in sorted(rows, reverse=True):
        if max(measured, ours) >= 0.005:
            yield name, f"{100 * measured:.1f}%", f"{100 * ours:.1f}%", f"{100 * difference:.1f}%"


# ---- times -------------------------------------------------------------------------------------------


def render_times(cases: Sequence[CaseEntry]) -> str:
    """Render errors of predicted times."""
    warm, cold = times.select_warm(cases), times.select_cold(cases)
    overhead = times.compute_event_overhead_us()[0]
    disturbed = sum(not case.counted for case in cases)
    families = times.group_rows(warm, lambda case: case.suite)
    ranges = times.group_rows(sorted(warm, key=lambda case: case.time_us), times.find_time_range)
    return (
        f"## Times\n\nMeasured: two events around one launch, less {overhead:.2f} us, which they add (an "
        f"empty kernel's 3.14 us, less "
        "the .83 us that empty kernels of a graph follow each other at). Predicted: `sm` with `--timing "
        "kernel`; what it "
        "predicts by default is a warm L2, as the last such launch left it. "
        f"{disturbed} launches are not counted: their warm times lie more than a fifth above the cold "
        f"ones.\n\n"
        + render_table(("model", *times.SCORE_COLUMNS), list(_score_models(warm)))
        + "\n`sm` by kernel:\n\n"
        + render_table(("kernels", *times.SCORE_COLUMNS), list(_score_groups(families)))
        + "\n`sm` by measured time:\n\n"
        + render_table(("time", *times.SCORE_COLUMNS), list(_score_groups(ranges)))
        + "\n`sm` with a cold L2 (`--cold-l2`), by kernel:\n\n"
        + render_table(
            ("kernels", *times.SCORE_COLUMNS),
            list(_score_groups({"all": cold, **times.group_rows(cold, lambda case: case.suite)})),
        )
        + "\nThe worst rows of `sm`:\n\n"
        + render_table(("row", "us", "sm/measured", "bound", "cycles by stall"), list(_list_worst(warm)))
    )


def _score_models(cases: Sequence[CaseEntry]) -> Iterator[tuple[str, ...]]:
    for model in times.MODELS:
        cells = times.score_rows(cases, model)
        if cells is not None:
            yield (model, *cells)


def _score_groups(groups: dict[str, list[CaseEntry]]) -> Iterator[tuple[str, ...]]:
    for name, rows in groups.items():
        cells = times.score_rows(rows, "sm")
        if cells is not None:
            yield (name, *cells)


def _list_worst(cases: Iterable[CaseEntry]) -> Iterator[tuple[str, ...]]:
    found = [(case, p) for case in cases for p in case.predictions if p.model == "sm"]
    for case, p in sorted(found, key=lambda pair: -abs(np.log(pair[1].ratio)))[:_N_WORST]:
        top = sorted(p.cpi_shares.items(), key=lambda item: -item[1])[:3]
        stalls = ", ".join(f"{name} {100 * share:.0f}%" for name, share in top)
        yield case.case, f"{case.time_us:,.1f}", f"{p.ratio:.2f}", p.bound, stalls


def render_choices(cases: Sequence[CaseEntry]) -> str:
    """Render how well predictions choose a configuration."""
    swept = [case for case in times.select_warm(cases) if case.suite.startswith("sweep")]
    rows = []
    for model in times.MODELS:
        found = times.rank_shapes(swept, model)
        if found:
            rows.append((model, *_score_rankings(found)))
    shapes = [
        (one.shape, str(one.configurations), f"{one.spearman:.2f}", f"{100 * one.loss:.1f}%")
        for one in times.rank_shapes(swept, "sm")
    ]
    return (
        "## Choice of a configuration\n\nOf the sweep: of each shape the three fastest configurations, "
        "five of the fastest fifth and "
        "twelve others. A choice is found where the predicted first 1, 5 or 10 hold one within 1 % of the "
        "fastest.\n\n"
        + render_table(
            (
                *("model", "shapes", "Spearman, mean", "least", "loss of the first, mean", "worst"),
                *("1", "5", "10"),
            ),
            rows,
        )
        + "\n"
        + render_table(("shape", "configurations", "Spearman", "loss of sm's first"), shapes)
    )


def _score_rankings(found: Sequence[times.Ranking]) -> tuple[str, ...]:
    ranks = [one.spearman for one in found]
    losses = [one.loss for one in found]
    shares = [f"{100 * np.mean([one.found_in_first[n] for one in found]):.0f}%" for n in (1, 5, 10)]
    return (
        str(len(found)),
        f"{np.mean(ranks):.2f}",
        f"{min(ranks):.2f}",
        f"{100 * np.mean(losses):.1f}%",
        f"{100 * max(losses):.0f}%",
        *shares,
    )


# ---- library, launches, figures ----------------------------------------------------------------------


def render_library() -> str:
    """Render errors of `predict` on PyTorch's operations."""
    cases = library.validate_operations(CODE)
    rows = []
    for suite, of_suite in times.group_rows(cases, lambda case: case.suite).items():
        for model in library.MODELS:
            cells = times.score_rows(of_suite, model)
            if cells is not None:
                rows.append((suite, model, *cells))
    total = library.count_operations()
    return (
        f"## PyTorch's operations\n\n{len(cases)} of {total} operations that `predict` has an operator "
        f"for, by CUPTI's times. Rows of other "
        "programs on H100s taught the weights of `ours` for bf16 and fp8 products (aiconfigurator). "
        "Attention is "
        "PyTorch's own FlashAttention 2 or cuDNN's, asked for as `fa2_ragged`.\n\n"
        + render_table(("operations", "model", *times.SCORE_COLUMNS), rows)
    )


def render_launches() -> str:
    """Render launch latencies."""
    ours = launch_latency.list_our_figures()
    fits = launch_latency.fit_latencies()
    rows = []
    for how in ("graph", "events", "ncu"):
        for kernel in ("empty", "params", "store"):
            of_kind = [fit for fit in fits if fit.how == how and fit.kernel == kernel]
            if of_kind:
                rates = {fit.block_threads: fit.ctas_per_us for fit in of_kind}
                least = min(fit.least_us for fit in of_kind)
                rows.append(
                    (how, kernel, f"{least:.2f}", *(f"{rates[threads]:,.0f}" for threads in (32, 256, 1024)))
                )
    return (
        "## Launches\n\nThe least time of a kernel, and CTAs started in a microsecond once there are "
        "thousands, by CTA size. Ours: "
        f"`interval` {ours['interval']:.2f} us, `kernel` {ours['kernel']:.2f}, `ncu` {ours['ncu']:.2f}; "
        f"{ours['ctas_per_us']:,.0f} CTAs in a microsecond.\n\n"
        + render_table(("measured by", "kernel", "least, us", "CTAs/us, 32 threads", "256", "1,024"), rows)
    )


def render_figures() -> str:
    """Render micro-benchmarks beside hwdb's figures."""
    figures = micro.compare_figures()
    shown = [one for one in figures if not 1 / _SHOWN_RATIO <= one.ratio <= _SHOWN_RATIO]
    rows = [
        (one.name, one.unit, f"{one.measured:,.4g}", f"{one.ours:,.4g}", f"{one.ratio:.2f}", one.basis)
        for one in shown
    ]
    return (
        f"## Figures\n\n{len(figures)} figures of the hardware database beside micro-benchmarks; those "
        f"that differ by more than a tenth:\n\n"
        + render_table(("figure", "unit", "measured", "ours", "ours/measured", "basis of ours"), rows)
    )


def render_clocks() -> str:
    """Render sustained clocks and power by workload."""
    rows = [
        (
            one["workload"],
            f"{one['sm_clock_mhz']:,.0f}",
            f"{one['power_w']:.0f}",
            f"{one['tflops_sustained']:.0f}" if one.get("tflops_sustained") else "",
            f"{one['gbps_sustained']:,.0f}" if one.get("gbps_sustained") else "",
            f"{one['sustained_us'] / one['us_by_replay'][0][1]:.2f}",
        )
        for one in read_lines("power")
        if one["status"] == "ok"
    ]
    return (
        "## Clocks under load\n\nTwo seconds of one operation back to back, the second one's median; "
        "slowdown is the sustained time over "
        "that of the first 20 ms. Times above are of single launches, which run at the first clock.\n\n"
        + render_table(("workload", "SM clock, MHz", "W", "TFLOP/s", "GB/s", "slowdown"), rows)
    )


if __name__ == "__main__":
    run_main(main)
