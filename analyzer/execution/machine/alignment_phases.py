"""Where requests stand within a sector, or a row of banks, over iterations and CTAs: how many stand where."""

from collections.abc import Iterable
from itertools import product

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.lowering.step import BoolArray
from analyzer.execution.machine.request_tables import RequestTable

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

_MAX_PHASES = 256


class AlignmentPhase(Struct, frozen=True, eq=False):
    """Requests that are moved alike; shift: how far, None for not at all; share: how many of each row."""

    shift_bytes: Addresses | None
    request_counts: NDArray[np.float64]


class AlignmentPhases(Struct, frozen=True, eq=False):
    """is_whole: they are all; else they stand for others."""

    phases: list[AlignmentPhase]
    is_exhaustive: bool = True


def find_alignment_phases(requests: RequestTable, unit_bytes: int) -> AlignmentPhases:
    """Distinct places modulo `unit` bytes; where lanes move unequally far, each iteration."""
    found = AlignmentPhases([AlignmentPhase(None, requests.counts.astype(np.float64))])
    if requests.steps is not None and requests.steps.any():
        found = _find_stride_phases(requests.steps, requests.counts, requests.active, unit_bytes)
    for stride in requests.repeat_strides:
        total = np.asarray(stride.count, dtype=np.int64)
        more = _find_stride_phases(
            np.asarray(stride.step, dtype=np.int64), total, requests.active, unit_bytes
        )
        both = _merge_phases(
            (_compose_phases(*pair, total) for pair in product(found.phases, more.phases)), unit_bytes
        )
        if len(both) > _MAX_PHASES:
            return AlignmentPhases(found.phases, is_exhaustive=False)
        found = AlignmentPhases(both, is_exhaustive=found.is_exhaustive and more.is_exhaustive)
    return found


def _compose_phases(first: AlignmentPhase, second: AlignmentPhase, total: IntArray) -> AlignmentPhase:
    """Both repetitions; of the second one it is counted elsewhere how many there are."""
    shifts = [shift for shift in (first.shift_bytes, second.shift_bytes) if shift is not None]
    return AlignmentPhase(
        sum(shifts[1:], shifts[0]) if shifts else None, first.request_counts * (second.request_counts / total)
    )


def _merge_phases(phases: Iterable[AlignmentPhase], unit_bytes: int) -> list[AlignmentPhase]:
    """Phases in which all lanes are moved equally far, but for whole units, as one."""
    found: dict[int, AlignmentPhase] = {}
    others: list[AlignmentPhase] = []
    for phase in phases:
        if phase.shift_bytes is not None and phase.shift_bytes.size > 1:
            others.append(phase)
            continue
        far = 0 if phase.shift_bytes is None else int(phase.shift_bytes.reshape(-1)[0]) % unit_bytes
        known = found.get(far)
        moved = np.full((1, 1), far, dtype=np.uint64) if far else None
        found[far] = AlignmentPhase(
            moved, phase.request_counts if known is None else known.request_counts + phase.request_counts
        )
    return [*found.values(), *others]


def _find_stride_phases(
    steps: IntArray, counts: IntArray, active: BoolArray, unit_bytes: int
) -> AlignmentPhases:
    if _has_per_lane_steps(steps, active):
        return _sample_iterations(steps, counts)
    shared = int(np.gcd.reduce(np.append(np.abs(steps).reshape(-1), unit_bytes)))
    period = unit_bytes // shared
    found: list[AlignmentPhase] = []
    for phase in range(period):
        share: IntArray = np.maximum((counts - phase + period - 1) // period, 0)
        if share.any():
            found.append(AlignmentPhase(_scale_steps(steps, phase), share.astype(np.float64)))
    return AlignmentPhases(found)


def _has_per_lane_steps(steps: IntArray, active: BoolArray) -> bool:
    """Lanes of a warp move unequally far: which of them meet in a sector changes all the time."""
    if steps.shape[-1] == 1:
        return False
    lanes = np.broadcast_to(active, np.broadcast_shapes(active.shape, steps.shape))
    steps = np.broadcast_to(steps, lanes.shape)
    first = np.take_along_axis(steps, lanes.argmax(axis=-1)[..., None], axis=-1)
    return bool(((steps != first) & lanes).any())


def _sample_iterations(steps: IntArray, counts: IntArray) -> AlignmentPhases:
    """Each iteration; of many, some spread over all of them."""
    most = int(counts.max(initial=0))
    times = np.unique(np.linspace(0, max(0, most - 1), _MAX_PHASES).astype(np.int64))
    runs = times[:, None] < counts.reshape(1, -1)
    shares = runs * (counts / np.maximum(runs.sum(axis=0), 1))
    found = [
        AlignmentPhase(_scale_steps(steps, int(t)), share) for t, share in zip(times, shares, strict=True)
    ]
    return AlignmentPhases(found, is_exhaustive=len(times) >= most)


def _scale_steps(steps: IntArray, times: int) -> Addresses | None:
    return (steps * times).astype(np.uint64) if times else None
