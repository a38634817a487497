"""Validate predicted times of kernels of traces/h100; score them by kernel, by time and as a choice."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from error_metrics import collect_times

import analyzer
from analyzer.evaluation.error_metrics import compute_spearman, measure_errors
from analyzer.report.validation_schema import CaseEntry
from groundtruth.launch_latency import fit_unprofiled_latencies
from groundtruth.launch_table import COLD_SUFFIX, write_launches
from groundtruth.records import GPU, MeasuredLaunch, read_empty_event_us

MODELS = ("sm", "hybrid", "warp", "roofline", "amali", "gcom", "mdm")
N_TRITON, N_WAVETUNE, N_ALL_WAVETUNE = 100, 60, 300  # launches in a sample
TIME_RANGES_US = ((0, 10), (10, 50), (50, 200), (200, float("inf")))
_WITHIN = 1.01  # of the fastest configuration
_FIRST = (1, 5, 10)
_MIN_CONFIGURATIONS = 6  # of a shape whose ranking is scored
SCORE_COLUMNS = ("rows", "MAPE", "median", "P90", "bias", "inside")


def compute_event_overhead_us(gpu: str = GPU) -> tuple[float, float]:
    """Return what events add to a kernel's own time, warm and cold: the empty kernel's, less its own time.

    Its own is the least period of empty kernels in a graph. With a warm L2 the micro-benchmarks have it many
    times over; the one before all launches was disturbed on the H200.
    """
    fits = [fit for fit in fit_unprofiled_latencies(gpu) if fit.kernel == "empty"]
    least, warm = (min(fit.least_us for fit in fits if fit.how == how) for how in ("graph", "events"))
    return warm - least, read_empty_event_us(gpu)[1] - least


def sample_launches(launches: Sequence[MeasuredLaunch], count: int | None) -> list[MeasuredLaunch]:
    """Return so many launches, chosen by a hash of their names; all where None."""
    ordered = sorted(launches, key=lambda launch: crc32(launch.case.encode()))
    return ordered[:count]


def validate_launches(
    folder: Path, name: str, launches: Sequence[MeasuredLaunch], models: Sequence[str], jobs: int
) -> tuple[CaseEntry, ...]:
    """Return the rows of the launches, warm and cold, with all models' answers."""
    table = folder / f"{name}.csv"
    write_launches(table, launches, compute_event_overhead_us())
    return analyzer.validate(table, models=models, jobs=jobs, cache=folder / "validate").cases


def select_warm(cases: Iterable[CaseEntry]) -> list[CaseEntry]:
    """Return the counted rows with a warm L2."""
    return [case for case in cases if case.counted and not case.case.endswith(COLD_SUFFIX)]


def select_cold(cases: Iterable[CaseEntry]) -> list[CaseEntry]:
    """Return the rows with a cold L2."""
    return [case for case in cases if case.case.endswith(COLD_SUFFIX)]


def score_rows(cases: Sequence[CaseEntry], model: str) -> tuple[str, ...] | None:
    """Return cells in the order of `SCORE_COLUMNS`; None where the model answers no row."""
    if not any(found.model == model for case in cases for found in case.predictions):
        return None
    times = collect_times(cases, model)
    errors = measure_errors(times)
    shares = (errors.mape, errors.median_ape, errors.p90_ape)
    return (
        str(len(times.measured_us)),
        *(f"{100 * share:.1f}%" for share in shares),
        f"{errors.bias:.2f}",
        f"{100 * errors.interval_coverage:.0f}%",
    )


def group_rows(
    cases: Iterable[CaseEntry], find_key: Callable[[CaseEntry], str]
) -> dict[str, list[CaseEntry]]:
    """Return rows by a key, in the order of their first rows."""
    found: dict[str, list[CaseEntry]] = defaultdict(list)
    for case in cases:
        found[find_key(case)].append(case)
    return found


def find_time_range(case: CaseEntry) -> str:
    """Return the range of `TIME_RANGES_US` that the measured time lies in."""
    for low, high in TIME_RANGES_US:
        if case.time_us < high:
            return f"{low} to {high} us" if high < float("inf") else f"over {low} us"
    raise AssertionError(case.time_us)


# ---- choice of a configuration -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ranking:
    """How a model ranks the configurations of one shape."""

    shape: str
    configurations: int
    spearman: float
    loss: float  # measured time of the one predicted fastest over the least, less one
    found_in_first: Mapping[int, bool]  # whether the first so many hold one within a percent of the fastest


def rank_shapes(cases: Sequence[CaseEntry], model: str) -> list[Ranking]:
    """Return the rankings of all shapes with enough configurations."""
    shapes = group_rows(cases, lambda case: case.group)
    return [
        _rank_shape(shape, rows, model) for shape, rows in shapes.items() if len(rows) >= _MIN_CONFIGURATIONS
    ]


def _rank_shape(shape: str, rows: Sequence[CaseEntry], model: str) -> Ranking:
    times = collect_times(rows, model)
    measured = times.measured_us[np.argsort(times.predicted_us, kind="stable")]
    best = measured.min()
    return Ranking(
        shape,
        len(measured),
        compute_spearman(times.measured_us, times.predicted_us) or 0.0,
        float(measured[0] / best - 1),
        {first: bool((measured[:first] <= _WITHIN * best).any()) for first in _FIRST},
    )
