"""SynPerf (`--model synperf`): a network per kernel category predicts the efficiency of the theoretical time.

time = theoretical time / efficiency, where the efficiency is a sigmoid of a perceptron of 256, 128 and 64
units on the features of the paper's table IV (`analyzer.baselines.synperf.features`). Rectified units are
followed by batch normalization, which at inference is linear and folded into the next layer's weights, so
that three products and a dot product remain. A second network per category can hold a ceiling: the 80th
percentile of the efficiency that the category reaches on such features, learned by quantile loss. Where a
measured efficiency lies over .1 below the ceiling, the kernel underperforms (the paper's section VII).

Left open by the paper, taken here: inputs are log2(1 + x), standardized. Intervals are ours: quantiles of the
residuals of held-out shapes, and of GPUs left out for GPUs that taught nothing.
"""

from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.synperf.features import (
    KernelCategory,
    SynperfFeatures,
    compute_synperf_features,
    decompose,
    find_category,
)
from analyzer.hardware.gpu import Gpu
from analyzer.models.learned.weights_file import (
    Arrays,
    find_weights_file,
    read_weights_file,
    write_weights_file,
)
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import AttentionBatch, Column, OperatorBatch
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.pipe_figures import read_pipe_figures
from analyzer.text.errors import UsageError

NAME = "synperf"
UNDERPERFORMING_GAP = 0.1  # of the ceiling's efficiency over the measured one (section VII-B)
_LEAST_EFFICIENCY = 1e-6


class EfficiencyNetwork(Struct, frozen=True):
    """A perceptron with a sigmoid at its end; batch normalization is folded in."""

    mean: NDArray[np.float32]  # of each feature
    scale: NDArray[np.float32]
    weights: tuple[NDArray[np.float32], ...]  # per layer: inputs x outputs
    biases: tuple[NDArray[np.float32], ...]

    def predict(self, features: NDArray[np.float64]) -> Column:
        """Return the efficiency of rows x features, between 0 and 1."""
        hidden = ((features - self.mean) / self.scale).astype(np.float32)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.maximum(hidden @ weight + bias, 0.0)
        logit = (hidden @ self.weights[-1] + self.biases[-1])[:, 0].astype(np.float64)
        efficiency: Column = np.maximum(1.0 / (1.0 + np.exp(-logit)), _LEAST_EFFICIENCY)
        return efficiency


class LeftOut(Struct, frozen=True):
    """Errors of a network that was learned without these rows."""

    what: str  # "shapes", or the key of a GPU
    n_rows: int
    mean: float  # of |predicted / measured - 1|
    median: float
    p90: float


class SynperfCard(Struct, frozen=True):
    """What a network was learned from, and how it did on rows left out."""

    category: KernelCategory
    target: str  # "mean" or "ceiling"
    dataset: str
    timing: str
    feature_names: tuple[str, ...]
    feature_low: tuple[float, ...]
    feature_high: tuple[float, ...]
    taught: tuple[str, ...]  # keys of GPUs
    n_rows: int
    known_interval: tuple[float, float]  # 80 % of log(measured / predicted), held-out shapes
    unseen_interval: tuple[float, float]  # likewise, GPUs left out
    left_out: tuple[LeftOut, ...]


class SynperfWeights(Struct, frozen=True):
    """A network and its card."""

    card: SynperfCard
    network: EfficiencyNetwork


class PerformanceGap(Struct, frozen=True):
    """How far measured rows lie below what their shape could reach (the paper's section VII-B)."""

    efficiency: Column  # theoretical over measured time
    ceiling: Column  # the 80th percentile of the efficiency on such features

    @property
    def gap(self) -> Column:
        """Ceiling less efficiency."""
        return self.ceiling - self.efficiency

    @property
    def underperforms(self) -> NDArray[np.bool_]:
        """Whether the gap is over .1: what tuning should look at."""
        return self.gap > UNDERPERFORMING_GAP


def measure_gap(batch: OperatorBatch, gpu: Gpu, time_us: Column) -> PerformanceGap:
    """Return the gaps of rows measured on a GPU. Raises UsageError where no ceiling is shipped."""
    category = find_category(batch)
    weights = load_shipped_synperf(f"{category.value}-ceiling") if category else None
    if category is None or weights is None:
        raise UsageError(
            f"synperf has no ceiling for {batch.operator.value} in {batch.dtype.value}",
            hint="learn one with SynperfOptions(target='ceiling')",
        )
    return measure_gap_with_ceiling(weights, batch, gpu, time_us)


def measure_gap_with_ceiling(
    ceiling: SynperfWeights, batch: OperatorBatch, gpu: Gpu, time_us: Column
) -> PerformanceGap:
    """Return the gaps of rows measured on a GPU, by one network of ceilings."""
    features = _compute_features(batch, ceiling.card.category, gpu)
    return PerformanceGap(
        efficiency=np.minimum(features.theoretical_us / time_us, 1.0),
        ceiling=ceiling.network.predict(features.values),
    )


def predict(batch: OperatorBatch, gpu: Gpu) -> OperatorPrediction:
    """Return times of a batch by the shipped network.

    Raises UsageError where SynPerf has no category, or no network is shipped.
    """
    if isinstance(batch, AttentionBatch) and batch.window is not None and batch.window.any():
        raise UsageError("synperf has no attention with a window", hint="take `--model ours`")
    category = find_category(batch)
    weights = load_shipped_synperf(category.value) if category else None
    if category is None or weights is None:
        raise UsageError(
            f"synperf has no kernel category for {batch.operator.value} in {batch.dtype.value}",
            hint="take `--model ours` or `--model roofline`",
        )
    features = _compute_features(batch, category, gpu)
    time_us = features.theoretical_us / weights.network.predict(features.values)
    card = weights.card
    known = gpu.measured_key in card.taught
    low, high = card.known_interval if known else card.unseen_interval
    margin = 0.1 * (np.array(card.feature_high) - np.array(card.feature_low)) + 1e-6
    inside = (features.values >= np.array(card.feature_low) - margin) & (
        features.values <= np.array(card.feature_high) + margin
    )
    return OperatorPrediction(
        time_us=time_us,
        low_us=time_us * np.exp(low),
        high_us=time_us * np.exp(high),
        in_range=inside.all(axis=1),
        basis=_describe_basis(card, known),
    )


@cache
def load_shipped_synperf(name: str) -> SynperfWeights | None:
    """Return the shipped network of a category (or `<category>-ceiling`), None if there is none."""
    path = find_weights_file(f"{NAME}-{name}")
    return load_synperf(path) if path else None


def load_synperf(path: Path) -> SynperfWeights:
    """Return a network and its card from a file. Raises UsageError if it is none."""
    return read_weights_file(
        path, SynperfCard, _build_weights, what="no network of SynPerf", hint="learn it again"
    )


def _build_weights(card: SynperfCard, arrays: Arrays) -> SynperfWeights:
    n_layers = sum(name.startswith("weight") for name in arrays)
    network = EfficiencyNetwork(
        arrays["mean"],
        arrays["scale"],
        tuple(arrays[f"weight{layer}"] for layer in range(n_layers)),
        tuple(arrays[f"bias{layer}"] for layer in range(n_layers)),
    )
    return SynperfWeights(card, network)


def save_synperf(weights: SynperfWeights, path: Path) -> None:
    """Write a network and its card as a safetensors file."""
    network = weights.network
    arrays = {"mean": network.mean, "scale": network.scale}
    arrays |= {f"weight{layer}": weight for layer, weight in enumerate(network.weights)}
    arrays |= {f"bias{layer}": bias for layer, bias in enumerate(network.biases)}
    write_weights_file(path, weights.card, arrays)


def _compute_features(batch: OperatorBatch, category: KernelCategory, gpu: Gpu) -> SynperfFeatures:
    figures = read_pipe_figures(read_operator_hardware(gpu), batch.dtype)
    return compute_synperf_features(decompose(batch, category, figures), category, figures)


def _describe_basis(card: SynperfCard, known: bool) -> str:
    taught = ", ".join(card.taught)
    if known:
        return f"SynPerf's network, learned on {card.n_rows:,} rows of {taught} ({card.dataset})"
    return f"SynPerf's network; no row of this GPU, learned on {taught} ({card.dataset})"
