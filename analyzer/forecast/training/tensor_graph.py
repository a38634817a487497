"""Graphs of tensor operators: what a model computes, with the shape of every tensor, and nothing of a GPU.

A node computes one tensor from those of earlier nodes. `forward_kernels`, `backward_kernels` and `fusion` say
which kernels a framework launches for it. The same graph is built from a Hugging Face configuration
(`architectures`) and from a program that torch.export wrote (`forecast/exported`).

Invariant: a node's inputs stand before it. Example: an MLP's graph has an INPUT, a LINEAR, a POINTWISE "gelu"
whose input is the product, and a LINEAR.
"""

from enum import StrEnum
from math import prod

from msgspec import Struct

from analyzer.operators.names import DataType

NO_NODE = -1


class NodeKind(StrEnum):
    """What a node computes."""

    INPUT = "input"
    PARAMETER = "parameter"  # a weight that no product or norm takes with it: a mask, a bias added apart
    LINEAR = "linear"  # [rows, k] by weights [n, k], with or without a bias
    BATCHED_PRODUCT = "batched_product"
    SOFTMAX = "softmax"
    LAYERNORM = "layernorm"
    RMSNORM = "rmsnorm"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    COPY = "copy"  # of a tensor to another layout
    VIEW = "view"  # no kernel
    EMBEDDING = "embedding"
    ATTENTION = "attention"  # scores, softmax and values in one kernel
    CROSS_ENTROPY = "cross_entropy"
    COMMUNICATION = "communication"  # all-reduce of a tensor between tensor-parallel GPUs
    UNSUPPORTED = "unsupported"


class AttentionShape(Struct, frozen=True):
    """Sizes of a fused attention that no input's shape tells."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    is_causal: bool


class Node(Struct, frozen=True):
    """One operator and the tensor that it makes."""

    name: str
    kind: NodeKind
    inputs: tuple[int, ...]  # indices of nodes
    shape: tuple[int, ...]  # of the output
    dtype: DataType
    function: str = ""  # of a pointwise operator: "gelu", "add", ...
    element_bytes: float = 0.0  # of the output where it is not of `dtype`; 0: dtype's
    k: int = 0  # length of the reduction of a product; rows of an embedding's table
    parameters: int = 0  # elements of weights, norms' scales, biases
    has_bias: bool = False
    layer: int = NO_NODE  # of the transformer, counted from 0; NO_NODE: before the first or after the last
    attention: AttentionShape | None = None
    needs_gradient: bool = True  # of the output
    shares_weights: bool = False  # with another node: counted once, its gradient added once more
    is_strided: bool = False  # neighbours of the last dimension lie a sector or more apart
    copied_inputs: tuple[int, ...] = ()  # places in `inputs` that are copied to be contiguous for a product

    @property
    def elements(self) -> int:
        """Elements of the output."""
        return prod(self.shape)

    @property
    def output_bytes(self) -> float:
        """Bytes of the output."""
        return self.elements * (self.element_bytes or self.dtype.activation_bytes)


class TensorGraph(Struct, frozen=True):
    """The operators of one pass of a model, in the order in which they run."""

    name: str
    nodes: tuple[Node, ...]
    layers: int = 0  # 0: not told apart
    tokens: int = 0  # batch · sequence
    batch: int = 1
    warnings: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Elements of all weights, shared ones once."""
        return sum(node.parameters for node in self.nodes if not node.shares_weights)
