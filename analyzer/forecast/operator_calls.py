"""Operators that one step of a served model launches on one GPU, and the steps of a run.

A step is one pass of the model over the tokens scheduled together: a prefill, a decode step, or a mixture.
Calls say what one GPU of a tensor-parallel group computes; `count` is how often the step repeats the call.
"""

from enum import StrEnum
from math import ceil

from msgspec import Struct

from analyzer.operators.attention_plan import SPECULATIVE_QUERIES
from analyzer.operators.names import AttentionKind, DataType


class Phase(StrEnum):
    """What a step does for its requests."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"  # chunks of prefills beside decoding requests


class CollectiveKind(StrEnum):
    """A transfer between GPUs; the value is its name in files and reports."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECV = "send_recv"


class ProductCall(Struct, frozen=True):
    """A matrix product [m, k] · [k, n] with weights."""

    name: str  # qkv_proj, o_proj, gate_up_proj, down_proj, lm_head, ...
    layer_type: str  # the framework's class: ColumnParallelLinear, RowParallelLinear, Linear, ...
    m: int
    n: int  # as the framework lists it: of lm_head the whole vocabulary, see `n_shards`
    k: int
    dtype: DataType
    count: int
    n_shards: int = 1  # GPUs that share n, where n is listed whole

    @property
    def local_n(self) -> int:
        """Columns of this GPU."""
        return ceil(self.n / self.n_shards)


class AttentionCall(Struct, frozen=True):
    """Attention of those requests of the step that prefill, or of those that decode, in one layer."""

    kind: AttentionKind  # of the kernel that runs, as lists of operators name it
    query_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    heads: int  # of this GPU
    kv_heads: int
    head_dim: int
    count: int
    window: int = 0  # keys that a query sees; 0: all
    kv_dtype: DataType = DataType.BF16

    @property
    def is_decode(self) -> bool:
        """Return whether the requests decode."""
        return is_decode(self.query_lengths[0])


class LatentAttentionCall(Struct, frozen=True):
    """MLA of those requests that prefill, on expanded heads, or of those that decode, on the latent."""

    query_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    heads: int  # of this GPU
    latent_dim: int
    rope_dim: int
    nope_dim: int  # of an expanded key, without rope_dim
    value_dim: int  # of an expanded value
    count: int
    kv_dtype: DataType = DataType.BF16

    @property
    def expanded_dim(self) -> float:
        """Elements of a head's expanded keys without rope_dim, and of its values, on average."""
        return (self.nope_dim + self.value_dim) / 2

    @property
    def is_decode(self) -> bool:
        """Return whether the requests decode."""
        return is_decode(self.query_lengths[0])


def is_decode(query_length: int) -> bool:
    """Return whether a request with so many new tokens is computed as one that decodes."""
    return query_length <= SPECULATIVE_QUERIES


class NormCall(Struct, frozen=True):
    """A normalization of rows."""

    name: str  # rmsnorm, q_norm, k_norm
    rows: int
    dim: int
    count: int
    adds_residual: bool = True

    @property
    def is_of_heads(self) -> bool:
        """Return whether rows are heads, of which one CTA normalizes several."""
        return self.name in ("q_norm", "k_norm")


class ActivationCall(Struct, frozen=True):
    """SiLU (or GELU) of the gate times the up half."""

    rows: int
    dim: int  # width of the input: gate and up
    count: int


class MoeCall(Struct, frozen=True):
    """Both products of a mixture of experts, routing included."""

    tokens: int
    experts: int  # on this GPU
    topk: int
    hidden: int
    intermediate: int  # per expert, on this GPU
    dtype: DataType
    count: int
    share_of_routed: float = 1.0  # of all routed tokens that meet an expert of this GPU


class ElementwiseCall(Struct, frozen=True):
    """A kernel that streams bytes: embedding, rotary embedding and KV write, sampling."""

    name: str
    rows: int
    row_bytes: float  # read and written
    count: int
    is_listed: bool = False  # whether the frameworks' operator lists have it

    @property
    def elements(self) -> float:
        """Elements that an element-wise kernel of one input and one output of 16 bits moves as bytes."""
        return self.rows * self.row_bytes / 4.0


class CollectiveCall(Struct, frozen=True):
    """A transfer between the GPUs of a group."""

    kind: CollectiveKind
    message_bytes: int
    gpus: int
    count: int
    is_listed: bool = True


OperatorCall = (
    ProductCall
    | AttentionCall
    | LatentAttentionCall
    | NormCall
    | ActivationCall
    | MoeCall
    | ElementwiseCall
    | CollectiveCall
)


class Step(Struct, frozen=True):
    """One pass of the model over tokens scheduled together."""

    phase: Phase
    batch: int  # requests
    tokens: int  # rows of the products
    kv_tokens: int  # sum of the KV lengths, the new tokens included
    calls: tuple[OperatorCall, ...]
