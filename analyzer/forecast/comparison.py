"""Costs of forecast runs, which of them meet targets, and which no other beats.

A layout is a kind of GPU and how many of them share a model. Its cost is what its GPUs cost over the run:

    run cost                        = price per GPU-hour * GPUs * hours
    cost per million output tokens  = run cost / output tokens * 1e6

A layout is on the Pareto front if no other is at most as expensive and at most as slow, and better in one of
the two. Without prices the number of GPUs stands for the cost.

Example: 8 GPUs at 2.50 an hour for 36 s cost 0.20; for 20,000 tokens that is 10 per million.
"""

from collections.abc import Sequence

from msgspec import Struct

_HOUR_MS = 3.6e6
_MILLION = 1e6


class LatencyTargets(Struct, frozen=True):
    """Limits in ms; None: none."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    total_ms: float | None = None

    @property
    def has_any(self) -> bool:
        """Whether a limit is set."""
        return any(limit is not None for limit in (self.ttft_ms, self.tpot_ms, self.total_ms))


class RunTimes(Struct, frozen=True):
    """Times of a run in ms; a run that generates one token has no time per output token."""

    ttft_ms: float
    tpot_ms: float | None
    total_ms: float


def list_missed(times: RunTimes, targets: LatencyTargets) -> tuple[str, ...]:
    """Return the targets that a run misses, in words: `TTFT 812 ms > 500 ms`."""
    pairs = (
        ("TTFT", times.ttft_ms, targets.ttft_ms),
        ("TPOT", times.tpot_ms, targets.tpot_ms),
        ("total", times.total_ms, targets.total_ms),
    )
    return tuple(
        f"{name} {_format_ms(time)} > {_format_ms(limit)}"
        for name, time, limit in pairs
        if limit is not None and time is not None and time > limit
    )


def _format_ms(time_ms: float) -> str:
    return f"{time_ms:,.0f} ms" if time_ms >= 100 else f"{time_ms:.3g} ms"


def compute_run_cost(price_per_gpu_hour: float, gpus: int, total_ms: float) -> float:
    """Return what all GPUs of a replica cost over a run, in the unit of the price."""
    return price_per_gpu_hour * gpus * total_ms / _HOUR_MS


def compute_token_cost(run_cost: float, output_tokens: float) -> float:
    """Return the cost per million output tokens."""
    return run_cost / output_tokens * _MILLION


class Candidate(Struct, frozen=True):
    """What decides between layouts: cost (or GPUs, where no price is known) and time."""

    cost: float | None
    gpus: int
    total_ms: float
    meets_targets: bool


def find_best(candidates: Sequence[Candidate]) -> int | None:
    """Return the cheapest that meets the targets, the faster of equal ones; None if none meets them.

    Candidates without a cost count only where none has one; then fewest GPUs are the cheapest.
    """
    meeting = [i for i, candidate in enumerate(candidates) if candidate.meets_targets]
    priced = [i for i in meeting if candidates[i].cost is not None]
    if any(candidate.cost is not None for candidate in candidates) and not priced:
        return None
    return min(
        priced or meeting, key=lambda i: (_find_cost(candidates[i]), candidates[i].total_ms), default=None
    )


def find_pareto(candidates: Sequence[Candidate]) -> tuple[bool, ...]:
    """Return of each candidate whether no other beats it in cost and time."""
    has_prices = any(candidate.cost is not None for candidate in candidates)
    points = [
        None if has_prices and candidate.cost is None else (_find_cost(candidate), candidate.total_ms)
        for candidate in candidates
    ]
    return tuple(
        point is not None and not any(other is not None and _beats(other, point) for other in points)
        for point in points
    )


def _find_cost(candidate: Candidate) -> float:
    return float(candidate.gpus) if candidate.cost is None else candidate.cost


def _beats(other: tuple[float, float], point: tuple[float, float]) -> bool:
    return other != point and other[0] <= point[0] and other[1] <= point[1]
