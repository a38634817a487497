"""Kernels of the backward pass, as PyTorch's autograd launches them.

    product D = A · B       dA = dD · B', dB = A' · dD: two products of the forward one's operations
    bias                    sum of dD over the rows
    softmax                 dD · D in a kernel of its own, then the row-wise one that reads both
    layer norm              one kernel for dx, one for the gradients of scale and shift
    dropout                 dD times the mask
    embedding               zeros for the whole table, then the rows that occur
    cross entropy           zeros for all logits with one entry each, then the softmax's gradient
    a tensor used c times   c - 1 additions of gradients
    a slice of a tensor     the gradients of all slices are copied into one
    a weight                added to the gradient of the steps before, unless that was freed

What an element-wise operator reads and writes for its gradient is listed by its name (`_POINTWISE`); one that
is not listed reads the gradient and its input and writes once. Source: PyTorch 2.1's derivative formulas and
kernels, as the launches and times of NeuSight's operators inside models show them.

Invariant: products of the backward pass have twice the operations of the forward ones.
"""

from collections.abc import Callable, Sequence

from analyzer.forecast.training.forward_kernels import (
    BACKWARD,
    Kernels,
    copy_inputs,
    make_attention,
    make_product,
    reduce_among_gpus,
)
from analyzer.forecast.training.kernels import Kernel, ProductKernel, StreamKernel
from analyzer.forecast.training.tensor_graph import Node, NodeKind, TensorGraph

# Per kernel: tensors of the output's size that it reads, and that it writes (a mask is a quarter in FP32).
_Traffic = tuple[tuple[float, float], ...]
_ONE_TO_ONE: _Traffic = ((1.0, 1.0),)
_WITH_SAVED: _Traffic = ((2.0, 1.0),)
_POINTWISE: dict[str, _Traffic] = {
    "add": (),
    "sub": (),
    "scale": _ONE_TO_ONE,
    "cast": _ONE_TO_ONE,
    "negate": _ONE_TO_ONE,
    "where": _ONE_TO_ONE,
    "dropout": ((1.25, 1.0),),
    "pow": ((1.0, 1.0), (1.0, 1.0), (2.0, 1.0)),  # x to the power less one, times the power, times dD
    # comparisons for equal and for smaller elements, each with its selection
    "maximum": ((1.0, 0.25), (1.0, 1.0), (2.25, 1.0), (1.0, 0.25), (1.25, 1.0)),
}

_PRODUCT_RULES = frozenset({"mul", "div"})


def list_backward(graph: TensorGraph, place: int, consumers: int) -> Kernels:
    """Return the kernels that turn the gradient of a node's output into those of its inputs and weights.

    `consumers` is how many nodes use the output: their gradients are added up first.
    """
    node = graph.nodes[place]
    if not node.needs_gradient or not node.elements:
        return ()
    inputs = [graph.nodes[i] for i in node.inputs]
    rule = _RULES.get(node.kind)
    kernels = rule(node, inputs) if rule else ()
    sums = [StreamKernel(2.0 * node.output_bytes, node.output_bytes, node.dtype)] * (consumers - 1)
    return (*sums, *kernels)


def list_accumulation(node: Node) -> Kernels:
    """Return the additions of a node's weight gradients to those that are there: read both, write one."""
    if not node.parameters or not node.needs_gradient:
        return ()
    size = node.parameters * node.dtype.activation_bytes
    return (StreamKernel(2.0 * size, size, node.dtype),)


def list_slices_gradient(node: Node) -> Kernels:
    """Return the copy that joins the gradients of a tensor's slices."""
    return (StreamKernel(node.output_bytes, node.output_bytes, node.dtype),)


def _list_linear(node: Node, inputs: Sequence[Node]) -> Kernels:
    forward = make_product(node)
    kernels: list[Kernel] = []
    if any(each.needs_gradient for each in inputs):
        kernels.append(ProductKernel(forward.m, forward.k, forward.n, 1, False, node.dtype))
    if node.parameters or node.shares_weights:
        kernels.append(ProductKernel(forward.n, forward.k, forward.m, 1, False, node.dtype))
    if node.has_bias:
        kernels.append(StreamKernel(node.output_bytes, 0.0, node.dtype))
    return tuple(kernels)


def _list_batched(node: Node, inputs: Sequence[Node]) -> Kernels:
    """Return both products; operands that were copied forward have their gradients copied back."""
    forward = make_product(node)
    m, n, k, batch = forward.m, forward.n, forward.k, forward.batch
    return (
        ProductKernel(m, k, n, batch, True, node.dtype),
        ProductKernel(k, n, m, batch, True, node.dtype),
        *copy_inputs(node, inputs),
    )


def _list_softmax(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (_stream(node, 2.0, 1.0), _stream(node, 2.0, 1.0))


def _list_norm(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (_stream(node, 2.0, 1.0), _stream(node, 2.0, 0.0))


def _list_pointwise(node: Node, inputs: Sequence[Node]) -> Kernels:
    traffic = _POINTWISE.get(node.function, _WITH_SAVED)
    if node.function in _PRODUCT_RULES:  # one kernel per factor that needs a gradient
        traffic = _WITH_SAVED * sum(each.needs_gradient for each in inputs)
    return tuple(_stream(node, reads, writes) for reads, writes in traffic)


def _list_copy(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (_stream(node, 1.0, 1.0),)


def _list_reduction(node: Node, inputs: Sequence[Node]) -> Kernels:
    """The gradient of a reduction is broadcast to its input's size."""
    return tuple(StreamKernel(0.0, each.output_bytes, node.dtype) for each in inputs[:1])


def _list_embedding(node: Node, inputs: Sequence[Node]) -> Kernels:
    table = float(node.k * node.shape[-1]) * node.dtype.activation_bytes
    return (
        StreamKernel(0.0, table, node.dtype),
        StreamKernel(2.0 * node.output_bytes, node.output_bytes, node.dtype),
    )


def _list_cross_entropy(node: Node, inputs: Sequence[Node]) -> Kernels:
    size = inputs[0].output_bytes
    return (StreamKernel(0.0, size, node.dtype), StreamKernel(3.0 * size, size, node.dtype))


def _list_attention(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (make_attention(node, is_backward=True),)


def _list_communication(node: Node, inputs: Sequence[Node]) -> Kernels:
    return (reduce_among_gpus(node),) if node.function == BACKWARD else ()


def _stream(node: Node, reads: float, writes: float) -> StreamKernel:
    return StreamKernel(reads * node.output_bytes, writes * node.output_bytes, node.dtype)


_RULES: dict[NodeKind, Callable[[Node, Sequence[Node]], Kernels]] = {
    NodeKind.LINEAR: _list_linear,
    NodeKind.BATCHED_PRODUCT: _list_batched,
    NodeKind.SOFTMAX: _list_softmax,
    NodeKind.LAYERNORM: _list_norm,
    NodeKind.RMSNORM: _list_norm,
    NodeKind.POINTWISE: _list_pointwise,
    NodeKind.REDUCTION: _list_reduction,
    NodeKind.COPY: _list_copy,
    NodeKind.EMBEDDING: _list_embedding,
    NodeKind.CROSS_ENTROPY: _list_cross_entropy,
    NodeKind.ATTENTION: _list_attention,
    NodeKind.COMMUNICATION: _list_communication,
}
