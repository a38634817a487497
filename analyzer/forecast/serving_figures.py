"""Schema of `hwdb/serving.toml`: figures of served models that are no property of one GPU alone."""

from collections.abc import Mapping
from functools import cache
from typing import Literal

import msgspec
import tomli

from analyzer.hardware.schema import HardwareParameter
from analyzer.resources import find_data_folder

_FIGURES_FILE = "serving.toml"


class TensorFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rule for the sustained rate of large products, see `serving_rates.compute_power_limited_tflops`."""

    ceiling: HardwareParameter  # share of the peak, where power does not limit
    power_exponent: HardwareParameter
    softness: HardwareParameter
    narrow_gain: HardwareParameter  # rate of 8-bit products over that of 16 bits, both limited by power
    unlimited_narrow_gain: HardwareParameter  # likewise, where power does not limit


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chips made alike: the rate that a watt buys."""

    name: str
    chips: tuple[str, ...]  # empty: all others
    power_factor: HardwareParameter


class MeasuredRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sustained rate of a GPU's large 16-bit products, measured outside of the runs that are forecast."""

    gpu: str  # name of its file in `hwdb/gpu`
    tflops: HardwareParameter


class MemoryFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of the datasheet's bandwidth by what is streamed."""

    kinds: tuple[str, ...]
    weight_share: HardwareParameter  # weights of products of up to 16 rows
    row_step: HardwareParameter  # factor on their time above 16 rows
    cache_share: HardwareParameter  # keys and values in decoding
    row_share: HardwareParameter  # norms and activations


class ProductFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Products: what each launch costs."""

    floor_us: HardwareParameter
    row_padding: HardwareParameter  # rows are computed in multiples of it


class AttentionFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attention: shares of the rate of products, padding of query rows, floor of a layer."""

    prefill_share: HardwareParameter
    prefill_share_fa3: HardwareParameter
    decode_share_fa3: HardwareParameter
    padded_rows_fa3: HardwareParameter
    padded_rows: HardwareParameter
    floor_us: HardwareParameter


class MoeFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mixture of experts."""

    tensor_share: HardwareParameter
    weight_share: HardwareParameter
    row_padding: HardwareParameter
    floor_us: HardwareParameter


class ArchitectureFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs by architecture."""

    archs: tuple[str, ...]  # empty: all others
    sharpness: HardwareParameter  # how well a product hides the shorter of tensor and byte time
    small_kernel_us: HardwareParameter  # floor of a small kernel in a CUDA graph


class TransferFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transfers between GPUs of one node: shares of a direction of the link, and latencies."""

    pair_share: HardwareParameter
    group_share: HardwareParameter
    multicast_share: HardwareParameter
    small_pair_us: HardwareParameter
    small_group_us: HardwareParameter
    pcie_share: HardwareParameter
    pcie_us: HardwareParameter
    pcie_gpu_us: HardwareParameter


class HostFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The framework's own time."""

    decode_us: HardwareParameter  # per decode step, beyond the kernels
    prefill_us: HardwareParameter  # per prefill or mixed step
    launch_us: HardwareParameter  # per launch outside of a CUDA graph


class ServingFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    schema: Literal["warplens/serving/1"]
    sources: Mapping[str, str]
    tensor: TensorFigures
    process: tuple[ProcessFigures, ...]
    measured: tuple[MeasuredRate, ...]
    memory: tuple[MemoryFigures, ...]
    product: ProductFigures
    attention: AttentionFigures
    moe: MoeFigures
    architecture: tuple[ArchitectureFigures, ...]
    transfer: TransferFigures
    host: HostFigures


@cache
def load_serving_figures() -> ServingFigures:
    """Read `hwdb/serving.toml`."""
    text = (find_data_folder("hwdb") / _FIGURES_FILE).read_text(encoding="utf-8")
    return msgspec.convert(tomli.loads(text), ServingFigures)
