"""Alignment of repeated requests: how many of them begin at which place of a sector, or of a row of banks.

Idea: the sectors of a request depend on its addresses modulo the sector size only. Requests that step by s
bytes have period unit / gcd(s, unit); so a few of them are measured, with the counts of all that are alike.

Example: a request repeated 10 times with step 8 in sectors of 32 bytes has 4 phases: shifts 0, 8, 16, 24
bytes with counts 3, 3, 2, 2.
"""

from collections.abc import Iterable
from itertools import product

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.machine.request_tables import RequestTable
from analyzer.ir.arrays import Addresses, BoolArray, IntArray

_MAX_PHASES = 256


class AlignmentPhase(Struct, frozen=True, eq=False):
    """Requests with the same shift from the first of their row."""

    shift_bytes: Addresses | None  # None for 0
    request_counts: NDArray[np.float64]  # of each row


class AlignmentPhases(Struct, frozen=True, eq=False):
    """Phases that represent all requests of a table."""

    phases: tuple[AlignmentPhase, ...]
    is_exhaustive: bool = True  # all shifts are there; else some represent others


def find_alignment_phases(requests: RequestTable, unit_bytes: int) -> AlignmentPhases:
    """Return the distinct alignments modulo `unit_bytes`; each iteration if lanes step unequally far."""
    found = AlignmentPhases((AlignmentPhase(None, requests.counts.astype(np.float64)),))
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
    """Return the phase of two repetitions at once; the second's total count is not counted twice."""
    shifts = [shift for shift in (first.shift_bytes, second.shift_bytes) if shift is not None]
    return AlignmentPhase(
        sum(shifts[1:], shifts[0]) if shifts else None, first.request_counts * (second.request_counts / total)
    )


def _merge_phases(phases: Iterable[AlignmentPhase], unit_bytes: int) -> tuple[AlignmentPhase, ...]:
    """Merge phases whose uniform shifts are equal modulo the unit."""
    found: dict[int, AlignmentPhase] = {}
    others: list[AlignmentPhase] = []
    for phase in phases:
        if phase.shift_bytes is not None and phase.shift_bytes.size > 1:
            others.append(phase)
            continue
        shift = 0 if phase.shift_bytes is None else int(phase.shift_bytes.reshape(-1)[0]) % unit_bytes
        known = found.get(shift)
        moved = np.full((1, 1), shift, dtype=np.uint64) if shift else None
        found[shift] = AlignmentPhase(
            moved, phase.request_counts if known is None else known.request_counts + phase.request_counts
        )
    return (*found.values(), *others)


def _find_stride_phases(
    steps: IntArray, counts: IntArray, active: BoolArray, unit_bytes: int
) -> AlignmentPhases:
    """Return the phases of one repetition."""
    if _has_per_lane_steps(steps, active):
        return _sample_iterations(steps, counts)
    shared = int(np.gcd.reduce(np.append(np.abs(steps).reshape(-1), unit_bytes)))
    period = unit_bytes // shared
    found: list[AlignmentPhase] = []
    for phase in range(period):
        share: IntArray = np.maximum((counts - phase + period - 1) // period, 0)
        if share.any():
            found.append(AlignmentPhase(_scale_steps(steps, phase), share.astype(np.float64)))
    return AlignmentPhases(tuple(found))


def _has_per_lane_steps(steps: IntArray, active: BoolArray) -> bool:
    """Return whether lanes of a warp step unequally far: each iteration then has sectors of its own."""
    if steps.shape[-1] == 1:
        return False
    lanes = np.broadcast_to(active, np.broadcast_shapes(active.shape, steps.shape))
    steps = np.broadcast_to(steps, lanes.shape)
    first = np.take_along_axis(steps, lanes.argmax(axis=-1)[..., None], axis=-1)
    return bool(((steps != first) & lanes).any())


def _sample_iterations(steps: IntArray, counts: IntArray) -> AlignmentPhases:
    """Return each iteration as a phase; if they are many, some spread evenly over them."""
    most = int(counts.max(initial=0))
    times = np.unique(np.linspace(0, max(0, most - 1), _MAX_PHASES).astype(np.int64))
    runs = times[:, None] < counts.reshape(1, -1)
    shares = runs * (counts / np.maximum(runs.sum(axis=0), 1))
    found = [
        AlignmentPhase(_scale_steps(steps, int(t)), share) for t, share in zip(times, shares, strict=True)
    ]
    return AlignmentPhases(tuple(found), is_exhaustive=len(times) >= most)


def _scale_steps(steps: IntArray, times: int) -> Addresses | None:
    return (steps * times).astype(np.uint64) if times else None
