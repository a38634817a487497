"""What a launch takes beside its work: measured by graphs, events and Nsight Compute, and by our figures."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.hardware.gpu_database import load_gpu
from groundtruth.records import GPU, Record, read_document

_MIN_SLOPE_CTAS = 4096  # from here on the time grows by a constant for each CTA


@dataclass(frozen=True, slots=True)
class LaunchLatency:
    """Least time of a kernel in microseconds, and the CTAs that it starts in one."""

    how: str  # graph, events, ncu
    kernel: str
    block_threads: int
    least_us: float  # of one CTA
    ctas_per_us: float


def fit_latencies() -> tuple[LaunchLatency, ...]:
    """Return fits to the launches of each kernel and block size, by each way to measure."""
    profiled = read_document("kll_ncu")["rows"]
    return (*fit_unprofiled_latencies(), *_fit("ncu", profiled, "gpu__time_duration.sum", 1e-3))


def fit_unprofiled_latencies(gpu: str = GPU) -> tuple[LaunchLatency, ...]:
    """Return fits to the launches that graphs and events timed."""
    graphs = [r for r in read_document("micro", gpu)["records"] if "graph_nodes" in r]
    return (
        *_fit("graph", graphs, "graph_node_time_us_median", 1.0),
        *_fit("events", graphs, "time_us_warm_median", 1.0),
    )


def _fit(how: str, rows: Iterable[Record], field: str, unit_us: float) -> list[LaunchLatency]:
    groups: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["kernel"], row["block_threads"]][row["grid_blocks"]].append(row[field] * unit_us)
    return [
        _fit_group(how, *key, {grid: min(t) for grid, t in times.items()}) for key, times in groups.items()
    ]


def _fit_group(how: str, kernel: str, threads: int, times_us: Mapping[int, float]) -> LaunchLatency:
    large = [(grid, us) for grid, us in sorted(times_us.items()) if grid >= _MIN_SLOPE_CTAS]
    slope_us = _fit_slope(large)
    return LaunchLatency(how, kernel, threads, times_us[min(times_us)], 1 / slope_us)


def _fit_slope(points: Sequence[tuple[int, float]]) -> float:
    grids, times = np.array(points).T
    return float(np.polyfit(grids, times, 1, w=1 / times)[0])


def list_our_figures() -> dict[str, float]:
    """Return the figures of hwdb that say the same: least time by `--timing`, and CTAs per microsecond."""
    launch = load_gpu(GPU).file.launch
    return {
        "interval": launch.overhead_us.value,
        "kernel": (launch.kernel_us or launch.overhead_us).value,
        "ncu": (launch.interval_us or launch.overhead_us).value,
        "ctas_per_us": launch.ctas_per_us.value,
    }
