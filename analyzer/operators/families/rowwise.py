"""Row-wise operators of serving libraries: RMSNorm, fused add and RMSNorm, SiLU-and-multiply.

One CTA serves one row (FlashInfer's kernels), launched back to back on the same buffers. The idea: a start
that does not depend on the size, then the slower of DRAM and L2, beside it the waves of CTAs, each as long
as one CTA takes alone, or the dispatch of many small CTAs if that takes longer:

    time = start + ||max(dram, l2), waves|_p, dispatch|_4    (|.|_p: p-norm; max as a norm of power 6)

Invariant: what stayed in the L2 from the launch before costs no DRAM traffic. With cyclic use of a footprint
f (in units of the part of the L2 that keeps it) and random replacement, a share m = 1 - exp(-m f) misses:
0 up to f = 1, .80 at f = 2. An output that is not in place is a fresh buffer that alternates between two.

    fused add and RMSNorm of 4096 x 4096 in bf16 on H800: 134 MB moved, footprint 67 MB of 50 MiB, nearly all
    of it missed: 44 us at 3.0 TB/s.

Operators that no row measured (rmsnorm alone; layernorm and softmax in 16 bit) take the same reference, with
the tensors that they move.
"""

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, RowwiseBatch
from analyzer.operators.family import FittedParameter, OperatorFamily, Parameters, ReferenceTerms
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Operator
from analyzer.operators.overlap import add_by_norm
from analyzer.operators.retention import compute_missed_share

_VECTOR_BYTES = 16  # of one load of a thread
_MAX_THREADS = 1024.0
_WARP = 32.0
_REGISTERS_PER_THREAD = 32.0  # assumed; enough for full occupancy on all but Turing
_STORAGE_POWER = 6.0  # of the norm of DRAM and L2 time: nearly the maximum
_DISPATCH_POWER = 4.0


class _Traits(Struct, frozen=True):
    """What an operator moves, in units of rows x columns elements, and which kernel it is."""

    moved: float
    footprint: float  # kept between launches; outputs that are not in place count twice
    is_gated: bool  # half as many output columns, no reduction
    flops: float  # per element


_TRAITS = {
    Operator.FUSED_ADD_RMSNORM: _Traits(moved=4.0, footprint=2.0, is_gated=False, flops=5.0),
    Operator.RMSNORM: _Traits(moved=2.0, footprint=3.0, is_gated=False, flops=4.0),
    Operator.SILU_MUL: _Traits(moved=1.5, footprint=2.0, is_gated=True, flops=3.0),
    Operator.LAYERNORM: _Traits(moved=2.0, footprint=3.0, is_gated=False, flops=7.0),
    Operator.SOFTMAX: _Traits(moved=2.0, footprint=3.0, is_gated=False, flops=5.0),
}

PARAMETERS = (
    FittedParameter("norm_start_cycles", 2500.0, 0.0, 8000.0),
    FittedParameter("gated_start_cycles", 2000.0, 0.0, 8000.0),
    FittedParameter("start_l2_latencies", 1.0, 0.0, 10.0),
    FittedParameter("norm_dram_share", 0.9, 0.6, 1.2),  # of the GPU's sustained bandwidth
    FittedParameter("gated_dram_share", 0.98, 0.6, 1.2),
    FittedParameter("norm_l2_share", 0.92, 0.6, 1.2),  # of the rate of copies within the L2
    FittedParameter("gated_l2_share", 1.0, 0.6, 1.4),
    FittedParameter("kept_share", 0.8, 0.4, 1.2),  # of the L2
    FittedParameter("kept_share_partitioned", 0.5, 0.3, 1.2),
    FittedParameter("gated_kept_factor", 1.0, 0.6, 1.4),
    FittedParameter("gated_miss_power", 1.3, 0.7, 2.5),  # sharper than random replacement
    FittedParameter("cta_dispatch_cycles", 120.0, 20.0, 400.0),  # between CTAs of one SM
    FittedParameter("norm_cta_cycles", 800.0, 0.0, 4000.0),
    FittedParameter("norm_cta_bytes_per_cycle", 30.0, 5.0, 200.0),  # of a CTA that runs alone
    FittedParameter("gated_cta_bytes_per_cycle", 40.0, 5.0, 200.0),
    FittedParameter("second_pass_penalty", 0.4, 0.0, 2.0),
    FittedParameter("tail_share", 1.0, 0.0, 2.0),  # of a wave that the last one, partly filled, adds
    FittedParameter("overlap_power", 1.8, 1.0, 4.0),
)

FEATURE_NAMES = (
    "is gated",
    "log2 start / total",
    "log2 DRAM / total",
    "log2 L2 / total",
    "log2 dispatch / total",
    "log2 waves' time / total",
    "missed share",
    "log2 footprint / L2",
    "log2 waves",
    "filling of the last wave",
    "log2 warps of a CTA",
    "filling of the passes",
    "passes",
    "log2 resident CTAs",
    "occupancy",
    "log2 rows per SM",
    "log2 columns",
    "L2 latency / DRAM latency",
    "log2 DRAM bytes per cycle and SM",
    "warps of an SM / 64",
)


class _Geometry(Struct, frozen=True):
    """Launch of a batch, and how it lies on the GPU."""

    warps: Column  # of a CTA
    passes: Column  # of the CTA's threads over its row
    pass_filling: Column
    resident: Column  # CTAs per SM
    waves: Column


def compute_terms(batch: RowwiseBatch, hardware: OperatorHardware, parameters: Parameters) -> ReferenceTerms:
    """Return the time of each row of a batch and its terms; see the module's docstring."""
    traits = _TRAITS[batch.operator]
    kind = "gated" if traits.is_gated else "norm"
    geometry = _lay_out(batch, hardware)
    cycles_per_us = hardware.boost_mhz
    element_bytes = batch.dtype.activation_bytes
    tensor_bytes = batch.rows * batch.columns * element_bytes
    moved_bytes = traits.moved * tensor_bytes
    missed = _find_missed_share(batch, hardware, parameters)
    start_us = np.full(
        len(batch),
        (parameters[f"{kind}_start_cycles"] + parameters["start_l2_latencies"] * hardware.l2_latency_cycles)
        / cycles_per_us,
    )
    dram_us = missed * moved_bytes / (hardware.sustained_dram_gbps * 1e3 * parameters[f"{kind}_dram_share"])
    l2_us = moved_bytes / (hardware.l2_copy_gbps * 1e3 * parameters[f"{kind}_l2_share"])
    dispatch_us = batch.rows / hardware.sm_count * parameters["cta_dispatch_cycles"] / cycles_per_us
    waves_us = _count_wave_cycles(batch, geometry, parameters) / cycles_per_us
    storage_us = add_by_norm(dram_us, l2_us, _STORAGE_POWER)
    steady_us = add_by_norm(storage_us, waves_us, parameters["overlap_power"])
    return ReferenceTerms(
        names=("start", "dram", "l2", "dispatch", "waves"),
        terms_us=np.stack([start_us, dram_us, l2_us, dispatch_us, waves_us], axis=1),
        total_us=start_us + add_by_norm(steady_us, dispatch_us, _DISPATCH_POWER),
        flops=traits.flops * batch.rows * batch.columns,
        dram_bytes=moved_bytes,
    )


def compute_features(
    batch: RowwiseBatch, hardware: OperatorHardware, terms: ReferenceTerms
) -> NDArray[np.float64]:
    """Return rows x FEATURE_NAMES: shares of the terms, layout, and ratios of the GPU's figures."""
    traits = _TRAITS[batch.operator]
    geometry = _lay_out(batch, hardware)
    footprint = _compute_footprint(batch) / hardware.l2_bytes
    shares = np.log2(np.maximum(terms.terms_us / terms.total_us[:, None], 1e-3))
    dram_us = np.maximum(terms.find_term("dram"), 1e-9)
    full_dram_us = terms.dram_bytes / (hardware.sustained_dram_gbps * 1e3)
    rows_per_sm = batch.rows / hardware.sm_count
    waves = np.maximum(geometry.waves, 1e-9)
    bytes_per_cycle = hardware.sustained_dram_gbps * 1e3 / hardware.boost_mhz / hardware.sm_count
    figures = (
        hardware.l2_latency_cycles / hardware.dram_latency_cycles,
        float(np.log2(bytes_per_cycle)),
        hardware.max_warps_per_sm / 64.0,
    )
    return np.column_stack(
        [
            np.full(len(batch), float(traits.is_gated)),
            shares,
            np.minimum(dram_us / np.maximum(full_dram_us, 1e-9), 1.5),
            np.clip(np.log2(footprint), -8.0, 6.0),
            np.clip(np.log2(waves), -8.0, 12.0),
            waves / np.ceil(waves),
            np.log2(geometry.warps),
            geometry.pass_filling,
            np.minimum(geometry.passes, 8.0),
            np.log2(geometry.resident),
            geometry.warps * geometry.resident / hardware.max_warps_per_sm,
            np.clip(np.log2(rows_per_sm), -8.0, 8.0),
            np.log2(batch.columns),
            np.tile(figures, (len(batch), 1)),
        ]
    )


def choose_weights(batch: Any) -> str:
    """Return the one set of weights: what differs between operators are features."""
    return "rowwise"


def _lay_out(batch: RowwiseBatch, hardware: OperatorHardware) -> _Geometry:
    """Return FlashInfer's launch (one CTA per row, 16-byte vectors), and CTAs that fit an SM."""
    element_bytes = batch.dtype.activation_bytes
    traits = _TRAITS[batch.operator]
    width = np.maximum(np.round(batch.columns), 1.0)
    if traits.is_gated:
        vectors = np.maximum(np.ceil(width * element_bytes / (2.0 * _VECTOR_BYTES)), 1.0)
        threads = np.minimum(vectors, _MAX_THREADS)
        shared_bytes = np.zeros(len(batch))
    else:
        per_vector = np.gcd(width.astype(np.int64), int(_VECTOR_BYTES / element_bytes)).astype(np.float64)
        vectors = width / per_vector
        threads = _WARP * np.ceil(np.minimum(vectors, _MAX_THREADS) / _WARP)
        shared_bytes = 4.0 * (width + 4.0 * np.ceil(threads / (4.0 * _WARP)))
    warps = np.ceil(threads / _WARP)
    passes = np.ceil(vectors / threads)
    resident = np.minimum(hardware.max_ctas_per_sm, np.floor(hardware.max_warps_per_sm / warps))
    resident = np.minimum(resident, np.floor(hardware.shared_bytes_per_sm / (shared_bytes + 1024.0)))
    by_registers = np.floor(hardware.registers_per_sm / (warps * _WARP * _REGISTERS_PER_THREAD))
    resident = np.maximum(np.minimum(resident, by_registers), 1.0)
    return _Geometry(
        warps, passes, vectors / (threads * passes), resident, batch.rows / (hardware.sm_count * resident)
    )


def _count_wave_cycles(batch: RowwiseBatch, geometry: _Geometry, parameters: Parameters) -> Column:
    """Return cycles of all waves: one CTA's time alone, times the waves; the last one counts by its part."""
    traits = _TRAITS[batch.operator]
    kind = "gated" if traits.is_gated else "norm"
    row_bytes = traits.moved * batch.columns * batch.dtype.activation_bytes
    cta_cycles = row_bytes / parameters[f"{kind}_cta_bytes_per_cycle"]
    if traits.is_gated:
        # measured on all GPUs: a second pass that only some warps of the CTA make costs more than its bytes,
        # the more the fuller it is; a third and further ones do not
        second = np.sqrt(np.clip(2.0 * geometry.pass_filling - 1.0, 0.0, 1.0)) * (geometry.passes == 2.0)
        cta_cycles = cta_cycles * (1.0 + parameters["second_pass_penalty"] * second)
    else:
        cta_cycles = cta_cycles + parameters["norm_cta_cycles"]
    waves = geometry.waves
    tail = parameters["tail_share"] * (np.ceil(waves) - waves)
    cycles: Column = cta_cycles * (np.maximum(waves, 1.0) + np.where(waves > 1.0, tail, 0.0))
    return cycles


def _compute_footprint(batch: RowwiseBatch) -> Column:
    """Return the bytes that back-to-back launches use in turn."""
    footprint: Column = (
        _TRAITS[batch.operator].footprint * batch.rows * batch.columns * batch.dtype.activation_bytes
    )
    return footprint


def _find_missed_share(batch: RowwiseBatch, hardware: OperatorHardware, parameters: Parameters) -> Column:
    """Return the share of the moved bytes that has to come from or go to DRAM."""
    name = "kept_share_partitioned" if hardware.l2_partitions > 1.0 else "kept_share"
    kept_bytes = parameters[name] * hardware.l2_bytes
    if not _TRAITS[batch.operator].is_gated:
        return compute_missed_share(_compute_footprint(batch) / kept_bytes)
    ratio = _compute_footprint(batch) / (parameters["gated_kept_factor"] * kept_bytes)
    return compute_missed_share(ratio ** parameters["gated_miss_power"])


FAMILY = OperatorFamily(
    name="rowwise",
    operators=frozenset(_TRAITS),
    parameters=PARAMETERS,
    feature_names=FEATURE_NAMES,
    compute_terms=compute_terms,
    compute_features=compute_features,
    choose_weights=choose_weights,
)
