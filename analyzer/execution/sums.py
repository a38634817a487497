"""What the machines of a launch add up to."""

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.execution.access_log import MemoryLog
from analyzer.execution.entries import AccessKey, AccessTotals
from analyzer.execution.hearing import Ears
from analyzer.execution.machine import Machine
from analyzer.execution.mixing import mixing_factors
from analyzer.execution.profile import WarpClass
from analyzer.execution.warps import Batch
from analyzer.flow.cfg import Cfg

IntArray = NDArray[np.int64]


class LaunchSums(Struct, eq=False):
    """Sums over the batches of a launch, and the log of the only one where there is but one.

    stopped: why one of them did not come to its end; ears: what the first CTA was heard to say; tickets:
    atomics whose numbers were taken to be unlike others (see `tickets`).
    """

    segments: NDArray[np.float64]
    lanes: NDArray[np.float64]
    entries: NDArray[np.float64]
    accesses: dict[AccessKey, AccessTotals] = field(default_factory=dict)
    hanging: dict[int, float] = field(default_factory=dict)
    doubted: set[int] = field(default_factory=set)
    origins: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    tickets: set[int] = field(default_factory=set)
    classes: list[WarpClass] = field(default_factory=list)
    log: MemoryLog | None = None
    ears: Ears | None = None
    stopped: str = ""


def collect(machine: Machine, stopped: str, sums: LaunchSums) -> None:
    """Add what one batch did."""
    tally, batch = machine.tally, machine.batch
    sums.stopped = sums.stopped or stopped
    sums.segments += _weighed(tally.segments, batch.weights)
    sums.lanes += _weighed(tally.lanes, batch.weights)
    sums.entries += _weighed(tally.entries, batch.weights)
    for key, totals in tally.memory.totals.items():
        _merge(sums.accesses, key, totals)
    for row, weight in tally.hanging.items():
        sums.hanging[row] = sums.hanging.get(row, 0.0) + weight
        sums.origins.setdefault(row, batch.origin_text(batch.origins[row]))
    sums.tickets |= batch.unknown_words.tickets
    sums.doubted |= tally.doubted
    for row in tally.hanging:
        sums.doubted |= batch.regions.blocks(row, batch.meeting_block(row))
    entries = list(machine.kernel.entry_of)
    blocks = tally.segments[entries]
    beside = _beside(blocks, machine.kernel.cfg, batch)
    sums.classes += _classes(blocks, tally.lanes[entries], beside, batch)


def _weighed(table: IntArray, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows added up; one weight for all need not make numbers of [row, warp] of them first."""
    if bool((weights == weights[:1]).all()):
        once: NDArray[np.float64] = table.sum(axis=1) * weights[0]
        return once
    weighed: NDArray[np.float64] = table @ weights
    return weighed


def _merge(accesses: dict[AccessKey, AccessTotals], key: AccessKey, more: AccessTotals) -> None:
    own = accesses.get(key)
    if own is None:
        accesses[key] = more
        return
    own.requests += more.requests
    own.lanes += more.lanes
    own.sectors += more.sectors
    own.wavefronts += more.wavefronts
    own.trust = min(own.trust, more.trust)
    own.base = more.base if own.base is None else own.base
    own.namers |= more.namers
    own.is_doubtful |= more.is_doubtful
    own.is_even &= more.is_even
    own.misaligned = own.misaligned or more.misaligned
    own.footprint.merge(more.footprint)


_MUCH = 10


def _beside(blocks: IntArray, cfg: Cfg, batch: Batch) -> NDArray[np.bool_]:
    """Warps in whose CTA another one executes much more."""
    work = np.array([len(block) for block in cfg.blocks]) @ blocks
    most = np.zeros(int(batch.ctas.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(most, batch.ctas, work)
    found: NDArray[np.bool_] = work * _MUCH <= most[batch.ctas]
    return found


def _classes(blocks: IntArray, lanes: IntArray, beside: NDArray[np.bool_], batch: Batch) -> list[WarpClass]:
    """Warps with equal counts and lanes in every block."""
    factors = mixing_factors(2 * len(blocks)).view(np.int64)
    keys = factors[: len(blocks)] @ blocks + factors[len(blocks) :] @ lanes
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    n_seats = batch.shape.warps_per_cta
    places = which.reshape(-1) * n_seats + batch.warps
    n_beside = np.bincount(which.reshape(-1), weights=batch.weights * beside, minlength=len(firsts))
    sizes = np.bincount(places, weights=batch.weights, minlength=len(firsts) * n_seats)
    return [
        WarpClass(
            n_warps=round(float(seats.sum())),
            block_counts=blocks[:, first].copy(),
            block_lanes=lanes[:, first].copy(),
            example=(int(batch.cta_numbers[batch.ctas[first]]), int(batch.warps[first])),
            seats=tuple(seats.tolist()),
            n_beside=round(float(others)),
        )
        for first, seats, others in zip(firsts.tolist(), sizes.reshape(-1, n_seats), n_beside, strict=True)
    ]
