"""One training or inference iteration of a model: configuration or exported program to a report."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.forecast.data_types import check_multiplies, parse_data_type
from analyzer.forecast.exported.archive import read_exported_program
from analyzer.forecast.exported.aten_graph import make_tensor_graph
from analyzer.forecast.exported.program import ExportedProgram
from analyzer.forecast.training.iteration import (
    HOST_BACKWARD_US,
    HOST_COMPILED_US,
    HOST_FORWARD_US,
    IterationTime,
    OperatorTime,
)
from analyzer.forecast.training.model_description import (
    Architecture,
    ModelDescription,
    read_model_description,
)
from analyzer.forecast.training.tensor_graph import TensorGraph
from analyzer.forecast.training.training_forecast import (
    TrainingForecast,
    TrainingRequest,
    forecast_graph,
    forecast_training,
)
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.registry import OPERATOR_MODELS, find_operator_model
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import DataType
from analyzer.report.iteration_schema import (
    IterationMemoryEntry,
    IterationOperatorEntry,
    IterationReport,
)
from analyzer.text.errors import UsageError
from analyzer.version import __version__

TENSOR_TYPES = (DataType.FP32, DataType.FP16, DataType.BF16)
_CONFIG_NAME = "config.json"
_MOST_WAYS = 1 << 16
_MOST_BATCH = 1 << 30
_MOST_SEQUENCE = 1 << 22


class IterationOptions(Struct, frozen=True):
    """What is run, and on what, as users say it."""

    gpu: str
    is_training: bool = False
    batch: int = 1
    sequence: int = 0  # of a configuration; 0: not given
    dtype: str = ""  # empty: fp32 of a configuration, the program's own of an exported one
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batches: int = 1
    is_compiled: bool = False
    has_optimizer: bool = True
    operator_model: str = OPERATOR_MODELS.default


def forecast_iteration(
    config: str | Path, options: IterationOptions | None = None, **settings: Any
) -> IterationReport:
    """Return the time of one iteration of a model that a Hugging Face configuration describes.

    config: config.json, or the folder that holds it. options, settings: an `IterationOptions`, or its fields:
    gpu="h100", is_training=True, batch=8, sequence=1024.
    Raises InputError for a file that cannot be read, UsageError for an iteration that cannot be,
    HardwareError for an unknown GPU.
    """
    given = IterationOptions(**settings) if options is None else options
    _check_sizes(given, needs_sequence=True)
    path = Path(config) / _CONFIG_NAME if Path(config).is_dir() else Path(config)
    model = read_model_description(path)
    gpu, dtype = _load(given)
    request = _make_request(given, dtype or DataType.FP32)
    found = forecast_training(model, request, gpu, find_operator_model(given.operator_model))
    name = path.absolute().parent.name if path.name == _CONFIG_NAME else path.stem
    assumptions = [*_list_assumptions(given, found), *_list_model_assumptions(model, given)]
    return _make_report(name, found, request, given, gpu, assumptions)


def forecast_exported(
    source: str | Path | ExportedProgram, options: IterationOptions | None = None, **settings: Any
) -> IterationReport:
    """Return the time of a program of torch.export: a `.pt2` archive, or one that was read already.

    Its sizes are those that it was exported with. Raises as `forecast_iteration`.
    """
    given = IterationOptions(**settings) if options is None else options
    _check_sizes(given, needs_sequence=False)
    for option, value in (("--tp", given.tensor_parallel), ("--pp", given.pipeline_parallel)):
        if value > 1:
            raise UsageError(
                f"{option} {value}: an exported program is not divided", hint="--dp is possible; or --config"
            )
    gpu, dtype = _load(given)
    program = source if isinstance(source, ExportedProgram) else read_exported_program(Path(source))
    graph = make_tensor_graph(program, dtype)
    if not graph.nodes:
        raise UsageError(f"{program.name}: a program without tensors", hint="export a module that has some")
    request = _make_request(given, _find_dtype(graph))
    found = forecast_graph(graph, request, gpu, find_operator_model(given.operator_model))
    return _make_report(program.name, found, request, given, gpu, _list_assumptions(given, found))


def _find_dtype(graph: TensorGraph) -> DataType:
    """Return the data type of most weights."""
    counts: dict[DataType, int] = {}
    for node in graph.nodes:
        counts[node.dtype] = counts.get(node.dtype, 0) + node.parameters
    return max(counts, key=lambda dtype: (counts[dtype], dtype))


def _check_sizes(options: IterationOptions, *, needs_sequence: bool) -> None:
    if needs_sequence and not options.sequence:
        raise UsageError("no --seq", hint="give the tokens of each sequence: --seq 1024")
    for name, value, most in (
        ("--batch", options.batch, _MOST_BATCH),
        ("--seq", options.sequence or 1, _MOST_SEQUENCE),
        ("--dp", options.data_parallel, _MOST_WAYS),
        ("--tp", options.tensor_parallel, _MOST_WAYS),
        ("--pp", options.pipeline_parallel, _MOST_WAYS),
        ("--micro-batches", options.micro_batches, _MOST_WAYS),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{name} {value}: give 1 to {most:,}")
    if options.data_parallel > 1 and not options.is_training:
        raise UsageError(
            f"--dp {options.data_parallel} without --training: inference has nothing to exchange",
            hint="forecast one replica, with its part of the batch",
        )


def _load(options: IterationOptions) -> tuple[Gpu, DataType | None]:
    if "," in options.gpu:
        raise UsageError(f"--gpu {options.gpu[:60]}: one GPU at a time", hint="name one, such as h100")
    gpu = load_gpu(options.gpu)
    if not options.dtype:
        return gpu, None
    dtype = parse_data_type("--dtype", options.dtype, TENSOR_TYPES)
    if dtype is not DataType.FP32:
        check_multiplies(gpu, dtype)
    return gpu, dtype


def _make_request(options: IterationOptions, dtype: DataType) -> TrainingRequest:
    is_divided = options.tensor_parallel > 1 or options.pipeline_parallel > 1
    return TrainingRequest(
        options.batch,
        options.sequence or 1,
        is_training=options.is_training,
        dtype=dtype,
        data_parallel=options.data_parallel,
        tensor_parallel=options.tensor_parallel,
        pipeline_parallel=options.pipeline_parallel,
        micro_batches=options.micro_batches,
        is_compiled=options.is_compiled,
        has_optimizer=options.has_optimizer,
        has_fused_modules=is_divided,
        clips_gradients=is_divided,
    )


def _list_assumptions(options: IterationOptions, found: TrainingForecast) -> list[str]:
    host = HOST_COMPILED_US if options.is_compiled else HOST_FORWARD_US
    result = [
        f"the host launches a kernel in {host:g} us forward and {HOST_BACKWARD_US:g} us backward (assumed)",
        "kernels run one after the other, each as fast as when it is timed alone, two microseconds apart",
    ]
    if options.is_compiled:
        result.append("torch.compile fuses chains of element-wise operators, and no products")
    if options.is_training and options.has_optimizer:
        result.append("Adam's states are FP32, and one kernel updates all weights")
    if options.data_parallel > 1:
        result.append("gradients are reduced in buckets of 25 MB while the backward pass goes on")
    if found.time.host_us > found.time.forward_us + found.time.backward_us:
        result.append("the host takes longer than the GPU: the time is the host's")
    return result


def _list_model_assumptions(model: ModelDescription, options: IterationOptions) -> list[str]:
    result = []
    if options.tensor_parallel > 1 or options.pipeline_parallel > 1:
        result.append(
            "modules are Megatron-LM's: bias, dropout and residual in one kernel; gradients clipped"
        )
    if model.architecture is Architecture.BERT:
        result.append(
            "BERT has its pre-training heads"
            if options.is_training
            else "BERT has a classifier of two classes"
        )
    if model.architecture is Architecture.SWITCH:
        result.append("every expert gets its share of the tokens, at most its capacity")
    if options.pipeline_parallel > 1:
        result.append("all micro-batches go through a stage before the next one takes its first (no overlap)")
    return result


def _make_report(
    name: str,
    found: TrainingForecast,
    request: TrainingRequest,
    options: IterationOptions,
    gpu: Gpu,
    assumptions: list[str],
) -> IterationReport:
    time = found.time
    hardware = read_operator_hardware(gpu)
    flops = time.flops * request.data_parallel * request.tensor_parallel
    tflops = flops / found.gpus / time.total_us * 1e-6 if time.total_us else 0.0
    tokens = request.batch * request.sequence if request.sequence > 1 else 0
    return IterationReport(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        model=name,
        gpu=gpu.key,
        gpu_name=gpu.name,
        operator_model=options.operator_model,
        mode="training" if request.is_training else "inference",
        dtype=request.dtype.value,
        batch=request.batch if options.sequence else None,
        sequence=options.sequence or None,
        data_parallel=request.data_parallel,
        tensor_parallel=request.tensor_parallel,
        pipeline_parallel=request.pipeline_parallel,
        micro_batches=request.micro_batches,
        is_compiled=request.is_compiled,
        parameters=found.parameters,
        forward_ms=time.forward_us / 1e3,
        backward_ms=time.backward_us / 1e3,
        optimizer_ms=time.optimizer_us / 1e3,
        communication_ms=time.communication_us / 1e3,
        bubble_ms=time.bubble_us / 1e3,
        host_ms=time.host_us / 1e3,
        total_ms=time.total_us / 1e3,
        total_ms_low=time.low_us / 1e3,
        total_ms_high=time.high_us / 1e3,
        tokens_per_s=tokens / time.total_us * 1e6 if tokens and time.total_us else None,
        flops=flops,
        tflops_per_gpu=tflops,
        peak_share=tflops / hardware.find_peak_tflops(request.dtype),
        operators={each.name: _make_operator_entry(each, time) for each in time.operators},
        memory=_make_memory_entry(found, hardware.dram_bytes),
        assumptions=tuple(assumptions),
        warnings=found.graph.warnings,
    )


def _make_operator_entry(each: OperatorTime, time: IterationTime) -> IterationOperatorEntry:
    return IterationOperatorEntry(
        forward_ms=each.forward_us / 1e3,
        backward_ms=each.backward_us / 1e3,
        kernels=each.kernels,
        share=each.total_us / max(time.forward_us + time.backward_us, 1e-9),
        basis=each.basis,
    )


def _make_memory_entry(found: TrainingForecast, gpu_bytes: float) -> IterationMemoryEntry:
    memory = found.memory
    return IterationMemoryEntry(
        gpu_bytes=round(gpu_bytes),
        weight_bytes=round(memory.weight_bytes),
        gradient_bytes=round(memory.gradient_bytes),
        optimizer_bytes=round(memory.optimizer_bytes),
        activation_bytes=round(memory.activation_bytes),
        total_bytes=round(memory.total_bytes),
        fits=memory.total_bytes <= gpu_bytes,
    )
