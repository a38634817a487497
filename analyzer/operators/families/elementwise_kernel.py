"""Element-wise kernels of serving libraries in 16 bits and fewer: durations of the kernel, without the host.

No row teaches them. The reference is that of row-wise kernels (`rowwise`) with the figures fitted there to
SiLU-and-multiply: time = start + |dram, l2|_6, where what stayed in the L2 from the launch before costs no
DRAM traffic. Vidur's additions on A40 and A100, which taught nothing, are met within 9 and 10 %.

    fp16 addition of two tensors of 64 MiB on A40: 201 MB at 626 GB/s and 2 us: 323 us (measured 350).

Invariant: a large batch moves its inputs and its output at the sustained DRAM bandwidth.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import ElementwiseBatch, OperatorBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Operator
from analyzer.operators.overlap import add_by_norm
from analyzer.operators.retention import compute_missed_share

_STORAGE_POWER = 6.0  # of the norm of DRAM and L2 time: nearly the maximum

PARAMETERS = (  # initial: as fitted to SiLU-and-multiply
    FittedParameter("start_cycles", 2265.0, 0.0, 8000.0),
    FittedParameter("start_l2_latencies", 2.57, 0.0, 10.0),
    FittedParameter("dram_share", 1.0, 0.6, 1.2),  # of the GPU's sustained bandwidth
    FittedParameter("l2_share", 1.0, 0.6, 1.4),  # of the rate of copies within the L2
    FittedParameter("kept_share", 0.79, 0.4, 1.2),  # of the L2
    FittedParameter("kept_share_partitioned", 0.56, 0.3, 1.2),
)

FEATURE_NAMES = (
    "inputs",
    "log2 start / total",
    "log2 DRAM / total",
    "log2 L2 / total",
    "log2 footprint / L2",
    "L2 latency / DRAM latency",
)


def compute_terms(
    batch: ElementwiseBatch, hardware: OperatorHardware, parameters: Parameters
) -> ReferenceTerms:
    """Return the time of each row of a batch and its terms; see the module's docstring."""
    moved_bytes = batch.moved_bytes
    kept = parameters["kept_share_partitioned" if hardware.l2_partitions > 1.0 else "kept_share"]
    missed = compute_missed_share(batch.footprint_bytes / (kept * hardware.l2_bytes))
    dram_us = missed * moved_bytes / (hardware.sustained_dram_gbps * 1e3 * parameters["dram_share"])
    l2_us = moved_bytes / (hardware.l2_copy_gbps * 1e3 * parameters["l2_share"])
    latency_cycles = parameters["start_l2_latencies"] * hardware.l2_latency_cycles
    start_us = np.full(len(batch), (parameters["start_cycles"] + latency_cycles) / hardware.boost_mhz)
    return ReferenceTerms(
        names=("start", "dram", "l2"),
        terms_us=np.stack([start_us, dram_us, l2_us], axis=1),
        total_us=start_us + add_by_norm(dram_us, l2_us, _STORAGE_POWER),
        flops=batch.elements,
        dram_bytes=moved_bytes,
    )


def compute_features(
    batch: ElementwiseBatch, hardware: OperatorHardware, terms: ReferenceTerms
) -> NDArray[np.float64]:
    """Return rows x FEATURE_NAMES: shares of the terms, footprint and latencies."""
    shares = np.log2(np.maximum(terms.terms_us / terms.total_us[:, None], 2.0**-8))
    return np.column_stack(
        [
            batch.inputs,
            shares,
            np.clip(np.log2(batch.footprint_bytes / hardware.l2_bytes), -8.0, 6.0),
            np.full(len(batch), hardware.l2_latency_cycles / hardware.dram_latency_cycles),
        ]
    )


def choose_weights(batch: OperatorBatch) -> str:
    """Return the one set of weights: data types differ by their bytes. None is shipped."""
    return "elementwise-kernel"


FAMILY = OperatorFamily(
    name="elementwise-kernel",
    operators=frozenset({Operator.ELEMENTWISE}),
    parameters=PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
)
