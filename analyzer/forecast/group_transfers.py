"""Closed form for transfers between the GPUs of a group.

Large messages run at a share of the link that grows with the GPUs (rings and trees, multicast in the
switch from Hopper on with eight GPUs). Small ones run in the framework's own kernel where NVLink joins all
GPUs, and in NCCL over PCIe.
"""

from analyzer.forecast.operator_calls import CollectiveCall, CollectiveKind
from analyzer.forecast.serving_rates import ServingRates

_BYTES_PER_US = 1e3


def compute_collective_us(call: CollectiveCall, rates: ServingRates) -> float:
    """Return the time of one transfer, us."""
    n = call.gpus
    if n <= 1:
        return 0.0
    passes = _PASSES[call.kind]
    factor = passes * (n - 1) / n if passes else 1.0
    moved = call.message_bytes * factor
    if rates.nvlink_gbps:
        latency_us = rates.small_pair_us if n == 2 else rates.small_group_us
        return latency_us + moved / (_find_nvlink_share(n, rates) * rates.nvlink_gbps * _BYTES_PER_US)
    latency_us = rates.pcie_us + rates.pcie_gpu_us * n
    return latency_us + moved / (rates.pcie_share * rates.pcie_gbps * _BYTES_PER_US)


_PASSES = {
    CollectiveKind.ALL_REDUCE: 2.0,
    CollectiveKind.ALL_GATHER: 1.0,
    CollectiveKind.REDUCE_SCATTER: 1.0,
    CollectiveKind.ALL_TO_ALL: 1.0,
    CollectiveKind.SEND_RECV: 0.0,
}
_MULTICAST_GPUS = 8


def _find_nvlink_share(n: int, rates: ServingRates) -> float:
    if n == 2:
        return rates.pair_share
    return rates.multicast_share if n >= _MULTICAST_GPUS and rates.has_multicast else rates.group_share
