"""Registers of many warps at once, and the view of them that a group of warps works on.

Arrays broadcast to [n_warp, 32] and stay as small as they are uniform. Beside each value stands the
origin of what is not known of it: None where all lanes are known, else int32, 0 where a lane is known.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.step import Bits, Value, Words
from analyzer.isa.roles import PREDICATE_BASE, STORAGE_SIZE

Origins = NDArray[np.int32]
Rows = NDArray[np.int64]
Deltas = NDArray[np.uint32]

ALL_LANES: Bits = np.ones((1, 1), dtype=bool)
_ZERO: Words = np.zeros((1, 1), dtype=np.uint32)
_FALSE: Bits = np.zeros((1, 1), dtype=bool)


def first_value(slot: int) -> Value:
    """What a register holds before anything is written: zero, or false."""
    return _FALSE if slot >= PREDICATE_BASE else _ZERO


class LaneState:
    """All registers and predicates of `n_warps` warps, by storage number.

    deltas[slot]: growth per iteration while a loop is being closed; None is none.
    """

    __slots__ = ("deltas", "n_warps", "origins", "owned", "values")

    def __init__(self, n_warps: int) -> None:
        self.n_warps = n_warps
        self.values: list[Value] = [first_value(slot) for slot in range(STORAGE_SIZE)]
        self.origins: list[Origins | None] = [None] * STORAGE_SIZE
        self.deltas: list[Deltas | None] = [None] * STORAGE_SIZE
        self.owned: set[tuple[int, int]] = set()

    def copy(self) -> "LaneState":
        """A copy that shares the arrays; neither side may write in place after."""
        other = LaneState(self.n_warps)
        other.values, other.origins, other.deltas = list(self.values), list(self.origins), list(self.deltas)
        self.owned.clear()
        return other


@dataclass(slots=True, eq=False)
class Group:
    """Warps that go on together: rows of the state, and the lanes of each that are with the group.

    is_whole: all warps of the state; is_full: no lane of these warps is elsewhere. doubts: branches taken on
    assumption whose paths have not met again.
    """

    rows: Rows
    mask: Bits
    is_whole: bool
    is_full: bool
    doubts: tuple["Doubt", ...] = ()


@dataclass(frozen=True, slots=True)
class Doubt:
    """A branch at `row` that was taken on assumption; its paths meet at `block`."""

    row: int
    block: int | None
    origin: int


def pick(array: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """The rows of an array that may stand for all of them."""
    return array if array.shape[0] == 1 else array[rows]


@dataclass(slots=True, eq=False)
class View:
    """Registers as one group sees them; `flush` writes back what it changed.

    active: lanes of the group, as small as it broadcasts.
    """

    state: LaneState
    group: Group
    active: Bits
    values: dict[int, Value] = field(default_factory=dict)
    origins: dict[int, Origins | None] = field(default_factory=dict)
    deltas: dict[int, Deltas | None] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)

    def value(self, slot: int) -> Value:
        if self.group.is_whole:
            return self.state.values[slot]
        found = self.values.get(slot)
        if found is None:
            found = self.values[slot] = pick(self.state.values[slot], self.group.rows)
        return found

    def origin(self, slot: int) -> Origins | None:
        if self.group.is_whole:
            known = self.state.origins[slot]
            if known is not None and not known.any():
                self.state.origins[slot] = None
            return self.state.origins[slot]
        if slot not in self.origins:
            found = self.state.origins[slot]
            own = None if found is None else pick(found, self.group.rows)
            self.origins[slot] = own if own is not None and own.any() else None
        return self.origins[slot]

    def delta(self, slot: int) -> Deltas | None:
        if self.group.is_whole:
            return self.state.deltas[slot]
        if slot not in self.deltas:
            found = self.state.deltas[slot]
            self.deltas[slot] = None if found is None else pick(found, self.group.rows)
        return self.deltas[slot]

    def write(
        self,
        slot: int,
        value: Value,
        origin: Origins | None,
        delta: Deltas | None = None,
        lanes: Bits | None = None,
    ) -> None:
        """Set a register in `lanes` (all lanes of the group where None)."""
        if lanes is None and not self.group.is_full:
            lanes = self.group.mask
        if lanes is not None:
            value = np.where(lanes, value, self.value(slot))
            origin = _merged(lanes, origin, self.origin(slot))
            delta = _merged(lanes, delta, self.delta(slot))
        if self.group.is_whole:
            state = self.state
            state.values[slot], state.origins[slot], state.deltas[slot] = value, origin, delta
            state.owned.discard((0, slot))
            state.owned.discard((1, slot))
            state.owned.discard((2, slot))
            return
        self.values[slot], self.origins[slot], self.deltas[slot] = value, origin, delta
        self.dirty.add(slot)

    def flush(self) -> None:
        """Put what the group wrote back to the state."""
        for slot in self.dirty:
            self._put(0, self.state.values, slot, self.values[slot])
            for kind, whole, own in (
                (1, self.state.origins, self.origins[slot]),
                (2, self.state.deltas, self.deltas.get(slot)),
            ):
                if own is None and whole[slot] is None:
                    continue
                empty = np.zeros((1, 1), dtype=np.int32 if kind == 1 else np.uint32)
                if whole[slot] is None:
                    whole[slot] = empty
                self._put(kind, whole, slot, empty if own is None else own)
        self.dirty.clear()
        self.values.clear()
        self.origins.clear()
        self.deltas.clear()

    def _put(self, kind: int, arrays: list[Any], slot: int, own: NDArray[Any]) -> None:
        current = arrays[slot]
        columns = max(current.shape[1], own.shape[1])
        shape = (self.state.n_warps, columns)
        if current.shape != shape or (kind, slot) not in self.state.owned:
            current = arrays[slot] = np.broadcast_to(current, shape).copy()
            self.state.owned.add((kind, slot))
        current[self.group.rows] = own


def _merged(lanes: Bits, new: NDArray[Any] | None, old: NDArray[Any] | None) -> NDArray[Any] | None:
    if new is None and old is None:
        return None
    found = np.where(lanes, 0 if new is None else new, 0 if old is None else old)
    return found.astype((old if new is None else new).dtype, copy=False) if found.any() else None  # type: ignore[union-attr]


def joined(first: Origins | None, second: Origins | None) -> Origins | None:
    """The origin of a value made of two: whichever is unknown."""
    if first is None:
        return second
    if second is None:
        return first
    joint: Origins = np.maximum(first, second)
    return joint
