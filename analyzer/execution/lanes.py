"""Registers of many warps at once, and the view of them that a group of warps works on.

The state holds arrays that broadcast to [CTA row, CTA column, warp, 32] and stay as small as they are
uniform: what depends on the thread alone has one place for all CTAs, what depends on the CTA alone one for
all threads. CTAs are numbered row by row; how many rows and columns there are, says `Batch.cta_shape`. A
group of all warps, or of the same warps of every CTA, works on such arrays; any other on rows taken out of
them, [n_row, 32] or smaller.

Beside each value stands the origin of what is not known of it: None where all lanes are known, else int32, 0
where a lane is known, an instruction's row + 1 or a number beyond. Without UNEVEN, all lanes of a warp are as
far from the values that stand here (see `UnknownWords`).
"""

from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.step import Bits, Value, Words
from analyzer.ir.machine import WARP_LANES
from analyzer.isa.roles import PREDICATE_BASE, STORAGE_SIZE

Origins = NDArray[np.int32]
Rows = NDArray[np.int64]
Deltas = NDArray[np.uint32]

ALL_LANES: Bits = np.ones((1, 1), dtype=bool)
UNEVEN = 1 << 28
_AXES = 4
_ZERO: Words = np.zeros((1, 1, 1, 1), dtype=np.uint32)
_FALSE: Bits = np.zeros((1, 1, 1, 1), dtype=bool)


def first_value(slot: int) -> Value:
    """What a register holds before anything is written: zero, or false."""
    return _FALSE if PREDICATE_BASE <= slot < STORAGE_SIZE else _ZERO


class LaneState:
    """All registers and predicates of `shape` warps, [CTA row, CTA column, warp], by storage number.

    Slots beyond `STORAGE_SIZE` are words of the stack. deltas[slot]: growth per iteration while a loop is
    being closed; None is none. owned: arrays that nothing else refers to, which may be written in place.
    """

    __slots__ = ("deltas", "origins", "owned", "shape", "values")

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        self.values: list[Value] = [first_value(slot) for slot in range(STORAGE_SIZE)]
        self.origins: list[Origins | None] = [None] * STORAGE_SIZE
        self.deltas: list[Deltas | None] = [None] * STORAGE_SIZE
        self.owned: set[tuple[int, int]] = set()

    def copy(self) -> "LaneState":
        """A copy that shares the arrays; neither side may write in place after."""
        other = LaneState(self.shape)
        other.values, other.origins, other.deltas = list(self.values), list(self.origins), list(self.deltas)
        self.owned.clear()
        return other

    def add_slot(self) -> int:
        """A further register, for a word of the stack."""
        self.values.append(_ZERO)
        self.origins.append(None)
        self.deltas.append(None)
        return len(self.values) - 1


class Group(Struct, eq=False):
    """Warps that go on together: rows of the state, and the lanes of each that are with the group.

    is_whole: all warps of the state; is_full: no lane of these warps is elsewhere. doubts: branches taken on
    assumption whose paths have not met again. warps: their numbers within the CTA, where the group has the
    same of every CTA, of which there are several.
    """

    rows: Rows
    mask: Bits
    is_whole: bool
    is_full: bool
    doubts: tuple["Doubt", ...] = ()
    warps: Rows | None = None

    @property
    def is_even(self) -> bool:
        """It has the same warps of every CTA, so that its arrays may be as compact as those of the state."""
        return self.is_whole or self.warps is not None


def same_warps(rows: Rows, n_ctas: int, warps_per_cta: int) -> Rows | None:
    """`Group.warps` of these rows."""
    each, rest = divmod(len(rows), n_ctas)
    if n_ctas == 1 or rest or not each or rows[each - 1] >= warps_per_cta:
        return None
    first = rows[:each]
    starts = np.arange(n_ctas, dtype=np.int64)[:, None] * warps_per_cta
    return first if bool((rows.reshape(n_ctas, each) == first + starts).all()) else None


class Doubt(Struct, frozen=True):
    """A branch at `row` that was taken on assumption; its paths meet at `block`."""

    row: int
    block: int | None
    origin: int


class View:
    """Registers as one group sees them; `flush` writes back what it changed.

    active: lanes of the group, as small as it broadcasts; mask: the same for every warp of the group.
    n_written: words written so far, those held once counted once.
    """

    __slots__ = (
        "_places",
        "active",
        "deltas",
        "dirty",
        "group",
        "mask",
        "n_written",
        "origins",
        "shape",
        "state",
        "values",
    )

    def __init__(self, state: LaneState, group: Group, *, all_lanes: bool = False) -> None:
        self.state, self.group = state, group
        self.mask: Bits = group.mask
        n_warps = state.shape[2] if group.warps is None else len(group.warps)
        self.shape = (*state.shape[:2], n_warps)
        if group.is_even:
            self.mask = group.mask.reshape(*self.shape, WARP_LANES)
            if not group.is_full:
                self.mask = smallest(self.mask)
        self.active: Bits = ALL_LANES if all_lanes else self.mask
        self.values: dict[int, Value] = {}
        self.origins: dict[int, Origins | None] = {}
        self.deltas: dict[int, Deltas | None] = {}
        self.dirty: set[int] = set()
        self.n_written = 0
        self._places: tuple[Rows, Rows, Rows] | None = None

    # ---- shapes ----------------------------------------------------------------------------------

    def pick(self, array: NDArray[Any]) -> NDArray[Any]:
        """The group's rows of an array of the state."""
        if self.group.is_whole:
            return array
        sizes = array.shape[:3]
        if self.group.warps is not None:
            return array if sizes[2] == 1 else array[:, :, self.group.warps]
        if sizes == (1, 1, 1):
            first: NDArray[Any] = array[0, 0]
            return first
        if self._places is None:
            _, n_columns, per_cta = self.state.shape
            ctas, warps = np.divmod(self.group.rows, per_cta)
            self._places = (*np.divmod(ctas, n_columns), warps)
        row, column, warp = self._places
        found: NDArray[Any] = array[
            row if sizes[0] > 1 else 0, column if sizes[1] > 1 else 0, warp if sizes[2] > 1 else 0
        ]
        return found

    def flat(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the view with one row per warp, or one row where all are alike."""
        if array.ndim == 2:
            return array
        if array.shape[:3] == (1, 1, 1):
            first: NDArray[Any] = array[0, 0]
            return first
        n_lanes = array.shape[3]
        return np.broadcast_to(array, (*self.shape, n_lanes)).reshape(-1, n_lanes)

    def shaped(self, rows: NDArray[Any]) -> NDArray[Any]:
        """One row per warp as an array of the view."""
        if not self.group.is_even or rows.shape[0] == 1 or rows.ndim > 2:
            return rows
        return rows.reshape(*self.shape, rows.shape[1])

    @property
    def n_first(self) -> int | None:
        """Warps of the first CTA, which come first; None where the group has other warps of other CTAs."""
        n_ctas = prod(self.state.shape[:2])
        return len(self.group.rows) // n_ctas if n_ctas == 1 or self.group.is_even else None

    def of_first(self, array: NDArray[Any]) -> NDArray[Any]:
        """Rows of the first CTA, one per warp or one for all, where `n_first` says how many it has."""
        rows: NDArray[Any] = array if array.ndim == 2 else array[0, 0]
        return rows if len(rows) == 1 else rows[: self.n_first]

    def first_cta(self, arrays: list[Value]) -> list[Value] | None:
        """Rows of the first CTA, one per warp, where the group has all CTAs and they are alike, else None."""
        n_ctas, each = prod(self.state.shape[:2]), self.n_first
        if each is None:
            return None
        found: list[Value] = []
        for array in arrays:
            if array.ndim > 2 and array.shape[:2] == (1, 1):
                found.append(array[0, 0])
                continue
            rows = self.flat(array)
            if len(rows) > 1:
                table = rows.reshape(n_ctas, each, rows.shape[1])
                if bool((table != table[:1]).any()):
                    return None
                rows = table[0]
            found.append(rows)
        return found

    def per_warp(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the view that was reduced over lanes, as one number per warp or one for all."""
        if array.size == 1:
            return array.reshape(1)
        if array.ndim > 1:
            return np.broadcast_to(array, self.shape).reshape(-1)
        return array

    # ---- registers -------------------------------------------------------------------------------

    def value(self, slot: int) -> Value:
        if self.group.is_whole:
            return self.state.values[slot]
        found = self.values.get(slot)
        if found is None:
            found = self.values[slot] = self.pick(self.state.values[slot])
        return found

    def origin(self, slot: int) -> Origins | None:
        if self.group.is_whole:
            known = self.state.origins[slot]
            if known is not None and not known.any():
                self.state.origins[slot] = None
            return self.state.origins[slot]
        if slot not in self.origins:
            found = self.state.origins[slot]
            own = None if found is None else self.pick(found)
            self.origins[slot] = own if own is not None and own.any() else None
        return self.origins[slot]

    def delta(self, slot: int) -> Deltas | None:
        if self.group.is_whole:
            known = self.state.deltas[slot]
            if known is not None and not known.any():
                self.state.deltas[slot] = None
            return self.state.deltas[slot]
        if slot not in self.deltas:
            found = self.state.deltas[slot]
            own = None if found is None else self.pick(found)
            self.deltas[slot] = own if own is not None and own.any() else None
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
            lanes = self.mask
        if lanes is not None:
            value = np.where(lanes, value, self.value(slot))
            origin = _merged(lanes, origin, self.origin(slot))
            delta = _merged(lanes, delta, self.delta(slot))
        self.n_written += value.size
        if self.group.is_whole:
            state = self.state
            state.values[slot] = _deep(value)
            state.origins[slot] = None if origin is None else _deep(origin)
            state.deltas[slot] = None if delta is None else _deep(delta)
            state.owned -= {(0, slot), (1, slot), (2, slot)}
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
                dtype = np.int32 if kind == 1 else np.uint32
                if whole[slot] is None:
                    whole[slot] = np.zeros((1,) * _AXES, dtype=dtype)
                self._put(kind, whole, slot, np.zeros((1, 1), dtype=dtype) if own is None else own)
        self.dirty.clear()
        self.values.clear()
        self.origins.clear()
        self.deltas.clear()

    def _put(self, kind: int, arrays: list[Any], slot: int, own: NDArray[Any]) -> None:
        current = arrays[slot]
        shape = (*self.state.shape, max(current.shape[3], own.shape[-1]))
        if self.group.warps is not None:
            own = _deep(own)
            shape = (*np.broadcast_shapes(current.shape[:2], own.shape[:2]), *shape[2:])
        if current.shape != shape or (kind, slot) not in self.state.owned:
            current = arrays[slot] = np.broadcast_to(current, shape).copy()
            self.state.owned.add((kind, slot))
        if self.group.warps is None:
            current.reshape(-1, shape[3])[self.group.rows] = own
        else:
            current[:, :, self.group.warps] = own


def _deep(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.ndim == _AXES else array.reshape((1,) * (_AXES - array.ndim) + array.shape)


def smallest(values: Value) -> Value:
    """The same with one place along each axis on which nothing changes."""
    places: list[slice] = [slice(None)] * values.ndim
    for axis, size in enumerate(values.shape):
        if size > 1:
            places[axis] = slice(0, 1)
            first = values[tuple(places)]
            places[axis] = slice(1, 2)  # looked at before all others: mostly it differs
            if bool((values[tuple(places)] == first).all()) and bool((values == first).all()):
                values = first
            places[axis] = slice(None)
    return values


def _merged(lanes: Bits, new: NDArray[Any] | None, old: NDArray[Any] | None) -> NDArray[Any] | None:
    typed = old if new is None else new
    if typed is None:
        return None
    found = np.where(lanes, 0 if new is None else new, 0 if old is None else old)
    return found.astype(typed.dtype, copy=False) if found.any() else None


def joined(first: Origins | None, second: Origins | None) -> Origins | None:
    """The origin of a value made of two: whichever is unknown, an uneven one if there is."""
    if first is None:
        return second
    if second is None:
        return first
    joint: Origins = np.maximum(first, second)
    return joint


def made_uneven(origin: Origins) -> Origins:
    """The same origins, of values whose unknown parts differ among lanes."""
    found: Origins = np.where(origin != 0, origin | UNEVEN, 0).astype(np.int32)
    return found


def uneven(row: int) -> int:
    """The origin of values of which nothing is known, made by an instruction."""
    return (row + 1) | UNEVEN


def where_active(origin: Origins | None, active: Bits) -> Origins | None:
    """None where all that is not known belongs to lanes that are elsewhere or off."""
    if origin is None or bool((np.where(active, origin, 0) != 0).any()):
        return origin
    return None
