"""Judge forecasts of whole runs of language models on measured runs, and write docs/forecast-accuracy.md.

    python bench/forecast.py [--data ../shared/data] [--page docs/forecast-accuracy.md]

Judged are 16 runs of SGLang on A100, A40, H20 and L20 (zksainx/pipeweave): prefill, median decode step,
total. Each GPU in turn is left out: figures are fitted on the runs of the other three, and its own rate of
large products is what others measured (hwdb/serving.toml), or the datasheet's rule. Beside them: the same
with a term taken away, five published predictions for the same runs, the rule against measured rates, and
the terms of single kernels against rows of kernels that no run is made of.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from forecast_fit import (
    GPU_KEYS,
    KNOBS,
    PEERS,
    Forecast,
    Run,
    Setting,
    add_rate_knobs,
    fit,
    forecast,
    load_runs,
)
from forecast_kernels import judge_decode_attention, judge_products, judge_vidur
from markdown import render_table

from analyzer.forecast.step_times import combine_widths, spread_interval
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.serving_figures import load_serving_figures
from analyzer.operators.sustained_rates import find_peak_tflops, find_sustained_tflops

ROOT = Path(__file__).resolve().parents[1]
_PARTS = ("prefill", "decode", "total")
_GOALS = {"rate": (2.5, 4.5, 2.5), "datasheet": (None, None, 7.0)}
Judged = list[tuple[Run, Forecast]]


def main() -> None:
    """Write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options.add_argument("--page", type=Path, default=ROOT / "docs" / "forecast-accuracy.md")
    chosen = options.parse_args()
    page = make_page(chosen.data)
    chosen.page.write_text(page, encoding="utf-8")
    print(page)


def make_page(data: Path) -> str:
    """Return the page in Markdown."""
    runs = load_runs(data / "pipeweave")
    every = add_rate_knobs(runs, Setting())
    factors = fit(runs, Setting())
    fitted = [(run, forecast(run, every.make_rates(run.gpu, factors))) for run in runs]
    shipped = [(run, forecast(run, Setting().make_rates(run.gpu, {}))) for run in runs]
    known = leave_out(runs, Setting())
    ruled = leave_out(runs, Setting(), from_datasheet=True)
    sections = (
        _INTRODUCTION,
        _render_summary(runs, {"(a)": fitted, "shipped": shipped, "(b)": known, "(c)": ruled}),
        _render_rates(),
        _render_by_gpu(known, ruled),
        _render_runs(known),
        _render_ablations(runs, known),
        _render_coverage(known, ruled),
        _render_factors(factors),
        _render_rule(),
        _render_kernels(data),
    )
    return "\n".join(sections).rstrip() + "\n"


def leave_out(runs: Sequence[Run], setting: Setting, *, from_datasheet: bool = False) -> Judged:
    """Return forecasts of each GPU's runs by figures that the runs of the other GPUs taught."""
    judged: Judged = []
    for key in GPU_KEYS.values():
        own = Setting(setting.knobs, frozenset({key} if from_datasheet else ()), setting.fixed)
        factors = fit([run for run in runs if run.gpu.key != key], own)
        judged += [
            (run, forecast(run, own.make_rates(run.gpu, factors))) for run in runs if run.gpu.key == key
        ]
    return judged


def measure(run: Run, times: Forecast) -> tuple[float, float, float]:
    """Return relative errors of prefill, decode step and total, in percent."""
    return (
        100.0 * (times.prefill_ms / run.prefill_ms - 1.0),
        100.0 * (times.decode_ms / run.decode_ms - 1.0),
        100.0 * (times.total_ms / run.total_ms - 1.0),
    )


def _mean(rows: Iterable[Sequence[float]]) -> tuple[str, ...]:
    return tuple(f"{value:.1f}" for value in np.abs(np.array(list(rows))).mean(axis=0))


_INTRODUCTION = """# How right forecasts of whole runs are

Made by `python bench/forecast.py`: prefill, median decode step and total of 16 runs of SGLang 0.5.4
(zksainx/pipeweave @55e03178) on A100-80GB SXM, A40, H20 and L20: Qwen2.5-14B, Qwen3-32B and Llama-3.1-70B,
8 to 64 requests, on 1 to 8 GPUs. Operators follow from configuration and trace ([forecast](forecast.md)).

**What is fitted.** All kernels are the operator model's ([predict](predict.md), `--served`), which these
runs did not teach. Fitted on them is what kernels do not show (`hwdb/serving.toml`): the framework's time per
step, and its own all-reduce of small messages. Where a GPU is left out, all figures of the table of factors
are fitted again on the runs of the other three, starting from the shipped ones. Those starting values, and
which terms there are, were chosen with all 16 runs in view: expect somewhat more on other GPUs.
"""


def _render_summary(runs: Sequence[Run], sets: dict[str, Judged]) -> str:
    names = {
        "(a)": "(a) all 16 runs fitted",
        "shipped": "the shipped figures",
        "(b)": "(b) GPU left out, its rate of products known",
        "(c)": "(c) GPU left out, datasheet alone",
    }
    rows = [
        (names[key], str(len(judged)), *_mean(measure(*pair) for pair in judged))
        for key, judged in sets.items()
    ]
    compared = [(run, times) for run, times in sets["(b)"] if run.peers]
    rows.append(
        ("(b), the runs that the peers have", str(len(compared)), *_mean(measure(*p) for p in compared))
    )
    for peer in PEERS:
        having = [run for run in runs if peer in run.peers]
        errors = [
            tuple(
                100.0 * (predicted / measured - 1.0)
                for predicted, measured in zip(
                    run.peers[peer], (run.prefill_ms, run.decode_ms, run.total_ms), strict=True
                )
            )
            for run in having
        ]
        rows.append((peer, str(len(having)), *_mean(errors)))
    return "\n".join(
        (
            "## Mean errors in percent\n",
            "Goals: (b) prefill 2.5, decode 4.5, total 2.5; (c) total 7. The peers' predictions are those of",
            "`end_to_end.csv`; PipeWeave was trained on rows of these very GPUs.\n",
            render_table(("", "runs", *_PARTS), rows),
        )
    )


def _render_rates() -> str:
    figures = load_serving_figures()
    known = {entry.gpu: entry.tflops for entry in figures.measured}
    rows = []
    for key in GPU_KEYS.values():
        gpu = load_gpu(key)
        rule = find_sustained_tflops(gpu, uses_measured=False).value
        figure = known[key]
        source = figures.sources[figure.source].split(":")[0]
        rows.append(
            (
                gpu.name,
                f"{find_peak_tflops(gpu):.0f}",
                f"{figure.value:.0f}",
                f"{rule:.0f}",
                source,
                figure.note,
            )
        )
    return "\n".join(
        (
            "## The rate of products in (b) and (c)\n",
            "TF of large BF16 products. No measured one comes from a run. The process factors of the rule",
            "come from other GPUs of each process. Its ceiling, 0.94 of the peak, is what H20 and L20 reach:",
            "one vouches for the other.\n",
            render_table(("GPU", "peak", "(b) measured", "(c) rule", "measured by", "note"), rows),
        )
    )


def _render_by_gpu(known: Judged, ruled: Judged) -> str:
    rows = []
    for name, key in GPU_KEYS.items():
        cells: list[str] = []
        for judged in (known, ruled):
            cells += _mean(measure(run, times) for run, times in judged if run.gpu.key == key)
        rows.append((name, str(sum(run.gpu.key == key for run, _ in known)), *cells))
    head = ("GPU left out", "runs", *(f"(b) {part}" for part in _PARTS), *(f"(c) {part}" for part in _PARTS))
    return "## By GPU\n\n" + render_table(head, rows)


def _render_runs(known: Judged) -> str:
    rows = []
    for run, times in known:
        errors = measure(run, times)
        peer = run.peers.get("pipeweave")
        measured = (run.prefill_ms, run.decode_ms, run.total_ms)
        theirs = [
            "" if peer is None else f"{100 * (predicted / value - 1):+.1f}"
            for predicted, value in zip(peer or measured, measured, strict=True)
        ]
        rows.append(
            (
                f"{run.gpu.name} x{run.tensor_parallel}",
                f"{run.model} {run.workload}",
                *(f"{value:.4g}" for value in measured),
                *(f"{error:+.1f}" for error in errors),
                *theirs,
            )
        )
    head = (
        "GPUs",
        "run",
        *(f"{part} ms" for part in _PARTS),
        *(f"(b) {part}" for part in _PARTS),
        *(f"PipeWeave {part}" for part in _PARTS),
    )
    return "## By run\n\nMeasured times, and errors in percent.\n\n" + render_table(head, rows)


_ENDLESS = 1e9
_ABLATIONS: tuple[tuple[str, dict[str, float]], ...] = (
    (
        "no all-reduce",
        {"small_pair_us": 0.0, "small_group_us": 0.0, "small_share": _ENDLESS, "large_scale": 1.0 / _ENDLESS},
    ),
    ("NCCL's latencies for small all-reduces", {"small_pair_us": 30.0, "small_group_us": 40.0}),
    ("no framework's time", {"decode_host_us": 0.0, "prefill_host_us": 0.0}),
)


def _render_ablations(runs: Sequence[Run], known: Judged) -> str:
    rows = [("all terms", *_mean(measure(*pair) for pair in known))]
    for name, fixed in _ABLATIONS:
        judged = leave_out(runs, Setting(fixed=fixed))
        rows.append((name, *_mean(measure(*pair) for pair in judged)))
    return "\n".join(
        (
            "## With a term taken away\n",
            "(b) again, the other figures fitted without the term.\n",
            render_table(("", *_PARTS), rows),
        )
    )


def _find_total_width(times: Forecast) -> float:
    decode_ms = times.total_ms - times.prefill_ms
    return combine_widths(((times.prefill_ms, times.prefill.width), (decode_ms, times.decode.width)))


def _render_coverage(known: Judged, ruled: Judged) -> str:
    readers: tuple[tuple[str, Callable[[Run, Forecast], tuple[float, float, float]]], ...] = (
        ("prefill", lambda run, t: (run.prefill_ms, t.prefill_ms, t.prefill.width)),
        ("decode", lambda run, t: (run.decode_ms, t.decode_ms, t.decode.width)),
        ("total", lambda run, t: (run.total_ms, t.total_ms, _find_total_width(t))),
    )
    rows = []
    for name, judged in (("(b)", known), ("(c)", ruled)):
        for part, read in readers:
            found = [read(run, times) for run, times in judged]
            inside = sum(
                low <= measured <= high
                for measured, time, width in found
                for low, high in (spread_interval(time, width),)
            )
            width = float(np.median([width for _, _, width in found]))
            rows.append((name, part, f"{100 * inside / len(found):.0f}", f"{100 * width:.1f}"))
    return "\n".join(
        (
            "## Intervals\n",
            "Part of the runs, in percent, whose time lies in the 80 % interval of a forecast that did not",
            "see their GPU, and the median half-width. One of sixteen runs is 6 points.\n",
            render_table(("", "time", "inside %", "half-width %"), rows),
        )
    )


def _render_factors(factors: dict[str, float]) -> str:
    rows = [
        (knob.name, f"{factors[knob.name]:.3f}", f"{knob.prior_sigma:.2f}")
        for knob in KNOBS
        if knob.name in factors
    ]
    rows += [(name, f"{value:.3f}", "0.03") for name, value in factors.items() if name.startswith("rate ")]
    return "\n".join(
        (
            "## Factors on the shipped figures, all 16 runs fitted\n",
            "Near 1: the runs agree with what kernels and earlier fits say. Held near 1 by a prior with this",
            "spread of the logarithm.\n",
            render_table(("figure", "factor", "prior"), rows),
        )
    )


def _render_rule() -> str:
    rows, errors = [], []
    for entry in load_serving_figures().measured:
        gpu = load_gpu(entry.gpu)
        rule = find_sustained_tflops(gpu, uses_measured=False).value
        error = 100.0 * (rule / entry.tflops.value - 1.0)
        errors.append(abs(error))
        rows.append(
            (gpu.name, f"{entry.tflops.value:.0f}", entry.tflops.basis.value, f"{rule:.0f}", f"{error:+.0f}")
        )
    rows.append(("mean", "", "", "", f"{np.mean(errors):.0f}"))
    return "\n".join(
        (
            "## The rule of power, size and process against rates that are known\n",
            "TF. A process factor is the mean of its GPUs, so a GPU that is alone in its process fits.\n",
            render_table(("GPU", "rate", "basis", "rule", "error %"), rows),
        )
    )


def _render_kernels(data: Path) -> str:
    products = judge_products(data / "aiconfigurator")
    attention = judge_decode_attention(data / "aiconfigurator")
    layers = judge_vidur(data / "vidur")
    return "\n".join(
        (
            "## Single kernels\n",
            "The terms of a step against kernels that no run here is made of: median error, then mean",
            "absolute error, in percent. Chunked prefills and large batches have tens to thousands of rows,",
            "between the two ends that the runs show. aiconfigurator's rows taught the operator model",
            "(its cards say how far it is off on what did not teach); Vidur's gave A40's rate alone.\n",
            "BF16 products with at least 20 million weights, by rows (aiconfigurator):\n",
            products,
            "Products of a layer by rows, FP16, one to eight shards (Vidur; sarathi-serve):\n",
            layers,
            "Attention of decoding requests as it was measured, called again and again with a warm L2; heads",
            "of 128, by MB of keys and values (aiconfigurator):\n",
            attention,
        )
    )


if __name__ == "__main__":
    main()
