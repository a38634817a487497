"""Figures of the time model of the fused mixture of experts: hwdb/tuning/fused_moe.toml."""

from collections.abc import Mapping
from functools import cache

import msgspec
import tomli
from msgspec import Struct

from analyzer.hardware.schema import HardwareParameter
from analyzer.resources import find_data_folder
from analyzer.tuning.fused_moe_space import KERNEL


class MoeFigures(Struct, frozen=True, kw_only=True):
    """Figures of the model: hwdb/tuning/fused_moe.toml says what each is."""

    hbm_efficiency: float
    gddr_efficiency: float
    hbm_piece_64: float
    hbm_piece_128: float
    hbm_piece_256: float
    gddr_piece_64: float
    gddr_piece_128: float
    gddr_piece_256: float
    queue: float
    held_share: float
    group_cost: float
    drain_cost: float
    l2_efficiency: float
    warp_mma_efficiency: float
    warpgroup_mma_efficiency: float
    exposed_cycles: float
    load_cycles: float
    cta_cycles: float
    spread: float
    launch_us: float
    norm: float
    latency_norm: float
    dram_latency_cycles: float
    half_lost_at: float
    reused_l2_share: float
    min_buffer_share: float


class _FigureFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gpus: tuple[str, ...]
    sources: Mapping[str, str]
    model: Mapping[str, HardwareParameter]


def list_fitted_gpus() -> tuple[str, ...]:
    """Return the keys of the GPUs that the figures were fitted on."""
    return _read_file().gpus


@cache
def load_moe_figures() -> MoeFigures:
    """Return the shipped figures."""
    return MoeFigures(**{name: figure.value for name, figure in _read_file().model.items()})


@cache
def _read_file() -> _FigureFile:
    text = (find_data_folder("hwdb") / "tuning" / f"{KERNEL}.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomli.loads(text), _FigureFile)
