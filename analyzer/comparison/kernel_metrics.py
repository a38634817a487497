"""Figures of a kernel by name, as `diff` and `check` compare them.

The order of `METRICS` is that of every table: times first, then resources of the compiler, then counts of the
launch. A figure that is not known is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from analyzer.report.analyze_schema import KernelReport, MemorySpaceEntry, PredictionEntry


class Preference(StrEnum):
    """Which way a figure gets worse."""

    LESS = "less is better"
    MORE = "more is better"
    NONE = "neither is better"


class Metric(Struct, frozen=True):
    """A figure that kernels have."""

    name: str
    label: str  # for people
    preference: Preference = Preference.LESS
    is_per_gpu: bool = False
    unit: str = ""


class KernelMetric(Struct, frozen=True):
    """The value of a figure of one kernel and launch."""

    metric: str
    gpu: str  # "" where it does not depend on one
    value: float


_LESS, _MORE, _NONE = Preference.LESS, Preference.MORE, Preference.NONE
METRICS: Mapping[str, Metric] = {
    each.name: each
    for each in (
        Metric("cycles", "cycles", is_per_gpu=True),
        Metric("time_us", "time", is_per_gpu=True, unit="us"),
        Metric("occupancy", "occupancy", _MORE, is_per_gpu=True),
        Metric("ctas_per_sm", "CTAs per SM", _MORE, is_per_gpu=True),
        Metric("registers", "registers"),
        Metric("shared_bytes", "shared memory", unit="B"),
        Metric("dynamic_shared_bytes", "dynamic shared memory", unit="B"),
        Metric("stack_frame_bytes", "stack frame", unit="B"),
        Metric("spill_bytes", "spill slots", unit="B"),
        Metric("spill_store_bytes", "spill stores", unit="B"),
        Metric("spill_load_bytes", "spill loads", unit="B"),
        Metric("instructions", "instructions of the code"),
        Metric("constant_operands", "constant operands", _NONE),
        Metric("tensor_fma", "tensor multiply-adds of a warp", _NONE),
        Metric("flops", "floating-point operations of a warp", _NONE),
        Metric("executed_warp_instructions", "executed warp instructions"),
        Metric("global_requests", "requests to global memory"),
        Metric("global_sectors", "sectors of global memory"),
        Metric("shared_requests", "requests to shared memory"),
        Metric("shared_wavefronts", "wavefronts of shared memory"),
        Metric("local_requests", "requests to local memory"),
        Metric("local_sectors", "sectors of local memory"),
        Metric("global_read_bytes", "bytes read from global memory", unit="B"),
        Metric("global_written_bytes", "bytes written to global memory", unit="B"),
    )
}
_RESOURCES = (
    "registers",
    "shared_bytes",
    "stack_frame_bytes",
    "spill_bytes",
    "spill_store_bytes",
    "spill_load_bytes",
    "instructions",
    "constant_operands",
    "tensor_fma",
    "flops",
)
_PER_GPU = ("cycles", "time_us", "occupancy", "ctas_per_sm")
_OF_SPACES: Mapping[str, tuple[str, Callable[[MemorySpaceEntry], int | None]]] = {
    "global_requests": ("global", lambda space: space.requests),
    "global_sectors": ("global", lambda space: space.sectors),
    "shared_requests": ("shared", lambda space: space.requests),
    "shared_wavefronts": ("shared", lambda space: space.wavefronts),
    "local_requests": ("local", lambda space: space.requests),
    "local_sectors": ("local", lambda space: space.sectors),
}


def list_metrics(report: KernelReport) -> tuple[KernelMetric, ...]:
    """Return the known figures of a kernel in `METRICS`' order; on each GPU those of the first model."""
    found = [*_list_predicted(report), *_list_resources(report), *_list_counted(report)]
    order = {name: at for at, name in enumerate(METRICS)}
    return tuple(sorted(found, key=lambda each: order[each.metric]))


def list_first_predictions(report: KernelReport) -> tuple[PredictionEntry, ...]:
    """Return the prediction of the first model for each GPU."""
    first: dict[str, PredictionEntry] = {}
    for prediction in report.predictions:
        first.setdefault(prediction.gpu, prediction)
    return tuple(first.values())


def _list_predicted(report: KernelReport) -> Iterator[KernelMetric]:
    for prediction in list_first_predictions(report):
        for name in _PER_GPU:
            yield KernelMetric(name, prediction.gpu, float(getattr(prediction, name)))


def _list_resources(report: KernelReport) -> Iterator[KernelMetric]:
    if report.launch.dynamic_shared_bytes is not None:
        yield KernelMetric("dynamic_shared_bytes", "", float(report.launch.dynamic_shared_bytes))
    for name in _RESOURCES:
        if (value := getattr(report, name)) is not None:
            yield KernelMetric(name, "", float(value))


def _list_counted(report: KernelReport) -> Iterator[KernelMetric]:
    executed = report.counts.executed_warp_instructions
    if executed is not None:
        yield KernelMetric("executed_warp_instructions", "", float(executed))
    if report.memory_spaces:
        by_name = {space.space: space for space in report.memory_spaces}
        for name, (space_name, get) in _OF_SPACES.items():
            space = by_name.get(space_name)
            value = 0 if space is None else get(space)
            if value is not None:
                yield KernelMetric(name, "", float(value))
    if report.traffic is not None:
        yield KernelMetric("global_read_bytes", "", float(report.traffic.read_bytes))
        yield KernelMetric("global_written_bytes", "", float(report.traffic.written_bytes))
