"""Kernels of the forward pass, as eager PyTorch launches them: one per operator, each tensor through DRAM.

Sizes follow from the nodes' shapes. A batched product whose operands are slices or permutations of a larger
tensor copies them first (`copied_inputs`), because cuBLAS takes one stride between the matrices of a batch.

Example: dropout of n elements in FP32 reads 4 n bytes and writes 4 n of output and n of mask.
"""

from collections.abc import Callable, Sequence
from math import prod

from analyzer.forecast.training.kernels import (
    AttentionKernel,
    CollectiveKernel,
    Kernel,
    ProductKernel,
    RowKernel,
    StreamKernel,
)
from analyzer.forecast.training.tensor_graph import Node, NodeKind, TensorGraph
from analyzer.operators.names import Operator

Kernels = tuple[Kernel, ...]
_MASK_BYTES = 1.0
_SECTOR_BYTES = 32.0
# In which pass a COMMUNICATION node reduces: after row-parallel products, before column-parallel ones.
FORWARD, BACKWARD = "forward", "backward"


def list_forward(graph: TensorGraph, place: int) -> Kernels:
    """Return the kernels of one node, none for what launches nothing."""
    node = graph.nodes[place]
    rule = _RULES.get(node.kind) if node.elements else None
    return rule(node, [graph.nodes[i] for i in node.inputs]) if rule else ()


def copy_inputs(node: Node, inputs: Sequence[Node]) -> Kernels:
    """Return the copies of a product's operands that are not contiguous."""
    sizes = [inputs[i].output_bytes for i in node.copied_inputs]
    return tuple(StreamKernel(size, size, node.dtype) for size in sizes)


def make_product(node: Node) -> ProductKernel:
    """Return the product of a LINEAR or BATCHED_PRODUCT node."""
    columns = node.shape[-1]
    if node.kind is NodeKind.LINEAR:
        return ProductKernel(node.elements // columns, columns, node.k, 1, False, node.dtype)
    rows, batch = node.shape[-2], prod(node.shape[:-2])
    return ProductKernel(rows, columns, node.k, batch, True, node.dtype)


def make_attention(node: Node, *, is_backward: bool) -> AttentionKernel:
    """Return the fused attention of an ATTENTION node, forward or backward."""
    shape = node.attention
    assert shape is not None, "an ATTENTION node has its sizes"
    return AttentionKernel(
        shape.batch,
        shape.heads,
        shape.kv_heads,
        shape.queries,
        shape.keys,
        shape.head_dim,
        shape.is_causal,
        is_backward,
        node.dtype,
    )


def _list_product(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (*copy_inputs(node, inputs), make_product(node))


def _list_row(node: Node, inputs: Sequence[Node]) -> Kernels:
    columns = node.shape[-1]
    operator = _ROW_OPERATORS[node.kind]
    return (RowKernel(operator, node.elements // columns, columns, node.dtype),)


def _list_pointwise(node: Node, inputs: Sequence[Node]) -> Kernels:
    written = node.output_bytes + (_MASK_BYTES * node.elements if node.function == "dropout" else 0.0)
    read = sum(each.output_bytes for each in inputs)
    if len(inputs) < 2:
        return (StreamKernel(read, written, node.dtype),)
    again, distance = _find_rereads(node, inputs[-1])
    return (StreamKernel(read, written, node.dtype, again, distance),)


def _find_rereads(node: Node, operand: Node) -> tuple[float, float]:
    """Return the bytes of an operand that are read again, and what is touched between two readings.

    A broadcast operand is read as often as it repeats; in between lie itself and as much of the other operand
    and the output. Of a strided one each element fetches a sector, whose other elements follow one step of
    the outermost dimension later: per step a sector for each element, and both other tensors.
    """
    if operand.is_strided:
        per_sector = _SECTOR_BYTES * operand.elements / operand.output_bytes
        step_bytes = operand.output_bytes / operand.shape[-3]
        return (per_sector - 1.0) * operand.output_bytes, (per_sector + 2.0) * step_bytes
    size = operand.output_bytes
    repeats = node.elements / max(operand.elements, 1)
    return (max(repeats - 1.0, 0.0) * size, 3.0 * size) if repeats > 1.0 else (0.0, 0.0)


def _list_embedding(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (StreamKernel(node.output_bytes, node.output_bytes, node.dtype),)


def _list_cross_entropy(node: Node, inputs: Sequence[Node]) -> Kernels:
    """Logarithm of the softmax of all logits; what gathers the targets' is small."""
    logits = inputs[0]
    columns = logits.shape[-1]
    return (RowKernel(Operator.SOFTMAX, logits.elements // columns, columns, logits.dtype),)


def _list_attention(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (make_attention(node, is_backward=False),)


def _list_communication(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (reduce_among_gpus(node),) if node.function == FORWARD else ()


def reduce_among_gpus(node: Node) -> CollectiveKernel:
    """Return the all-reduce of a COMMUNICATION node among its `k` GPUs."""
    return CollectiveKernel(Operator.ALL_REDUCE, node.output_bytes, node.k, node.dtype)


_ROW_OPERATORS = {
    NodeKind.SOFTMAX: Operator.SOFTMAX,
    NodeKind.LAYERNORM: Operator.LAYERNORM,
    NodeKind.RMSNORM: Operator.RMSNORM,
}
_RULES: dict[NodeKind, Callable[[Node, Sequence[Node]], Kernels]] = {
    NodeKind.LINEAR: _list_product,
    NodeKind.BATCHED_PRODUCT: _list_product,
    NodeKind.SOFTMAX: _list_row,
    NodeKind.LAYERNORM: _list_row,
    NodeKind.RMSNORM: _list_row,
    NodeKind.POINTWISE: _list_pointwise,
    NodeKind.REDUCTION: _list_pointwise,
    NodeKind.COPY: _list_pointwise,
    NodeKind.EMBEDDING: _list_embedding,
    NodeKind.ATTENTION: _list_attention,
    NodeKind.CROSS_ENTROPY: _list_cross_entropy,
    NodeKind.COMMUNICATION: _list_communication,
}
