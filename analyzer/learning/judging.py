"""How far a set of weights is off on what was left out while it was learned: the figures of its card."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.learning.corrections import LeftOutErrors, make_interval, measure_coverage
from analyzer.models.calibration import interpolate
from analyzer.models.learned.correction import Situation

_SHORT_US = 50.0
_N_DRAWS = 20  # of probes


class LeftOutFigures(Struct, frozen=True):
    """Relative errors in percent on rows that did not teach; None where too few rows say."""

    situation: Situation
    what: str  # a GPU, an architecture, or "shapes"
    rows: int
    mean_percent: float
    median_percent: float
    p90_percent: float
    bias_percent: float
    short_mean_percent: float | None  # of rows under 50 us
    probes_3_percent: float | None  # after a calibration by so many of the rows
    probes_10_percent: float | None
    held_percent: float | None  # of the rows within the interval that was made without them


def judge_errors(errors: Sequence[LeftOutErrors]) -> list[LeftOutFigures]:
    """Return the figures of each thing left out, in the order of the situations."""
    found = []
    for situation in Situation:
        of_situation = [e for e in errors if e.situation is situation]
        found += [_judge(e, [other for other in of_situation if other is not e]) for e in of_situation]
    return found


def _judge(errors: LeftOutErrors, others: Sequence[LeftOutErrors]) -> LeftOutFigures:
    log_error = errors.log_error
    relative = np.abs(np.exp(-log_error) - 1.0)
    short = relative[errors.predicted_us * np.exp(log_error) < _SHORT_US]
    return LeftOutFigures(
        situation=errors.situation,
        what=errors.left_out,
        rows=len(relative),
        mean_percent=100 * float(relative.mean()),
        median_percent=100 * float(np.median(relative)),
        p90_percent=100 * float(np.quantile(relative, 0.9)),
        bias_percent=100 * float(np.exp(-log_error.mean()) - 1.0),
        short_mean_percent=100 * float(short.mean()) if len(short) else None,
        probes_3_percent=_probe(errors, 3),
        probes_10_percent=_probe(errors, 10),
        held_percent=_find_held(errors, others),
    )


def _probe(errors: LeftOutErrors, n_probes: int) -> float | None:
    """Return the mean error after a calibration by so many rows of each GPU, drawn at random."""
    random = np.random.default_rng(0)
    found = []
    for gpu in np.unique(errors.gpu):
        of_gpu = errors.select(errors.gpu == gpu)
        n_rows = len(of_gpu.log_error)
        if n_rows < 2 * n_probes or of_gpu.places is None:
            continue
        for _ in range(_N_DRAWS):
            drawn = random.choice(n_rows, n_probes, replace=False)
            level = interpolate(of_gpu.places[drawn], of_gpu.log_error[drawn], of_gpu.places)
            rest = np.delete(of_gpu.log_error - level, drawn)
            found.append(100 * float(np.abs(np.exp(-rest) - 1.0).mean()))
    return float(np.mean(found)) if found else None


def _find_held(errors: LeftOutErrors, others: Sequence[LeftOutErrors]) -> float:
    """Return the part of rows within the interval that the other things left out give, in percent.

    Where nothing else was left out in this way, of one half of the rows in the interval of the other half.
    """
    if others:
        return 100 * measure_coverage(errors, make_interval(others))
    even = np.arange(len(errors.log_error)) % 2 == 0
    return 100 * measure_coverage(errors.select(~even), make_interval([errors.select(even)]))
