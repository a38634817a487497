"""What NeuSight has learned of a family: a safetensors file of arrays and a JSON header, and a card."""

from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct

from analyzer.baselines.neusight.tiled_work import NeuSightFamily
from analyzer.baselines.neusight.tiles import GpuTiles, TileTable
from analyzer.baselines.neusight.utilization import NeuSightForm, UtilizationNetwork
from analyzer.models.learned.weights_file import (
    Arrays,
    find_weights_file,
    read_weights_file,
    write_weights_file,
)

SCHEMA = "warplens/neusight/1"


class NeuSightWeights(Struct, frozen=True):
    """One family: its utilization, and the tiles that libraries chose on profiled GPUs."""

    family: NeuSightFamily
    network: UtilizationNetwork
    tiles: TileTable
    gpus: tuple[str, ...]  # whose rows taught
    n_rows: int
    dataset: str
    # 80 % of log(measured / predicted) over the rows that taught: ours, for the paper has no intervals
    log_interval: tuple[float, float] = (0.0, 0.0)


class _Header(Struct, frozen=True):
    schema: str
    family: NeuSightFamily
    form: NeuSightForm
    n_layers: int
    gpus: tuple[str, ...]
    n_rows: int
    dataset: str
    log_interval: tuple[float, float]


def name_weights(family: NeuSightFamily, form: NeuSightForm) -> str:
    """Return the name of a shipped file, without its ending."""
    return f"neusight-{family}" if form is NeuSightForm.PAPER else f"neusight-{family}-{form}"


@cache
def load_shipped_neusight(family: NeuSightFamily, form: NeuSightForm) -> NeuSightWeights | None:
    """Return a shipped family, None if there is none."""
    path = find_weights_file(name_weights(family, form))
    return load_neusight(path) if path else None


def load_neusight(path: Path) -> NeuSightWeights:
    """Return a family from its file. Raises UsageError if it is none."""
    hint = "name a file of bench/operator_neusight.py"
    return read_weights_file(path, _Header, _build_weights, what="no weights of NeuSight", hint=hint)


def _build_weights(header: _Header, arrays: Arrays) -> NeuSightWeights:
    return NeuSightWeights(
        family=header.family,
        network=_read_network(header, arrays),
        tiles=tuple(_read_tiles(gpu, arrays) for gpu in header.gpus),
        gpus=header.gpus,
        n_rows=header.n_rows,
        dataset=header.dataset,
        log_interval=header.log_interval,
    )


def save_neusight(weights: NeuSightWeights, path: Path) -> None:
    """Write a family: what is read by the MLP in float32, shapes in float16, tiles in int32."""
    network = weights.network
    header = _Header(
        schema=SCHEMA,
        family=weights.family,
        form=network.form,
        n_layers=len(network.weights),
        gpus=weights.gpus,
        n_rows=weights.n_rows,
        dataset=weights.dataset,
        log_interval=weights.log_interval,
    )
    arrays: Arrays = {
        "inputs": np.stack([network.low, network.high, network.mean, network.deviation]).astype(np.float32)
    }
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        arrays[f"weight{layer}"] = weight.astype(np.float32)
        arrays[f"bias{layer}"] = bias.astype(np.float32)
    for gpu, entry in zip(weights.gpus, weights.tiles, strict=True):
        arrays[f"{gpu}.figures"] = entry.gpu_figures.astype(np.float32)
        arrays[f"{gpu}.shapes"] = entry.log2_shapes.astype(np.float16)
        arrays[f"{gpu}.tiles"] = entry.tiles.astype(np.int32)
    write_weights_file(path, header, arrays)


def _read_network(header: _Header, arrays: Arrays) -> UtilizationNetwork:
    low, high, mean, deviation = arrays["inputs"].astype(np.float64)
    layers = range(header.n_layers)
    return UtilizationNetwork(
        form=header.form,
        low=low,
        high=high,
        mean=mean,
        deviation=deviation,
        weights=tuple(arrays[f"weight{layer}"].astype(np.float64) for layer in layers),
        biases=tuple(arrays[f"bias{layer}"].astype(np.float64) for layer in layers),
    )


def _read_tiles(gpu: str, arrays: Arrays) -> GpuTiles:
    figures, shapes, tiles = (arrays[f"{gpu}.{part}"] for part in ("figures", "shapes", "tiles"))
    return GpuTiles(figures.astype(np.float64), shapes.astype(np.float64), tiles.astype(np.float64))
