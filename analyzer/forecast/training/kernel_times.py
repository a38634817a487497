"""Times of kernels on one GPU, by any operator model.

Kernels of one kind and data type are asked for as one batch, each distinct one once. Where a model's times
are intervals of single calls, with the host's launch in them (FP32), the kernels' own part counts, plus
`_START_US`: in a running model the host is ahead, and launches cost only what lies between two kernels.

Which operator answers for a kernel: products and norms their own; what streams bytes the element-wise one of
as many bytes; attention in 16 bits the serving kernel forward and five halves of it backward (five products
for two), in FP32 its two or five products. A norm that no family times in its data type counts as stream.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
from msgspec import Struct

from analyzer.forecast.training.kernels import (
    AttentionKernel,
    CollectiveKernel,
    Kernel,
    ProductKernel,
    RowKernel,
    StreamKernel,
)
from analyzer.hardware.gpu import Gpu
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import (
    AttentionBatch,
    CollectiveBatch,
    Column,
    ElementwiseBatch,
    OperatorBatch,
    ProductBatch,
    RaggedLengths,
    RowwiseBatch,
)
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import AttentionKind, Backend, DataType, Operator
from analyzer.operators.retention import compute_missed_share

OperatorModel = Callable[[OperatorBatch, Gpu], OperatorPrediction]

_START_US = 2.0  # between two dependent kernels of a stream; assumed, 1 to 3 us on all GPUs that were timed
_BACKWARD_OF_ATTENTION = 2.5
_MOST_SEQUENCES = 1024
_KEPT_SHARE = (
    0.8  # of the L2, between two uses of a line: as of the L2 between launches (`elementwise_kernel`)
)
_TWO_INPUTS_FROM = 1.5  # bytes read per byte written above which a stream counts as one of two inputs


class KernelTime(Struct, frozen=True):
    """Time of one kernel, with the model's interval."""

    time_us: float
    low_us: float
    high_us: float
    basis: str


def time_kernels(kernels: Iterable[Kernel], gpu: Gpu, model: OperatorModel) -> dict[Kernel, KernelTime]:
    """Return the time of each distinct kernel. Raises UsageError for an operator that no family serves."""
    given = dict.fromkeys(kernels)
    found: dict[Kernel, KernelTime] = {kernel: _NO_TIME for kernel in given if _is_empty(kernel)}
    distinct = sorted((kernel for kernel in given if kernel not in found), key=_sort_key)
    for _, group in groupby(distinct, key=_sort_key):
        members = list(group)
        found.update(zip(members, _time_alike(members, gpu, model), strict=True))
    return found


_NO_TIME = KernelTime(0.0, 0.0, 0.0, "nothing to compute")


def _is_empty(kernel: Kernel) -> bool:
    """Return whether a kernel has a dimension of no element, and so is not launched."""
    match kernel:
        case ProductKernel():
            return not (kernel.m and kernel.n and kernel.k and kernel.batch)
        case RowKernel():
            return not (kernel.rows and kernel.columns)
        case AttentionKernel():
            sizes = (
                kernel.batch,
                kernel.heads,
                kernel.kv_heads,
                kernel.queries,
                kernel.keys,
                kernel.head_dim,
            )
            return not all(sizes)
        case StreamKernel():
            return kernel.read_bytes + kernel.written_bytes <= 0.0
        case CollectiveKernel():
            return kernel.message_bytes <= 0.0


def _sort_key(kernel: Kernel) -> tuple[str, ...]:
    """Return what all kernels of one batch share."""
    match kernel:
        case ProductKernel():
            return ("product", kernel.dtype, str(kernel.is_batched))
        case RowKernel():
            return ("row", kernel.dtype, kernel.operator)
        case StreamKernel():
            return ("stream", kernel.dtype)
        case AttentionKernel():
            return ("attention", kernel.dtype, str(kernel.is_causal), str(kernel.is_backward))
        case CollectiveKernel():
            return ("collective", kernel.dtype, kernel.operator)


def _time_alike(kernels: Sequence[Kernel], gpu: Gpu, model: OperatorModel) -> list[KernelTime]:
    first = kernels[0]
    if isinstance(first, AttentionKernel):
        return _time_attention([k for k in kernels if isinstance(k, AttentionKernel)], gpu, model)
    if isinstance(first, StreamKernel):
        return _ask(_make_stream([k for k in kernels if isinstance(k, StreamKernel)], gpu), gpu, model)
    return _ask(_make_batch(kernels), gpu, model)


def _make_batch(kernels: Sequence[Kernel]) -> OperatorBatch:
    first = kernels[0]
    match first:
        case ProductKernel():
            operator = Operator.BMM if first.is_batched else Operator.GEMM
            m, n, k, batch = (_read(kernels, name) for name in ("m", "n", "k", "batch"))
            # PyTorch asks cuBLAS, whose kernels the rows of TensorRT-LLM timed
            return ProductBatch(operator, first.dtype, m, n, k, batch, Backend.TRTLLM)
        case RowKernel() if _has_row_family(first):
            return RowwiseBatch(
                first.operator, first.dtype, _read(kernels, "rows"), _read(kernels, "columns")
            )
        case RowKernel():
            size = _read(kernels, "rows") * _read(kernels, "columns") * first.dtype.activation_bytes
            return make_stream_batch(first.dtype, size, size)
        case CollectiveKernel():
            return CollectiveBatch(
                first.operator, first.dtype, _read(kernels, "message_bytes"), _read(kernels, "gpus")
            )
        case _:
            raise AssertionError(f"no batch of {first}")


def _make_stream(kernels: Sequence[StreamKernel], gpu: Gpu) -> ElementwiseBatch:
    """Return streams as element-wise operators; what the L2 does not keep is read again from DRAM."""
    distance = _read(kernels, "reread_distance_bytes") / read_operator_hardware(gpu).l2_bytes
    again = _read(kernels, "reread_bytes") * compute_missed_share(distance / _KEPT_SHARE)
    return make_stream_batch(
        kernels[0].dtype, _read(kernels, "read_bytes") + again, _read(kernels, "written_bytes")
    )


def _has_row_family(kernel: RowKernel) -> bool:
    """Return whether a family times this norm: layer norm and softmax in FP32 alone."""
    is_fp32_kind = kernel.operator in (Operator.LAYERNORM, Operator.SOFTMAX)
    return is_fp32_kind == (kernel.dtype is DataType.FP32)


def make_stream_batch(dtype: DataType, read_bytes: Column, written_bytes: Column) -> ElementwiseBatch:
    """Return element-wise operators of one or two inputs that move as many bytes."""
    inputs = np.where(read_bytes > _TWO_INPUTS_FROM * written_bytes, 2.0, 1.0)
    elements = (read_bytes + written_bytes) / ((inputs + 1.0) * dtype.activation_bytes)
    return ElementwiseBatch(Operator.ELEMENTWISE, dtype, np.maximum(elements, 1.0), inputs)


def _time_attention(kernels: Sequence[AttentionKernel], gpu: Gpu, model: OperatorModel) -> list[KernelTime]:
    first = kernels[0]
    if first.dtype is DataType.FP32:
        return [_time_products(kernel, gpu, model) for kernel in kernels]
    counts = [min(kernel.batch, _MOST_SEQUENCES) for kernel in kernels]  # more of them take in proportion
    queries = _repeat(counts, [kernel.queries for kernel in kernels])
    keys = _repeat(counts, [kernel.keys for kernel in kernels])
    batch = AttentionBatch(
        Operator.ATTENTION,
        first.dtype,
        AttentionKind.GENERIC,
        queries,
        keys,
        _read(kernels, "heads"),
        _read(kernels, "kv_heads"),
        _read(kernels, "head_dim"),
    )
    factor = _BACKWARD_OF_ATTENTION if first.is_backward else 1.0
    if not first.is_causal:
        factor *= 2.0  # the family counts causal attention: half of the pairs
    shares = [kernel.batch / count for kernel, count in zip(kernels, counts, strict=True)]
    found = _ask(batch, gpu, model)
    return [_scale(each, factor * share) for each, share in zip(found, shares, strict=True)]


def _time_products(kernel: AttentionKernel, gpu: Gpu, model: OperatorModel) -> KernelTime:
    """Return the time of a fused attention in FP32 as that of its products."""
    batch = kernel.batch * kernel.heads
    products = [
        ProductKernel(kernel.queries, kernel.keys, kernel.head_dim, batch, True, kernel.dtype),
        ProductKernel(kernel.queries, kernel.head_dim, kernel.keys, batch, True, kernel.dtype),
    ]
    scores, values = _ask(_make_batch(products), gpu, model)
    share = 0.5 if kernel.is_causal else 1.0
    counts = (2.0, 3.0) if kernel.is_backward else (1.0, 1.0)
    parts = (_scale(scores, share * counts[0]), _scale(values, share * counts[1]))
    return KernelTime(
        sum(part.time_us for part in parts),
        sum(part.low_us for part in parts),
        sum(part.high_us for part in parts),
        f"as its products: {scores.basis}",
    )


def _repeat(counts: Sequence[int], lengths: Sequence[int]) -> RaggedLengths:
    values = np.repeat(np.array(lengths, dtype=np.float64), counts)
    return RaggedLengths(values, np.concatenate(([0], np.cumsum(counts))))


def _scale(time: KernelTime, factor: float) -> KernelTime:
    return KernelTime(time.time_us * factor, time.low_us * factor, time.high_us * factor, time.basis)


def _ask(batch: OperatorBatch, gpu: Gpu, model: OperatorModel) -> list[KernelTime]:
    """Return the kernels' own times by a model."""
    found = model(batch, gpu)
    time_us = found.time_us if found.gpu_us is None else found.gpu_us + _START_US
    low, high = time_us * found.low_us / found.time_us, time_us * found.high_us / found.time_us
    return [
        KernelTime(float(t), float(lo), float(hi), found.basis)
        for t, lo, hi in zip(time_us, low, high, strict=True)
    ]


def _read(kernels: Sequence[Kernel], name: str) -> Column:
    return np.array([float(getattr(kernel, name)) for kernel in kernels])


def sum_times(kernels: Iterable[Kernel], times: Mapping[Kernel, KernelTime]) -> float:
    """Return the sum of the kernels' times in microseconds."""
    return sum(times[kernel].time_us for kernel in kernels)
