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
        share = _find_nvlink_share(n, rates)
        latency = 4.0 if n == 2 else 14.0
        return latency + moved / (share * rates.nvlink_gbps * _BYTES_PER_US)
    share = 0.35 if n <= 2 else 0.3
    return 6.0 + 2.0 * n + moved / (share * rates.pcie_gbps * _BYTES_PER_US)


_PASSES = {
    CollectiveKind.ALL_REDUCE: 2.0,
    CollectiveKind.ALL_GATHER: 1.0,
    CollectiveKind.REDUCE_SCATTER: 1.0,
    CollectiveKind.ALL_TO_ALL: 1.0,
    CollectiveKind.SEND_RECV: 0.0,
}


def _find_nvlink_share(n: int, rates: ServingRates) -> float:
    if n == 2:
        return 0.65
    if n < 8:
        return 0.74
    return 1.0 if rates.nvlink_gbps > 300.0 else 0.74
