"""Element-wise operators in fp32 as PyTorch runs them: one pass over one or two inputs, one output.

Timed as the interval between CUDA events around one call, which is never below what the host needs to launch
it: time = |host, start + |dram, l2||, each |.| a p-norm. What of inputs and outputs stayed in the L2 from
the call before costs no DRAM traffic (`retention`); outputs alternate between two buffers.

    add of two tensors of 64 MiB in fp32 on A100-PCIE-40GB: 201 MB at .87 of 1555 GB/s: 149 us.

Invariant: doubling all elements of a large batch doubles its time. Narrower data types are served by
`elementwise_kernel`, whose times have no host in them.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import ElementwiseBatch, OperatorBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType, Operator
from analyzer.operators.overlap import add_by_norm
from analyzer.operators.retention import compute_missed_share

PARAMETERS = (
    FittedParameter("host_us", 30.0, 5.0, 80.0),
    FittedParameter("start_us", 4.0, 0.0, 30.0),
    FittedParameter("hbm_share", 0.87, 0.6, 1.0),  # of the datasheet's bandwidth
    FittedParameter("gddr_share", 0.8, 0.6, 1.0),
    FittedParameter("l2_share", 0.7, 0.2, 1.5),
    FittedParameter("kept_share", 0.7, 0.2, 1.2),  # of the L2
    FittedParameter("host_power", 6.0, 3.0, 12.0),
    FittedParameter("storage_power", 4.0, 1.0, 8.0),
)

FEATURE_NAMES = (
    "inputs",
    "log2 host / total",
    "log2 start / total",
    "log2 DRAM / total",
    "log2 L2 / total",
    "log2 footprint / L2",
    "log2 elements per SM",
)


def compute_terms(
    batch: ElementwiseBatch, hardware: OperatorHardware, parameters: Parameters
) -> ReferenceTerms:
    """Return the time of each row of a batch and its terms; see the module's docstring."""
    moved_bytes = batch.moved_bytes
    kept_bytes = parameters["kept_share"] * hardware.l2_bytes / hardware.l2_partitions
    missed = compute_missed_share(batch.footprint_bytes / kept_bytes)
    share = parameters["hbm_share" if hardware.has_stacked_dram else "gddr_share"]
    dram_us = missed * moved_bytes / (hardware.dram_gbps * 1e3 * share)
    l2_us = moved_bytes / (hardware.l2_copy_gbps * 1e3 * parameters["l2_share"])
    host_us = np.full(len(batch), parameters["host_us"])
    start_us = np.full(len(batch), parameters["start_us"])
    storage_us = add_by_norm(dram_us, l2_us, parameters["storage_power"])
    gpu_us = start_us + storage_us
    return ReferenceTerms(
        names=("host", "start", "dram", "l2"),
        terms_us=np.stack([host_us, start_us, dram_us, l2_us], axis=1),
        total_us=add_by_norm(host_us, gpu_us, parameters["host_power"]),
        flops=batch.elements,
        dram_bytes=moved_bytes,
        gpu_us=storage_us,
    )


def compute_features(
    batch: ElementwiseBatch, hardware: OperatorHardware, terms: ReferenceTerms
) -> NDArray[np.float64]:
    """Return rows x FEATURE_NAMES: shares of the terms and sizes in units of the GPU's."""
    shares = np.log2(np.maximum(terms.terms_us / terms.total_us[:, None], 2.0**-8))
    return np.column_stack(
        [
            batch.inputs,
            shares,
            np.clip(np.log2(batch.footprint_bytes / hardware.l2_bytes), -8.0, 5.0),
            np.clip(np.log2(batch.elements / hardware.sm_count), 0.0, 20.0),
        ]
    )


def choose_weights(batch: OperatorBatch) -> str:
    """Return the one set of weights."""
    return "elementwise"


FAMILY = OperatorFamily(
    name="elementwise",
    operators=frozenset({Operator.ELEMENTWISE}),
    parameters=PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
    data_types=frozenset({DataType.FP32, DataType.TF32}),
)
