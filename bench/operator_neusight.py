"""Compare NeuSight with our model and the baselines on its authors' FP32 rows.

    python bench/operator_neusight.py labels [OPERATOR ...]     operators inside whole models (figure 8)
    python bench/operator_neusight.py known [OPERATOR ...]      learned on one table, judged on the other
    python bench/operator_neusight.py left-out [OPERATOR ...]   each GPU in turn, learned on the others
    python bench/operator_neusight.py learn [--form code]       NeuSight's weights in hwdb anew

Errors are the mean absolute percentage error on rows of the judging table, of larger and rounder shapes than
those of the learning table. "nearest" copies the time of the same shape on the nearest other GPU; "linear"
is a line per GPU over operations and bytes, for GPUs left out in proportion to peak and bandwidth. Ours:
`known` learns the correction on the learning table alone; `left-out` are the errors by which the shipped
weights were chosen (`bench/operators.py learn products-fp32`); bench/operator_rows.py has ours on row-wise
and element-wise operators. Learned networks are kept in .cache/neusight, so that an interrupted run goes on.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from copied_times import copy_measured
from fit_linear import fit_lines
from fit_neusight import NeuSightProfile, NeuSightSettings, learn_neusight
from joblib import Memory
from msgspec import structs
from operator_data.neusight_products import draw_learning_rows, load_products
from operator_data.neusight_profiles import JUDGING, LEARNING, ProfiledBatch, read_labels, read_profiles
from operator_teaching import NEUSIGHT, TEACHINGS, Teaching
from tabulate import tabulate

from analyzer.baselines.linear import predict_with_lines
from analyzer.baselines.neusight.model import predict_neusight_us
from analyzer.baselines.neusight.tiled_work import TiledBatch, find_neusight_family
from analyzer.baselines.neusight.utilization import NeuSightForm
from analyzer.baselines.neusight.weights import NeuSightWeights, name_weights, save_neusight
from analyzer.baselines.roofline import compute_roofline_us
from analyzer.files import write_file
from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import fit_known, stack_rows
from analyzer.learning.fit_reference import fit_parameters
from analyzer.learning.learn import group_by_weights, learn_set
from analyzer.models.learned.correction import Situation
from analyzer.operators.batches import Column
from analyzer.operators.families.fp32_product import FAMILY
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import Operator

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "hwdb" / "weights"
CACHE = Memory(ROOT / ".cache" / "neusight", verbose=0)
OPERATORS = (Operator.BMM, Operator.GEMM, Operator.ELEMENTWISE, Operator.SOFTMAX, Operator.LAYERNORM)
PRODUCTS = (Operator.BMM, Operator.GEMM)
_PRINTED = {  # by the authors, in percent: operators of whole models on GPUs that taught
    Operator.BMM: 26.0,
    Operator.GEMM: 20.0,
    Operator.ELEMENTWISE: 14.0,
    Operator.SOFTMAX: 19.3,
    Operator.LAYERNORM: 20.1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("labels", "known", "left-out", "learn"))
    parser.add_argument("operators", nargs="*", type=Operator, default=list(OPERATORS))
    parser.add_argument("--form", type=NeuSightForm, default=NeuSightForm.PAPER)
    parser.add_argument("--steps", type=int, default=1500, help="of NeuSight's learning")
    arguments = parser.parse_args()
    settings = NeuSightSettings(form=arguments.form, n_steps=arguments.steps)
    command = {
        "labels": print_labels,
        "known": print_known,
        "left-out": print_left_out,
        "learn": write_weights,
    }
    command[arguments.command](arguments.operators, settings)


def print_labels(operators: Sequence[Operator], settings: NeuSightSettings) -> None:
    """Print the error on operators of whole models, beside the one that the authors print."""
    rows: list[list[object]] = []
    for operator in operators:
        weights = learn(operator, settings, None, (LEARNING,))
        errors = [
            _ape(predict_neusight_us(each.batch, find_hardware(each.gpu), weights), each.time_us)
            for each in read_labels()
            if each.batch.operator is operator
        ]
        all_rows = np.concatenate(errors)
        rows.append([operator.value, len(all_rows), all_rows.mean(), np.median(all_rows), _PRINTED[operator]])
    _print(("operator", "rows", "mean", "median", "authors' mean"), rows)


def print_known(operators: Sequence[Operator], settings: NeuSightSettings) -> None:
    """Print errors on the judging table of models that learned from the learning table."""
    rows: list[list[object]] = []
    for operator in operators:
        weights = learn(operator, settings, None, (LEARNING,))
        ours = predict_ours_known(operator) if operator in PRODUCTS else {}
        lines = fit_lines([as_measured(each) for each in read_profiles(LEARNING, operator)])
        for each in judge(operator):
            hardware = find_hardware(each.gpu)
            line = predict_with_lines(each.batch, each.gpu, hardware, lines).time_us
            rows.append(
                [
                    operator.value,
                    each.gpu,
                    len(each.time_us),
                    _mean(ours.get(each.gpu), each.time_us),
                    _mean(predict_neusight_us(each.batch, hardware, weights), each.time_us),
                    _mean(compute_roofline_us(each.batch, hardware), each.time_us),
                    _mean(line, each.time_us),
                    _mean(copy_nearest(each, operator), each.time_us),
                ]
            )
    _print_models(rows)


def print_left_out(operators: Sequence[Operator], settings: NeuSightSettings) -> None:
    """Print errors on the judging table of GPUs of which no row taught."""
    rows: list[list[object]] = []
    for operator in operators:
        ours = find_ours_left_out(operator) if operator in PRODUCTS else {}
        for each in judge(operator):
            hardware = find_hardware(each.gpu)
            weights = learn(operator, settings, each.gpu, (LEARNING, JUDGING))
            others = [
                as_measured(other)
                for table in (LEARNING, JUDGING)
                for other in read_profiles(table, operator)
                if other.gpu != each.gpu
            ]
            line = predict_with_lines(each.batch, each.gpu, hardware, fit_lines(others)).time_us
            rows.append(
                [
                    operator.value,
                    each.gpu,
                    len(each.time_us),
                    ours.get(each.gpu),
                    _mean(predict_neusight_us(each.batch, hardware, weights), each.time_us),
                    _mean(compute_roofline_us(each.batch, hardware), each.time_us),
                    _mean(line, each.time_us),
                    _mean(copy_nearest(each, operator), each.time_us),
                ]
            )
    _print_models(rows)


def write_weights(operators: Sequence[Operator], settings: NeuSightSettings) -> None:
    """Write NeuSight's weights of all GPUs, with their cards."""
    for operator in operators:
        weights = learn(operator, settings, None, (LEARNING, JUDGING))
        weights = structs.replace(weights, log_interval=find_interval(weights, operator))
        path = WEIGHTS / f"{name_weights(weights.family, settings.form)}.safetensors"
        save_neusight(weights, path)
        write_file(path.with_suffix(".toml"), [_format_card(weights, settings).encode()])
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


def find_interval(weights: NeuSightWeights, operator: Operator) -> tuple[float, float]:
    """Return the tenth and ninetieth percentile of log(measured / predicted) over the rows that taught."""
    log_errors = [
        np.log(each.time_us / predict_neusight_us(each.batch, find_hardware(each.gpu), weights))
        for each in (*read_profiles(LEARNING, operator), *judge(operator))
    ]
    low, high = np.quantile(np.concatenate(log_errors), [0.1, 0.9])
    return min(float(low), 0.0), max(float(high), 0.0)


def _format_card(weights: NeuSightWeights, settings: NeuSightSettings) -> str:
    lines = [
        "# Card of the safetensors file beside it, written by `python bench/operator_neusight.py learn`.",
        f'model = "neusight"\nfamily = "{weights.family}"\nform = "{settings.form}"',
        f'data = "{NEUSIGHT.data}"\nlicence = "{NEUSIGHT.licence}"\ntiming = "interval"',
        f"rows = {weights.n_rows}\nsteps = {settings.n_steps}\nseed = {settings.seed}",
        'split = "all rows taught; docs/operators.md has errors on GPUs and shapes left out"',
    ]
    return "\n".join(lines) + "\n"


def judge(operator: Operator) -> list[ProfiledBatch]:
    """Return the judging rows; P4's linear ones contradict those of the learning table threefold."""
    return [
        each for each in read_profiles(JUDGING, operator) if (operator, each.gpu) != (Operator.GEMM, "p4")
    ]


def find_hardware(gpu: str) -> OperatorHardware:
    """Return the figures of a GPU by its key."""
    return read_operator_hardware(load_gpu(gpu))


def learn(
    operator: Operator, settings: NeuSightSettings, left_out: str | None, tables: tuple[str, ...]
) -> NeuSightWeights:
    """Return NeuSight learned on some tables without one GPU, from the cache if it was learned before."""
    found: NeuSightWeights = CACHE.cache(_learn)(operator, settings, left_out, tables)
    return found


def _learn(
    operator: Operator, settings: NeuSightSettings, left_out: str | None, tables: tuple[str, ...]
) -> NeuSightWeights:
    by_gpu: dict[str, list[ProfiledBatch]] = {}
    for table in tables:
        for each in read_profiles(table, operator):
            if each.gpu != left_out and (table, operator, each.gpu) != (JUDGING, Operator.GEMM, "p4"):
                by_gpu.setdefault(each.gpu, []).append(each)
    profiles = [
        NeuSightProfile(each.gpu, find_hardware(each.gpu), each.batch, each.tiles, each.time_us)
        for each in _join(by_gpu)
    ]
    family = find_neusight_family(profiles[0].batch)
    assert family is not None
    return learn_neusight(
        family,
        profiles,
        settings,
        dataset="neusight",
        report=lambda step, loss: print(f"{operator} without {left_out}: {step} {loss:.3f}", file=sys.stderr),
    )


def _join(by_gpu: dict[str, list[ProfiledBatch]]) -> Iterable[ProfiledBatch]:
    """Yield the batches of each GPU as one."""
    for gpu, parts in by_gpu.items():
        yield ProfiledBatch(
            gpu=gpu,
            batch=_concatenate([part.batch for part in parts]),
            time_us=np.concatenate([part.time_us for part in parts]),
            tiles=np.concatenate([part.tiles for part in parts]),
        )


def _concatenate(batches: Sequence[TiledBatch]) -> TiledBatch:
    first = batches[0]
    columns = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in first.__struct_fields__
        if isinstance(getattr(first, name), np.ndarray)
    }
    return msgspec.structs.replace(first, **columns)


def as_measured(profile: ProfiledBatch) -> MeasuredBatch:
    """Return a profile as the baselines read it."""
    keys = np.arange(len(profile.time_us))
    return MeasuredBatch("neusight", profile.gpu, profile.batch, profile.time_us, keys, Timing.INTERVAL)


def copy_nearest(each: ProfiledBatch, operator: Operator) -> Column:
    """Return the judging table's times of the same shapes on the nearest other GPU."""
    others = [as_measured(other) for other in judge(operator)]
    return copy_measured(each.batch, find_hardware(each.gpu), others).time_us


def predict_ours_known(operator: Operator) -> dict[str, Column]:
    """Return our times of the judging rows by GPU, learned on the learning table alone."""
    found: dict[str, Column] = CACHE.cache(_predict_ours_known)(operator)
    return found


def _predict_ours_known(operator: Operator) -> dict[str, Column]:
    learning = draw_learning_rows(operator)
    judging = {batch.gpu: batch for batch in load_products(JUDGING, operator)}
    parameters = fit_parameters(FAMILY, learning, find_teaching().options)
    correction = fit_known(stack_rows(FAMILY, learning, parameters), find_teaching().options)
    times = {}
    for gpu, batch in judging.items():
        rows = stack_rows(FAMILY, [batch], parameters)
        log_time = correction.predict(np.hstack([rows.features, rows.hardware]))
        times[gpu] = rows.reference_us * np.exp(log_time)
    return times


def find_teaching() -> Teaching:
    """Return what teaches the shipped weights of FP32 products."""
    return next(each for each in TEACHINGS if each.name == "products-fp32")


def find_ours_left_out(operator: Operator) -> dict[str, float]:
    """Return our mean error on the judging rows of each GPU left out, by which the weights were chosen."""
    teaching = find_teaching()
    measured = [batch for batch in teaching.load() if batch.batch.operator is operator]
    name, (family, batches) = next(iter(group_by_weights(measured).items()))
    learned = learn_set(name, family, batches, teaching.options, cache=ROOT / ".cache" / "operators")
    judging = {batch.gpu: len(batch) for batch in load_products(JUDGING, operator)}
    return {
        each.left_out: float(100.0 * np.abs(np.exp(-each.log_error[-judging[each.left_out] :]) - 1.0).mean())
        for each in learned.errors
        if each.situation is Situation.UNSEEN and each.left_out in judging
    }


def _ape(predicted_us: Column, time_us: Column) -> Column:
    error: Column = 100.0 * np.abs(predicted_us / time_us - 1.0)
    return error


def _mean(predicted_us: Column | None, time_us: Column) -> float | None:
    return None if predicted_us is None else float(_ape(predicted_us, time_us).mean())


def _print_models(rows: list[list[object]]) -> None:
    """Print one row per operator and GPU, and a mean per operator, each GPU counting the same."""
    shown: list[list[object]] = []
    for operator in dict.fromkeys(row[0] for row in rows):
        of_operator = [row for row in rows if row[0] == operator]
        shown += of_operator
        shown.append([operator, "mean", sum(_numbers(of_operator, 2)), *_means(of_operator)])
    _print(("operator", "GPU", "rows", "ours", "NeuSight", "roofline", "linear", "nearest"), shown)


def _means(rows: Sequence[Sequence[object]]) -> list[float | None]:
    columns = [list(_numbers(rows, column)) for column in range(3, len(rows[0]))]
    return [sum(values) / len(values) if values else None for values in columns]


def _numbers(rows: Sequence[Sequence[object]], column: int) -> list[float]:
    return [float(value) for row in rows if isinstance(value := row[column], int | float)]


def _print(headers: Sequence[str], rows: list[list[object]]) -> None:
    print(tabulate(rows, headers=headers, floatfmt=".1f", tablefmt="github"))


if __name__ == "__main__":
    main()
