"""Learn a set of weights: parameters of the reference, corrections, and intervals from rows left out.

The idea: whatever a prediction will lack when it is asked for (rows of these shapes, of this GPU, of this
architecture) is left out here in turn, and the errors on what was left out choose the correction and give the
interval. The reference's parameters are fitted again without a GPU that is left out.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.fit_extra_trees import fit_extra_trees
from analyzer.learning.fit_mlp import fit_mlp
from analyzer.learning.fit_reference import fit_parameters
from analyzer.learning.fit_trees import fit_trees
from analyzer.learning.options import LearningOptions
from analyzer.learning.splits import assign_folds
from analyzer.models.learned.correction import (
    Correction,
    LearnedWeights,
    ResidualInterval,
    Rows,
    Situation,
    TaughtGpu,
    are_siblings,
    find_architecture_family,
    is_nearly_the_same,
)
from analyzer.models.learned.mlp import MlpEnsemble
from analyzer.models.learned.trees import TreeEnsemble
from analyzer.operators.batches import Column, describe_kind
from analyzer.operators.family import OperatorFamily
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.places import locate_rows

Call = Callable[..., Any]  # runs a function, perhaps from a cache
Report = Callable[[str], None]  # is told what is being done

_SHARES = (0.25, 0.5, 0.75, 1.0)
_COVERAGE = (0.1, 0.9)
_EDGES_US = (10.0, 50.0)
_FEWEST_TO_SCALE = 2  # things left out
_SCALES = np.arange(0.8, 3.01, 0.05)
_FEWEST_IN_BIN = 60  # residuals from which a bin has an interval of its own


class TeachingRows(Struct, frozen=True):
    """Rows of all GPUs, one below the other."""

    features: Rows
    hardware: Rows  # rows x hardware features
    reference_us: Column
    log_ratio: Column  # log(measured / reference)
    gpu: NDArray[np.int64]  # position in `gpus`
    shape_keys: NDArray[np.int64]
    judges: NDArray[np.bool_]  # its error counts: the row is not one of a selection
    gpus: tuple[str, ...]

    def select(self, where: NDArray[Any]) -> "TeachingRows":
        """Return the rows of a mask or of positions."""
        return TeachingRows(
            self.features[where],
            self.hardware[where],
            self.reference_us[where],
            self.log_ratio[where],
            self.gpu[where],
            self.shape_keys[where],
            self.judges[where],
            self.gpus,
        )

    def __len__(self) -> int:
        return len(self.gpu)


class LeftOutErrors(Struct, frozen=True):
    """Predictions of rows that did not teach: of one situation, by what was left out."""

    situation: Situation
    left_out: str  # a GPU, an architecture, or "shapes"
    predicted_us: Column
    log_error: Column  # log(measured / predicted)
    gpu: NDArray[np.int64]
    places: Rows | None = None  # of the rows among shapes, see `operators.places`

    def select(self, where: NDArray[Any]) -> "LeftOutErrors":
        """Return the rows of a mask or of positions."""
        return LeftOutErrors(
            self.situation,
            self.left_out,
            self.predicted_us[where],
            self.log_error[where],
            self.gpu[where],
            None if self.places is None else self.places[where],
        )


class Learned(Struct, frozen=True):
    """A set of weights, and the errors on rows left out by which it was chosen."""

    weights: LearnedWeights
    errors: tuple[LeftOutErrors, ...]


def learn_weights(
    family: OperatorFamily,
    measured: Sequence[MeasuredBatch],
    options: LearningOptions,
    *,
    name: str,
    call: Call = lambda function, *arguments, **keywords: function(*arguments, **keywords),
    report: Report = lambda text: None,
) -> Learned:
    """Return weights learned from rows of one family.

    call: runs each long fit; a cache in its place (joblib.Memory) lets an interrupted run go on.
    """
    drawn = _draw_rows(measured, options)
    report("fitting the reference")
    parameters = call(fit_parameters, family, drawn, options)
    rows = stack_rows(family, drawn, parameters)
    report("learning the correction for known GPUs")
    known = call(fit_known, rows, options)
    places = _PlacesOfRows(family, drawn, parameters)
    errors = [places.add(_leave_out_shapes(rows, options, call), rows.gpus)]
    transfer_errors: list[_TransferErrors] = []
    groups = dict(_list_groups(rows, options))
    for left_out, gpus in groups.items():
        if len(gpus) == len(rows.gpus):
            continue
        report(f"leaving out {left_out}")
        transfer_errors.append(call(_leave_out_gpus, family, drawn, gpus, left_out, options))
    siblings_are_unseen = options.leaves_out == "gpu"
    choice, takes_siblings = _choose_transfer(transfer_errors, siblings_are_unseen)
    report("learning the correction for other GPUs")
    unseen = call(fit_transfer, rows, options)[choice.learner]
    for transfer in transfer_errors:
        found = transfer.make_errors(choice, takes_siblings, siblings_are_unseen=siblings_are_unseen)
        errors += [places.add(each, groups[transfer.left_out]) for each in found]
    return Learned(
        LearnedWeights(
            name=name,
            dataset=", ".join(sorted({batch.dataset for batch in drawn})),
            timing=", ".join(sorted({batch.timing.value for batch in drawn})),
            parameters=parameters,
            feature_names=family.feature_names,
            feature_low=tuple(rows.features.min(axis=0).tolist()),
            feature_high=tuple(rows.features.max(axis=0).tolist()),
            known=known,
            unseen=Correction(unseen.trees, unseen.mlp, choice.share, unseen.sees_hardware),
            takes_siblings_correction=takes_siblings,
            intervals=_make_intervals(errors),
            leveled=make_interval([_remove_levels(e) for e in _find_hardest(errors)]),
            taught=_list_taught(rows),
            taught_kinds=list_kinds(measured),
        ),
        tuple(errors),
    )


class _PlacesOfRows(Struct, frozen=True):
    """Where the rows that judge lie among shapes; the reference's parameters are those of all rows."""

    family: OperatorFamily
    measured: Sequence[MeasuredBatch]
    parameters: dict[str, float]

    def add(self, errors: LeftOutErrors, gpus: Sequence[str]) -> LeftOutErrors:
        """Return errors on rows of these GPUs with their places; batches stand in the order of `measured`."""
        found = []
        for part in self.measured:
            if part.gpu in gpus and not part.is_selection:
                hardware = read_operator_hardware(load_gpu(part.gpu))
                terms = self.family.compute_terms(part.batch, hardware, self.parameters)
                found.append(locate_rows(part.batch, terms))
        return msgspec.structs.replace(errors, places=np.concatenate(found))


def stack_rows(
    family: OperatorFamily, measured: Sequence[MeasuredBatch], parameters: dict[str, float]
) -> TeachingRows:
    """Return features and targets of batches, stacked."""
    gpus = tuple(sorted({batch.gpu for batch in measured}))
    features, figures, reference, ratio, index = [], [], [], [], []
    for batch in measured:
        hardware = read_operator_hardware(load_gpu(batch.gpu))
        terms = family.compute_terms(batch.batch, hardware, parameters)
        features.append(family.compute_features(batch.batch, hardware, terms))
        figures.append(np.tile(compute_hardware_features(hardware), (len(batch), 1)))
        reference.append(terms.total_us)
        ratio.append(np.log(batch.time_us / terms.total_us))
        index.append(np.full(len(batch), gpus.index(batch.gpu), dtype=np.int64))
    return TeachingRows(
        np.concatenate(features),
        np.concatenate(figures),
        np.concatenate(reference),
        np.concatenate(ratio),
        np.concatenate(index),
        np.concatenate([batch.shape_keys for batch in measured]),
        np.concatenate([np.full(len(batch), not batch.is_selection) for batch in measured]),
        gpus,
    )


def fit_known(rows: TeachingRows, options: LearningOptions) -> Correction:
    """Return the correction for GPUs whose rows teach: it sees hardware figures.

    Each row counts the same, or each shape on each GPU (`options.weighs_shapes_alike`).
    """
    inputs = np.hstack([rows.features, rows.hardware])
    weights = _weigh_shapes(rows) if options.weighs_shapes_alike else np.ones(len(rows))
    return Correction(
        _fit_trees(inputs, rows.log_ratio, weights, options, options.n_trees, options.tree_depth),
        _fit_mlp(inputs, rows.log_ratio, weights, options, options.weight_decay),
        share=1.0,
        sees_hardware=True,
    )


def _weigh_shapes(rows: TeachingRows) -> Column:
    """Return weights with which the rows of one shape on one GPU sum to the same as any other's; mean 1."""
    pairs = np.stack([rows.gpu, rows.shape_keys], axis=1)
    _, places, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[places.ravel()]
    scaled: Column = weights / weights.mean()
    return scaled


def fit_transfer(rows: TeachingRows, options: LearningOptions) -> tuple[Correction, ...]:
    """Return corrections for GPUs that taught nothing: trees, perceptrons, both; each GPU counts the same."""
    weights = 1.0 / np.bincount(rows.gpu, minlength=len(rows.gpus))[rows.gpu]
    weights = weights / weights.mean()
    trees = _fit_trees(
        rows.features, rows.log_ratio, weights, options, options.transfer_trees, options.transfer_depth
    )
    mlp = _fit_mlp(rows.features, rows.log_ratio, weights, options, options.transfer_weight_decay)
    pairs = ((trees, None), (None, mlp), (trees, mlp))
    return tuple(Correction(trees, mlp, share=1.0, sees_hardware=False) for trees, mlp in pairs)


def _fit_trees(
    inputs: Rows, target: Rows, weights: Rows, options: LearningOptions, n_trees: int, depth: int
) -> TreeEnsemble:
    if options.tree_kind == "extra":
        return fit_extra_trees(
            inputs,
            target,
            weights,
            n_trees=n_trees,
            depth=depth,
            min_leaf_rows=options.min_leaf_rows,
            seed=options.seed,
        )
    return fit_trees(
        inputs,
        target,
        weights,
        n_trees=n_trees,
        depth=depth,
        rate=options.tree_rate,
        min_leaf_rows=options.min_leaf_rows,
        seed=options.seed,
    )


def _fit_mlp(
    inputs: Rows, target: Rows, weights: Rows, options: LearningOptions, weight_decay: float
) -> MlpEnsemble | None:
    if options.n_perceptrons == 0:
        return None
    return fit_mlp(
        inputs,
        target,
        weights,
        n_members=options.n_perceptrons,
        hidden=options.hidden,
        n_steps=options.n_steps,
        batch_rows=options.batch_rows,
        weight_decay=weight_decay,
        seed=options.seed,
    )


def _draw_rows(measured: Sequence[MeasuredBatch], options: LearningOptions) -> list[MeasuredBatch]:
    """Return the rows that teach: of each GPU at most so many, drawn at random."""
    random = np.random.default_rng(options.seed)
    totals: dict[str, int] = {}
    for batch in measured:
        totals[batch.gpu] = totals.get(batch.gpu, 0) + len(batch)
    drawn = []
    for batch in measured:
        n_kept = min(len(batch), max(1, round(len(batch) * options.max_rows_per_gpu / totals[batch.gpu])))
        drawn.append(batch.select(np.sort(random.choice(len(batch), n_kept, replace=False))))
    return [batch for batch in drawn if len(batch)]


def _leave_out_shapes(rows: TeachingRows, options: LearningOptions, call: Call) -> LeftOutErrors:
    """Return errors on shapes left out, each fold once."""
    folds = assign_folds(rows.shape_keys, options.n_folds, options.seed)
    predicted = np.empty(len(rows))
    for fold in range(options.n_folds):
        held = folds == fold
        if held.all() or not held.any():
            predicted[held] = 0.0
            continue
        correction = call(fit_known, rows.select(~held), options)
        predicted[held] = correction.predict(np.hstack([rows.features[held], rows.hardware[held]]))
    judged = rows.judges
    return LeftOutErrors(
        Situation.KNOWN,
        "shapes",
        (rows.reference_us * np.exp(predicted))[judged],
        (rows.log_ratio - predicted)[judged],
        rows.gpu[judged],
    )


def _list_groups(rows: TeachingRows, options: LearningOptions) -> list[tuple[str, tuple[str, ...]]]:
    """Return what is left out in turn: a GPU; or all GPUs of an architecture, then each that has siblings."""
    if options.leaves_out == "gpu":
        return [(gpu, (gpu,)) for gpu in rows.gpus]
    groups: dict[str, list[str]] = {}
    for gpu in rows.gpus:
        groups.setdefault(find_architecture_family(load_gpu(gpu).correction_arch), []).append(gpu)
    siblings = [(gpu, (gpu,)) for gpus in groups.values() if len(gpus) > 1 for gpu in gpus]
    return [(arch, tuple(gpus)) for arch, gpus in sorted(groups.items())] + siblings


class _Choice(Struct, frozen=True):
    learner: int  # position in what `fit_transfer` returns
    share: float


class _TransferErrors(Struct, frozen=True):
    """What each way to correct predicts for GPUs left out."""

    left_out: str
    is_sibling: bool  # a GPU of the same architecture taught
    reference_us: Column
    log_ratio: Column
    gpu: NDArray[np.int64]
    predicted: tuple[Column, ...]  # by each learner of `fit_transfer`, in log time
    siblings: Column | None  # by the correction for known GPUs, with the nearest one's hardware figures
    is_near: bool  # its figures are nearly the same

    def make_errors(
        self, choice: _Choice, takes_siblings: bool, siblings_are_unseen: bool
    ) -> list[LeftOutErrors]:
        """Return the errors with the chosen correction; of a sibling as such, perhaps as unseen too."""
        transferred = choice.share * self.predicted[choice.learner]
        result = []
        if siblings_are_unseen or not self.is_sibling:
            result.append(self._make(Situation.UNSEEN, transferred))
        if self.is_sibling:
            takes = takes_siblings or self.is_near
            uses = self.siblings if takes else None
            result.append(self._make(Situation.SIBLING, transferred if uses is None else uses))
        return result

    def _make(self, situation: Situation, predicted: Column) -> LeftOutErrors:
        return LeftOutErrors(
            situation,
            self.left_out,
            self.reference_us * np.exp(predicted),
            self.log_ratio - predicted,
            self.gpu,
        )


def _leave_out_gpus(
    family: OperatorFamily,
    measured: Sequence[MeasuredBatch],
    gpus: tuple[str, ...],
    left_out: str,
    options: LearningOptions,
) -> _TransferErrors:
    """Return what corrections learned without some GPUs predict for them."""
    teaching = [batch for batch in measured if batch.gpu not in gpus]
    parameters = fit_parameters(family, teaching, options)
    taught = stack_rows(family, teaching, parameters)
    asked = stack_rows(family, [batch for batch in measured if batch.gpu in gpus], parameters)
    asked = asked.select(asked.judges)
    corrections = fit_transfer(taught, options)
    architecture = load_gpu(gpus[0]).correction_arch
    archs = [load_gpu(gpu).correction_arch for gpu in taught.gpus]
    is_sibling = any(are_siblings(arch, architecture) for arch in archs)
    siblings = None
    is_near = False
    if is_sibling:
        known = fit_known(taught, options)
        same = [i for i, arch in enumerate(archs) if are_siblings(arch, architecture)]
        figures = np.array([taught.hardware[np.flatnonzero(taught.gpu == i)[0]] for i in same])
        nearest = figures[np.abs(figures - asked.hardware[0]).sum(axis=1).argmin()]
        is_near = is_nearly_the_same(nearest, asked.hardware[0])
        siblings = known.predict(
            np.hstack([asked.features, np.broadcast_to(nearest, (len(asked), len(nearest)))])
        )
    names = tuple(sorted({batch.gpu for batch in measured}))
    return _TransferErrors(
        left_out,
        is_sibling,
        asked.reference_us,
        asked.log_ratio,
        np.array([names.index(asked.gpus[i]) for i in asked.gpu], dtype=np.int64),
        tuple(correction.predict(asked.features) for correction in corrections),
        siblings,
        is_near,
    )


def _choose_transfer(errors: Sequence[_TransferErrors], siblings_are_unseen: bool) -> tuple[_Choice, bool]:
    """Return the correction with the least mean error over what was left out, and whether siblings help.

    siblings_are_unseen: GPUs with siblings among those that taught choose too.
    """
    if not errors:
        return _Choice(2, 0.5), True
    judges = [e for e in errors if siblings_are_unseen or not e.is_sibling] or errors
    candidates = [_Choice(0, 0.0)]
    candidates += [
        _Choice(learner, share) for learner in range(len(errors[0].predicted)) for share in _SHARES
    ]

    def compute_mean_error(choice: _Choice) -> float:
        return float(
            np.mean([_mean_error(e.log_ratio - choice.share * e.predicted[choice.learner]) for e in judges])
        )

    best = min(candidates, key=compute_mean_error)
    far = [e for e in errors if not e.is_near]
    of_siblings = [
        (
            _mean_error(e.log_ratio - e.siblings),
            _mean_error(e.log_ratio - best.share * e.predicted[best.learner]),
        )
        for e in far
        if e.siblings is not None
    ]
    return best, not of_siblings or sum(a for a, _ in of_siblings) <= sum(b for _, b in of_siblings)


def _mean_error(log_error: Column) -> float:
    return float(np.abs(np.exp(-log_error) - 1.0).mean())


def _make_intervals(errors: Sequence[LeftOutErrors]) -> dict[Situation, ResidualInterval]:
    """Return an interval per situation; where nothing was left out in that way, a wider one.

    GPUs that left siblings among those that taught say nothing of an architecture that taught nothing.
    """
    known = make_interval([e for e in errors if e.situation is Situation.KNOWN])
    siblings = [e for e in errors if e.situation is Situation.SIBLING]
    names = {e.left_out for e in siblings}
    unseen_errors = [e for e in errors if e.situation is Situation.UNSEEN]
    if any(e.left_out not in names for e in unseen_errors):
        unseen = make_interval(unseen_errors)
    else:
        unseen = _widen(make_interval(siblings) if siblings else known)
    return {
        Situation.KNOWN: known,
        Situation.SIBLING: make_interval(siblings) if siblings else unseen,
        Situation.UNSEEN: unseen,
    }


def _find_hardest(errors: Sequence[LeftOutErrors]) -> list[LeftOutErrors]:
    """Return the errors on GPUs that taught nothing; on shapes left out if there are none."""
    return [e for e in errors if e.situation is Situation.UNSEEN] or list(errors)


def _remove_levels(errors: LeftOutErrors) -> LeftOutErrors:
    """Return the errors less the median of each GPU."""
    log_error = errors.log_error.copy()
    for gpu in np.unique(errors.gpu):
        log_error[errors.gpu == gpu] -= np.median(log_error[errors.gpu == gpu])
    return msgspec.structs.replace(errors, log_error=log_error)


def make_interval(errors: Sequence[LeftOutErrors]) -> ResidualInterval:
    """Return an interval that holds 80 % of what is left out: quantiles of residuals, scaled until it does.

    The quantiles of a few GPUs together are too narrow for one more, whose level they do not hold. So each is
    asked of the others' quantiles, and the scale is the least at which they hold 80 % on average.
    """
    return _scale(_pool_quantiles(errors), _find_scale(errors))


def _find_scale(errors: Sequence[LeftOutErrors]) -> float:
    if len(errors) < _FEWEST_TO_SCALE:
        return 1.0
    pooled = [_pool_quantiles([other for other in errors if other is not e]) for e in errors]
    for scale in _SCALES:
        held = [
            measure_coverage(e, _scale(quantiles, scale)) for e, quantiles in zip(errors, pooled, strict=True)
        ]
        if np.mean(held) >= _COVERAGE[1] - _COVERAGE[0]:
            return float(scale)
    return float(_SCALES[-1])


def measure_coverage(errors: LeftOutErrors, interval: ResidualInterval) -> float:
    """Return the part of rows within an interval."""
    low, high = interval.find(errors.predicted_us)
    return float(np.mean((errors.log_error >= low) & (errors.log_error <= high)))


def _scale(interval: ResidualInterval, factor: float) -> ResidualInterval:
    return ResidualInterval(
        interval.edges_us,
        tuple(factor * low for low in interval.low),
        tuple(factor * high for high in interval.high),
    )


def _pool_quantiles(errors: Sequence[LeftOutErrors]) -> ResidualInterval:
    """Return quantiles of the residuals per bin of predicted time, each thing left out counting the same."""
    time_us = np.concatenate([e.predicted_us for e in errors])
    residual = np.concatenate([e.log_error for e in errors])
    weight = np.concatenate([np.full(len(e.log_error), 1.0 / len(e.log_error)) for e in errors])
    if len(errors) == 1 and errors[0].situation is not Situation.KNOWN:
        # One GPU alone is slower or faster than those that taught; the next may be the other.
        time_us, weight = np.tile(time_us, 2), np.tile(weight, 2)
        residual = np.concatenate([residual, -residual])
    bins = np.searchsorted(np.array(_EDGES_US), time_us, side="right")
    low, high = [], []
    for i in range(len(_EDGES_US) + 1):
        inside = bins == i
        if inside.sum() < _FEWEST_IN_BIN:
            inside = np.ones(len(bins), dtype=np.bool_)
        quantiles = _find_quantiles(residual[inside], weight[inside])
        low.append(min(quantiles[0], 0.0))
        high.append(max(quantiles[1], 0.0))
    return ResidualInterval(_EDGES_US, tuple(low), tuple(high))


def _find_quantiles(values: Column, weights: Column) -> tuple[float, float]:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    low, high = (
        float(values[order][min(int(np.searchsorted(reached, share)), len(values) - 1)])
        for share in _COVERAGE
    )
    return low, high


def _widen(interval: ResidualInterval) -> ResidualInterval:
    """Return an interval wider by a level of 25 % (assumed), where no GPU could be left out."""
    return ResidualInterval(
        interval.edges_us,
        tuple(low - 0.25 for low in interval.low),
        tuple(high + 0.25 for high in interval.high),
    )


def list_kinds(measured: Sequence[MeasuredBatch]) -> tuple[str, ...]:
    """Return operator and data type of the rows, sorted."""
    return tuple(sorted({describe_kind(batch.batch) for batch in measured}))


def _list_taught(rows: TeachingRows) -> tuple[TaughtGpu, ...]:
    return tuple(
        TaughtGpu(
            gpu,
            load_gpu(gpu).code[0],
            int((rows.gpu == i).sum()),
            tuple(rows.hardware[np.flatnonzero(rows.gpu == i)[0]].tolist()),
        )
        for i, gpu in enumerate(rows.gpus)
    )
