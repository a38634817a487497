"""Fusion of element-wise chains, as torch.compile (TorchInductor) does it.

The idea: element-wise operators, row-wise reductions (softmax, norms) and copies that follow each other over
the same elements become one kernel, which reads what comes from outside and writes what is used outside.
Products stay as they are: cuBLAS does them, without epilogue. Attention becomes one kernel where one of
TorchInductor's patterns matches: BERT's does (`PassShape.has_matched_attention`), GPT-2's `where` does not.

A node joins the group of an input, or of another reader of that input, if it has as many elements, and if its
other inputs are of the group or older than the group's first node; so no group waits for what waits for it.
Example: GPT-2's GELU, eight
kernels and 18 passes over its tensor, becomes one kernel and two passes.
"""

from collections.abc import Mapping, Sequence

from analyzer.forecast.training.forward_kernels import Kernels, list_forward
from analyzer.forecast.training.kernels import StreamKernel
from analyzer.forecast.training.pass_kernels import PassKernels, find_source
from analyzer.forecast.training.tensor_graph import NodeKind, TensorGraph

_FUSIBLE = frozenset(
    {
        NodeKind.POINTWISE,
        NodeKind.SOFTMAX,
        NodeKind.LAYERNORM,
        NodeKind.RMSNORM,
        NodeKind.REDUCTION,
        NodeKind.COPY,
    }
)


def list_fused_forward(graph: TensorGraph) -> tuple[Kernels, ...]:
    """Return the kernels of the forward pass by node; those of a group stand at its last node."""
    groups = group_nodes(graph)
    members = _list_members(groups)
    users = _list_users(graph)
    found = []
    for place, group in enumerate(groups):
        if group is None:
            found.append(list_forward(graph, place))
        elif place == members[group][-1]:
            found.append(_fuse(graph, members[group], users))
        else:
            found.append(())
    return tuple(found)


def list_fused_backward(graph: TensorGraph, kernels: PassKernels) -> tuple[Kernels, ...]:
    """Return the kernels of the backward pass by node; those of a group stand at its first node.

    A group's kernel reads what it read forward and the gradients of what it wrote; it writes the former's.
    """
    groups = group_nodes(graph)
    members = _list_members(groups)
    users = _list_users(graph)
    found = []
    for place, group in enumerate(groups):
        if group is None or len(members[group]) == 1:
            found.append(kernels.backward[place])
        elif place == group and any(kernels.backward[member] for member in members[group]):
            found.append(_fuse_backward(graph, members[group], users))
        else:
            found.append(())
    return tuple(found)


def _list_members(groups: Sequence[int | None]) -> dict[int, list[int]]:
    members: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        if group is not None:
            members.setdefault(group, []).append(place)
    return members


def group_nodes(graph: TensorGraph) -> list[int | None]:
    """Return per node the first node of its group, None where it is not fused."""
    groups: list[int | None] = [None] * len(graph.nodes)
    readers: dict[int, int] = {}  # of a tensor that is in no group: the group that read it last
    for place, node in enumerate(graph.nodes):
        if node.kind not in _FUSIBLE:
            continue
        sources = [find_source(graph, used) for used in node.inputs]
        groups[place] = group = _find_group(graph, place, sources, groups, readers)
        readers.update((source, group) for source in sources if groups[source] is None)
    return groups


def _find_group(
    graph: TensorGraph,
    place: int,
    sources: Sequence[int],
    groups: Sequence[int | None],
    readers: Mapping[int, int],
) -> int:
    for source in sources:
        group = readers.get(source) if groups[source] is None else groups[source]
        if group is None or not _runs_over_same(graph, source, place):
            continue
        if all(other < group or groups[other] == group for other in sources):
            return group
    return place


def _runs_over_same(graph: TensorGraph, source: int, place: int) -> bool:
    """Return whether two nodes go over the same elements; a reduction goes over its input's."""
    node = graph.nodes[place]
    elements = node.elements
    if node.kind is NodeKind.REDUCTION and node.inputs:
        elements = graph.nodes[node.inputs[0]].elements
    return graph.nodes[source].elements == elements


def _list_users(graph: TensorGraph) -> Mapping[int, set[int]]:
    users: dict[int, set[int]] = {}
    for place, node in enumerate(graph.nodes):
        if node.kind is not NodeKind.VIEW:
            for used in node.inputs:
                users.setdefault(find_source(graph, used), set()).add(place)
    return users


def _fuse(graph: TensorGraph, members: Sequence[int], users: Mapping[int, set[int]]) -> Kernels:
    """Return one kernel that reads each tensor from outside once and writes what is used outside."""
    outside, kept = _find_boundary(graph, members, users)
    read = sum(graph.nodes[source].output_bytes for source in outside)
    written = sum(graph.nodes[place].output_bytes for place in kept)
    return (StreamKernel(read, written, graph.nodes[members[-1]].dtype),)


def _fuse_backward(graph: TensorGraph, members: Sequence[int], users: Mapping[int, set[int]]) -> Kernels:
    outside, kept = _find_boundary(graph, members, users)
    sources = [graph.nodes[place] for place in outside]
    read = sum(graph.nodes[place].output_bytes for place in kept)
    read += sum(node.output_bytes for node in sources)
    written = sum(node.output_bytes for node in sources if node.needs_gradient)
    return (StreamKernel(read, written, graph.nodes[members[-1]].dtype),)


def _find_boundary(
    graph: TensorGraph, members: Sequence[int], users: Mapping[int, set[int]]
) -> tuple[list[int], list[int]]:
    """Return the nodes outside that a group reads, and its own that are used outside."""
    inside = set(members)
    read = [find_source(graph, used) for place in members for used in graph.nodes[place].inputs]
    outside = dict.fromkeys(source for source in read if source not in inside)
    kept = [place for place in members if place == members[-1] or users.get(place, set()) - inside]
    return list(outside), kept
