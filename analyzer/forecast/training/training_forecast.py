"""One iteration of a described model on a number of GPUs: checks, graph, plan, times, memory."""

from msgspec import Struct
from msgspec.structs import replace

from analyzer.forecast.training.iteration import IterationPlan, IterationTime, time_iteration
from analyzer.forecast.training.kernel_times import OperatorModel
from analyzer.forecast.training.memory import TrainingMemory, compute_memory
from analyzer.forecast.training.model_description import Architecture, ModelDescription
from analyzer.forecast.training.model_graphs import build_graph
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.tensor_graph import TensorGraph
from analyzer.hardware.gpu import Gpu
from analyzer.operators.names import DataType
from analyzer.text.errors import UsageError

_MOST_TOKENS = 1 << 26  # of one micro-batch on one GPU


class TrainingRequest(Struct, frozen=True):
    """What a user asks for."""

    batch: int  # of all data-parallel replicas and micro-batches together
    sequence: int
    is_training: bool = True
    dtype: DataType = DataType.FP32
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batches: int = 1
    is_compiled: bool = False
    has_optimizer: bool = True
    has_fused_modules: bool = False
    has_loss: bool = True
    clips_gradients: bool = False
    adds_to_gradients: bool = False


class TrainingForecast(Struct, frozen=True):
    """The answer: times of the iteration and memory of the fullest GPU."""

    graph: TensorGraph
    time: IterationTime
    memory: TrainingMemory
    gpus: int
    parameters: int  # of the whole model


def forecast_training(
    model: ModelDescription, request: TrainingRequest, gpu: Gpu, operator_model: OperatorModel
) -> TrainingForecast:
    """Return the forecast of one iteration. Raises UsageError for a division that does not come out even."""
    shape = make_shape(model, request)
    found = forecast_graph(build_graph(model, shape), request, gpu, operator_model)
    if request.tensor_parallel == 1:
        return found
    whole = build_graph(model, replace(shape, tensor_parallel=1))
    return replace(found, parameters=whole.parameters)


def forecast_graph(
    graph: TensorGraph, request: TrainingRequest, gpu: Gpu, operator_model: OperatorModel
) -> TrainingForecast:
    """Return the forecast of a graph that computes one micro-batch."""
    plan = IterationPlan(
        is_training=request.is_training,
        data_parallel=request.data_parallel,
        pipeline_parallel=request.pipeline_parallel,
        micro_batches=request.micro_batches,
        is_compiled=request.is_compiled,
        has_optimizer=request.has_optimizer,
        clips_gradients=request.clips_gradients,
        adds_to_gradients=request.adds_to_gradients,
    )
    memory = compute_memory(graph, request.is_training, request.has_optimizer, request.pipeline_parallel)
    gpus = request.data_parallel * request.tensor_parallel * request.pipeline_parallel
    time = time_iteration(graph, plan, gpu, operator_model)
    return TrainingForecast(graph, time, memory, gpus, graph.parameters)


def make_shape(model: ModelDescription, request: TrainingRequest) -> PassShape:
    """Return what one GPU of the group computes per micro-batch."""
    parts = request.data_parallel * request.micro_batches
    if request.batch % parts:
        raise UsageError(
            f"--batch {request.batch} is no multiple of {request.data_parallel} data-parallel replicas and "
            f"{request.micro_batches} micro-batches",
            hint=f"the nearest that is: --batch {parts * max(round(request.batch / parts), 1)}",
        )
    if request.batch // parts * request.sequence > _MOST_TOKENS:
        raise UsageError(
            f"{request.batch // parts:,} sequences of {request.sequence:,} tokens in one pass",
            hint=f"at most {_MOST_TOKENS:,} tokens per GPU and micro-batch: raise --dp or --micro-batches",
        )
    _check_pipeline(model, request)
    return PassShape(
        request.batch // parts,
        request.sequence,
        is_training=request.is_training,
        has_loss=request.is_training and request.has_loss,
        dtype=request.dtype,
        tensor_parallel=request.tensor_parallel,
        has_fused_modules=request.has_fused_modules,
        has_matched_attention=request.is_compiled,
    )


def _check_pipeline(model: ModelDescription, request: TrainingRequest) -> None:
    layers, stages = model.layers + model.decoder_layers, request.pipeline_parallel
    if stages == 1:
        return
    if model.architecture is Architecture.SWITCH:
        raise UsageError("pipeline parallelism of switch_transformers is not known", hint="use --dp")
    if layers % stages:
        possible = [each for each in range(2, min(layers, 64) + 1) if layers % each == 0]
        raise UsageError(
            f"--pp {stages} does not divide {layers} layers",
            hint=f"possible: {', '.join(map(str, possible))}",
        )
