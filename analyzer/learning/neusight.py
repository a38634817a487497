"""Learn NeuSight's utilization from profiles, with torch: one MLP for each family of operators.

The MLP sees the ratios of the tiles that the profiled kernels had; its loss is the error of the latency, through
equations 3 to 7. What is open in the paper's notes: depth and width (3 hidden layers of 128 here), the schedule
(AdamW with one cycle), and a pull towards utilizations above zero where beta / waves exceeds alpha.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.models.operators.neusight import (
    LEAST_UTILIZATION,
    NeuSightBatch,
    NeuSightFamily,
    NeuSightForm,
    NeuSightModel,
    UtilizationNetwork,
    compute_inputs,
    compute_roofline_us,
    cut_tiles,
    describe_shapes,
)
from analyzer.models.operators.neusight_tiles import GpuTiles, describe_gpu
from analyzer.operators.batches import Column
from analyzer.operators.hardware_figures import OperatorHardware

Matrix = NDArray[np.float64]


class NeuSightProfile(Struct, frozen=True):
    """Measured rows of one family on one GPU."""

    hardware: OperatorHardware
    batch: NeuSightBatch
    tiles: Matrix  # of the kernels that ran
    time_us: Column


class NeuSightSettings(Struct, frozen=True):
    """How a family is learned."""

    form: NeuSightForm = NeuSightForm.PAPER
    hidden: tuple[int, ...] = (128, 128, 128)
    epochs: int = 60
    batch_rows: int = 512
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    rows: int = 30_000  # drawn from all profiles
    tiles_per_gpu: int = 1_000  # profiles that the table of tiles keeps
    seed: int = 0


def learn_neusight(
    family: NeuSightFamily,
    profiles: Sequence[NeuSightProfile],
    settings: NeuSightSettings,
    report: Callable[[int, float], None] = lambda epoch, loss: None,
) -> NeuSightModel:
    """Return a family's utilization and tiles, learned from profiles; `report` gets each epoch's mean loss."""
    rng = np.random.default_rng(settings.seed)
    inputs, waves, roofline_us, time_us = _collect_rows(profiles, settings.form)
    chosen = rng.permutation(len(time_us))[: settings.rows]
    network = _learn_network(
        inputs[chosen], waves[chosen], roofline_us[chosen], time_us[chosen], settings, report
    )
    return NeuSightModel(family=family, network=network, tiles=_keep_tiles(profiles, settings, rng))


def _collect_rows(
    profiles: Sequence[NeuSightProfile], form: NeuSightForm
) -> tuple[Matrix, Column, Column, Column]:
    """Return inputs, waves, roofline times and measured times of all rows."""
    inputs, waves, roofline_us = [], [], []
    for profile in profiles:
        work = cut_tiles(profile.batch, profile.tiles)
        inputs.append(compute_inputs(work, profile.hardware, profile.batch.dtype, form))
        waves.append(np.ceil(work.tiles / profile.hardware.sm_count))
        roofline_us.append(compute_roofline_us(work, profile.hardware, profile.batch.dtype))
    times = np.concatenate([profile.time_us for profile in profiles])
    return np.concatenate(inputs), np.concatenate(waves), np.concatenate(roofline_us), times


def _keep_tiles(
    profiles: Sequence[NeuSightProfile], settings: NeuSightSettings, rng: np.random.Generator
) -> tuple[GpuTiles, ...]:
    kept = []
    for profile in profiles:
        rows = np.sort(rng.permutation(len(profile.time_us))[: settings.tiles_per_gpu])
        kept.append(
            GpuTiles(
                gpu_figures=describe_gpu(profile.hardware),
                log2_shapes=np.log2(describe_shapes(profile.batch)[rows]),
                tiles=profile.tiles[rows],
            )
        )
    return tuple(kept)


def _learn_network(
    inputs: Matrix,
    waves: Column,
    roofline_us: Column,
    time_us: Column,
    settings: NeuSightSettings,
    report: Callable[[int, float], None],
) -> UtilizationNetwork:
    import torch

    torch.manual_seed(settings.seed)
    mean, deviation = inputs.mean(axis=0), inputs.std(axis=0) + 1e-9
    values = torch.tensor((inputs - mean) / deviation, dtype=torch.float32)
    columns = torch.tensor(np.stack([waves, roofline_us, time_us]), dtype=torch.float32)
    sizes = (inputs.shape[1], *settings.hidden, 2)
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    optimizer = torch.optim.AdamW(parameters, settings.learning_rate, weight_decay=settings.weight_decay)
    steps = settings.epochs * -(-len(values) // settings.batch_rows)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.learning_rate, total_steps=steps)
    order = torch.Generator().manual_seed(settings.seed)
    for epoch in range(settings.epochs):
        total = 0.0
        for rows in torch.randperm(len(values), generator=order).split(settings.batch_rows):
            loss = _compute_loss(layers, values[rows], columns[:, rows], settings.form)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        report(epoch, total / len(values))
    return UtilizationNetwork(
        form=settings.form,
        input_low=inputs.min(axis=0),
        input_high=inputs.max(axis=0),
        input_mean=mean,
        input_deviation=deviation,
        weights=tuple(layer.weight.detach().numpy().T.astype(np.float64) for layer in layers),
        biases=tuple(layer.bias.detach().numpy().astype(np.float64) for layer in layers),
    )


def _compute_loss(layers, values, columns, form):  # type: ignore[no-untyped-def]
    """Return the mean (symmetric) percentage error of a minibatch as a torch scalar."""
    import torch

    waves, roofline_us, time_us = columns
    for layer in layers[:-1]:
        values = torch.relu(layer(values))
    alpha, beta = torch.sigmoid(layers[-1](values)).T
    utilization = alpha - beta / waves
    # Below the least utilization the gradient must not vanish: a smooth floor while learning.
    soft = torch.nn.functional.softplus(utilization / LEAST_UTILIZATION, threshold=20.0) * LEAST_UTILIZATION
    predicted = roofline_us / (soft + 0.1 * LEAST_UTILIZATION)
    error = (predicted - time_us).abs()
    scale = 0.5 * (predicted + time_us) if form is NeuSightForm.CODE else time_us
    return (error / scale).mean()
