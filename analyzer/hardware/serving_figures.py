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
    """Rule for the sustained rate of large products, see `operators.sustained_rates`."""

    ceiling: HardwareParameter  # share of the peak, where power does not limit
    power_exponent: HardwareParameter
    other_factor: HardwareParameter  # of chips without `operators.product_factor`
    softness: HardwareParameter
    narrow_gain: HardwareParameter  # rate of 8-bit products over that of 16 bits, both limited by power
    unlimited_narrow_gain: HardwareParameter  # likewise, where power does not limit


class MeasuredRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sustained rate of a GPU's large 16-bit products, measured outside of the runs that are forecast."""

    gpu: str  # name of its file in `hwdb/gpu`
    tflops: HardwareParameter


class TransferFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transfers between GPUs of one node beside NCCL's, see `collective_times`."""

    small_pair_us: HardwareParameter  # latency of the frameworks' own all-reduce: two GPUs, before NVLink 4
    small_group_us: HardwareParameter  # of more GPUs
    later_latency_scale: HardwareParameter  # factor on both from NVLink 4 on
    small_share: HardwareParameter  # its share of NVLink's rate of one direction
    small_spread: HardwareParameter  # half width of its interval, as a part of the time
    pcie_spread: HardwareParameter  # of NCCL over PCIe, where no row of this GPU taught


class HostFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The framework's own time."""

    decode_us: HardwareParameter  # per decode step, beyond the kernels
    prefill_us: HardwareParameter  # per prefill or mixed step
    launch_us: HardwareParameter  # per launch outside of a CUDA graph


class SpreadFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Standard deviations of the logarithm, by what a time rests on."""

    tensor_measured: HardwareParameter
    tensor_calibrated: HardwareParameter
    tensor_assumed: HardwareParameter
    weights: HardwareParameter
    cache: HardwareParameter
    rows: HardwareParameter
    experts: HardwareParameter
    nvlink: HardwareParameter
    pcie: HardwareParameter
    host: HardwareParameter
    other_host: HardwareParameter  # of a framework of which no run taught
    untaught: HardwareParameter  # factor on all of them where no run taught
    taught: tuple[str, ...]  # architectures of the GPUs of the runs, of products with ECC memory


class ServingFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    schema: Literal["warplens/serving/1"]
    sources: Mapping[str, str]
    tensor: TensorFigures
    measured: tuple[MeasuredRate, ...]
    transfer: TransferFigures
    host: HostFigures
    spread: SpreadFigures


@cache
def load_serving_figures() -> ServingFigures:
    """Read `hwdb/serving.toml`."""
    text = (find_data_folder("hwdb") / _FIGURES_FILE).read_text(encoding="utf-8")
    return msgspec.convert(tomli.loads(text), ServingFigures)
