"""All-reduce and send/receive between the GPUs of one node, as NCCL does them.

Idea. An all-reduce of B bytes over n GPUs is a reduce-scatter and an all-gather: 2 (n - 1) steps around a
ring, each of B / n bytes, so every GPU sends 2 (n - 1) / n · B. A send moves B once. Three terms add up:

    latency  launch and handshake, plus one hop per step; all that small messages take
    wire     bytes sent over the share of the link's peak that NCCL sustains
    ramp     sqrt(wire · ramp_us): middling messages fill neither the channels nor the pipeline of chunks

Where the switch can add (NVSwitch with NVLink 4 and later, eight GPUs), it adds the
operands itself and each GPU sends about half as much; NCCL then reaches more than the ring's share.

Invariant: the time grows with bytes; for large messages it tends to bytes sent over sustained bandwidth.

Example: 256 MiB over four A100 (300 GB/s each way): 403 MB sent per GPU at 0.77 · 300 GB/s are 1.74 ms, the
rest of the measured 1.93 ms is ramp.

Sources: ring and its bus bandwidth as NCCL's own tests define them (nccl-tests, doc/PERFORMANCE.md); shares
of the peak from `shared/facts/interconnect.md`.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import CollectiveBatch, Column, OperatorBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Operator

_PARAMETERS = (
    FittedParameter("launch_us", 5.0, 1.0, 40.0),
    FittedParameter("hop_us", 0.9, 0.1, 6.0),  # per step around the ring
    FittedParameter("nvlink_share", 0.78, 0.4, 1.0),  # of the peak of one direction
    FittedParameter("pair_share", 0.9, 0.6, 1.1),  # of that, where only two GPUs take part
    FittedParameter("pcie_share", 0.5, 0.1, 1.0),
    FittedParameter("multicast_gain", 1.28, 1.0, 2.0),
    FittedParameter("ramp_us", 10.0, 0.1, 100.0),
)
_MULTICAST_GPUS = 8.0  # fewest GPUs for which NCCL lets the switch add (facts/interconnect.md: 8, not 4)


def compute_terms(
    batch: CollectiveBatch, hardware: OperatorHardware, parameters: Parameters
) -> ReferenceTerms:
    """Return latency, wire and ramp of each row; bytes are those that each GPU sends."""
    steps, sent = _count_steps(batch)
    latency_us = parameters["launch_us"] + parameters["hop_us"] * steps
    wire_us = sent / (_find_rate_gbps(batch, hardware, parameters) * 1e3)
    ramp_us = np.sqrt(wire_us * parameters["ramp_us"])
    return ReferenceTerms(
        names=("latency", "wire", "ramp"),
        terms_us=np.stack([latency_us, wire_us, ramp_us], axis=1),
        total_us=latency_us + wire_us + ramp_us,
        flops=np.where(batch.operator is Operator.ALL_REDUCE, 0.25, 0.0) * sent,
        dram_bytes=2.0 * batch.message_bytes,
    )


def _count_steps(batch: CollectiveBatch) -> tuple[Column, Column]:
    """Return steps one after the other, and bytes that each GPU sends."""
    if batch.operator is Operator.SEND_RECV:
        return np.ones(len(batch)), batch.message_bytes
    steps = 2.0 * (batch.gpus - 1.0)
    return steps, batch.message_bytes * steps / batch.gpus


def _find_rate_gbps(batch: CollectiveBatch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return GB/s that each GPU sends at."""
    linked = _is_linked(batch, hardware)
    share = np.where(batch.gpus > 2.0, 1.0, parameters["pair_share"])
    if batch.operator is Operator.SEND_RECV:
        share = np.ones(len(batch))
    share = np.where(_is_multicast(batch, hardware), parameters["multicast_gain"], share)
    nvlink = share * parameters["nvlink_share"] * hardware.nvlink_gbps
    rate: Column = np.where(linked, nvlink, parameters["pcie_share"] * hardware.pcie_gbps)
    return rate


def _is_linked(batch: CollectiveBatch, hardware: OperatorHardware) -> NDArray[np.bool_]:
    """Return where NVLink joins all GPUs: boards with GDDR have a bridge between two alone."""
    linked: NDArray[np.bool_] = (hardware.nvlink_gbps > 0.0) & (
        hardware.has_stacked_dram | (batch.gpus <= 2.0)
    )
    return linked


def _is_multicast(batch: CollectiveBatch, hardware: OperatorHardware) -> NDArray[np.bool_]:
    adds = batch.operator is Operator.ALL_REDUCE and hardware.switch_adds
    switched: NDArray[np.bool_] = _is_linked(batch, hardware) & (batch.gpus >= _MULTICAST_GPUS)
    return switched & adds


FEATURE_NAMES = (
    "log2 latency / total",
    "log2 wire / total",
    "log2 bytes / MiB",
    "log2 bytes per GPU and step / 64 KiB",
    "log2 GPUs",
    "log2 GB/s of the link",
    "crosses PCIe",
    "the switch adds",
)


def compute_features(
    batch: CollectiveBatch, hardware: OperatorHardware, terms: ReferenceTerms
) -> NDArray[np.float64]:
    """Return what decides the protocol and the number of channels: sizes and the balance of the terms."""
    linked = _is_linked(batch, hardware)
    chunk = batch.message_bytes / (batch.gpus if batch.operator is Operator.ALL_REDUCE else 1.0)
    columns = [
        np.log2(terms.find_term("latency") / terms.total_us),
        np.log2(np.maximum(terms.find_term("wire") / terms.total_us, 2.0**-20)),
        np.log2(np.maximum(batch.message_bytes, 1.0) / 2.0**20),
        np.log2(np.maximum(chunk, 1.0) / 2.0**16),
        np.log2(batch.gpus),
        np.log2(np.where(linked, max(hardware.nvlink_gbps, 1.0), hardware.pcie_gbps)),
        np.where(linked, 0.0, 1.0),
        np.where(_is_multicast(batch, hardware), 1.0, 0.0),
    ]
    return np.stack(columns, axis=1)


def choose_weights(batch: OperatorBatch) -> str:
    """Return the set of weights: one per operator, whatever the data type."""
    return f"collective-{batch.operator}"


FAMILY = OperatorFamily(
    name="collective",
    operators=frozenset({Operator.ALL_REDUCE, Operator.SEND_RECV}),
    parameters=_PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
)
