"""Model configuration and requests to a forecast: times of all steps, memory, breakdown by operator."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import Any

from msgspec import Struct

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.forecast.data_types import KV_TYPES, SERVING_TYPES, check_multiplies, parse_data_type
from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.memory_fit import MemoryFit, check_memory
from analyzer.forecast.model_config import ModelConfig, read_model_config
from analyzer.forecast.operator_calls import Phase, Step
from analyzer.forecast.operator_listing import list_operators
from analyzer.forecast.operator_sequence import list_steps
from analyzer.forecast.parallel_layout import check_layout
from analyzer.forecast.request_trace import Request, RequestTrace, take_requests
from analyzer.forecast.serving_rates import ServingRates, find_rates
from analyzer.forecast.step_times import StepTime, combine_widths, spread_interval, time_steps
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.serving_figures import load_serving_figures
from analyzer.operators.names import DataType
from analyzer.pipeline.forecast_calls import make_call_entries
from analyzer.report.forecast_schema import (
    ForecastFigureEntry,
    ForecastMemoryEntry,
    ForecastOperatorEntry,
    ForecastReport,
    ForecastStepEntry,
)
from analyzer.text.errors import UsageError
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__

_CONFIG_NAME = "config.json"
_MAX_STEPS = 131_072
_MAX_GENERATED_TOKENS = 50_000_000  # in all; each is a length in the attention of a step
_MAX_LISTED_LENGTHS = 5_000_000  # of them, where operators are listed
_STEPS_AT_ONCE = 64


class ForecastOptions(Struct, frozen=True):
    """How a model is served, as users say it."""

    gpu: str
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    framework: str = Framework.SGLANG.value
    dtype: str = ""  # empty: as the configuration has it
    kv_dtype: str = ""  # empty: bf16
    memory_fraction: float = 0.9
    gemm_tflops: float | None = None
    has_bridge: bool = False  # NVLink bridges join pairs of cards


def forecast_model(
    config: str | Path | Mapping[str, Any],
    requests: str | Path | Sequence[Request] | RequestTrace,
    options: ForecastOptions | None = None,
    *,
    lists_operators: bool = True,
    progress: ProgressCallback = ignore_progress,
    **settings: Any,
) -> ForecastReport:
    """Return the times of a run: all requests prefilled in one pass, then decoded together.

    config: a Hugging Face config.json, the folder that holds it, or its decoded contents.
    requests: a CSV table with the columns num_prefill_tokens and output_tokens, or requests.
    options, settings: a `ForecastOptions`, or its fields: gpu="h100", tensor_parallel=4.
    Raises InputError for a file that cannot be read, UsageError for a run that cannot be, HardwareError for
    an unknown GPU.
    """
    given = ForecastOptions(**settings) if options is None else options
    model = read_model_config(find_config_file(config))
    deployment = make_deployment(model, given)
    trace = take_requests(requests)
    _check_steps(trace.requests)
    name = name_model(config, model)
    check_layout(model, deployment)
    memory = check_memory(model, deployment, trace.requests, name)
    rates = find_rates(deployment)
    run = _Run(lists_operators=lists_operators and _may_list(trace.requests))
    n_steps = max(request.output_tokens for request in trace.requests)
    steps = list_steps(model, deployment, trace.requests)
    while block := tuple(islice(steps, _STEPS_AT_ONCE)):
        for step, time in zip(block, time_steps(block, rates), strict=True):
            run.add(step, time)
        progress(len(run.entries), n_steps, "timing steps")
    warnings = _list_warnings(model, trace, is_cut=lists_operators and not run.lists_operators)
    return _make_report(name, model, deployment, trace, memory, rates, run, warnings)


def make_deployment(model: ModelConfig, options: ForecastOptions) -> Deployment:
    """Return the deployment that options describe. Raises UsageError, HardwareError."""
    if "," in options.gpu:
        raise UsageError(f"--gpu {options.gpu[:60]}: one GPU at a time", hint="name one, such as h100")
    gpu = load_gpu(options.gpu)
    dtype = parse_data_type("--dtype", options.dtype, SERVING_TYPES) if options.dtype else model.dtype
    check_multiplies(gpu, dtype)
    if options.framework not in tuple(Framework):
        raise UsageError(
            f"unknown framework {options.framework[:40]!r}", hint=f"one of: {', '.join(Framework)}"
        )
    if not 0.0 < options.memory_fraction <= 1.0:
        raise UsageError(
            f"--memory-fraction {options.memory_fraction:g} is no share", hint="give more than 0, at most 1"
        )
    if options.gemm_tflops is not None and not 0.0 < options.gemm_tflops < 1e6:
        raise UsageError(
            f"--gemm-tflops {options.gemm_tflops:g} is no rate", hint="give TFLOP/s of large products"
        )
    return Deployment(
        gpu=gpu,
        tensor_parallel=options.tensor_parallel,
        pipeline_parallel=options.pipeline_parallel,
        expert_parallel=options.expert_parallel,
        framework=Framework(options.framework),
        dtype=dtype,
        expert_dtype=None if options.dtype else model.expert_dtype,
        kv_dtype=parse_data_type("--kv-dtype", options.kv_dtype, KV_TYPES)
        if options.kv_dtype
        else DataType.BF16,
        memory_fraction=options.memory_fraction,
        gemm_tflops=options.gemm_tflops,
        has_bridge=options.has_bridge,
    )


def find_config_file(config: str | Path | Mapping[str, Any]) -> str | Path | Mapping[str, Any]:
    """Return the configuration's file, of a folder the one in it."""
    if isinstance(config, Mapping):
        return config
    path = Path(config)
    return path / _CONFIG_NAME if path.is_dir() else path


def name_model(config: str | Path | Mapping[str, Any], model: ModelConfig) -> str:
    """Return the name of a configuration's file, or of its folder where the file is named as all are."""
    if isinstance(config, Mapping):
        return model.architecture
    path = Path(config).absolute()
    if path.name == _CONFIG_NAME or path.is_dir():
        return (path.name if path.is_dir() else path.parent.name) or model.architecture
    return path.stem


def _check_steps(requests: Sequence[Request]) -> None:
    longest = max(request.output_tokens for request in requests)
    if longest > _MAX_STEPS:
        raise UsageError(
            f"a request generates {longest:,} tokens, one step for each",
            hint=f"at most {_MAX_STEPS:,} steps are forecast",
        )
    generated = sum(request.output_tokens for request in requests)
    if generated > _MAX_GENERATED_TOKENS:
        raise UsageError(
            f"{len(requests):,} requests generate {generated:,} tokens",
            hint=f"at most {_MAX_GENERATED_TOKENS:,} are forecast: take fewer requests",
        )


def _may_list(requests: Sequence[Request]) -> bool:
    return sum(request.output_tokens for request in requests) <= _MAX_LISTED_LENGTHS


class _Run:
    """Times of a run while its steps are made."""

    def __init__(self, *, lists_operators: bool) -> None:
        self.lists_operators = lists_operators
        self.entries: list[ForecastStepEntry] = []
        self.prefills: list[StepTime] = []
        self.decodes: list[StepTime] = []
        self.operators: dict[str, _OperatorTime] = {}

    def add(self, step: Step, time: StepTime) -> None:
        """Add a step to the entries and the sums."""
        is_prefill = step.phase is Phase.PREFILL
        for name, time_us, basis in time.by_operator:
            known = self.operators.get(name)
            if known is None:
                known = self.operators[name] = _OperatorTime(basis)
            known.total_us += time_us
            known.prefill_us += time_us if is_prefill else 0.0
        (self.prefills if is_prefill else self.decodes).append(time)
        self.entries.append(
            ForecastStepEntry(
                iteration=len(self.entries) + 1,
                phase=step.phase.value,
                batch_size=step.batch,
                num_tokens=step.tokens,
                kv_tokens=step.kv_tokens,
                time_ms=time.total_us / 1e3,
                operators=list_operators(step) if self.lists_operators else {},
            )
        )

    def find_median_decode(self) -> StepTime | None:
        """Return the decode step of median time (of an even number the lower), None where there is none."""
        if not self.decodes:
            return None
        middle = median_low([time.total_us for time in self.decodes])
        return next(time for time in self.decodes if time.total_us == middle)

    def list_shown_steps(self) -> tuple[int, ...]:
        """Return the places of the prefill and of the median decode step."""
        decode = self.find_median_decode()
        return (0,) if decode is None else (0, len(self.prefills) + self.decodes.index(decode))


class _OperatorTime:
    """Times of one operator, summed over steps."""

    __slots__ = ("basis", "prefill_us", "total_us")

    def __init__(self, basis: str) -> None:
        self.basis, self.prefill_us, self.total_us = basis, 0.0, 0.0


def _make_report(
    name: str,
    model: ModelConfig,
    deployment: Deployment,
    trace: RequestTrace,
    memory: MemoryFit,
    rates: ServingRates,
    run: _Run,
    warnings: tuple[str, ...],
) -> ForecastReport:
    decode = run.find_median_decode()
    prefill_ms, *prefill_ends_ms = _sum_ms(run.prefills)
    total_ms, *total_ends_ms = _sum_ms([*run.prefills, *run.decodes])
    decode_ms, *decode_ends_ms = (None, None, None) if decode is None else _sum_ms([decode])
    n_outputs = sum(request.output_tokens for request in trace.requests)
    return ForecastReport(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        model=name,
        gpu=deployment.gpu.key,
        gpu_name=deployment.gpu.name,
        framework=deployment.framework.value,
        tensor_parallel=deployment.tensor_parallel,
        pipeline_parallel=deployment.pipeline_parallel,
        dtype=deployment.dtype.value,
        requests=len(trace.requests),
        prefill_ms=prefill_ms,
        decode_ms=decode_ms,
        total_ms=total_ms,
        prefill_ms_low=prefill_ends_ms[0],
        prefill_ms_high=prefill_ends_ms[1],
        decode_ms_low=decode_ends_ms[0],
        decode_ms_high=decode_ends_ms[1],
        total_ms_low=total_ends_ms[0],
        total_ms_high=total_ends_ms[1],
        output_tokens_per_s=n_outputs / total_ms * 1e3,
        requests_per_s=len(trace.requests) / total_ms * 1e3,
        steps=tuple(run.entries),
        operators=_make_operator_entries(run, decode, total_ms),
        calls=tuple(
            entry
            for place in run.list_shown_steps()
            for entry in make_call_entries(_make_step_again(model, deployment, trace, place), rates)
        ),
        memory=_make_memory_entry(memory),
        figures=_make_figure_entries(deployment, rates),
        assumptions=_list_assumptions(model, deployment, trace),
        warnings=warnings,
    )


def _sum_ms(times: Sequence[StepTime]) -> tuple[float, float, float]:
    """Return the sum of steps and the ends of its 80 % interval, in ms; steps of one run err together."""
    total_ms = sum(time.total_us for time in times) / 1e3
    width = combine_widths((time.total_us, time.width) for time in times)
    return (total_ms, *spread_interval(total_ms, width))


def _make_step_again(model: ModelConfig, deployment: Deployment, trace: RequestTrace, place: int) -> Step:
    """Return the step at a place of the run; the run keeps none, because each holds a length per request."""
    return next(islice(list_steps(model, deployment, trace.requests), place, None))


def _make_operator_entries(
    run: _Run, decode: StepTime | None, total_ms: float
) -> dict[str, ForecastOperatorEntry]:
    """Return the times of each operator, in the order of the steps."""
    in_median = {} if decode is None else {name: time_us for name, time_us, _ in decode.by_operator}
    return {
        name: ForecastOperatorEntry(
            prefill_ms=sums.prefill_us / 1e3,
            decode_ms=in_median.get(name, 0.0) / 1e3,
            total_ms=sums.total_us / 1e3,
            share=sums.total_us / 1e3 / total_ms,
            basis=sums.basis,
        )
        for name, sums in run.operators.items()
    }


def _make_figure_entries(deployment: Deployment, rates: ServingRates) -> tuple[ForecastFigureEntry, ...]:
    """Return the figures that times rest on, with their sources in full where files have them by id."""
    sources = {**load_serving_figures().sources, **deployment.gpu.file.sources}
    return tuple(
        ForecastFigureEntry(
            name=figure.name,
            value=figure.value,
            unit=figure.unit,
            basis=figure.basis.value,
            source=sources.get(figure.source, figure.source),
        )
        for figure in rates.figures
    )


def _make_memory_entry(memory: MemoryFit) -> ForecastMemoryEntry:
    return ForecastMemoryEntry(
        gpu_bytes=memory.gpu_bytes,
        usable_bytes=memory.usable_bytes,
        weight_bytes=memory.weight_bytes,
        activation_bytes=memory.activation_bytes,
        kv_bytes_per_token=memory.kv_bytes_per_token,
        kv_bytes=memory.kv_bytes,
        kv_capacity_tokens=memory.kv_capacity_tokens,
        fits=memory.fits,
    )


def _list_assumptions(model: ModelConfig, deployment: Deployment, trace: RequestTrace) -> tuple[str, ...]:
    """Return what the run is taken to be, guesses named."""
    found = ["all requests start together and are prefilled in one pass; a finished one leaves the batch"]
    if deployment.pipeline_parallel > 1:
        found.append(
            "the stages of the pipeline run one after the other, because one batch has nothing to overlap"
        )
    if model.experts:
        found.append("routing is balanced: every expert gets as many tokens")
    if deployment.gpu.file.vendor.lower() != "nvidia":
        found.append("kernels reach the shares of this GPU's peaks that NVIDIA's reach of theirs")
    if trace.output_column != "output_tokens":
        found.append(f"tokens to generate are those of column {trace.output_column}")
    return (*found, *model.notes)


def _list_warnings(model: ModelConfig, trace: RequestTrace, *, is_cut: bool) -> tuple[str, ...]:
    found = []
    longest = max(request.prefill_tokens + request.output_tokens for request in trace.requests)
    if model.max_positions and longest > model.max_positions:
        found.append(
            f"a request has {longest:,} tokens, and the model's context is {model.max_positions:,} tokens"
        )
    if any(request.arrival_s for request in trace.requests):
        found.append("times of arrival are not used: all requests start together")
    if is_cut:
        found.append("the steps list no operators, because their lengths would fill the memory")
    return tuple(found)
