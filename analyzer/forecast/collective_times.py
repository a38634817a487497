"""Times of transfers between the GPUs of one node, as serving frameworks make them.

Two makers. Up to some megabytes, where NVLink joins all GPUs of the group, an all-reduce is the framework's
own kernel: every GPU reads its peers' memory (one shot: all of it; two shots: its part, then the others'
sums), so it costs a few barriers and no protocol. All else is NCCL: its time is the learned model of
`operators/families/collective.py` (a reference of latency, wire and ramp, times a forest of trees over bytes,
GPUs and link), read off once per group at sizes a quarter octave apart and interpolated in the logarithms.

    own kernel:  latency(architecture, GPUs) + read bytes / (share * NVLink)
                 one shot reads (n - 1) B, two shots 2 (n - 1) / n B
    one pass:    all-gather, reduce-scatter and all-to-all go round the ring once, an all-reduce twice:
                 launch' + rest' * (time of the all-reduce - launch'), launch' its latency without hops

Invariant: a time grows with its bytes; one GPU alone takes no time.

Example: 1 MiB over four A100 is two shots: 1.57 MB at 0.7 * 300 GB/s are 7.5 us, with 17 us of latency 24 us;
256 MiB are NCCL's 1.93 ms (209 GB/s on the wire).

Not modelled: several nodes, GPUs of one node behind different sockets, transfers beside other kernels.
"""

from bisect import bisect_right
from functools import lru_cache
from math import exp, log
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from analyzer.forecast.deployment import Framework
from analyzer.forecast.operator_calls import CollectiveKind
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.serving_figures import ServingFigures, load_serving_figures
from analyzer.ir.scheduling import Basis
from analyzer.models.learned.correction import LearnedWeights, Situation
from analyzer.models.operators.ours import apply_correction, find_weights
from analyzer.operators.batches import CollectiveBatch, Column
from analyzer.operators.families.collective import FAMILY
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.names import DataType, Operator

_BYTES_PER_US = 1e3  # of one GB/s
_OCTAVES = (9.0, 33.0)  # of bytes: 512 to 8 GiB; beyond, the time is proportional to bytes
_STEPS_PER_OCTAVE = 4
_CACHE_ENTRIES = 1 << 14

# Largest message of the frameworks' own all-reduce (default of vLLM's and SGLang's custom_all_reduce.py).
# Beyond it vLLM may add in the switch, through symmetric memory, at about NCCL's rates.
_OWN_KERNEL_BYTES = 8 << 20
_OWN_KERNEL_GPUS = (2, 4, 6, 8)
# One shot up to these sizes (csrc/custom_all_reduce.cuh of vLLM, which SGLang shares); two GPUs always.
_ONE_SHOT_BYTES = {4: 512 << 10, 6: 256 << 10, 8: 256 << 10}


class GroupLink(Struct, frozen=True):
    """What joins the GPUs of a group, and what their transfers cost beside NCCL's learned times."""

    hardware: OperatorHardware
    framework: Framework
    joins_all: bool  # NVLink through a switch, or links between all
    joins_pair: bool  # NVLink bridges
    small_pair_us: float  # latency of the framework's own all-reduce, two GPUs
    small_group_us: float  # more GPUs
    small_share: float  # of NVLink's rate of one direction
    large_scale: float = 1.0  # factor on NCCL's times

    def is_linked(self, gpus: int) -> bool:
        """Return whether NVLink joins so many GPUs."""
        return self.joins_all or (self.joins_pair and gpus <= 2)


class CollectiveTime(NamedTuple):
    """Time of one transfer with the ends of its 80 % interval, us."""

    us: float
    low_us: float
    high_us: float
    basis: Basis
    source: str  # what made it: "sglang's own all-reduce, one shot", "NCCL over PCIe, ..."


def find_group_link(
    gpu: Gpu,
    framework: Framework = Framework.SGLANG,
    *,
    has_bridge: bool = False,
    figures: ServingFigures | None = None,
) -> GroupLink:
    """Return what joins GPUs of this kind: a switch on boards with stacked memory that are no PCIe cards.

    figures: other figures than those shipped.
    """
    transfer = (figures or load_serving_figures()).transfer
    hardware = read_operator_hardware(gpu)
    has_nvlink = hardware.nvlink_gbps > 0.0
    scale = transfer.later_latency_scale.value if hardware.switch_adds else 1.0
    return GroupLink(
        hardware=hardware,
        framework=framework,
        joins_all=has_nvlink and hardware.has_stacked_dram and not gpu.file.link.is_bridged,
        joins_pair=has_nvlink and has_bridge,
        small_pair_us=scale * transfer.small_pair_us.value,
        small_group_us=scale * transfer.small_group_us.value,
        small_share=transfer.small_share.value,
    )


@lru_cache(maxsize=_CACHE_ENTRIES)
def time_transfer(kind: CollectiveKind, message_bytes: int, gpus: int, link: GroupLink) -> CollectiveTime:
    """Return the time of one transfer of so many bytes: of all-gather and all-to-all those of all GPUs."""
    if gpus <= 1 or message_bytes <= 0:
        return CollectiveTime(0.0, 0.0, 0.0, Basis.MEASURED, "nothing to send")
    if kind is CollectiveKind.ALL_REDUCE and _is_own_kernel(message_bytes, gpus, link):
        return _time_own_kernel(message_bytes, gpus, link)
    operator = Operator.SEND_RECV if kind is CollectiveKind.SEND_RECV else Operator.ALL_REDUCE
    is_linked = link.is_linked(gpus)
    hardware = link.hardware if is_linked else _hide_nvlink(link.hardware)
    table = _make_table(operator, gpus, hardware, is_linked=is_linked)
    found = table.find(message_bytes, link.large_scale)
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.SEND_RECV):
        return found
    share = _ONE_PASS_SHARE_IN_SWITCH if is_linked and gpus >= _SWITCH_GPUS else _ONE_PASS_SHARE
    return _halve(found, table.launch_us, share, kind)


def _is_own_kernel(message_bytes: int, gpus: int, link: GroupLink) -> bool:
    if gpus not in _OWN_KERNEL_GPUS or not link.is_linked(gpus):
        return False
    return message_bytes <= _OWN_KERNEL_BYTES


def _time_own_kernel(message_bytes: int, gpus: int, link: GroupLink) -> CollectiveTime:
    is_one_shot = gpus == 2 or message_bytes < _ONE_SHOT_BYTES[gpus]
    read = message_bytes * (gpus - 1) * (1.0 if is_one_shot else 2.0 / gpus)
    latency_us = link.small_pair_us if gpus == 2 else link.small_group_us
    us = latency_us + read / (link.small_share * link.hardware.nvlink_gbps * _BYTES_PER_US)
    factor = 1.0 + load_serving_figures().transfer.small_spread.value
    shots = "one shot" if is_one_shot else "two shots"
    source = f"{link.framework.value}'s own all-reduce, {shots}"
    return CollectiveTime(us, us / factor, us * factor, Basis.CALIBRATED, source)


# Of the part of an all-reduce's time that grows with bytes or hops, what one pass takes. Measured over NCCL's
# rows of ten systems: 0.5 would be the bytes' share, and one pass fills its pipeline less well; an all-reduce
# that the switch adds sends half as much.
_ONE_PASS_SHARE = 0.57
_ONE_PASS_SHARE_IN_SWITCH = 0.62
_SWITCH_GPUS = 8


def _halve(found: CollectiveTime, launch_us: float, share: float, kind: CollectiveKind) -> CollectiveTime:
    def halve(us: float) -> float:
        launch = min(launch_us, us)
        return launch + share * (us - launch)

    source = f"{kind.value}: one pass of {found.source}"
    basis = Basis.ASSUMED if found.basis is Basis.ASSUMED else Basis.CALIBRATED
    return CollectiveTime(halve(found.us), halve(found.low_us), halve(found.high_us), basis, source)


class _Table(Struct, frozen=True):
    """NCCL's times of one operator and group at sizes a quarter octave apart; logarithms, growing."""

    log_bytes: tuple[float, ...]
    log_us: tuple[float, ...]
    log_low: tuple[float, ...]  # of low end over time
    log_high: tuple[float, ...]
    launch_us: float  # part of the latency that does not depend on the number of GPUs
    basis: Basis
    source: str

    def find(self, message_bytes: int, scale: float = 1.0) -> CollectiveTime:
        """Return the time of a message, interpolated, times a factor; below the first size the first's."""
        at = log(message_bytes)
        if at >= self.log_bytes[-1]:
            us = exp(self.log_us[-1] + at - self.log_bytes[-1])
            return self._make(scale * us, len(self.log_bytes) - 1)
        place = bisect_right(self.log_bytes, at) - 1
        if place < 0:
            return self._make(scale * exp(self.log_us[0]), 0)
        share = (at - self.log_bytes[place]) / (self.log_bytes[place + 1] - self.log_bytes[place])
        us = exp(self.log_us[place] + share * (self.log_us[place + 1] - self.log_us[place]))
        return self._make(scale * us, place)

    def _make(self, us: float, place: int) -> CollectiveTime:
        low_us, high_us = us * exp(self.log_low[place]), us * exp(self.log_high[place])
        return CollectiveTime(us, low_us, high_us, self.basis, self.source)


@lru_cache(maxsize=256)
def _make_table(operator: Operator, gpus: int, hardware: OperatorHardware, *, is_linked: bool) -> _Table:
    steps = round((_OCTAVES[1] - _OCTAVES[0]) * _STEPS_PER_OCTAVE) + 1
    message_bytes = 2.0 ** np.linspace(*_OCTAVES, steps)
    batch = CollectiveBatch(operator, DataType.BF16, message_bytes, np.full(steps, float(gpus)))
    weights = find_weights(FAMILY, batch)
    parameters = FAMILY.initial_parameters | dict(weights.parameters if weights else {})
    terms = FAMILY.compute_terms(batch, hardware, parameters)
    basis, origin = Basis.ASSUMED, "reference alone"
    us, low_us, high_us = terms.total_us, 0.5 * terms.total_us, 2.0 * terms.total_us
    if weights is not None:
        features = FAMILY.compute_features(batch, hardware, terms)
        found = apply_correction(weights, hardware, terms.total_us, features)
        us, low_us, high_us = found.time_us, found.low_us, found.high_us
        basis, origin = _find_basis(weights, hardware, operator)
    if not is_linked and basis is Basis.ASSUMED:
        low_us, high_us = _widen(us, low_us, high_us)
    way = "NVLink" if is_linked else "PCIe"
    # a forest has steps: a time that falls as bytes grow is noise
    return _Table(
        log_bytes=_to_logs(message_bytes),
        log_us=_to_logs(np.maximum.accumulate(us)),
        log_low=_to_logs(low_us / us),
        log_high=_to_logs(high_us / us),
        launch_us=float(us[0] * parameters["launch_us"] / terms.find_term("latency")[0]),
        basis=basis,
        source=f"NCCL over {way}, {origin}",
    )


def _widen(us: Column, low_us: Column, high_us: Column) -> tuple[Column, Column]:
    """Return an interval at least as wide as hosts differ in what PCIe carries."""
    factor = 1.0 + load_serving_figures().transfer.pcie_spread.value
    return np.minimum(low_us, us / factor), np.maximum(high_us, us * factor)


def _to_logs(values: Column) -> tuple[float, ...]:
    return tuple(np.log(values).tolist())


def _hide_nvlink(hardware: OperatorHardware) -> OperatorHardware:
    return msgspec.structs.replace(hardware, nvlink_gbps=0.0)


def _find_basis(weights: LearnedWeights, hardware: OperatorHardware, operator: Operator) -> tuple[Basis, str]:
    """Return the origin of NCCL's times: rows of this GPU, or of others."""
    if weights.find_situation(hardware.key, hardware.correction_arch) is Situation.KNOWN:
        return Basis.CALIBRATED, f"learned on {operator.value} of this GPU"
    return Basis.ASSUMED, f"learned on {operator.value} of other GPUs"
