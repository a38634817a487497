"""Judge row-wise and element-wise operators: ours, roofline, linear regression, copy of the nearest GPU.

    python bench/operator_rows.py pipeweave   fused add and RMSNorm, SiLU-and-multiply (SynPerf's rows)
    python bench/operator_rows.py neusight    layer norm, softmax, element-wise in fp32
    python bench/operator_rows.py vidur       norms, SiLU and add of Vidur's profiles: an outside check

Prints mean absolute percentage errors. "known": folds of shape keys, reference and correction learned again
without the fold (of NeuSight, the rows of its test table are judged). "left out": learned without the GPU;
learner and share as the shipped weights have them, which were chosen by leaving out GPUs.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from copied_times import copy_measured
from fit_linear import fit_lines
from markdown import render_table
from msgspec import Struct
from operator_data import neusight_rows, pipeweave_rows, vidur_rows
from operator_teaching import EAGER_OPTIONS, ROWWISE_OPTIONS
from rich.console import Console

from analyzer.baselines.linear import predict_with_lines
from analyzer.baselines.roofline import compute_roofline_us
from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.corrections import fit_known, fit_transfer, stack_rows
from analyzer.learning.fit_reference import fit_parameters
from analyzer.learning.learn import group_by_weights
from analyzer.learning.options import LearningOptions
from analyzer.learning.splits import assign_folds
from analyzer.models.learned.weights import find_learned_weights
from analyzer.models.operators.ours import predict
from analyzer.operators.batches import Column, ElementwiseBatch
from analyzer.operators.family import OperatorFamily
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch

_SHORT_US = 50.0


class JudgedRows(Struct, frozen=True):
    """Times that one model gives for rows that did not teach it."""

    setting: str
    model: str
    measured: MeasuredBatch
    predicted_us: Column

    @property
    def operator(self) -> str:
        """Operator, of element-wise ones with the number of inputs."""
        batch = self.measured.batch
        if isinstance(batch, ElementwiseBatch):
            return f"{batch.operator.value}, {batch.inputs[0]:.0f} inputs"
        return batch.operator.value

    @property
    def errors(self) -> Column:
        """Relative errors."""
        errors: Column = np.abs(self.predicted_us / self.measured.time_us - 1.0)
        return errors


def main() -> None:
    """Print the tables that the command line names."""
    console = Console(width=200)
    for name in sys.argv[1:] or ["pipeweave", "neusight", "vidur"]:
        console.print(_format_table(list(_JUDGES[name]())), markup=False)


def judge_pipeweave() -> Iterator[JudgedRows]:
    """Yield what each model says of SynPerf's rows."""
    rows = pipeweave_rows.load_rows()
    yield from _judge_known(rows, rows, ROWWISE_OPTIONS)
    yield from _judge_left_out(rows, rows, ROWWISE_OPTIONS)


def judge_neusight() -> Iterator[JudgedRows]:
    """Yield what each model says of NeuSight's test rows."""
    judged = neusight_rows.load_rows(neusight_rows.JUDGING)
    teaching = neusight_rows.load_teaching()
    for _, batches in group_by_weights(teaching).values():
        names = {batch.batch.operator for batch in batches}
        own = [batch for batch in judged if batch.batch.operator in names]
        yield from _judge_known(batches, own, EAGER_OPTIONS)
        yield from _judge_left_out(batches, own, EAGER_OPTIONS)


def judge_vidur() -> Iterator[JudgedRows]:
    """Yield what the shipped weights say of Vidur's rows, which taught nothing."""
    for batch in vidur_rows.load_rows():
        gpu = load_gpu(batch.gpu)
        yield JudgedRows("shipped", "ours", batch, predict(batch.batch, gpu).time_us)
        roofline_us = compute_roofline_us(batch.batch, read_operator_hardware(gpu))
        yield JudgedRows("shipped", "roofline", batch, roofline_us)


_JUDGES: dict[str, Callable[[], Iterator[JudgedRows]]] = {
    "pipeweave": judge_pipeweave,
    "neusight": judge_neusight,
    "vidur": judge_vidur,
}


def _judge_known(
    teaching: Sequence[MeasuredBatch], judged: Sequence[MeasuredBatch], options: LearningOptions
) -> Iterator[JudgedRows]:
    """Yield predictions of shapes that did not teach, on GPUs that did."""
    family = next(iter(group_by_weights(teaching).values()))[0]
    for fold in range(options.n_folds):
        taught = [_select_fold(batch, fold, options, inside=False) for batch in teaching]
        taught = [batch for batch in taught if len(batch)]
        parameters = fit_parameters(family, taught, options)
        rows = stack_rows(family, taught, parameters)
        known = fit_known(rows, options)
        lines = fit_lines(taught)
        for each in judged:
            batch = _select_fold(each, fold, options, inside=True)
            if not len(batch):
                continue
            own = stack_rows(family, [batch], parameters)
            corrected = known.predict(np.hstack([own.features, own.hardware]))
            hardware = read_operator_hardware(load_gpu(batch.gpu))
            linear = predict_with_lines(batch.batch, batch.gpu, hardware, lines).time_us
            yield JudgedRows("known", "ours", batch, own.reference_us * np.exp(corrected))
            yield JudgedRows("known", "reference alone", batch, own.reference_us)
            yield JudgedRows("known", "linear", batch, linear)
            yield JudgedRows("known", "roofline", batch, compute_roofline_us(batch.batch, hardware))


def _judge_left_out(
    teaching: Sequence[MeasuredBatch], judged: Sequence[MeasuredBatch], options: LearningOptions
) -> Iterator[JudgedRows]:
    """Yield predictions of each GPU, learned without it."""
    name, (family, _) = next(iter(group_by_weights(teaching).items()))
    for gpu in sorted({batch.gpu for batch in teaching}):
        taught = [batch for batch in teaching if batch.gpu != gpu]
        lines = fit_lines(taught)
        hardware = read_operator_hardware(load_gpu(gpu))
        own = [batch for batch in judged if batch.gpu == gpu]
        for batch, times in zip(own, _transfer(name, family, taught, own, options), strict=True):
            for model, time_us in times.items():
                yield JudgedRows("left out", model, batch, time_us)
            linear = predict_with_lines(batch.batch, gpu, hardware, lines).time_us
            copied = copy_measured(batch.batch, hardware, taught).time_us
            roofline_us = compute_roofline_us(batch.batch, hardware)
            yield JudgedRows("left out", "linear", batch, linear)
            yield JudgedRows("left out", "nearest GPU", batch, copied)
            yield JudgedRows("left out", "roofline", batch, roofline_us)


def _transfer(
    name: str,
    family: OperatorFamily,
    taught: Sequence[MeasuredBatch],
    judged: Sequence[MeasuredBatch],
    options: LearningOptions,
) -> list[dict[str, Column]]:
    """Return for each judged batch the times of ours and of its reference, learned on others."""
    parameters = fit_parameters(family, taught, options)
    shipped = find_learned_weights(f"ours-{name}")
    share = shipped.unseen.share if shipped else 1.0
    learners = (True, False) if shipped is None else _find_learners(shipped.unseen)
    corrections = fit_transfer(stack_rows(family, taught, parameters), options) if share else ()
    chosen = next((correction for correction in corrections if _find_learners(correction) == learners), None)
    result = []
    for batch in judged:
        own = stack_rows(family, [batch], parameters)
        correction = share * chosen.predict(own.features) if chosen else np.zeros(len(batch))
        result.append({"ours": own.reference_us * np.exp(correction), "reference alone": own.reference_us})
    return result


def _find_learners(correction: object) -> tuple[bool, bool]:
    """Return whether a correction has trees, and whether it has perceptrons."""
    return getattr(correction, "trees", None) is not None, getattr(correction, "mlp", None) is not None


def _select_fold(batch: MeasuredBatch, fold: int, options: LearningOptions, *, inside: bool) -> MeasuredBatch:
    folds = assign_folds(batch.shape_keys, options.n_folds, options.seed)
    return batch.select(np.flatnonzero((folds == fold) == inside))


def _format_table(judged: Sequence[JudgedRows]) -> str:
    """Return a table: a line per setting, operator and model; mean error per GPU, and their mean."""
    groups: defaultdict[tuple[str, str, str], defaultdict[str, list[JudgedRows]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for each in judged:
        groups[each.setting, each.operator, each.model][each.measured.gpu].append(each)
    gpus = sorted({each.measured.gpu for each in judged})
    lines = []
    for key, by_gpu in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1])):
        errors = {gpu: np.concatenate([e.errors for e in parts]) for gpu, parts in by_gpu.items()}
        time_us = np.concatenate([e.measured.time_us for parts in by_gpu.values() for e in parts])
        every = np.concatenate(list(errors.values()))
        short = every[time_us < _SHORT_US]
        cells = [_percent(errors[gpu].mean()) if gpu in errors else "" for gpu in gpus]
        lines.append(
            (
                *key,
                *cells,
                _percent(np.mean([e.mean() for e in errors.values()])),
                _percent(np.median(every)),
                _percent(np.quantile(every, 0.9)),
                _percent(short.mean()) if len(short) else "",
            )
        )
    head = ("setting", "operator", "model", *gpus, "mean", "median", "P90", "under 50 us")
    return render_table(head, lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


if __name__ == "__main__":
    main()
