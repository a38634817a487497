"""Memory of a training step on one GPU: weights, gradients, optimizer, tensors kept for the backward pass.

Kept are the inputs of products and norms, the outputs of softmax, what element-wise gradients read, and
dropout's masks, each tensor once. Not counted: fragmentation and workspaces.
"""

from msgspec import Struct

from analyzer.forecast.training.pass_kernels import find_reached, find_source
from analyzer.forecast.training.tensor_graph import Node, NodeKind, TensorGraph

_CONTEXT_BYTES = 800_000_000  # assumed: context, cuBLAS and NCCL
_MASTER_BYTES = 4.0  # of each of Adam's moments, and of FP32 weights beside those in 16 bits
# Element-wise operators whose gradient reads neither input nor output.
_KEEPS_NOTHING = frozenset({"add", "sub", "scale", "cast", "negate", "where"})
_KEEPS_INPUTS = frozenset({NodeKind.LINEAR, NodeKind.BATCHED_PRODUCT, NodeKind.LAYERNORM, NodeKind.RMSNORM})
_KEEPS_OUTPUT = frozenset({NodeKind.SOFTMAX, NodeKind.CROSS_ENTROPY})


class TrainingMemory(Struct, frozen=True):
    """Bytes on one GPU."""

    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of it, with the context."""
        parts = (self.weight_bytes, self.gradient_bytes, self.optimizer_bytes, self.activation_bytes)
        return sum(parts) + _CONTEXT_BYTES


def compute_memory(
    graph: TensorGraph, is_training: bool, has_optimizer: bool, stages: int = 1
) -> TrainingMemory:
    """Return the memory of one of the pipeline's stages; of inference the weights and the largest tensors."""
    element_bytes = graph.nodes[0].dtype.activation_bytes if graph.nodes else 4.0
    parameters = graph.parameters / stages
    weights = parameters * element_bytes
    if not is_training:
        largest = sorted((node.output_bytes for node in graph.nodes), reverse=True)[:2]
        return TrainingMemory(weights, 0.0, 0.0, sum(largest))
    states = 2.0 if element_bytes >= _MASTER_BYTES else 3.0
    optimizer = states * _MASTER_BYTES * parameters if has_optimizer else 0.0
    return TrainingMemory(weights, weights, optimizer, count_kept_bytes(graph) / stages)


def count_kept_bytes(graph: TensorGraph) -> float:
    """Return the bytes of tensors that the backward pass reads."""
    reached = find_reached(graph)
    kept: set[int] = set()
    masks = 0.0
    for place, node in enumerate(graph.nodes):
        if not reached[place] or not node.needs_gradient:
            continue
        if node.kind in _KEEPS_INPUTS or _keeps_operands(node):
            kept.update(find_source(graph, used) for used in node.inputs)
        if node.kind in _KEEPS_OUTPUT:
            kept.add(place)
        if node.function == "dropout":
            masks += node.elements
    return masks + sum(graph.nodes[place].output_bytes for place in kept)


def _keeps_operands(node: Node) -> bool:
    return node.kind is NodeKind.POINTWISE and node.function not in _KEEPS_NOTHING | {"dropout"}
