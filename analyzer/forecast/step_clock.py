"""Durations of the steps of a serving engine, from the times of whole steps.

A simulation takes hundreds of thousands of steps, no two with the same lengths, and a step's time is a sum
over some fifteen operators. Two things make it cheap:

1. **Decode steps lie on a line.** With the batch fixed, each step adds one token per request, so the time is
   a function of the KV tokens alone. It is asked at knots, `KNOTS_PER_OCTAVE` per doubling of the KV tokens,
   and interpolated linearly between them. Where the time is affine between two knots (bytes over a bandwidth)
   nothing is lost; where it has a kink, less than the kink.
2. **Steps with prefills are rounded.** What decides their time are the rows of the products, the pairs of
   query and key, and the KV tokens that decoding requests read. Each is rounded to a geometric grid:
   `ROWS_PER_OCTAVE` for the rows, which decide most, fewer for the rest. A step of the middle of each
   interval stands for all in it.

Both treat requests of a step as equally long. bench/serving_speed.py measures what either costs against
`bench/exact_clock.py`, which asks for each step with the lengths that it has.

Example: 16 requests that decode with 4,100 to 5,000 KV tokens need the knots at 4,096 and 4,871 alone:
57 steps, two times.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.forecast.operator_calls import Phase, Step
from analyzer.forecast.step_times import StepTime

StepTimer = Callable[[Sequence[Step]], Sequence[StepTime]]  # many at once are faster
MakeStep = Callable[[Phase, tuple[int, ...], tuple[int, ...]], Step]  # of query lengths and KV lengths
KNOTS_PER_OCTAVE = 4
ROWS_PER_OCTAVE = 32
_KEYS_PER_OCTAVE = 8  # that a query of a prefill sees on average
_KV_PER_OCTAVE = 4  # of a decoding request beside prefills
_BATCH_PER_OCTAVE = 4
_US_PER_S = 1e6


class StepLengths(Struct, frozen=True):
    """What each request contributes to a step: new tokens, and KV tokens with the new ones."""

    query_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]


class StepShape(Struct, frozen=True):
    """What decides the time of a step, summed over its requests."""

    prefills: int = 0  # requests with a part of their prompt in the step
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0  # of query and key under the causal mask: sum of q · (context + (q + 1) / 2)
    decodes: int = 0
    decode_kv_tokens: int = 0  # KV lengths of the decoding requests, new tokens included

    @property
    def phase(self) -> Phase:
        """What the step does."""
        if not self.prefills:
            return Phase.DECODE
        return Phase.MIXED if self.decodes else Phase.PREFILL

    @property
    def rows(self) -> int:
        """Rows of the products."""
        return self.prefill_tokens + self.decodes


class StepClock(Protocol):
    """Durations of steps, in seconds."""

    def time_step(self, shape: StepShape, list_lengths: Callable[[], StepLengths]) -> float:
        """Return the duration of one step."""
        ...

    def time_decode_run(
        self, shape: StepShape, list_lengths: Callable[[], StepLengths], steps: int
    ) -> NDArray[np.float64]:
        """Return the durations of consecutive decode steps of the same requests.

        shape, list_lengths: of the first step; each KV length grows by one a step.
        """
        ...


def split_equally(total: int, parts: int) -> tuple[int, ...]:
    """Return integers of a sum that differ by at most one, the larger ones first."""
    low, more = divmod(total, parts)
    return (low + 1,) * more + (low,) * (parts - more)


def choose_lengths(shape: StepShape) -> StepLengths:
    """Return equal lengths with the tokens, and within rounding the pairs, of a shape; prefills come first.

    With n prefills of T tokens in all and A pairs, each has q = T / n tokens behind a context of A / T - (q
    + 1) / 2, which is not negative, since equal lengths have the fewest pairs.
    """
    queries: tuple[int, ...] = ()
    kv_lengths: tuple[int, ...] = ()
    if shape.prefills:
        queries = split_equally(shape.prefill_tokens, shape.prefills)
        mean = shape.prefill_tokens / shape.prefills
        context = max(0, round(shape.prefill_pairs / shape.prefill_tokens - (mean + 1) / 2))
        kv_lengths = tuple(context + query for query in queries)
    if shape.decodes:
        queries += (1,) * shape.decodes
        kv_lengths += split_equally(max(shape.decode_kv_tokens, shape.decodes), shape.decodes)
    return StepLengths(queries, kv_lengths)


class StepTable:
    """Times of rounded steps, each asked for once; one table serves all simulations of a deployment."""

    def __init__(self, make_step: MakeStep, timer: StepTimer) -> None:
        self._make_step, self._timer = make_step, timer
        self._times: dict[StepShape, tuple[float, float]] = {}
        self.n_timed = 0  # steps that were asked for

    def find(self, shapes: Sequence[StepShape]) -> list[tuple[float, float]]:
        """Return us of steps that stand for shapes, with the widths of their intervals."""
        missing = [shape for shape in shapes if shape not in self._times]
        if missing:
            self.n_timed += len(missing)
            found = self._timer([self._make(shape) for shape in missing])
            self._times |= {
                shape: (time.total_us, time.width) for shape, time in zip(missing, found, strict=True)
            }
        return [self._times[shape] for shape in shapes]

    def _make(self, shape: StepShape) -> Step:
        lengths = choose_lengths(shape)
        return self._make_step(shape.phase, lengths.query_lengths, lengths.kv_lengths)


class _Knots(Struct, frozen=True):
    """Times of decode steps of one batch at consecutive knots."""

    numbers: range
    kv_tokens: NDArray[np.float64]  # at least one for each request, so the first may be equal
    times_s: NDArray[np.float64]

    @property
    def first(self) -> int:
        return self.numbers[0]

    @property
    def last(self) -> int:
        return self.numbers[-1]


class BucketedClock:
    """Times of rounded steps, by a table that clocks of other paces share."""

    def __init__(self, table: StepTable, pace: float = 0.0) -> None:
        """Take times, or at pace -1 and 1 the lower and upper ends of their 80 % intervals."""
        self._table, self._pace = table, pace
        self._knots: dict[int, _Knots] = {}  # by batch
        self._step_times: dict[StepShape, float] = {}

    @property
    def n_timed(self) -> int:
        """Steps that were asked for, by all clocks of the table."""
        return self._table.n_timed

    def time_step(self, shape: StepShape, list_lengths: Callable[[], StepLengths]) -> float:
        """Return the duration of one step, in seconds."""
        if not shape.prefills:
            kv_tokens = np.array([shape.decode_kv_tokens], dtype=np.float64)
            return float(self._interpolate(shape.decodes, kv_tokens)[0])
        rounded = round_shape(shape)
        time_s = self._step_times.get(rounded)
        if time_s is None:
            time_s = self._step_times[rounded] = self._time([rounded])[0]
        return time_s

    def time_decode_run(
        self, shape: StepShape, list_lengths: Callable[[], StepLengths], steps: int
    ) -> NDArray[np.float64]:
        """Return the durations of consecutive decode steps, in seconds."""
        kv_tokens = shape.decode_kv_tokens + shape.decodes * np.arange(steps, dtype=np.float64)
        return self._interpolate(shape.decodes, kv_tokens)

    def _interpolate(self, batch: int, kv_tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return times of decode steps of a batch, by ascending KV tokens."""
        first = math.floor(math.log2(kv_tokens[0]) * KNOTS_PER_OCTAVE)
        last = math.ceil(math.log2(kv_tokens[-1]) * KNOTS_PER_OCTAVE) + 1
        known = self._knots.get(batch)
        if known is None or first < known.first or last > known.last:
            known = self._knots[batch] = self._extend_knots(batch, first, last, known)
        return np.interp(kv_tokens, known.kv_tokens, known.times_s)

    def _extend_knots(self, batch: int, first: int, last: int, known: "_Knots | None") -> "_Knots":
        """Return the times of a range of knots and of those known, with no gap between them."""
        times = {} if known is None else dict(zip(known.numbers, known.times_s.tolist(), strict=True))
        numbers = range(min(first, *times), max(last, *times) + 1) if times else range(first, last + 1)
        places = [max(batch, round(2 ** (number / KNOTS_PER_OCTAVE))) for number in numbers]
        missing = [number for number in numbers if number not in times]
        shapes = [
            StepShape(decodes=batch, decode_kv_tokens=places[number - numbers[0]]) for number in missing
        ]
        times |= zip(missing, self._time(shapes), strict=True)
        return _Knots(
            numbers,
            np.array(places, dtype=np.float64),
            np.array([times[number] for number in numbers]),
        )

    def _time(self, shapes: Sequence[StepShape]) -> list[float]:
        found = self._table.find(shapes)
        return [time_us * math.exp(self._pace * width) / _US_PER_S for time_us, width in found]


def round_shape(shape: StepShape) -> StepShape:
    """Return the step that stands for a step with prefills: each figure in the middle of its interval."""
    rows = _round_geometrically(shape.rows, ROWS_PER_OCTAVE)
    decodes = min(_round_geometrically(shape.decodes, _BATCH_PER_OCTAVE), rows - 1)
    prefill_tokens = rows - decodes
    prefills = min(_round_geometrically(shape.prefills, _BATCH_PER_OCTAVE), prefill_tokens)
    # Pairs and KV tokens are rounded by token and by request, whatever else was rounded.
    mean_keys = _round_geometrically(shape.prefill_pairs / shape.prefill_tokens, _KEYS_PER_OCTAVE)
    mean_kv = _round_geometrically(shape.decode_kv_tokens / max(shape.decodes, 1), _KV_PER_OCTAVE)
    return StepShape(
        prefills=prefills,
        prefill_tokens=prefill_tokens,
        prefill_pairs=float(mean_keys * prefill_tokens),
        decodes=decodes,
        decode_kv_tokens=mean_kv * decodes,
    )


def _round_geometrically(value: float, per_octave: int) -> int:
    """Return the nearest point of a geometric grid, rounded to an integer; 0 stays 0."""
    return round(2 ** (round(math.log2(value) * per_octave) / per_octave)) if value >= 1 else round(value)
