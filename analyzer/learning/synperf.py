"""Learn SynPerf's networks: efficiency by mean relative error, and its ceiling by quantile loss.

As the paper has it (sections IV-D, V-C and VII-A): 256, 128 and 64 rectified units, each layer followed by batch
normalization and dropout of .1, a sigmoid at the end, AdamW from a rate of 1e-3 with weight decay, mean
absolute percentage error of the efficiency, and a stop where rows set apart no longer improve. Left open by
the paper, taken here: batches of 256, the rate falls along a cosine, weight decay 1e-4, 10 % set apart.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.models.operators.synperf import EfficiencyNetwork
from analyzer.operators.batches import Column

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

    def select(self, where: NDArray[np.int64] | NDArray[np.bool_]) -> "SynperfRows":
        """Return the rows of a mask or of positions."""
        return SynperfRows(self.features[where], self.efficiency[where])


def learn_network(rows: SynperfRows, options: SynperfOptions) -> EfficiencyNetwork:
    """Return the network that does best on the rows set apart; the same rows and seed give the same one."""
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
        shuffled = torch.randperm(len(targets))
        for start in range(0, len(targets) - 1, batch_rows):
            picked = shuffled[start : start + batch_rows]
            if len(picked) < 2:  # batch normalization needs two
                continue
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


def find_residual_interval(log_errors: Sequence[float] | Column) -> tuple[float, float]:
    """Return the 10th and 90th percentile of log(measured / predicted), with 0 between them."""
    low, high = np.quantile(np.asarray(log_errors), [0.1, 0.9])
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
    return EfficiencyNetwork(
        mean.astype(np.float32), scale.astype(np.float32), tuple(weights), tuple(biases)
    )
