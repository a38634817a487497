"""All kernels of a graph's forward and backward pass, told by node.

Backward runs for the nodes that the loss (the last node) depends on. A tensor that c of them use has c - 1
additions of gradients; a tensor that is used in slices has one copy that joins their gradients.
"""

from collections.abc import Sequence

from msgspec import Struct

from analyzer.forecast.training.backward_kernels import (
    list_accumulation,
    list_backward,
    list_slices_gradient,
)
from analyzer.forecast.training.forward_kernels import Kernels, list_forward
from analyzer.forecast.training.tensor_graph import NodeKind, TensorGraph


class PassKernels(Struct, frozen=True):
    """Kernels by node, in the order of the nodes: backward runs from the last to the first."""

    forward: tuple[Kernels, ...]
    backward: tuple[Kernels, ...] = ()
    accumulation: tuple[Kernels, ...] = ()  # of weight gradients onto those of the passes before

    def list_all(self) -> tuple[Kernels, ...]:
        """Return all groups of kernels."""
        return (*self.forward, *self.backward, *self.accumulation)


def list_forward_pass(graph: TensorGraph) -> PassKernels:
    """Return the kernels of inference."""
    return PassKernels(tuple(list_forward(graph, place) for place in range(len(graph.nodes))))


def list_training_pass(graph: TensorGraph) -> PassKernels:
    """Return the kernels of the forward and the backward pass."""
    reached = find_reached(graph)
    consumers, slices = count_gradients(graph, reached)
    backward: list[Kernels] = []
    for place, node in enumerate(graph.nodes):
        joined = list_slices_gradient(node) if slices[place] else ()
        own = list_backward(graph, place, max(consumers[place], 1)) if reached[place] else ()
        backward.append((*joined, *own))
    accumulation = tuple(
        list_accumulation(node) if is_reached else ()
        for node, is_reached in zip(graph.nodes, reached, strict=True)
    )
    return PassKernels(list_forward_pass(graph).forward, tuple(backward), accumulation)


def find_reached(graph: TensorGraph) -> list[bool]:
    """Return per node whether the last node depends on it."""
    reached = [False] * len(graph.nodes)
    if reached:
        reached[-1] = True
    for place in reversed(range(len(graph.nodes))):
        if reached[place]:
            for source in graph.nodes[place].inputs:
                reached[source] = True
    return reached


def count_gradients(graph: TensorGraph, reached: Sequence[bool]) -> tuple[list[int], list[bool]]:
    """Return per node how many whole gradients come back, and whether gradients of slices do.

    Views are looked through: their consumers are their source's.
    """
    counts, has_slices = [0] * len(graph.nodes), [False] * len(graph.nodes)
    for place, node in enumerate(graph.nodes):
        if node.kind is NodeKind.VIEW or not reached[place]:
            continue
        for used in node.inputs:
            source = find_source(graph, used)
            if graph.nodes[used].elements < graph.nodes[source].elements:
                has_slices[source] = True
            else:
                counts[source] += 1
    return counts, has_slices


def find_source(graph: TensorGraph, place: int) -> int:
    """Return the node whose tensor the views at `place` show."""
    while graph.nodes[place].kind is NodeKind.VIEW and graph.nodes[place].inputs:
        place = graph.nodes[place].inputs[0]
    return place
