"""Time of one inference or training iteration: kernels added up, divided among GPUs.

    forward, backward       sums of the kernels' times; a pass takes at least what the host needs to launch
    data parallelism        gradients are reduced in buckets while the backward pass goes on; what is left at
                            its end is waited for
    tensor parallelism      the graph is that of one GPU, with its all-reduces, which are waited for
    pipeline parallelism    the first micro-batch goes through all stages, the others follow at the slowest
                            stage's pace, each boundary sends the residual forward and its gradient back:
                            sum of the stages + (micro-batches - 1) · slowest stage + 2 · (stages - 1) sends

Source: Lee et al., NeuSight (ASPLOS 2025), section on distributed execution, for one micro-batch; buckets as
PyTorch's DistributedDataParallel. Example: 4 stages and 1 micro-batch take as long as one GPU, and the sends.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from analyzer.forecast.training.forward_kernels import Kernels
from analyzer.forecast.training.fusion import list_fused_backward, list_fused_forward
from analyzer.forecast.training.kernel_times import KernelTime, OperatorModel, sum_times, time_kernels
from analyzer.forecast.training.kernels import CollectiveKernel, Kernel, StreamKernel
from analyzer.forecast.training.pass_kernels import PassKernels, list_forward_pass, list_training_pass
from analyzer.forecast.training.tensor_graph import NO_NODE, Node, NodeKind, TensorGraph
from analyzer.hardware.gpu import Gpu
from analyzer.operators.names import DataType, Operator

# What the host needs per kernel; stated, not fitted: eager PyTorch's Python and dispatcher launch some
# 100,000 kernels per second, autograd's C++ engine more. It counts only where the GPU is faster than that.
HOST_FORWARD_US = 10.0
HOST_BACKWARD_US = 7.0
HOST_COMPILED_US = 4.0
_BUCKET_BYTES = 25e6  # of DistributedDataParallel
# Passes over FP32 parameters: Adam reads weight, gradient and both moments and writes three of them; clipping
# reads the gradients for their norm, then reads and writes them.
_ADAM_READS, _ADAM_WRITES = 4.0, 3.0
_CLIP_READS, _CLIP_WRITES = 2.0, 1.0
_FP32_BYTES = 4.0


class IterationPlan(Struct, frozen=True):
    """What is run: training or inference, and on how many GPUs."""

    is_training: bool
    data_parallel: int = 1
    pipeline_parallel: int = 1  # tensor parallelism is in the graph
    micro_batches: int = 1
    is_compiled: bool = False  # torch.compile fuses element-wise chains
    has_optimizer: bool = True
    clips_gradients: bool = False
    adds_to_gradients: bool = False  # gradients of earlier passes are there: one more kernel per weight


class OperatorTime(Struct, frozen=True):
    """Time of all nodes of one kind, in one micro-batch on all stages."""

    name: str
    forward_us: float
    backward_us: float
    kernels: int
    basis: str

    @property
    def total_us(self) -> float:
        """Both passes."""
        return self.forward_us + self.backward_us


class IterationTime(Struct, frozen=True):
    """Time of one iteration in microseconds, in its phases."""

    forward_us: float
    backward_us: float
    loss_us: float  # of the loss's forward pass, part of forward_us
    optimizer_us: float
    communication_us: (
        float  # waited for: reductions of gradients, sends; all-reduces within the passes are theirs
    )
    bubble_us: float  # what later micro-batches wait for the slowest stage
    total_us: float
    low_us: float
    high_us: float
    host_us: float  # what the host needs to launch both passes
    operators: tuple[OperatorTime, ...]
    flops: float  # of products, in all micro-batches on this GPU's tensor-parallel share
    bases: tuple[str, ...]


def time_iteration(graph: TensorGraph, plan: IterationPlan, gpu: Gpu, model: OperatorModel) -> IterationTime:
    """Return the time of one iteration of a graph that computes one micro-batch."""
    kernels = _list_kernels(graph, plan)
    further = _list_further(graph, plan)
    times = time_kernels((k for group in (*kernels.list_all(), further) for k in group), gpu, model)
    forward, backward = _sum_nodes(kernels.forward, times), _sum_backward(kernels, times)
    forward_us, backward_us = sum(forward), sum(backward)
    host_us = _find_host_us(kernels, plan)
    stages = _sum_stages(graph, plan, forward, backward)
    first_us = max(forward_us + backward_us, host_us)
    bubble_us = (plan.micro_batches - 1) * max(stages) if plan.pipeline_parallel > 1 else 0.0
    repeated = plan.micro_batches if plan.pipeline_parallel == 1 else 1
    optimizer_us = sum_times((k for k in further if isinstance(k, StreamKernel)), times)
    communication_us = _wait_for_gradients(graph, plan, backward, times) + sum_times(
        _list_sends(graph, plan), times
    )
    total_us = first_us * repeated + bubble_us + optimizer_us + communication_us
    low, high = _find_interval(kernels, times)
    return IterationTime(
        forward_us,
        backward_us,
        _sum_loss(graph, forward),
        optimizer_us,
        communication_us,
        bubble_us,
        total_us,
        total_us * low,
        total_us * high,
        host_us,
        _list_operators(graph, kernels, times),
        plan.micro_batches * sum(k.flops for group in kernels.list_all() for k in group),
        tuple(sorted({each.basis for each in times.values()})),
    )


def _list_kernels(graph: TensorGraph, plan: IterationPlan) -> PassKernels:
    kernels = list_training_pass(graph) if plan.is_training else list_forward_pass(graph)
    accumulation = kernels.accumulation if plan.adds_to_gradients or plan.micro_batches > 1 else ()
    if not plan.is_compiled:
        return replace(kernels, accumulation=accumulation)
    backward = list_fused_backward(graph, kernels) if plan.is_training else ()
    return PassKernels(list_fused_forward(graph), backward, accumulation)


def _list_further(graph: TensorGraph, plan: IterationPlan) -> Kernels:
    """Return the kernels of the optimizer, and one of each transfer between GPUs."""
    found: list[Kernel] = [*_list_optimizer(graph, plan), *_list_sends(graph, plan)]
    found += [_reduce_bucket(size, plan) for _, size in _fill_buckets(graph, plan)]
    return tuple(found)


def _list_optimizer(graph: TensorGraph, plan: IterationPlan) -> Kernels:
    """Return the optimizer's kernels; each pipeline stage has its share of the weights."""
    if not (plan.is_training and plan.has_optimizer):
        return ()
    size = _FP32_BYTES * graph.parameters / plan.pipeline_parallel
    step = StreamKernel(_ADAM_READS * size, _ADAM_WRITES * size, DataType.FP32)
    if not plan.clips_gradients:
        return (step,)
    return (StreamKernel(_CLIP_READS * size, _CLIP_WRITES * size, DataType.FP32), step)


def _list_sends(graph: TensorGraph, plan: IterationPlan) -> Kernels:
    """Return the sends between stages that one micro-batch waits for: forward, and back in training."""
    boundaries = plan.pipeline_parallel - 1
    if not boundaries:
        return ()
    last = [node for node in graph.nodes if node.layer == graph.layers - 1][-1]
    directions = 2 if plan.is_training else 1
    send = CollectiveKernel(Operator.SEND_RECV, last.output_bytes, 2, last.dtype)
    return (send,) * (directions * boundaries)


def _sum_nodes(groups: Sequence[Kernels], times: Mapping[Kernel, KernelTime]) -> list[float]:
    return [sum_times(group, times) for group in groups]


def _sum_backward(kernels: PassKernels, times: Mapping[Kernel, KernelTime]) -> list[float]:
    backward = _sum_nodes(kernels.backward, times)
    for place, group in enumerate(kernels.accumulation):
        backward[place] += sum_times(group, times)
    return backward


def _find_host_us(kernels: PassKernels, plan: IterationPlan) -> float:
    per_forward = HOST_COMPILED_US if plan.is_compiled else HOST_FORWARD_US
    forward = sum(len(group) for group in kernels.forward)
    backward = sum(len(group) for group in (*kernels.backward, *kernels.accumulation))
    return per_forward * forward + HOST_BACKWARD_US * backward


def _sum_stages(
    graph: TensorGraph, plan: IterationPlan, forward: Sequence[float], backward: Sequence[float]
) -> list[float]:
    """Return the time of each pipeline stage for one micro-batch; layers are divided evenly."""
    stages = [0.0] * plan.pipeline_parallel
    for place, stage in enumerate(divide_layers(graph, plan.pipeline_parallel)):
        stages[stage] += forward[place] + (backward[place] if backward else 0.0)
    return stages


def divide_layers(graph: TensorGraph, ways: int) -> list[int]:
    """Return the pipeline stage of each node: what precedes a layer goes with it, the rest with the last."""
    per_stage = ceil(max(graph.layers, 1) / ways)
    stages, stage = [], 0
    for node in graph.nodes:
        if node.layer != NO_NODE:
            stage = min(node.layer // per_stage, ways - 1)
        stages.append(stage)
    return stages


def _fill_buckets(graph: TensorGraph, plan: IterationPlan) -> list[tuple[int, float]]:
    """Return per bucket of gradients the node whose backward pass fills it, and its bytes."""
    if not plan.is_training or plan.data_parallel == 1:
        return []
    buckets, filled = [], 0.0
    for place in reversed(range(len(graph.nodes))):
        node = graph.nodes[place]
        if not node.shares_weights:
            filled += node.parameters * node.dtype.activation_bytes
        if filled >= _BUCKET_BYTES or (place == 0 and filled):
            buckets.append((place, filled / plan.pipeline_parallel))
            filled = 0.0
    return buckets


def _reduce_bucket(size: float, plan: IterationPlan) -> CollectiveKernel:
    return CollectiveKernel(Operator.ALL_REDUCE, size, plan.data_parallel, DataType.FP32)


def _wait_for_gradients(
    graph: TensorGraph,
    plan: IterationPlan,
    backward: Sequence[float],
    times: Mapping[Kernel, KernelTime],
) -> float:
    """Return how long the reduction of gradients goes on after the backward pass has ended."""
    total = sum(backward)
    done_at, after = 0.0, {}
    elapsed = 0.0
    for place in reversed(range(len(backward))):
        elapsed += backward[place]
        after[place] = elapsed
    for place, size in _fill_buckets(graph, plan):
        done_at = max(done_at, after[place]) + times[_reduce_bucket(size, plan)].time_us
    return max(done_at - total, 0.0)


def _sum_loss(graph: TensorGraph, forward: Sequence[float]) -> float:
    return sum(
        time for node, time in zip(graph.nodes, forward, strict=True) if node.kind is NodeKind.CROSS_ENTROPY
    )


def _find_interval(kernels: PassKernels, times: Mapping[Kernel, KernelTime]) -> tuple[float, float]:
    """Return the ends of the interval relative to the time: kernels of a kind are wrong together."""
    mid = low = high = 0.0
    for group in kernels.list_all():
        for kernel in group:
            time = times[kernel]
            mid, low, high = mid + time.time_us, low + time.low_us, high + time.high_us
    return (low / mid, high / mid) if mid else (1.0, 1.0)


def _list_operators(
    graph: TensorGraph, kernels: PassKernels, times: Mapping[Kernel, KernelTime]
) -> tuple[OperatorTime, ...]:
    """Return the times by kind of node, longest first."""
    rows: dict[str, list[float]] = {}
    bases: dict[str, str] = {}
    for column, groups in enumerate((kernels.forward, kernels.backward, kernels.accumulation)):
        for node, group in zip(graph.nodes, groups, strict=False):
            name = _name_kind(node)
            row = rows.setdefault(name, [0.0, 0.0, 0.0])
            row[min(column, 1)] += sum_times(group, times)
            row[2] += len(group)
            for kernel in group:
                bases.setdefault(name, times[kernel].basis)
    found = (
        OperatorTime(name, row[0], row[1], round(row[2]), bases.get(name, ""))
        for name, row in rows.items()
        if row[2]
    )
    return tuple(sorted(found, key=lambda each: (-each.total_us, each.name)))


def _name_kind(node: Node) -> str:
    return node.kind.value
