"""Sets of weights as files: arrays and a JSON header in one safetensors file, a card in TOML beside it."""

from functools import cache
from pathlib import Path

import msgspec

from analyzer.models.learned.correction import (
    Correction,
    LearnedWeights,
    ResidualInterval,
    Situation,
    TaughtGpu,
)
from analyzer.models.learned.mlp import MlpEnsemble
from analyzer.models.learned.trees import TreeEnsemble
from analyzer.models.learned.weights_file import (
    Arrays,
    find_weights_file,
    read_weights_file,
    write_weights_file,
)

SCHEMA = "warplens/weights/1"


class CorrectionHeader(msgspec.Struct, frozen=True):
    """What a file says of a correction beside its arrays."""

    share: float
    sees_hardware: bool
    base: float | None = None  # of its trees; None: no trees
    n_layers: int = 0  # of its perceptrons; 0: none


class _Header(msgspec.Struct, frozen=True):
    schema: str
    name: str
    dataset: str
    timing: str
    parameters: dict[str, float]
    feature_names: tuple[str, ...]
    feature_low: tuple[float, ...]
    feature_high: tuple[float, ...]
    known: CorrectionHeader
    unseen: CorrectionHeader
    takes_siblings_correction: bool
    intervals: dict[Situation, ResidualInterval]
    leveled: ResidualInterval
    taught: tuple[TaughtGpu, ...]
    taught_kinds: tuple[str, ...] = ()


@cache
def find_learned_weights(name: str, folder: Path | None = None) -> LearnedWeights | None:
    """Return a set of weights of a folder, else the shipped one; None if there is none of that name.

    Raises UsageError for a file that is no set of weights.
    """
    path = find_weights_file(name, folder)
    return load_weights(path) if path else None


def load_weights(path: Path) -> LearnedWeights:
    """Return a set of weights from its file. Raises UsageError if it is none."""
    hint = "name a file of `warplens learn`"
    return read_weights_file(path, _Header, _build_weights, what="no set of weights", hint=hint)


def _build_weights(header: _Header, arrays: Arrays) -> LearnedWeights:
    """Return the weights. Raises KeyError and ValueError where an array is missing or of another shape."""
    weights = LearnedWeights(
        name=header.name,
        dataset=header.dataset,
        timing=header.timing,
        parameters=header.parameters,
        feature_names=header.feature_names,
        feature_low=header.feature_low,
        feature_high=header.feature_high,
        known=read_correction(header.known, "known", arrays),
        unseen=read_correction(header.unseen, "unseen", arrays),
        takes_siblings_correction=header.takes_siblings_correction,
        intervals=header.intervals,
        leveled=header.leveled,
        taught=header.taught,
        taught_kinds=header.taught_kinds,
    )
    _check_lengths(weights)
    return weights


def _check_lengths(weights: LearnedWeights) -> None:
    """Raise ValueError where parts that belong together differ in length, or trees look at no feature."""
    n_features = len(weights.feature_names)
    if not n_features == len(weights.feature_low) == len(weights.feature_high):
        raise ValueError("its features and their ranges differ in number")
    for interval in (weights.leveled, *weights.intervals.values()):
        if not len(interval.edges_us) + 1 == len(interval.low) == len(interval.high):
            raise ValueError("the bins of an interval and their edges differ in number")
    n_hardware = {len(gpu.hardware) for gpu in weights.taught}
    if len(n_hardware) > 1:
        raise ValueError("its GPUs differ in the number of their figures")
    for correction in (weights.known, weights.unseen):
        _check_learners(correction, n_features + sum(n_hardware) * correction.sees_hardware)


def _check_learners(correction: Correction, n_features: int) -> None:
    """Raise ValueError where an array of a correction has another shape than the others ask for."""
    if (trees := correction.trees) is not None:
        n_trees, n_inner = trees.features.shape
        is_perfect = n_inner > 0 and (n_inner + 1) & n_inner == 0
        shapes = (trees.thresholds.shape, trees.leaves.shape)
        if not is_perfect or shapes != ((n_trees, n_inner), (n_trees, n_inner + 1)):
            raise ValueError("the arrays of its trees do not fit each other")
        if not 0 <= trees.features.min() <= trees.features.max() < n_features:
            raise ValueError("a tree looks at a feature that is not there")
    if (mlp := correction.mlp) is not None:
        width = n_features
        if not mlp.mean.shape == mlp.scale.shape == (width,):
            raise ValueError("the features of its perceptrons are not those of the set")
        for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
            n_members, n_inputs, n_outputs = weight.shape
            if (
                n_inputs != width
                or bias.shape != (len(mlp.weights[0]), 1, n_outputs)
                or n_members != len(bias)
            ):
                raise ValueError("the layers of its perceptrons do not fit each other")
            width = n_outputs


def save_weights(weights: LearnedWeights, path: Path) -> None:
    """Write a set of weights, beside the file first."""
    arrays: Arrays = {}
    header = _Header(
        schema=SCHEMA,
        name=weights.name,
        dataset=weights.dataset,
        timing=weights.timing,
        parameters=dict(weights.parameters),
        feature_names=weights.feature_names,
        feature_low=weights.feature_low,
        feature_high=weights.feature_high,
        known=write_correction(weights.known, "known", arrays),
        unseen=write_correction(weights.unseen, "unseen", arrays),
        takes_siblings_correction=weights.takes_siblings_correction,
        intervals=dict(weights.intervals),
        leveled=weights.leveled,
        taught=weights.taught,
        taught_kinds=weights.taught_kinds,
    )
    write_weights_file(path, header, arrays)


def read_correction(header: CorrectionHeader, prefix: str, arrays: Arrays) -> Correction:
    """Return the correction whose arrays have a prefix. Raises KeyError where one is missing."""
    trees = mlp = None
    if header.base is not None:
        trees = TreeEnsemble(
            arrays[f"{prefix}.trees.features"],
            arrays[f"{prefix}.trees.thresholds"],
            arrays[f"{prefix}.trees.leaves"],
            header.base,
        )
    if header.n_layers:
        mlp = MlpEnsemble(
            arrays[f"{prefix}.mlp.mean"],
            arrays[f"{prefix}.mlp.scale"],
            tuple(arrays[f"{prefix}.mlp.weight{layer}"] for layer in range(header.n_layers)),
            tuple(arrays[f"{prefix}.mlp.bias{layer}"] for layer in range(header.n_layers)),
        )
    return Correction(trees, mlp, header.share, header.sees_hardware)


def write_correction(correction: Correction, prefix: str, arrays: Arrays) -> CorrectionHeader:
    """Add the arrays of a correction, with a prefix, and return what the file says beside them."""
    if correction.trees is not None:
        arrays[f"{prefix}.trees.features"] = correction.trees.features
        arrays[f"{prefix}.trees.thresholds"] = correction.trees.thresholds
        arrays[f"{prefix}.trees.leaves"] = correction.trees.leaves
    if correction.mlp is not None:
        arrays[f"{prefix}.mlp.mean"] = correction.mlp.mean
        arrays[f"{prefix}.mlp.scale"] = correction.mlp.scale
        for layer, (weight, bias) in enumerate(
            zip(correction.mlp.weights, correction.mlp.biases, strict=True)
        ):
            arrays[f"{prefix}.mlp.weight{layer}"] = weight
            arrays[f"{prefix}.mlp.bias{layer}"] = bias
    return CorrectionHeader(
        correction.share,
        correction.sees_hardware,
        None if correction.trees is None else correction.trees.base,
        0 if correction.mlp is None else len(correction.mlp.weights),
    )
