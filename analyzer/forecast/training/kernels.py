"""Kernels that a framework launches for the nodes of a tensor graph: their sizes, without names or GPU.

Equal kernels are equal values, so that a model of many equal layers asks for each time once.
"""

from msgspec import Struct

from analyzer.operators.names import DataType, Operator


class ProductKernel(Struct, frozen=True):
    """`batch` products [m, k] · [k, n]; `is_batched` tells bmm from a linear layer."""

    m: int
    n: int
    k: int
    batch: int
    is_batched: bool
    dtype: DataType

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.batch * self.m * self.n * self.k


class RowKernel(Struct, frozen=True):
    """A norm or softmax over the rows of a matrix."""

    operator: Operator
    rows: int
    columns: int
    dtype: DataType

    @property
    def flops(self) -> float:
        """Zero: only products count, as in 6 · parameters · tokens."""
        return 0.0


class StreamKernel(Struct, frozen=True):
    """A kernel that reads and writes tensors once: element-wise, copies, reductions, gathers.

    What it reads again comes from the L2 where that holds what is touched between two uses: a smaller operand
    that is broadcast, or sectors of which neighbouring elements are far apart in time.
    """

    read_bytes: float
    written_bytes: float
    dtype: DataType
    reread_bytes: float = 0.0
    reread_distance_bytes: float = 0.0

    @property
    def flops(self) -> float:
        """Zero: only products count."""
        return 0.0


class AttentionKernel(Struct, frozen=True):
    """Scores, softmax and values in one kernel; `is_backward`: its three gradients."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    is_causal: bool
    is_backward: bool
    dtype: DataType

    @property
    def flops(self) -> float:
        """Of two products forward, five backward (the scores anew); half of each under a causal mask."""
        products = 5.0 if self.is_backward else 2.0
        pairs = self.queries * self.keys * (0.5 if self.is_causal else 1.0)
        return 2.0 * products * self.batch * self.heads * pairs * self.head_dim


class CollectiveKernel(Struct, frozen=True):
    """A transfer between the GPUs of a group."""

    operator: Operator  # ALL_REDUCE or SEND_RECV
    message_bytes: float
    gpus: int
    dtype: DataType

    @property
    def flops(self) -> float:
        """Zero."""
        return 0.0


Kernel = ProductKernel | RowKernel | StreamKernel | AttentionKernel | CollectiveKernel
