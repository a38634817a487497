"""What is seen of steps and of shared memory while some CTAs run, for the proof that others are like them.

First the CTAs at the corners of the grid show where each instruction reaches into shared memory, and by how
much steps that round (a shift to the right, a division) grow from one CTA to the next. `GridDependence` takes
both for true; runs that prove CTAs alike then see whether they are: what a step rounds grows evenly, so where
its word has grown by its pace times the distance at both ends of a row of CTAs, it has at all in between.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.boxes import AXES, Place
from analyzer.execution.convergence import lane_words
from analyzer.execution.lanes import Rows, View
from analyzer.execution.memory import Addresses
from analyzer.execution.mixing import mixing_factors
from analyzer.execution.program import Access
from analyzer.execution.shared_memory import within_cta
from analyzer.execution.step import Bits, Step, Value
from analyzer.execution.tally import Tally
from analyzer.ir.machine import WARP_LANES

IntArray = NDArray[np.int64]
Signature = NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LANE_FACTORS = mixing_factors(WARP_LANES)
_WORD_BYTES = 4
_ANYWHERE = 1 << 62
_STILL: Place = (0, 0, 0)


class Reach(Struct, frozen=True):
    """Bytes [low, high) of shared memory that an instruction meets; in_words: at words' places only."""

    low: int
    high: int
    in_words: bool

    def meets(self, other: "Reach") -> bool:
        return self.low < other.high and other.low < self.high

    def joined(self, other: "Reach") -> "Reach":
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Reach(low, high, self.in_words and other.in_words)


EVERYWHERE = Reach(0, _ANYWHERE, in_words=False)


class Seen(Struct, frozen=True, eq=False):
    """Reach of each instruction, by row; paces: by how much the words of steps that round grow from one CTA
    of a box to the next along each axis, where that was the same everywhere.
    """

    reaches: Mapping[int, Reach] = {}
    paces: Mapping[Step, Place] = {}

    def covers(self, reaches: Mapping[int, Reach]) -> bool:
        """Whether instructions reached no further."""
        return all(
            row in self.reaches and self.reaches[row].joined(reach) == self.reaches[row]
            for row, reach in reaches.items()
        )

    def with_reaches(self, reaches: Mapping[int, Reach]) -> "Seen":
        """The same, where instructions reach so far as well."""
        return Seen(_joined([self.reaches, reaches]), self.paces)


class Watcher(Protocol):
    """Looks on while a machine runs."""

    def see(self, step: Step, words: list[Value], results: tuple[Value, ...], view: View) -> None:
        """What a step made of what it read."""

    def reach(self, access: Access, active: Bits, addresses: Addresses | None) -> None:
        """Where lanes meet shared memory whose contents are kept; None: anywhere."""

    def note_loop(self, rows: Rows, repeats: IntArray, tally: Tally) -> None:
        """Iterations taken at once: how many of each warp, and what one of them came to."""


class _Reaches:
    """Where instructions met shared memory."""

    def __init__(self) -> None:
        self.reaches: dict[int, Reach] = {}

    def reach(self, access: Access, active: Bits, addresses: Addresses | None) -> None:
        found = EVERYWHERE if addresses is None else _reach(access, active, addresses)
        if found is not None:
            known = self.reaches.get(access.row)
            self.reaches[access.row] = found if known is None else known.joined(found)


class Places(Struct, frozen=True, eq=False):
    """Where CTAs lie: kinds[cta]: their strided box; turns[axis, cta]: how many of it come before."""

    kinds: IntArray
    turns: IntArray


class Onlooker(_Reaches):
    """Watches CTAs of which nothing is known yet; only those of one kind are compared."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        self.paces: dict[Step, Place | None] = {}

    def see(self, step: Step, words: list[Value], results: tuple[Value, ...], view: View) -> None:
        if step.rounded is None or self.paces.get(step, _STILL) is None:
            return
        pace = _pace(results[step.rounded], view, self.places)
        self.paces[step] = pace if self.paces.get(step, pace) == pace else None

    def note_loop(self, rows: Rows, repeats: IntArray, tally: Tally) -> None:
        """They round as those that run one by one; of shared memory they meet nothing that is known."""

    def seen(self) -> Seen:
        return Seen(self.reaches, {step: pace for step, pace in self.paces.items() if pace is not None})


class Signer(_Reaches):
    """Gives each warp a number: equal where warps take the same ways, lane by lane, with the same predicates.

    compared: steps whose predicates count; paces: steps of which results count as well, less what they grow
    by up to each CTA; turns: see `Places`.
    """

    def __init__(
        self, n_warps: int, compared: set[Step], paces: Mapping[Step, Place], turns: IntArray
    ) -> None:
        super().__init__()
        self.signature: Signature = np.zeros(n_warps, dtype=np.uint64)
        self.compared, self.paces, self.turns = compared, paces, turns

    def see(self, step: Step, words: list[Value], results: tuple[Value, ...], view: View) -> None:
        if step not in self.compared:
            return
        for place, value in enumerate(results if step.watch is None else (*results, *step.watch(*words))):
            if value.dtype == np.bool_:
                bits = np.broadcast_to(view.flat(value), view.group.mask.shape) & view.group.mask
                self._mix(view.group.rows, lane_words(bits) + np.uint64(step.writes[0] + 2))
            elif place == step.rounded and step in self.paces:
                left = view.flat(value) - self._grown(self.paces[step], view)
                shown = np.where(view.group.mask, left, 0).astype(np.uint64)
                self._mix(view.group.rows, shown @ _LANE_FACTORS)

    def _grown(self, pace: Place, view: View) -> Value:
        """By how much a step's words have grown up to the CTAs of a group's warps."""
        if not any(pace):
            return np.zeros((1, 1), dtype=np.uint32)
        ctas = view.group.rows // view.state.shape[2]
        grown: Value = (np.array(pace, dtype=np.int64) @ self.turns[:, ctas])[:, None].astype(np.uint32)
        return grown

    def note_loop(self, rows: Rows, repeats: IntArray, tally: Tally) -> None:
        """Add how many there were, and through which segments."""
        factors = mixing_factors(len(tally.segments)).view(np.int64)
        period = factors @ tally.segments[:, rows] + 3 * (factors @ tally.lanes[:, rows])
        self._mix(rows, (period + repeats[rows]).astype(np.uint64))

    def of_ctas(self, n_ctas: int) -> Signature:
        """One number for each CTA."""
        mixed = np.zeros(n_ctas, dtype=np.uint64)
        for column in self.signature.reshape(n_ctas, -1).T:
            mixed = mixed * _FACTOR + column
        return mixed

    def _mix(self, rows: Rows, more: Signature) -> None:
        self.signature[rows] = self.signature[rows] * _FACTOR + more


def joint_reaches(watchers: Iterable[Signer]) -> Mapping[int, Reach]:
    """How far instructions reached in any of these runs."""
    return _joined([watcher.reaches for watcher in watchers])


def _joined(maps: Iterable[Mapping[int, Reach]]) -> Mapping[int, Reach]:
    found: dict[int, Reach] = {}
    for reaches in maps:
        for row, reach in reaches.items():
            found[row] = found[row].joined(reach) if row in found else reach
    return found


def _reach(access: Access, active: Bits, addresses: Addresses) -> Reach | None:
    """From the first byte to the last one that active lanes meet."""
    shape = np.broadcast_shapes(active.shape, addresses.shape)
    if active.all():
        places = within_cta(addresses)
    else:
        places = within_cta(np.broadcast_to(addresses, shape)[np.broadcast_to(active, shape)])
    if not places.size:
        return None
    in_words = access.width_bytes >= _WORD_BYTES and not bool((places & np.uint64(_WORD_BYTES - 1)).any())
    return Reach(int(places.min()), int(places.max()) + access.width_bytes, in_words)


def _pace(value: Value, view: View, places: Places) -> Place | None:
    """By how much each warp's lanes grow from one CTA of their kind to the next, None where not all do so.

    A word is taken to grow by less than half of its range over the grid.
    """
    rows = view.flat(value)
    if value.dtype == np.bool_ or len(rows) == 1:
        return _STILL
    n_warps = view.state.shape[2]
    ctas, warps = np.divmod(view.group.rows, n_warps)
    _, first, which = np.unique(places.kinds[ctas] * n_warps + warps, return_index=True, return_inverse=True)
    grown = np.where(view.group.mask, rows - rows[first[which]], 0)
    turns = places.turns[:, ctas] - places.turns[:, ctas[first[which]]]
    x, y, z = (_pace_along(axis, grown, turns, view.group.mask) for axis in range(AXES))
    expected = (np.array([x, y, z]) @ turns)[:, None].astype(np.uint32)
    return (x, y, z) if not bool(((grown != expected) & view.group.mask).any()) else None


def _pace_along(axis: int, grown: Value, turns: IntArray, mask: Bits) -> int:
    """As the first warp shows that lies further on along this axis alone."""
    others = np.delete(turns, axis, axis=0)
    beside = np.flatnonzero((turns[axis] > 0) & ~others.any(axis=0) & mask.any(axis=1))
    if not len(beside):
        return 0
    row = beside[0]
    return int(grown[row, mask[row].argmax()].view(np.int32)) // int(turns[axis, row])
