"""Learn NeuSight's utilization from profiles, with torch: one MLP for each family of operators.

The MLP sees the ratios of the tiles that the profiled kernels had; its loss is the error of the latency,
through equations 3 to 7. The paper's notes leave depth, width, loss and schedule open: 3 hidden layers of
128, AdamW with one cycle, and a smooth floor where beta / waves exceeds alpha, so that the gradient does
not vanish there.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.neusight.tiled_work import (
    NeuSightFamily,
    TiledBatch,
    compute_roofline_us,
    cut_tiles,
    describe_shapes,
)
from analyzer.baselines.neusight.tiles import GpuTiles, describe_gpu
from analyzer.baselines.neusight.utilization import (
    LEAST_UTILIZATION,
    NeuSightForm,
    UtilizationNetwork,
    compute_inputs,
)
from analyzer.baselines.neusight.weights import NeuSightWeights
from analyzer.operators.batches import Column
from analyzer.operators.hardware_figures import OperatorHardware

Matrix = NDArray[np.float64]
_REPORT_STEPS = 500
_START_LOGITS = (1.0, -2.0)  # of alpha and beta: utilization starts between 0.6 and 0.7, whatever the waves


class NeuSightProfile(Struct, frozen=True):
    """Measured rows of one family on one GPU."""

    gpu: str  # key in `hwdb/gpu`
    hardware: OperatorHardware
    batch: TiledBatch
    tiles: Matrix  # of the kernels that ran
    time_us: Column


class NeuSightSettings(Struct, frozen=True):
    """How a family is learned."""

    form: NeuSightForm = NeuSightForm.PAPER
    hidden: tuple[int, ...] = (128, 128, 128)
    n_steps: int = 4_000
    batch_rows: int = 512
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    tiles_per_gpu: int = 1_000  # profiles that the table of tiles keeps
    seed: int = 0


def learn_neusight(
    family: NeuSightFamily,
    profiles: Sequence[NeuSightProfile],
    settings: NeuSightSettings,
    *,
    dataset: str,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> NeuSightWeights:
    """Return a family learned from profiles; `report` gets the mean loss now and then."""
    rows = _collect_rows(profiles, settings.form)
    return NeuSightWeights(
        family=family,
        network=_learn_network(rows, settings, report),
        tiles=_keep_tiles(profiles, settings),
        gpus=tuple(profile.gpu for profile in profiles),
        n_rows=len(rows.time_us),
        dataset=dataset,
    )


class _Rows(Struct, frozen=True):
    """Rows of all profiles, one below the other."""

    inputs: Matrix
    waves: Column
    roofline_us: Column
    time_us: Column


def _collect_rows(profiles: Sequence[NeuSightProfile], form: NeuSightForm) -> _Rows:
    inputs, waves, roofline_us = [], [], []
    for profile in profiles:
        work, dtype = cut_tiles(profile.batch, profile.tiles), profile.batch.dtype
        inputs.append(compute_inputs(work, profile.hardware, dtype, form))
        waves.append(work.count_waves(profile.hardware))
        roofline_us.append(compute_roofline_us(work, profile.hardware, dtype))
    return _Rows(
        np.concatenate(inputs),
        np.concatenate(waves),
        np.concatenate(roofline_us),
        np.concatenate([profile.time_us for profile in profiles]),
    )


def _keep_tiles(profiles: Sequence[NeuSightProfile], settings: NeuSightSettings) -> tuple[GpuTiles, ...]:
    """Return the tiles of rows drawn at random from each profile."""
    random = np.random.default_rng(settings.seed)
    kept = []
    for profile in profiles:
        rows = np.sort(random.permutation(len(profile.time_us))[: settings.tiles_per_gpu])
        kept.append(
            GpuTiles(
                gpu_figures=describe_gpu(profile.hardware),
                log2_shapes=np.log2(describe_shapes(profile.batch)[rows]),
                tiles=profile.tiles[rows],
            )
        )
    return tuple(kept)


def _learn_network(
    rows: _Rows, settings: NeuSightSettings, report: Callable[[int, float], None]
) -> UtilizationNetwork:
    import torch

    torch.manual_seed(settings.seed)
    mean, deviation = rows.inputs.mean(axis=0), rows.inputs.std(axis=0) + 1e-6
    values = torch.tensor((rows.inputs - mean) / deviation, dtype=torch.float32)
    columns = torch.tensor(np.stack([rows.waves, rows.roofline_us, rows.time_us]), dtype=torch.float32)
    sizes = (rows.inputs.shape[1], *settings.hidden, 2)
    layers = [torch.nn.Linear(n_in, n_out) for n_in, n_out in pairwise(sizes)]
    with torch.no_grad():
        layers[-1].bias.copy_(torch.tensor(_START_LOGITS))
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    optimizer = torch.optim.AdamW(parameters, settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=settings.n_steps
    )
    recent = 0.0
    for step in range(1, settings.n_steps + 1):
        picked = torch.randint(len(values), (settings.batch_rows,))
        loss = _compute_loss(layers, values[picked], columns[:, picked], settings.form)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        recent += float(loss.detach()) / _REPORT_STEPS
        if step % _REPORT_STEPS == 0:
            report(step, recent)
            recent = 0.0
    return UtilizationNetwork(
        form=settings.form,
        low=rows.inputs.min(axis=0),
        high=rows.inputs.max(axis=0),
        mean=mean,
        deviation=deviation,
        weights=tuple(layer.weight.detach().numpy().T.astype(np.float64) for layer in layers),
        biases=tuple(layer.bias.detach().numpy().astype(np.float64) for layer in layers),
    )


def _compute_loss(layers: Any, values: Any, columns: Any, form: NeuSightForm) -> Any:
    """Return the mean (symmetric) percentage error of a minibatch, as a torch scalar."""
    import torch

    waves, roofline_us, time_us = columns
    for layer in layers[:-1]:
        values = torch.relu(layer(values))
    alpha, beta = torch.sigmoid(layers[-1](values)).T
    above = torch.nn.functional.softplus((alpha - beta / waves) / LEAST_UTILIZATION)
    predicted = roofline_us / (LEAST_UTILIZATION * (above + 0.1))
    scale = 0.5 * (predicted + time_us) if form is NeuSightForm.CODE else time_us
    return ((predicted - time_us).abs() / scale).mean()
