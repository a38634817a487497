"""Builds tensor graphs operator by operator, as a model's `forward` is written.

build = GraphBuilder(DataType.FP32)
hidden = build.input("hidden", (8, 512, 1024))
up = build.linear("fc1", hidden, 4096)
build.linear("fc2", build.pointwise("gelu", "gelu", up), 1024)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from analyzer.forecast.training.tensor_graph import NO_NODE, AttentionShape, Node, NodeKind, TensorGraph
from analyzer.operators.names import DataType

Shape = tuple[int, ...]


@dataclass
class GraphBuilder:
    """Nodes so far; every method adds one and returns its index."""

    dtype: DataType
    nodes: list[Node] = field(default_factory=list)
    layer: int = NO_NODE

    def add(self, name: str, kind: NodeKind, inputs: Sequence[int], shape: Shape, **fields: object) -> int:
        """Add a node; it needs a gradient where an input or a weight of its own does."""
        fields.setdefault(
            "needs_gradient",
            any(self.nodes[i].needs_gradient for i in inputs)
            or bool(fields.get("parameters") or fields.get("shares_weights")),
        )
        node = Node(name, kind, tuple(inputs), shape, self.dtype, layer=self.layer)
        self.nodes.append(replace(node, **fields))
        return len(self.nodes) - 1

    def shape_of(self, place: int) -> Shape:
        """Return a tensor's shape."""
        return self.nodes[place].shape

    def input(self, name: str, shape: Shape, element_bytes: float = 8.0) -> int:
        """Add what the caller gives: token ids, masks, buffers. It needs no gradient."""
        return self.add(name, NodeKind.INPUT, (), shape, element_bytes=element_bytes, needs_gradient=False)

    def linear(
        self, name: str, x: int, columns: int, *, has_bias: bool = True, shares_weights: bool = False
    ) -> int:
        """Add a product with weights [columns, last dimension of x]; shared weights are another node's."""
        k = self.shape_of(x)[-1]
        parameters = columns * (k + has_bias)
        return self.add(
            name,
            NodeKind.LINEAR,
            (x,),
            (*self.shape_of(x)[:-1], columns),
            k=k,
            has_bias=has_bias,
            parameters=parameters,
            shares_weights=shares_weights,
        )

    def matmul(self, name: str, a: int, b: int, *, copied: tuple[int, ...] = ()) -> int:
        """Add batched products [..., m, k] · [..., k, n]; `copied` are the operands made contiguous."""
        left, right = self.shape_of(a), self.shape_of(b)
        return self.add(
            name,
            NodeKind.BATCHED_PRODUCT,
            (a, b),
            (*left[:-1], right[-1]),
            k=left[-1],
            copied_inputs=copied,
        )

    def attention(self, name: str, query: int, key: int, value: int, *, is_causal: bool) -> int:
        """Add fused attention of queries [batch, heads, q, d], keys and values [batch, heads, kv, d]."""
        batch, heads, queries, head_dim = self.shape_of(query)
        _, kv_heads, keys, _ = self.shape_of(key)
        sizes = AttentionShape(batch, heads, kv_heads, queries, keys, head_dim, is_causal)
        shape = (batch, heads, queries, self.shape_of(value)[-1])
        return self.add(name, NodeKind.ATTENTION, (query, key, value), shape, attention=sizes)

    def softmax(self, name: str, x: int) -> int:
        """Add a softmax over the last dimension."""
        return self.add(name, NodeKind.SOFTMAX, (x,), self.shape_of(x))

    def layernorm(self, name: str, x: int) -> int:
        """Add a layer norm with scale and shift."""
        shape = self.shape_of(x)
        return self.add(name, NodeKind.LAYERNORM, (x,), shape, parameters=2 * shape[-1])

    def pointwise(self, name: str, function: str, *inputs: int, parameters: int = 0) -> int:
        """Add an element-wise operator; the first input has the output's shape and type."""
        return self.add(
            name,
            NodeKind.POINTWISE,
            inputs,
            self.shape_of(inputs[0]),
            function=function,
            parameters=parameters,
            element_bytes=self.nodes[inputs[0]].element_bytes,
        )

    def cast(self, name: str, x: int, element_bytes: float) -> int:
        """Add a conversion to a type of so many bytes; 0: the graph's own."""
        shape = self.shape_of(x)
        return self.add(name, NodeKind.POINTWISE, (x,), shape, function="cast", element_bytes=element_bytes)

    def reduction(self, name: str, x: int, shape: Shape) -> int:
        """Add a reduction of x to a smaller shape."""
        return self.add(name, NodeKind.REDUCTION, (x,), shape, function="reduce")

    def copy(self, name: str, x: int, shape: Shape | None = None, *, is_strided: bool = False) -> int:
        """Add a copy to another layout."""
        return self.add(name, NodeKind.COPY, (x,), shape or self.shape_of(x), is_strided=is_strided)

    def view(self, name: str, x: int, shape: Shape) -> int:
        """Add another shape of the same tensor, or a slice of it."""
        return self.add(name, NodeKind.VIEW, (x,), shape)

    def embedding(self, name: str, ids: int, rows: int, columns: int) -> int:
        """Add a look-up of rows of a table."""
        return self.add(
            name,
            NodeKind.EMBEDDING,
            (ids,),
            (*self.shape_of(ids), columns),
            k=rows,
            parameters=rows * columns,
        )

    def cross_entropy(self, name: str, logits: int) -> int:
        """Add the mean cross entropy of logits and targets."""
        return self.add(name, NodeKind.CROSS_ENTROPY, (logits,), (1,))

    def all_reduce(self, name: str, x: int, gpus: int, direction: str) -> int:
        """Add an all-reduce among tensor-parallel GPUs, in the forward or the backward pass."""
        return self.add(name, NodeKind.COMMUNICATION, (x,), self.shape_of(x), function=direction, k=gpus)

    def build(self, name: str, *, layers: int, tokens: int, batch: int) -> TensorGraph:
        """Return the graph."""
        return TensorGraph(name, tuple(self.nodes), layers, tokens, batch)
