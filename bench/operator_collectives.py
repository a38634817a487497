"""Judge predictions of collectives on sizes, numbers of GPUs and systems that taught nothing.

    python bench/operator_collectives.py table > docs/collectives.md    the page
    python bench/operator_collectives.py judge [all_reduce | send_recv]  every GPU left out, intervals

Beside ours: its reference alone, fitted on the same rows; a random forest on bytes, GPUs and the figures of
the link, as SynPerf's authors have it (it learns the logarithm of the time); and the datasheet's link. Rows
are left out by rule: a half octave of bytes by the hash of its key, a band of sizes, a number of GPUs of one
GPU. Data: `../shared/data` beside the repository, or --data.
"""

import argparse
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from error_metrics import ERROR_COLUMNS
from markdown import render_table
from msgspec import Struct
from numpy.typing import NDArray
from operator_data import collectives
from operator_tables import format_learned, format_row
from operator_teaching import COLLECTIVE_OPTIONS
from rich.console import Console

from analyzer.forecast.collective_times import find_group_link, time_transfer
from analyzer.forecast.operator_calls import CollectiveKind
from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import fit_known, learn_weights, stack_rows
from analyzer.learning.fit_reference import fit_parameters
from analyzer.learning.splits import assign_folds
from analyzer.models.operators.ours import predict_with_weights
from analyzer.operators.batches import CollectiveBatch, Column
from analyzer.operators.families.collective import FAMILY
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.names import Operator

ROOT = Path(__file__).resolve().parents[1]
_PERFECT_LINK = {"nvlink_share": 1.0, "pair_share": 1.0, "pcie_share": 1.0, "multicast_gain": 1.0}
_N_TREES = 100
_MODELS = ("ours", "closed form", "forest")
_BANDS = (
    ("below 64 KiB", 0.0, 2.0**16),
    ("64 KiB to 1 MiB", 2.0**16, 2.0**20),
    ("1 to 16 MiB", 2.0**20, 2.0**24),
    ("16 to 256 MiB", 2.0**24, 2.0**28),
    ("256 MiB and more", 2.0**28, 2.0**60),
)
_HEAD = """# Collectives: errors on what was left out

Written by `python bench/operator_collectives.py table`. Median and mean error of the time in percent.

Rows: all-reduces of SynPerf's data (PipeWeave: A100, H20, H800, RTX 6000 Ada; a random 1,500 of each GPU) and
NCCL's as NVIDIA's aiconfigurator measured it (H100, H200, B200, B300, GB200, GB300, RTX PRO 6000, two L40S);
sends of PipeWeave. What is left out taught neither the reference's parameters nor a tree.

- **ours**: the analytic reference (latency, wire and ramp, `analyzer/operators/families/collective.py`) times
  a forest of randomized trees over its terms, bytes, GPUs, link and the GPU's figures: what ships, learned
  again without the rows left out.
- **closed form**: the reference alone, its seven parameters fitted on the same rows.
- **forest**: a random forest of 100 trees over bytes, GPUs, rates of NVLink and PCIe, SMs and memory
  bandwidth, as SynPerf's section V has it.

Below 1 MiB the rows of PipeWeave are bimodal: the same size takes 20 or 45 us, because a kernel waits for the
last GPU to arrive, and files hold the median of one rank. No model of bytes and GPUs gets below that scatter.
PipeWeave's sizes are evenly spaced up to 1 GiB, so large messages are most of its rows: read the bands.
"""


class Split(Struct, frozen=True):
    """What is left out: a name, and which rows of a GPU's batch."""

    name: str
    holds: Callable[[MeasuredBatch], NDArray[np.bool_]]


class Judged(Struct, frozen=True):
    """Errors in percent of every model on the rows of one GPU that one split left out."""

    split: str
    gpu: str
    message_bytes: Column
    errors: dict[str, Column]


def judge_splits(batches: Sequence[MeasuredBatch], splits: Sequence[Split]) -> list[Judged]:
    """Return the errors of all models on what each split leaves out."""
    found = []
    for split in splits:
        kept, held = [], []
        for batch in batches:
            left_out = split.holds(batch)
            kept += [batch.select(np.flatnonzero(~left_out))] if not left_out.all() else []
            held += [batch.select(np.flatnonzero(left_out))] if left_out.any() else []
        ours, closed = _predict_ours(kept, held)
        predicted = {"ours": ours, "closed form": closed, "forest": _predict_forests(kept, held)}
        for i, batch in enumerate(held):
            errors = {model: _compute_errors(times[i], batch) for model, times in predicted.items()}
            found.append(Judged(split.name, batch.gpu, _get_bytes(batch), errors))
    return found


def _compute_errors(predicted_us: Column, measured: MeasuredBatch) -> Column:
    errors: Column = 100.0 * np.abs(predicted_us / measured.time_us - 1.0)
    return errors


def _get_bytes(measured: MeasuredBatch) -> Column:
    assert isinstance(measured.batch, CollectiveBatch)
    return measured.batch.message_bytes


def _get_gpus(measured: MeasuredBatch) -> Column:
    assert isinstance(measured.batch, CollectiveBatch)
    return measured.batch.gpus


def list_count_splits(batches: Sequence[MeasuredBatch]) -> Iterator[Split]:
    """Yield each number of GPUs of each GPU that has several; the same number of other GPUs teaches."""
    for batch in batches:
        counts = np.unique(_get_gpus(batch))
        for count in counts if len(counts) > 1 else ():
            yield Split(f"{int(count)}", partial(_has_count, batch.gpu, float(count)))


def list_band_splits() -> Iterator[Split]:
    """Yield each band of sizes, of all GPUs at once."""
    for name, low, high in _BANDS:
        yield Split(name, partial(_is_between, low, high))


def list_fold_splits() -> Iterator[Split]:
    """Yield folds of half octaves, by the hash that also makes the interval of the shipped weights."""
    for fold in range(COLLECTIVE_OPTIONS.n_folds):
        yield Split("sizes", partial(_is_in_fold, fold))


def _has_count(gpu: str, count: float, rows: MeasuredBatch) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (_get_gpus(rows) == count) & (rows.gpu == gpu)
    return inside


def _is_between(low: float, high: float, rows: MeasuredBatch) -> NDArray[np.bool_]:
    return (_get_bytes(rows) >= low) & (_get_bytes(rows) < high)


def _is_in_fold(fold: int, rows: MeasuredBatch) -> NDArray[np.bool_]:
    folds = assign_folds(rows.shape_keys, COLLECTIVE_OPTIONS.n_folds, COLLECTIVE_OPTIONS.seed)
    inside: NDArray[np.bool_] = folds == fold
    return inside


def _predict_ours(
    kept: Sequence[MeasuredBatch], held: Sequence[MeasuredBatch]
) -> tuple[list[Column], list[Column]]:
    """Return times by reference and forest, and by the reference alone, of each batch."""
    parameters = fit_parameters(FAMILY, kept, COLLECTIVE_OPTIONS)
    correction = fit_known(stack_rows(FAMILY, kept, parameters), COLLECTIVE_OPTIONS)
    ours, closed = [], []
    for batch in held:
        hardware = read_operator_hardware(load_gpu(batch.gpu))
        terms = FAMILY.compute_terms(batch.batch, hardware, parameters)
        features = FAMILY.compute_features(batch.batch, hardware, terms)
        figures = np.tile(compute_hardware_features(hardware), (len(batch), 1))
        ours.append(terms.total_us * np.exp(correction.predict(np.hstack([features, figures]))))
        closed.append(terms.total_us)
    return ours, closed


def _predict_forests(kept: Sequence[MeasuredBatch], held: Sequence[MeasuredBatch]) -> list[Column]:
    from sklearn.ensemble import RandomForestRegressor

    inputs = np.concatenate([_make_inputs(batch) for batch in kept])
    target = np.log(np.concatenate([batch.time_us for batch in kept]))
    forest = RandomForestRegressor(
        n_estimators=_N_TREES, min_samples_leaf=2, random_state=COLLECTIVE_OPTIONS.seed
    )
    forest.fit(inputs, target)
    return [np.exp(forest.predict(_make_inputs(batch))) for batch in held]


def _make_inputs(measured: MeasuredBatch) -> NDArray[np.float64]:
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    figures = (hardware.nvlink_gbps, hardware.pcie_gbps, hardware.sm_count, hardware.dram_gbps)
    columns = (np.full(len(measured), figure) for figure in figures)
    return np.column_stack([np.log2(_get_bytes(measured)), _get_gpus(measured), *columns])


def make_page(data: Path) -> str:
    """Return docs/collectives.md."""
    reduces = _load(data, Operator.ALL_REDUCE)
    sends = _load(data, Operator.SEND_RECV)
    counts = judge_splits(reduces, list(list_count_splits(reduces)))
    parts = [
        _HEAD,
        "## All-reduce, a number of GPUs left out\n",
        "One number of GPUs of one kind of GPU is left out with all its sizes.\n",
        _make_table(("GPU", "GPUs left out"), counts, lambda judged: (judged.gpu, judged.split)),
        "The same by size:\n",
        _make_band_table(counts),
    ]
    for name, batches in (("All-reduce", reduces), ("Send and receive", sends)):
        bands = judge_splits(batches, list(list_band_splits()))
        folds = judge_splits(batches, list(list_fold_splits()))
        parts += [
            f"## {name}, a whole band of sizes left out\n",
            _make_table(("band left out",), bands, lambda judged: (judged.split,)),
            _make_gpu_band_table(bands),
            f"## {name}, half octaves left out\n",
            "A quarter of all half octaves of bytes at a time; by size:\n",
            _make_band_table(folds),
        ]
    parts += [
        "## NCCL on systems that taught nothing\n",
        "Learned without the rows of these four (what ships has them); 512 bytes to 512 MiB, 2 to 8 GPUs,\n"
        "NCCL in CUDA graphs.\n",
        _make_judging_table(data, _load(data, Operator.ALL_REDUCE, with_judging=False)),
        "## All-gather, reduce-scatter and all-to-all\n",
        "No row of these teaches: `forecast` takes them for one pass of an all-reduce\n"
        "(`analyzer/forecast/collective_times.py`; one share was fitted on these rows). Median / mean. The\n"
        "A100's all-reduces are PipeWeave's, whose system is slower below 16 MiB than that of these rows.\n",
        _make_one_pass_table(data.parent / "facts"),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _load(data: Path, operator: Operator, *, with_judging: bool = True) -> list[MeasuredBatch]:
    random = np.random.default_rng(COLLECTIVE_OPTIONS.seed)
    drawn = []
    for batch in collectives.load_teaching(data, operator, with_judging=with_judging):
        n_kept = min(len(batch), COLLECTIVE_OPTIONS.max_rows_per_gpu)
        drawn.append(batch.select(np.sort(random.choice(len(batch), n_kept, replace=False))))
    return drawn


def _make_table(
    heads: tuple[str, ...], judged: Sequence[Judged], name: Callable[[Judged], tuple[str, ...]]
) -> str:
    """Return a table of errors by what `name` says, then over all rows."""
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for each in judged:
        groups.setdefault(name(each), []).append(each)
    total = ("all rows", *("" for _ in heads[1:]))
    rows = [(*key, *_format_group(group)) for key, group in [*groups.items(), (total, list(judged))]]
    return render_table((*heads, "rows", *_MODELS), rows)


def _make_band_table(judged: Sequence[Judged]) -> str:
    """Return a table of errors by the size of the message."""
    rows = []
    for name, low, high in _BANDS:
        inside = [_cut(each, (each.message_bytes >= low) & (each.message_bytes < high)) for each in judged]
        if sum(len(each.message_bytes) for each in inside):
            rows.append((name, *_format_group(inside)))
    rows.append(("all rows", *_format_group(judged)))
    return render_table(("size", "rows", *_MODELS), rows)


def _make_gpu_band_table(judged: Sequence[Judged]) -> str:
    """Return medians of ours by GPU and band left out."""
    gpus = list(dict.fromkeys(each.gpu for each in judged))
    rows = []
    for gpu in gpus:
        of_gpu = {each.split: np.median(each.errors["ours"]) for each in judged if each.gpu == gpu}
        rows.append((gpu, *(f"{of_gpu[name]:.1f}" if name in of_gpu else "-" for name, _, _ in _BANDS)))
    heads = ("median of ours", *(name for name, _, _ in _BANDS))
    return render_table(heads, rows)


def _cut(judged: Judged, where: NDArray[np.bool_]) -> Judged:
    errors = {model: values[where] for model, values in judged.errors.items()}
    return Judged(judged.split, judged.gpu, judged.message_bytes[where], errors)


def _format_group(group: Sequence[Judged]) -> tuple[str, ...]:
    """Return the number of rows, then median / mean of each model."""
    cells = []
    for model in _MODELS:
        errors = np.concatenate([each.errors[model] for each in group])
        cells.append(f"{np.median(errors):.1f} / {errors.mean():.1f}")
    return (f"{sum(len(each.message_bytes) for each in group):,}", *cells)


def _make_judging_table(data: Path, teaching: Sequence[MeasuredBatch]) -> str:
    rows = []
    weights = learn_weights(FAMILY, teaching, COLLECTIVE_OPTIONS, name="collective-all_reduce").weights
    for batch in collectives.load_nccl(data.parent / "facts", judging=True):
        forest_us = _predict_forests(teaching, [batch])[0]
        found = predict_with_weights(batch.batch, load_gpu(batch.gpu), FAMILY, weights)
        cells = []
        for predicted_us in (found.time_us, forest_us, _compute_link_us(batch)):
            errors = _compute_errors(predicted_us, batch)
            cells.append(f"{np.median(errors):.1f} / {errors.mean():.1f}")
        rows.append((batch.gpu, f"{len(batch)}", *cells))
    return render_table(("GPU", "rows", "ours", "forest", "datasheet link"), rows)


_ONE_PASS = {
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}


def _make_one_pass_table(facts: Path) -> str:
    cells: dict[str, list[str]] = {}
    for name, kind in _ONE_PASS.items():
        for batch in collectives.load_nccl_rows(facts, name):
            link = find_group_link(load_gpu(batch.gpu))
            sizes = zip(_get_bytes(batch), _get_gpus(batch), strict=True)
            times = [time_transfer(kind, int(size), int(gpus), link).us for size, gpus in sizes]
            errors = _compute_errors(np.array(times), batch)
            cells.setdefault(batch.gpu, []).append(f"{np.median(errors):.1f} / {errors.mean():.1f}")
    return render_table(("GPU", *_ONE_PASS), [(gpu, *row) for gpu, row in cells.items()])


def judge(data: Path, operator: Operator, console: Console) -> None:
    """Print errors with sizes left out, with each GPU left out, and on NCCL's judging systems."""
    teaching = collectives.load_teaching(data, operator, with_judging=False)
    learned = learn_weights(FAMILY, teaching, COLLECTIVE_OPTIONS, name=f"collective-{operator}")
    console.print(f"{operator}: sizes (half octaves) or a GPU left out", style="bold")
    console.print(format_learned(learned), markup=False)
    rows = []
    for batch in teaching:
        others = [other for other in teaching if other.gpu != batch.gpu]
        rows += [
            format_row(batch.gpu, "forest, GPU left out", batch, _predict_forests(others, [batch])[0]),
            format_row(batch.gpu, "datasheet link", batch, _compute_link_us(batch)),
        ]
    console.print(f"{operator}: baselines", style="bold")
    console.print(render_table(("GPU", "model", *ERROR_COLUMNS, "inside"), rows), markup=False)
    if operator is Operator.ALL_REDUCE:
        rows = []
        for batch in collectives.load_nccl(data.parent / "facts", judging=True):
            found = predict_with_weights(batch.batch, load_gpu(batch.gpu), FAMILY, learned.weights)
            rows.append(format_row(batch.gpu, "ours", batch, found.time_us, found.low_us, found.high_us))
        console.print("all_reduce: NCCL on systems that taught nothing, 512 bytes to 512 MiB", style="bold")
        console.print(render_table(("GPU", "model", *ERROR_COLUMNS, "inside"), rows), markup=False)


def _compute_link_us(measured: MeasuredBatch) -> Column:
    """Return the time of the wire at the datasheet's rate of the link, nothing else."""
    hardware = read_operator_hardware(load_gpu(measured.gpu))
    terms = FAMILY.compute_terms(measured.batch, hardware, FAMILY.initial_parameters | _PERFECT_LINK)
    return np.maximum(terms.find_term("wire"), 0.1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the page, or the tables of one operator, both by default."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("table", "judge"), default="table")
    parser.add_argument("operator", nargs="?", choices=(Operator.ALL_REDUCE, Operator.SEND_RECV))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options = parser.parse_args(arguments)
    if options.command == "table":
        print(make_page(options.data), end="")
        return
    console = Console(width=140)
    for operator in [options.operator] if options.operator else [Operator.ALL_REDUCE, Operator.SEND_RECV]:
        judge(options.data, Operator(operator), console)


if __name__ == "__main__":
    main()
