"""Operator workloads in columns: rows of one operator, one data type and (for attention) one kind.

All arrays are float64 and have one entry per row, unless a comment says otherwise. A batch says what is
computed; the GPU is told apart (`hardware_figures`). `select` cuts rows out of any batch.
"""

from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.names import AttentionKind, Backend, DataType, MoeProduct, Operator

Column = NDArray[np.float64]


class ProductBatch(Struct, frozen=True):
    """Matrix products D[m, n] = A[m, k] · B[k, n], `batch` of them: gemm, scaled_mm, bmm."""

    operator: Operator
    dtype: DataType
    m: Column
    n: Column
    k: Column
    batch: Column  # ones but for bmm
    backend: Backend | None = None  # whose kernels; None: not known
    is_cold: bool = False  # the L2 has nothing of the operands' last use, as when layers take turns

    def __len__(self) -> int:
        return len(self.m)


class MoeBatch(Struct, frozen=True):
    """Fused mixtures of experts: each of m tokens goes to topk of the experts."""

    operator: Operator
    dtype: DataType
    which: MoeProduct
    m: Column  # tokens
    experts: Column
    topk: Column
    hidden: Column
    intermediate: Column  # per expert; w13 has twice as many output columns
    backend: Backend | None = None  # whose kernels; None: not known

    def __len__(self) -> int:
        return len(self.m)


class RaggedLengths(Struct, frozen=True):
    """Lists of lengths, one list per row: row i holds values[offsets[i] : offsets[i + 1]]."""

    values: Column  # of all rows, one after the other; no row is empty
    offsets: NDArray[np.int64]  # rows + 1 entries

    def sum_rows(self, values: Column) -> Column:
        """Return per row the sum of one value per length."""
        return np.add.reduceat(values, self.offsets[:-1])

    def max_rows(self, values: Column) -> Column:
        """Return per row the maximum of one value per length."""
        return np.maximum.reduceat(values, self.offsets[:-1])

    @property
    def counts(self) -> Column:
        """Lengths per row."""
        return np.diff(self.offsets).astype(np.float64)

    def select(self, rows: NDArray[np.int64]) -> "RaggedLengths":
        """Return the lists of these rows."""
        parts = [self.values[self.offsets[i] : self.offsets[i + 1]] for i in rows]
        sizes = [len(part) for part in parts]
        return RaggedLengths(
            np.concatenate(parts) if parts else np.zeros(0),
            np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
        )


class AttentionBatch(Struct, frozen=True):
    """Attention over requests of different lengths; causal: query i of q sees kv - q + i + 1 keys.

    With a window, a query sees at most so many of the last keys.
    """

    operator: Operator
    dtype: DataType
    kind: AttentionKind
    q_lengths: RaggedLengths
    kv_lengths: RaggedLengths  # as many per row as q_lengths
    heads: Column
    kv_heads: Column
    head_dim: Column
    backend: Backend | None = None  # whose kernels, of the generic kind; None: not known
    window: Column | None = None  # keys, 0 for all; None: all in every row
    is_cold: bool = False  # the L2 has nothing of the keys and values, as when layers take turns

    def __len__(self) -> int:
        return len(self.heads)


class MlaBatch(Struct, frozen=True):
    """Multi-head latent attention: all heads share one latent KV of latent_dim + rope_dim elements.

    A prefill expands it to keys of expanded_dim + rope_dim and values of expanded_dim elements per head.
    """

    operator: Operator
    dtype: DataType
    q_lengths: RaggedLengths
    kv_lengths: RaggedLengths
    heads: Column
    latent_dim: Column  # 512 of DeepSeek
    rope_dim: Column  # 64 of DeepSeek
    expanded_dim: Column  # 128 of DeepSeek
    is_cold: bool = False

    def __len__(self) -> int:
        return len(self.heads)


class RowwiseBatch(Struct, frozen=True):
    """Operators over the rows of a matrix: norms, softmax, SiLU-and-multiply (columns: its input's width)."""

    operator: Operator
    dtype: DataType
    rows: Column
    columns: Column

    def __len__(self) -> int:
        return len(self.rows)


class ElementwiseBatch(Struct, frozen=True):
    """Element-wise operators: as many outputs as each of `inputs` inputs has elements."""

    operator: Operator
    dtype: DataType
    elements: Column
    inputs: Column

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def moved_bytes(self) -> Column:
        """Bytes of the inputs and of the output of each row."""
        return (self.inputs + 1.0) * self.elements * self.dtype.activation_bytes

    @property
    def footprint_bytes(self) -> Column:
        """Bytes that back-to-back launches use in turn: outputs alternate between two buffers."""
        return (self.inputs + 2.0) * self.elements * self.dtype.activation_bytes


class CollectiveBatch(Struct, frozen=True):
    """Collectives: `message_bytes` per GPU among `gpus` GPUs of one node."""

    operator: Operator
    dtype: DataType
    message_bytes: Column
    gpus: Column

    def __len__(self) -> int:
        return len(self.gpus)


OperatorBatch = (
    ProductBatch | MoeBatch | AttentionBatch | MlaBatch | RowwiseBatch | ElementwiseBatch | CollectiveBatch
)
_Batch = TypeVar("_Batch", bound=OperatorBatch)


def select(batch: _Batch, rows: NDArray[np.int64]) -> _Batch:
    """Return the rows of a batch at these positions, in this order."""
    changed: dict[str, Column | RaggedLengths] = {}
    for name in batch.__struct_fields__:
        value = getattr(batch, name)
        if isinstance(value, np.ndarray):
            changed[name] = value[rows]
        elif isinstance(value, RaggedLengths):
            changed[name] = value.select(rows)
    return msgspec.structs.replace(batch, **changed)


def describe_kind(batch: OperatorBatch) -> str:
    """Return operator and data type, `gemm bf16`; of collectives, which count bytes, the operator."""
    return str(batch.operator) if isinstance(batch, CollectiveBatch) else f"{batch.operator} {batch.dtype}"
