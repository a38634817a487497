"""Where requests stand within a sector, or a row of banks, over iterations and CTAs: how many stand where."""

from collections.abc import Iterable
from itertools import product

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.request_tables import Requests
from analyzer.execution.step import Bits

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

_MOST_PHASES = 256


class Phase(Struct, frozen=True, eq=False):
    """Requests that are moved alike; shift: how far, None for not at all; share: how many of each row."""

    shift: Addresses | None
    share: NDArray[np.float64]


class Phases(Struct, frozen=True, eq=False):
    """is_whole: they are all; else they stand for others."""

    every: list[Phase]
    is_whole: bool = True


def phases_of(requests: Requests, unit: int) -> Phases:
    """Distinct places modulo `unit` bytes; where lanes move unequally far, each iteration."""
    found = Phases([Phase(None, requests.counts.astype(np.float64))])
    if requests.steps is not None and requests.steps.any():
        found = _repeated(requests.steps, requests.counts, requests.active, unit)
    for stride in requests.spread:
        total = np.asarray(stride.count, dtype=np.int64)
        more = _repeated(np.asarray(stride.step, dtype=np.int64), total, requests.active, unit)
        both = _merged((_after(*pair, total) for pair in product(found.every, more.every)), unit)
        if len(both) > _MOST_PHASES:
            return Phases(found.every, is_whole=False)
        found = Phases(both, is_whole=found.is_whole and more.is_whole)
    return found


def _after(first: Phase, second: Phase, total: IntArray) -> Phase:
    """Both repetitions; of the second one it is counted elsewhere how many there are."""
    shifts = [shift for shift in (first.shift, second.shift) if shift is not None]
    return Phase(sum(shifts[1:], shifts[0]) if shifts else None, first.share * (second.share / total))


def _merged(phases: Iterable[Phase], unit: int) -> list[Phase]:
    """Phases in which all lanes are moved equally far, but for whole units, as one."""
    found: dict[int, Phase] = {}
    others: list[Phase] = []
    for phase in phases:
        if phase.shift is not None and phase.shift.size > 1:
            others.append(phase)
            continue
        far = 0 if phase.shift is None else int(phase.shift.reshape(-1)[0]) % unit
        known = found.get(far)
        moved = np.full((1, 1), far, dtype=np.uint64) if far else None
        found[far] = Phase(moved, phase.share if known is None else known.share + phase.share)
    return [*found.values(), *others]


def _repeated(steps: IntArray, counts: IntArray, active: Bits, unit: int) -> Phases:
    if _part(steps, active):
        return _one_by_one(steps, counts)
    shared = int(np.gcd.reduce(np.append(np.abs(steps).reshape(-1), unit)))
    period = unit // shared
    found: list[Phase] = []
    for phase in range(period):
        share: IntArray = np.maximum((counts - phase + period - 1) // period, 0)
        if share.any():
            found.append(Phase(_times(steps, phase), share.astype(np.float64)))
    return Phases(found)


def _part(steps: IntArray, active: Bits) -> bool:
    """Lanes of a warp move unequally far: which of them meet in a sector changes all the time."""
    if steps.shape[-1] == 1:
        return False
    lanes = np.broadcast_to(active, np.broadcast_shapes(active.shape, steps.shape))
    steps = np.broadcast_to(steps, lanes.shape)
    first = np.take_along_axis(steps, lanes.argmax(axis=-1)[..., None], axis=-1)
    return bool(((steps != first) & lanes).any())


def _one_by_one(steps: IntArray, counts: IntArray) -> Phases:
    """Each iteration; of many, some spread over all of them."""
    most = int(counts.max(initial=0))
    times = np.unique(np.linspace(0, max(0, most - 1), _MOST_PHASES).astype(np.int64))
    runs = times[:, None] < counts.reshape(1, -1)
    shares = runs * (counts / np.maximum(runs.sum(axis=0), 1))
    found = [Phase(_times(steps, int(t)), share) for t, share in zip(times, shares, strict=True)]
    return Phases(found, is_whole=len(times) >= most)


def _times(steps: IntArray, times: int) -> Addresses | None:
    return (steps * times).astype(np.uint64) if times else None
