"""Policies judged by measured times of shapes that taught them nothing (WaveTune, section 5.2).

How a choice is judged that has no time on its shape:

- In a full sweep: a policy's next choice is taken that has one (a runtime knows what it can launch, and what
  a random sweep left out is no fault of the policy). How often the first had none is reported.
- In a list of the configurations near the best: a choice that is not listed is a miss, its time is unknown,
  and no time is made up for it. Speed-ups over the default cannot be told there; hits can.
- A shape without any time, or in a full sweep without one of the default, is left out and counted.

Speed-ups are geometric means over the default, the share of the oracle that of best over chosen time; a hit
is a choice within 1 % of the best.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.text.errors import InputError
from analyzer.tuning.kernel_space import Integers
from analyzer.tuning.measured_table import Floats, MeasuredTable
from analyzer.tuning.policies import Policy

HIT_RATIO = 1.01
_RANKED = 64  # choices of a policy that are looked at for one with a time
_TIMED_SHAPES = 200


class PolicyScore(Struct, frozen=True, kw_only=True):
    """How a policy did."""

    policy: str
    shapes: int  # judged
    speedup: float | None  # over the default; None where its times are not known
    oracle_share: float | None  # of the oracle's speed, over the choices that have a time
    hits: float  # share of shapes within 1 % of the best
    no_time: float  # share of first choices that have no time on their shape
    decision_us: float | None = None
    size_bytes: int = 0


class Evaluation(Struct, frozen=True, kw_only=True):
    """All policies on one table."""

    kernel: str
    gpu: str
    learned_shapes: int
    left_out: int  # shapes of the test without a best or a default time
    is_list: bool
    scores: tuple[PolicyScore, ...]


def evaluate(
    policies: Sequence[Policy],
    test: MeasuredTable,
    learned_shapes: int,
    *,
    is_list: bool = False,
    clock: Callable[[], float] | None = time.perf_counter,
) -> Evaluation:
    """Return the scores of policies on a table, the oracle's last.

    The first policy is the default. clock: None to time no decisions. Raises InputError where no shape can be
    judged.
    """
    usable = np.isfinite(test.find_best_us())
    if not is_list:
        usable &= np.isfinite(judge_choices(policies[0], test, is_list=False)[0])
    if not usable.any():
        raise InputError(
            "no shape of the test has a time of the default configuration",
            hint="measure the default too, or say --near-best for a list of the best configurations",
        )
    judged = test.select_shapes(usable)
    best = judged.find_best_us()
    default = None if is_list else judge_choices(policies[0], judged, is_list=False)[0]
    scores = []
    for policy in policies:
        chosen, first_known = judge_choices(policy, judged, is_list=is_list)
        scores.append(
            _score(
                policy.name,
                chosen,
                best,
                default,
                no_time=float(1.0 - first_known.mean()),
                decision_us=None if clock is None else time_decision_us(policy, judged.shapes, clock),
                size_bytes=policy.size_bytes,
            )
        )
    scores.append(_score("oracle", best, best, default, no_time=0.0, decision_us=None, size_bytes=0))
    return Evaluation(
        kernel=test.space.name,
        gpu=test.gpu,
        learned_shapes=learned_shapes,
        left_out=int(len(test.shapes) - usable.sum()),
        is_list=is_list,
        scores=tuple(scores),
    )


def judge_choices(policy: Policy, test: MeasuredTable, *, is_list: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the time of each shape's choice [S], NaN where unknown, and whether the first choice has one."""
    ranked = policy.rank(test.shapes, 1 if is_list else _RANKED)
    columns = test.find_configs(ranked.reshape(-1, ranked.shape[2])).reshape(ranked.shape[:2])
    rows = np.arange(len(test.shapes))[:, None]
    times = np.where(columns >= 0, test.time_us[rows, columns], np.nan)
    known = np.isfinite(times)
    first = known.argmax(axis=1)
    return np.where(known.any(axis=1), times[rows[:, 0], first], np.nan), known[:, 0]


def _score(
    name: str,
    chosen: Floats,
    best: Floats,
    default: Floats | None,
    *,
    no_time: float,
    decision_us: float | None,
    size_bytes: int,
) -> PolicyScore:
    known = np.isfinite(chosen)
    share = _mean_ratio(best[known], chosen[known])
    return PolicyScore(
        policy=name,
        shapes=len(best),
        # Where nothing of a policy's ranking has a time, the runtime is left with the default.
        speedup=None if default is None else _mean_ratio(default, np.where(known, chosen, default)),
        oracle_share=share,
        hits=float((known & (chosen <= HIT_RATIO * best)).mean()),
        no_time=no_time,
        decision_us=decision_us,
        size_bytes=size_bytes,
    )


def _mean_ratio(above: Floats, below: Floats) -> float | None:
    """Return the geometric mean of the ratios, None of none."""
    return float(np.exp(np.log(above / below).mean())) if len(above) else None


def time_decision_us(policy: Policy, shapes: Integers, clock: Callable[[], float]) -> float:
    """Return the median time of a decision in us, over shapes that are new to the policy.

    The first input (the tokens) is varied, since a policy may keep its choices; one call beforehand fills
    what is made on first use.
    """
    calls = _list_new_shapes(shapes)
    policy.choose_one(tuple(shapes[0].tolist()))
    seconds = []
    for shape in calls:
        start = clock()
        policy.choose_one(shape)
        seconds.append(clock() - start)
    return 1e6 * statistics.median(seconds)


def _list_new_shapes(shapes: Integers) -> list[tuple[int, ...]]:
    """Return distinct shapes near the given ones, and none of them."""
    known = {tuple(shape) for shape in shapes.tolist()}
    made: list[tuple[int, ...]] = []
    for first, *others in np.resize(shapes, (_TIMED_SHAPES, shapes.shape[1])).tolist():
        while (shape := (first, *others)) in known:
            first += 1
        known.add(shape)
        made.append(shape)
    return made
