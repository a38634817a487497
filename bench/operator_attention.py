"""Judge predictions of attention and MLA on what was left out, beside simple baselines.

    python bench/operator_attention.py named            FlashInfer, SynPerf's rows: GPUs left out in turn
    python bench/operator_attention.py generic [bf16]   TensorRT-LLM: new head layouts, architectures left out
    python bench/operator_attention.py mla              TensorRT-LLM's MLA, the same way
    python bench/operator_attention.py sources          how far frameworks and versions are apart

Data: `../shared/data` beside the repository, or --data. --rows: as many rows per GPU and phase teach.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from error_metrics import ERROR_COLUMNS
from markdown import render_table
from operator_data import aiconfigurator_attention
from operator_tables import format_learned, format_row
from operator_teaching import NAMED_ATTENTION_OPTIONS, SERVING_OPTIONS, load_named_attention
from rich.console import Console

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import Learned, learn_weights
from analyzer.models.operators.ours import compute_batch_terms, predict_with_weights
from analyzer.operators.batches import AttentionBatch, Column, MlaBatch
from analyzer.operators.families import attention, mla
from analyzer.operators.family import OperatorFamily, find_family
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import DataType

ROOT = Path(__file__).resolve().parents[1]


def load_named(data: Path, family_of_kinds: str) -> list[MeasuredBatch]:
    """Return the rows that teach FlashInfer's `fa2` or `fa3`: SynPerf's, and what generic rows teach."""
    rows = load_named_attention(data)
    return [
        m for m in rows if isinstance(m.batch, AttentionBatch) and m.batch.kind.startswith(family_of_kinds)
    ]


def judge_named(data: Path, console: Console) -> None:
    """Print errors on `rows/attention.csv`, each GPU left out in turn."""
    rows: list[tuple[str, ...]] = []
    found: dict[str, list[Column]] = {}
    measured: list[Column] = []
    for kinds in ("fa2", "fa3"):
        teaching = load_named(data, kinds)
        for gpu in sorted({m.gpu for m in teaching if m.dataset == "pipeweave"}):
            others = [m for m in teaching if m.gpu != gpu]
            learned = learn_weights(attention.FAMILY, others, NAMED_ATTENTION_OPTIONS, name=kinds)
            for judged in (m for m in teaching if m.gpu == gpu and m.dataset == "pipeweave"):
                columns = _predict_all(attention.FAMILY, learned, others, judged)
                measured.append(judged.time_us)
                for name, (time_us, low, high) in columns.items():
                    found.setdefault(name, []).append(time_us)
                    rows.append(format_row(f"{gpu} {_name_kind(judged)}", name, judged, time_us, low, high))
    all_us = np.concatenate(measured)
    for name, parts in found.items():
        error = np.abs(np.concatenate(parts) / all_us - 1.0)
        mean, median, p90 = error.mean(), np.median(error), np.quantile(error, 0.9)
        cells = (f"{100 * value:.1f}%" for value in (mean, median, p90))
        rows.append(("all", name, str(len(error)), *cells, "", "", ""))
    console.print("rows/attention.csv; the GPU taught nothing", style="bold")
    console.print(render_table(("GPU and kind", "model", *ERROR_COLUMNS, "inside"), rows), markup=False)


def judge(measured: Sequence[MeasuredBatch], console: Console, title: str) -> None:
    """Print errors on new head layouts of known GPUs, and on architectures left out, beside baselines."""
    family = find_family(measured[0].batch)
    learned = learn_weights(family, measured, SERVING_OPTIONS, name=title, report=console.print)
    console.print(title, style="bold")
    console.print(format_learned(learned), markup=False)
    rows = []
    for judged in measured:
        architecture = load_gpu(judged.gpu).file.arch
        others = [m for m in measured if load_gpu(m.gpu).file.arch != architecture]
        for name, time_us in _predict_baselines(family, others, judged).items():
            kept = np.flatnonzero(np.isfinite(time_us))
            rows.append(format_row(judged.gpu, name, judged.select(kept), time_us[kept]))
    console.print("Baselines; nothing of the GPU's architecture is used", style="bold")
    console.print(render_table(("GPU", "model", *ERROR_COLUMNS, "inside"), rows), markup=False)


def judge_sources(data: Path, console: Console) -> None:
    """Print how other frameworks and versions compare with the one that teaches, on equal rows."""
    rows = aiconfigurator_attention.compare_sources(data / "aiconfigurator")
    head = ("GPU", "phase", "source", "rows", "median ratio", "P10", "P90")
    console.print(render_table(head, rows), markup=False)


def _name_kind(measured: MeasuredBatch) -> str:
    return measured.batch.kind.value if isinstance(measured.batch, AttentionBatch) else ""


def _predict_all(
    family: OperatorFamily, learned: Learned, others: Sequence[MeasuredBatch], judged: MeasuredBatch
) -> dict[str, tuple[Column, Column | None, Column | None]]:
    hardware = read_operator_hardware(load_gpu(judged.gpu))
    found = predict_with_weights(judged.batch, load_gpu(judged.gpu), family, learned.weights)
    terms = compute_batch_terms(judged.batch, hardware, family, learned.weights)
    baselines = _predict_baselines(family, others, judged)
    return {
        "ours": (found.time_us, found.low_us, found.high_us),
        "reference alone": (terms.total_us, None, None),
        **{name: (baselines[name], None, None) for name in ("datasheet roofline", "linear regression")},
    }


def _predict_baselines(
    family: OperatorFamily, others: Sequence[MeasuredBatch], judged: MeasuredBatch
) -> dict[str, Column]:
    """Return the roofline, a regression, and the nearest GPU's time of the same row (NaN without one)."""
    math_us, bytes_us = _count_work(family, judged)
    time_us = np.concatenate([m.time_us for m in others])
    stacked = np.concatenate([_stack(family, m) for m in others]) / time_us[:, None]
    factors, *_ = np.linalg.lstsq(stacked, np.ones(len(stacked)), rcond=None)
    return {
        "datasheet roofline": np.maximum(math_us, bytes_us),
        "linear regression": np.maximum(_stack(family, judged) @ factors, 1.0),
        "copy of the nearest": _copy_nearest(others, judged),
    }


def _count_work(family: OperatorFamily, measured: MeasuredBatch) -> tuple[Column, Column]:
    """Return microseconds of operations and of bytes at the datasheet's peaks."""
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    terms = family.compute_terms(measured.batch, hardware, family.initial_parameters)
    peak = hardware.find_peak_tflops(measured.batch.dtype)
    return terms.flops / (peak * 1e6), terms.dram_bytes / (hardware.dram_gbps * 1e3)


def _stack(family: OperatorFamily, measured: MeasuredBatch) -> Column:
    return np.stack([*_count_work(family, measured), np.ones(len(measured))], axis=1)


def _copy_nearest(others: Sequence[MeasuredBatch], judged: MeasuredBatch) -> Column:
    target = np.array(compute_hardware_features(read_operator_hardware(load_gpu(judged.gpu))))

    def measure_distance(other: MeasuredBatch) -> float:
        figures = compute_hardware_features(read_operator_hardware(load_gpu(other.gpu)))
        return float(np.abs(np.array(figures) - target).sum())

    nearest = min(others, key=measure_distance)
    times = dict(zip(_list_keys(nearest), nearest.time_us.tolist(), strict=True))
    return np.array([times.get(key, np.nan) for key in _list_keys(judged)])


def _list_keys(measured: MeasuredBatch) -> list[tuple[float, ...]]:
    """Return what tells rows of equal requests apart."""
    batch = measured.batch
    assert isinstance(batch, AttentionBatch | MlaBatch)
    starts = batch.q_lengths.offsets[:-1]
    columns = [batch.q_lengths.values[starts], batch.kv_lengths.values[starts], batch.q_lengths.counts]
    columns += [batch.heads, measured.shape_keys.astype(np.float64)]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("named", "generic", "mla", "sources"))
    parser.add_argument("dtype", nargs="?", type=DataType, default=DataType.BF16)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--rows", type=int, default=2000)
    options = parser.parse_args(arguments)
    console = Console(width=150)
    folder = options.data / "aiconfigurator"
    match options.command:
        case "named":
            judge_named(options.data, console)
        case "generic":
            rows = aiconfigurator_attention.load_attention(folder, options.dtype, limit=options.rows)
            judge(rows, console, f"{attention.FAMILY.name}, generic, {options.dtype}")
        case "mla":
            judge(aiconfigurator_attention.load_mla(folder, limit=options.rows), console, mla.FAMILY.name)
        case "sources":
            judge_sources(options.data, console)


if __name__ == "__main__":
    main()
