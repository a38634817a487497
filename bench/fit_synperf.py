"""Learn SynPerf's networks: efficiency by mean relative error, and its ceiling by quantile loss.

As the paper has it (sections IV-D, V-C and VII-A): 256, 128 and 64 rectified units, each layer followed by
batch normalization and dropout of .1, a sigmoid at the end, AdamW from a rate of 1e-3 with weight decay,
mean absolute percentage error of the efficiency, and a stop where rows set apart no longer improve. Left
open by the paper, taken here: batches of 256, the rate falls along a cosine, weight decay 1e-4, 10 % set
apart.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.synperf.features import (
    KernelCategory,
    compute_synperf_features,
    decompose,
    list_feature_names,
)
from analyzer.baselines.synperf.model import (
    NAME,
    EfficiencyNetwork,
    LeftOut,
    SynperfCard,
    SynperfWeights,
    save_synperf,
)
from analyzer.files import write_file
from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.learn import Provenance
from analyzer.learning.splits import assign_folds
from analyzer.operators.batches import Column
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch
from analyzer.operators.pipe_figures import PipeFigures, read_pipe_figures
from analyzer.version import __version__

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Sequential

_HIDDEN = (256, 128, 64)
_DROPOUT = 0.1
_CEILING_QUANTILE = 0.8
_LEAST_DELTA = 1e-3  # of the input of the sigmoid's inverse


class SynperfOptions(Struct, frozen=True):
    """How a network is learned."""

    target: Literal["mean", "ceiling"] = "mean"
    seed: int = 0
    epochs: int = 300
    batch_rows: int = 256
    rate: float = 1e-3
    weight_decay: float = 1e-4
    patience: int = 60  # epochs without improvement before it stops
    share_set_apart: float = 0.1


class SynperfRows(Struct, frozen=True):
    """Rows that teach: features and the efficiency that was reached (theoretical over measured time)."""

    features: NDArray[np.float64]
    efficiency: Column
    theoretical_us: Column
    gpu: NDArray[np.int64]  # position in a list of GPUs
    shape_keys: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.efficiency)

    def select(self, where: NDArray[np.int64] | NDArray[np.bool_]) -> "SynperfRows":
        """Return the rows of a mask or of positions."""
        return SynperfRows(
            self.features[where],
            self.efficiency[where],
            self.theoretical_us[where],
            self.gpu[where],
            self.shape_keys[where],
        )


FindFigures = Callable[[MeasuredBatch], PipeFigures]


def read_figures(measured: MeasuredBatch) -> PipeFigures:
    """Return the figures of a measured batch's GPU from the hardware files."""
    return read_pipe_figures(read_operator_hardware(load_gpu(measured.gpu)), measured.batch.dtype)


def collect_rows(
    measured: Sequence[MeasuredBatch], category: KernelCategory, find_figures: FindFigures = read_figures
) -> SynperfRows:
    """Return the rows of measured batches; `gpu` counts the GPUs in sorted order of their keys."""
    gpus = sorted({part.gpu for part in measured})
    parts = []
    for part in measured:
        figures = find_figures(part)
        found = compute_synperf_features(decompose(part.batch, category, figures), category, figures)
        efficiency = np.minimum(found.theoretical_us / part.time_us, 1.0)
        gpu = np.full(len(part), gpus.index(part.gpu))
        parts.append((found.values, efficiency, found.theoretical_us, gpu, part.shape_keys))
    return SynperfRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def learn_category(
    measured: Sequence[MeasuredBatch], category: KernelCategory, options: SynperfOptions
) -> SynperfWeights:
    """Return a category's network, learned on all rows, with intervals of what was left out.

    Left out in turn: a fifth of the shape keys, for GPUs that teach; and each GPU, for those that do not.
    """
    gpus = sorted({part.gpu for part in measured})
    rows = collect_rows(measured, category)
    left_out = {"shapes": assign_folds(rows.shape_keys, 5, options.seed) == 0}
    left_out |= {gpu: rows.gpu == i for i, gpu in enumerate(gpus) if len(gpus) > 1}
    if options.target == "ceiling":  # has no error: most rows lie below it
        left_out = {}
    errors = {what: compute_log_errors(rows, mask, options) for what, mask in left_out.items() if mask.any()}
    known_interval = find_residual_interval(errors.get("shapes", np.zeros(1)))
    unseen = [error for what, error in errors.items() if what != "shapes"]
    card = SynperfCard(
        category=category,
        target=options.target,
        dataset=", ".join(sorted({part.dataset for part in measured})),
        timing=", ".join(sorted({part.timing.value for part in measured})),
        feature_names=list_feature_names(category),
        feature_low=tuple(rows.features.min(axis=0).tolist()),
        feature_high=tuple(rows.features.max(axis=0).tolist()),
        taught=tuple(gpus),
        n_rows=len(rows),
        known_interval=known_interval,
        unseen_interval=find_residual_interval(np.concatenate(unseen)) if unseen else known_interval,
        left_out=tuple(_summarize(what, error) for what, error in errors.items()),
    )
    return SynperfWeights(card, learn_network(rows, options))


def write_category(
    weights: SynperfWeights, folder: Path, options: SynperfOptions, provenance: Provenance
) -> None:
    """Write a network and, beside it, its card as TOML: data, licence, split, errors on what was left out."""
    card = weights.card
    ceiling = "" if card.target == "mean" else f"-{card.target}"
    path = folder / f"{NAME}-{card.category.value}{ceiling}.safetensors"
    save_synperf(weights, path)
    lines = [
        f"# Card of {path.name}, written by `python bench/operator_synperf.py weights`.",
        f'name = "{card.category.value}{ceiling}"',
        f'data = "{provenance.data}"',
        f'licence = "{provenance.licence}"',
        f'datasets = "{card.dataset}"',
        f'timing = "{card.timing}"',
        f'tool_version = "{__version__}"',
        f"seed = {options.seed}",
        f"epochs = {options.epochs}",
        'split = "shapes: a fifth, by hash of the shape key; also each gpu left out in turn"',
        f"rows = {card.n_rows}",
        f"gpus = {list(card.taught)}".replace("'", '"'),
    ]
    for errors in card.left_out:
        lines += ["", "[[left_out]]", f'what = "{errors.what}"', f"rows = {errors.n_rows}"]
        lines += [f"{name}_percent = {100 * getattr(errors, name):.2f}" for name in ("mean", "median", "p90")]
    write_file(path.with_suffix(".toml"), ["\n".join([*lines, ""]).encode()])


def _summarize(what: str, log_errors: Column) -> LeftOut:
    relative = np.abs(np.exp(-log_errors) - 1.0)
    return LeftOut(
        what=what,
        n_rows=len(relative),
        mean=float(relative.mean()),
        median=float(np.median(relative)),
        p90=float(np.quantile(relative, 0.9)),
    )


def compute_log_errors(rows: SynperfRows, left_out: NDArray[np.bool_], options: SynperfOptions) -> Column:
    """Return log(measured / predicted) of rows that are left out of the learning."""
    network = learn_network(rows.select(~left_out), options)
    asked = rows.select(left_out)
    errors: Column = np.log(network.predict(asked.features) / asked.efficiency)
    return errors


def learn_network(rows: SynperfRows, options: SynperfOptions) -> EfficiencyNetwork:
    """Return the network that does best on the rows set apart; the same rows and seed give the same one.

    Takes one core: on layers so small threads cost more than they save.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _learn(rows, options)
    finally:
        torch.set_num_threads(threads)


def _learn(rows: SynperfRows, options: SynperfOptions) -> EfficiencyNetwork:
    import torch

    torch.manual_seed(options.seed)
    random = np.random.default_rng(options.seed)
    order = random.permutation(len(rows.efficiency))
    n_apart = max(1, int(options.share_set_apart * len(order)))
    teaching, apart = rows.select(order[n_apart:]), rows.select(order[:n_apart])
    mean = teaching.features.mean(axis=0)
    scale = np.maximum(teaching.features.std(axis=0), 1e-6)
    network = _build(rows.features.shape[1], float(np.median(teaching.efficiency)))
    optimizer = torch.optim.AdamW(network.parameters(), options.rate, weight_decay=options.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs, options.rate / 100)
    inputs, targets = _to_tensors(teaching, mean, scale)
    apart_inputs, apart_targets = _to_tensors(apart, mean, scale)
    batch_rows = min(options.batch_rows, max(2, len(teaching.efficiency) // 8))
    best, best_loss, best_epoch = _copy_state(network), float("inf"), 0
    for epoch in range(options.epochs):
        network.train()
        # The last batch is left out where it is not full: batch normalization needs more than one row.
        shuffled = torch.randperm(len(targets))[: len(targets) // batch_rows * batch_rows]
        for picked in shuffled.reshape(-1, batch_rows):
            optimizer.zero_grad()
            loss = _compute_loss(network(inputs[picked])[:, 0], targets[picked], options)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        schedule.step()
        network.eval()
        with torch.no_grad():
            apart_loss = float(_compute_loss(network(apart_inputs)[:, 0], apart_targets, options))
        if apart_loss < best_loss:
            best, best_loss, best_epoch = _copy_state(network), apart_loss, epoch
        elif epoch - best_epoch >= options.patience:
            break
    network.load_state_dict(best)
    return _fold(network, mean, scale)


def find_residual_interval(log_errors: Column) -> tuple[float, float]:
    """Return the 10th and 90th percentile of log(measured / predicted), with 0 between them."""
    low, high = np.quantile(log_errors, [0.1, 0.9])
    return min(float(low), 0.0), max(float(high), 0.0)


def _build(n_features: int, usual_efficiency: float) -> "Sequential":
    import torch
    from torch import nn

    layers: list[nn.Module] = []
    sizes = (n_features, *_HIDDEN)
    for n_in, n_out in zip(sizes, _HIDDEN, strict=False):
        layers += [nn.Linear(n_in, n_out), nn.ReLU(), nn.BatchNorm1d(n_out), nn.Dropout(_DROPOUT)]
    last = nn.Linear(_HIDDEN[-1], 1)
    usual = min(max(usual_efficiency, _LEAST_DELTA), 1.0 - _LEAST_DELTA)
    with torch.no_grad():  # starts at the usual efficiency, where the relative error has a gradient
        last.weight.mul_(0.1)
        last.bias.fill_(float(np.log(usual / (1.0 - usual))))
    return nn.Sequential(*layers, last, nn.Sigmoid())


def _compute_loss(predicted: "Tensor", actual: "Tensor", options: SynperfOptions) -> "Tensor":
    import torch

    if options.target == "mean":
        return torch.mean(torch.abs(predicted - actual) / actual)
    gap = actual - predicted
    return torch.mean(torch.maximum(_CEILING_QUANTILE * gap, (_CEILING_QUANTILE - 1.0) * gap))


def _to_tensors(
    rows: SynperfRows, mean: NDArray[np.float64], scale: NDArray[np.float64]
) -> "tuple[Tensor, Tensor]":
    import torch

    return (
        torch.tensor((rows.features - mean) / scale, dtype=torch.float32),
        torch.tensor(rows.efficiency, dtype=torch.float32),
    )


def _copy_state(network: "Sequential") -> "dict[str, Tensor]":
    return {name: value.clone() for name, value in network.state_dict().items()}


def _fold(network: "Sequential", mean: NDArray[np.float64], scale: NDArray[np.float64]) -> EfficiencyNetwork:
    """Return the network with each batch normalization folded into the layer after it."""
    from torch import nn

    weights: list[NDArray[np.float32]] = []
    biases: list[NDArray[np.float32]] = []
    gain: NDArray[np.float64] = np.ones(1)
    shift: NDArray[np.float64] = np.zeros(1)
    for layer in network:
        if isinstance(layer, nn.Linear):
            weight = layer.weight.detach().numpy().T.astype(np.float64)  # inputs x outputs
            shifts = np.broadcast_to(shift, (len(weight),)) @ weight
            biases.append((layer.bias.detach().numpy() + shifts).astype(np.float32))
            weights.append((np.broadcast_to(gain, (len(weight),))[:, None] * weight).astype(np.float32))
        elif isinstance(layer, nn.BatchNorm1d):
            assert layer.running_var is not None
            assert layer.running_mean is not None
            gain = layer.weight.detach().numpy() / np.sqrt(layer.running_var.numpy() + layer.eps)
            shift = layer.bias.detach().numpy() - layer.running_mean.numpy() * gain
    return EfficiencyNetwork(mean.astype(np.float32), scale.astype(np.float32), tuple(weights), tuple(biases))
