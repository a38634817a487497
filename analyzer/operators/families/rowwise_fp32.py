"""Layer norm and softmax in fp32, as PyTorch 2.1 computes them, timed as the interval of one call.

One CTA serves one row; softmax of up to 1024 columns gives each row a warp, which keeps it in registers. All
others read their rows again: layer norm once (statistics, then output), softmax twice (maximum, sum, output).
What is read again comes from the L1 while the rows of an SM's resident CTAs fit it, and from DRAM beyond:

    missed share of further reads = 1 / (1 + (k · L1 / bytes of the resident rows)^s)

    layer norm of 16384 columns on A100: 16 CTAs x 64 KiB = 1 MiB of 192 KiB: read twice from DRAM, two thirds
    of the bandwidth that a copy reaches, .58 of the datasheet's (measured .58). Of 2048 columns: 128 KiB,
    read once, .85 (measured .85).

Invariant: time = |host, start + |dram, l2, waves, dispatch||, each |.| a p-norm; for a large batch it is
linear in the rows.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, OperatorBatch, RowwiseBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType, Operator
from analyzer.operators.overlap import add_by_norm
from analyzer.operators.retention import compute_missed_share

_PERSISTENT_COLUMNS = 1024.0  # softmax keeps a row of so many in a warp's registers
_LAYERNORM_WARPS = 4.0
_WARP = 32.0

PARAMETERS = (
    FittedParameter("layernorm_host_us", 45.0, 5.0, 120.0),
    FittedParameter("softmax_host_us", 40.0, 20.0, 120.0),
    FittedParameter("start_us", 12.0, 0.0, 40.0),
    FittedParameter("hbm_share", 0.88, 0.84, 0.95),  # of the datasheet's bandwidth
    FittedParameter("gddr_share", 0.78, 0.7, 0.9),
    FittedParameter("l2_share", 1.0, 0.6, 1.5),
    FittedParameter("kept_share", 0.7, 0.2, 1.2),  # of the L2, between calls
    FittedParameter("layernorm_reread_share", 0.8, 0.4, 1.3),  # of the L1, that keeps rows for a second read
    FittedParameter("softmax_reread_share", 0.8, 0.5, 1.0),
    FittedParameter("reread_power", 6.0, 4.0, 12.0),
    FittedParameter("layernorm_cta_cycles", 6000.0, 0.0, 20000.0),
    FittedParameter("softmax_cta_cycles", 2500.0, 0.0, 20000.0),
    FittedParameter("pass_cycles", 800.0, 0.0, 1200.0),  # of a CTA over its row once
    FittedParameter("host_power", 6.0, 4.0, 12.0),
    FittedParameter("overlap_power", 8.0, 5.0, 12.0),
)

FEATURE_NAMES = (
    "is softmax",
    "is persistent",
    "log2 host / total",
    "log2 start / total",
    "log2 DRAM / total",
    "log2 L2 / total",
    "log2 waves' time / total",
    "log2 footprint / L2",
    "log2 resident rows / L1",
    "log2 columns",
    "columns divide by 4",
    "filling of the passes",
    "log2 waves",
)


class _Layout(Struct, frozen=True):
    """CTAs of a batch, and what of their rows is resident at once."""

    is_persistent: Column  # 1 or 0
    ctas: Column
    passes: Column  # of a CTA over its row, in 16-byte loads
    pass_filling: Column
    waves: Column
    resident_bytes: Column  # of the rows of an SM's resident CTAs
    reads: Column  # of each element


def compute_terms(batch: RowwiseBatch, hardware: OperatorHardware, parameters: Parameters) -> ReferenceTerms:
    """Return the time of each row of a batch and its terms; see the module's docstring."""
    kind = batch.operator.value
    layout = _lay_out(batch, hardware)
    tensor_bytes = batch.rows * batch.columns * batch.dtype.activation_bytes
    again = (layout.reads - 1.0) * _find_reread_share(batch, hardware, layout, parameters)
    kept_bytes = parameters["kept_share"] * hardware.l2_bytes / hardware.l2_partitions
    missed = compute_missed_share(3.0 * tensor_bytes / kept_bytes)
    share = parameters["hbm_share" if hardware.has_stacked_dram else "gddr_share"]
    dram_us = missed * (2.0 + again) * tensor_bytes / (hardware.dram_gbps * 1e3 * share)
    l2_us = (2.0 + again) * tensor_bytes / (hardware.l2_copy_gbps * 1e3 * parameters["l2_share"])
    cta_cycles = parameters[f"{kind}_cta_cycles"] + layout.reads * layout.passes * parameters["pass_cycles"]
    waves_us = np.maximum(layout.waves, 1.0) * cta_cycles / hardware.boost_mhz
    host_us = np.full(len(batch), parameters[f"{kind}_host_us"])
    start_us = np.full(len(batch), parameters["start_us"])
    power = parameters["overlap_power"]
    work_us = add_by_norm(add_by_norm(dram_us, l2_us, 2.0 * power), waves_us, power)
    gpu_us = start_us + work_us
    return ReferenceTerms(
        names=("host", "start", "dram", "l2", "waves"),
        terms_us=np.stack([host_us, start_us, dram_us, l2_us, waves_us], axis=1),
        total_us=add_by_norm(host_us, gpu_us, parameters["host_power"]),
        flops=6.0 * batch.rows * batch.columns,
        dram_bytes=2.0 * tensor_bytes,
        gpu_us=work_us,
    )


def compute_features(
    batch: RowwiseBatch, hardware: OperatorHardware, terms: ReferenceTerms
) -> NDArray[np.float64]:
    """Return rows x FEATURE_NAMES: shares of the terms, layout, sizes in units of the GPU's."""
    layout = _lay_out(batch, hardware)
    shares = np.log2(np.maximum(terms.terms_us / terms.total_us[:, None], 2.0**-8))
    footprint = 1.5 * terms.dram_bytes / hardware.l2_bytes
    return np.column_stack(
        [
            np.full(len(batch), float(batch.operator is Operator.SOFTMAX)),
            layout.is_persistent,
            shares,
            np.clip(np.log2(footprint), -8.0, 5.0),
            np.clip(np.log2(layout.resident_bytes / hardware.l1_bytes_per_sm), -8.0, 5.0),
            np.log2(batch.columns),
            (np.round(batch.columns) % 4.0 == 0.0).astype(np.float64),
            layout.pass_filling,
            np.clip(np.log2(layout.waves), -4.0, 8.0),
        ]
    )


def choose_weights(batch: OperatorBatch) -> str:
    """Return the one set of weights of both operators."""
    return "rowwise-fp32"


def _lay_out(batch: RowwiseBatch, hardware: OperatorHardware) -> _Layout:
    """Return PyTorch's launch: blocks of 128 for layer norm; for softmax a warp or a power of two per row."""
    columns = np.maximum(batch.columns, 1.0)
    vectors = np.maximum(np.ceil(columns * batch.dtype.activation_bytes / 16.0), 1.0)
    if batch.operator is Operator.SOFTMAX:
        is_persistent = columns <= _PERSISTENT_COLUMNS
        wanted = np.minimum(vectors, 1024.0)
        warps_per_row = np.maximum(2.0 ** np.ceil(np.log2(wanted / 2.0)) / _WARP, 1.0)
        warps_per_row = np.where(is_persistent, 1.0, warps_per_row)
        rows_per_cta = np.where(is_persistent, 4.0, 1.0)
        reads = np.where(is_persistent, 1.0, 3.0)
    else:
        is_persistent = np.zeros(len(batch), dtype=np.bool_)
        warps_per_row = np.full(len(batch), _LAYERNORM_WARPS)
        rows_per_cta = np.ones(len(batch))
        reads = np.full(len(batch), 2.0)
    threads = _WARP * warps_per_row
    passes = np.ceil(vectors / threads)
    warps = warps_per_row * rows_per_cta
    resident = np.maximum(
        np.minimum(np.floor(hardware.max_warps_per_sm / warps), hardware.max_ctas_per_sm), 1.0
    )
    ctas = np.ceil(batch.rows / rows_per_cta)
    at_once = np.minimum(np.ceil(ctas / hardware.sm_count), resident)
    return _Layout(
        is_persistent.astype(np.float64),
        ctas,
        passes,
        vectors / (passes * threads),
        ctas / (hardware.sm_count * resident),
        at_once * rows_per_cta * columns * batch.dtype.activation_bytes,
        reads,
    )


def _find_reread_share(
    batch: RowwiseBatch, hardware: OperatorHardware, layout: _Layout, parameters: Parameters
) -> Column:
    """Return the share of further reads of a row that the L1 no longer holds."""
    kept_bytes = parameters[f"{batch.operator.value}_reread_share"] * hardware.l1_bytes_per_sm
    ratio = np.minimum(kept_bytes / layout.resident_bytes, 1e6)
    missed: Column = 1.0 / (1.0 + ratio ** parameters["reread_power"])
    return missed


FAMILY = OperatorFamily(
    name="rowwise-fp32",
    operators=frozenset({Operator.LAYERNORM, Operator.SOFTMAX}),
    parameters=PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
    data_types=frozenset({DataType.FP32}),
)
