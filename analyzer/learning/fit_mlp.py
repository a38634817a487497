"""Ensembles of perceptrons by torch, as `MlpEnsemble`; all members learn at once, as batched products."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzer.models.learned.mlp import LEAST_SCALE, MlpEnsemble

if TYPE_CHECKING:
    import torch

    Layers = list[tuple[torch.Tensor, torch.Tensor]]

Rows = NDArray[np.float64]
_PEAK_RATE = 3e-3
_BETA = 0.05  # of the smooth L1 loss, in log time: below 5 % errors count as squares


def fit_mlp(
    rows: Rows,
    target: Rows,
    weights: Rows,
    *,
    n_members: int,
    hidden: tuple[int, ...],
    n_steps: int,
    batch_rows: int,
    weight_decay: float,
    seed: int,
) -> MlpEnsemble:
    """Return perceptrons that predict `target` from rows x features: smooth L1 loss, AdamW, one cycle."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    mean = rows.mean(axis=0)
    scale = np.maximum(rows.std(axis=0), LEAST_SCALE)
    inputs = torch.tensor(np.clip((rows - mean) / scale, -4, 4), dtype=torch.float32)
    outputs = torch.tensor(target, dtype=torch.float32)
    row_weights = torch.tensor(weights / weights.mean(), dtype=torch.float32)
    layers = _make_layers(n_members, (rows.shape[1], *hidden, 1), generator)
    optimizer = torch.optim.AdamW(
        [
            {"params": [weight for weight, _ in layers], "weight_decay": weight_decay},
            {"params": [bias for _, bias in layers], "weight_decay": 0.0},
        ],
        lr=_PEAK_RATE,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_RATE, total_steps=n_steps)
    batch = min(batch_rows, len(rows))
    for _ in range(n_steps):
        picked = torch.randint(len(rows), (n_members, batch), generator=generator)
        predicted = _evaluate(layers, inputs[picked])
        loss = torch.nn.functional.smooth_l1_loss(predicted, outputs[picked], beta=_BETA, reduction="none")
        optimizer.zero_grad()
        (loss * row_weights[picked]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return MlpEnsemble(
        mean.astype(np.float32),
        scale.astype(np.float32),
        tuple(weight.detach().numpy() for weight, _ in layers),
        tuple(bias.detach().numpy() for _, bias in layers),
    )


def _make_layers(n_members: int, sizes: Sequence[int], generator: "torch.Generator") -> "Layers":
    """Return weights and biases before learning; `generator` decides the weights."""
    import torch

    layers = []
    for n_in, n_out in pairwise(sizes):
        bound = (6.0 / n_in) ** 0.5 if n_out > 1 else (1.0 / n_in) ** 0.5
        weight = (torch.rand(n_members, n_in, n_out, generator=generator) * 2 - 1) * bound
        layers.append((weight.requires_grad_(), torch.zeros(n_members, 1, n_out).requires_grad_()))
    return layers


def _evaluate(layers: "Layers", value: "torch.Tensor") -> "torch.Tensor":
    """Return what the members predict, [member, row], of [member, row, feature]."""
    import torch

    for weight, bias in layers[:-1]:
        value = torch.relu(torch.baddbmm(bias, value, weight))
    weight, bias = layers[-1]
    return torch.baddbmm(bias, value, weight)[:, :, 0]
