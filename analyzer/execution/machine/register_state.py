"""Registers of many warps at once, and the view of them that a group of warps works on.

Values. An array broadcasts to [CTA row, CTA column, warp, 32] and is as small as the value is uniform: what
depends on the thread alone has length 1 along both CTA axes, what depends on the CTA alone length 1 along
warps and lanes. `CtaBatch.cta_shape` gives the numbers of CTA rows and columns. A group of all warps,
or of the same warps in every CTA, works on such arrays; any other group on rows taken out of them, [n_row,
32] or smaller.

Origins. Each value has the origin of its unknown lanes: None if all lanes are known, else an int32 array with
0 for a known lane, and else the row of the instruction that made the unknown value plus 1, or a larger number
(see `CtaBatch.describe_origin`). Without `DIVERGENT_FLAG` the unknown lanes of a warp all differ from the
value that is held by the same amount (see `UnknownWords`). With `DOUBT_FLAG` the value that is held is one of
those that it may have, and is computed with: which one depends on the order of warps, or on last bits of a
function (see `doubts`).

Example, 2 CTAs in one column with 4 warps each: threadIdx.x is [1, 1, 4, 32], blockIdx.x is [2, 1, 1, 1],
their sum [2, 1, 4, 32].
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.lowering.guarded_liveness import Guard
from analyzer.execution.lowering.step import Value, WordArray
from analyzer.ir.arrays import BoolArray
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.isa.register_operands import N_REGISTER_UNITS, PREDICATE_BASE

UnknownOrigins = NDArray[np.int32]
WarpIndices = NDArray[np.int64]
Deltas = NDArray[np.uint32]

ALL_LANES: BoolArray = np.ones((1, 1), dtype=bool)
DIVERGENT_FLAG = 1 << 28  # in an origin: unknown parts differ among the lanes of a warp
DOUBT_FLAG = 1 << 27  # in an origin: the value that is held is possible; real unknowns outweigh it
ORIGIN_MASK = DOUBT_FLAG - 1
_N_STATE_AXES = 4
_ZERO: WordArray = np.zeros((1, 1, 1, 1), dtype=np.uint32)
_FALSE: BoolArray = np.zeros((1, 1, 1, 1), dtype=bool)


def make_initial_value(slot: int) -> Value:
    """Return what a register holds before it is written: zero, or false."""
    return _FALSE if PREDICATE_BASE <= slot < N_REGISTER_UNITS else _ZERO


_INITIAL_VALUES: tuple[Value, ...] = tuple(map(make_initial_value, range(N_REGISTER_UNITS)))


class RegisterState:
    """All registers and predicates by slot; slots from `N_REGISTER_UNITS` on are words of the stack."""

    __slots__ = ("deltas", "exclusive_arrays", "origins", "shape", "values")

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape  # CTA rows, CTA columns, warps of a CTA
        self.values: list[Value] = list(_INITIAL_VALUES)
        self.origins: list[UnknownOrigins | None] = [None] * N_REGISTER_UNITS
        # growth per iteration, in a machine that executes one for many (`SymbolicIteration`)
        self.deltas: list[Deltas | None] = [None] * N_REGISTER_UNITS
        # (0 value, 1 origin, 2 delta; slot) of arrays that nothing else refers to: written in place
        self.exclusive_arrays: set[tuple[int, int]] = set()

    def copy(self) -> "RegisterState":
        """Return a copy that shares the arrays; neither side writes them in place afterwards."""
        other = RegisterState(self.shape)
        other.values, other.origins, other.deltas = list(self.values), list(self.origins), list(self.deltas)
        self.exclusive_arrays.clear()
        return other

    def mark_unset(self, slots: Iterable[int], find_origin: Callable[[int], int]) -> None:
        """Make registers unknown that nothing sets; find_origin: returns the origin of a slot."""
        for slot in slots:
            self.origins[slot] = np.full((1,) * _N_STATE_AXES, find_origin(slot), dtype=np.int32)

    def add_unset_slot(self, origin: int) -> int:
        """Add a slot for a word of the stack; return its number. It is unknown until it is stored."""
        self.values.append(_ZERO)
        self.origins.append(np.full((1,) * _N_STATE_AXES, origin, dtype=np.int32))
        self.deltas.append(None)
        return len(self.values) - 1


class LockstepGroup(Struct, eq=False):
    """Warps that run in lockstep."""

    warp_indices: WarpIndices  # in the batch, ascending
    mask: BoolArray  # [n_warp, 32], lanes of these warps that are in the group
    has_all_warps: bool  # of the batch
    has_all_lanes: bool  # no live lane of these warps is in another group
    speculations: tuple["Speculation", ...] = ()  # whose paths have not met again
    # numbers within the CTA, if the group has the same warps of several CTAs, of all in the batch
    common_warp_ids: WarpIndices | None = None

    @property
    def has_same_warps_in_ctas(self) -> bool:
        """True if it has the same warps of every CTA: its arrays may be as compact as those of the state."""
        return self.has_all_warps or self.common_warp_ids is not None


def find_common_warp_ids(rows: WarpIndices, n_ctas: int, warps_per_cta: int) -> WarpIndices | None:
    """Return `LockstepGroup.common_warp_ids` of these warps."""
    each, rest = divmod(len(rows), n_ctas)
    if n_ctas == 1 or rest or not each or rows[each - 1] >= warps_per_cta:
        return None
    first = rows[:each]
    starts = np.arange(n_ctas, dtype=np.int64)[:, None] * warps_per_cta
    return first if bool((rows.reshape(n_ctas, each) == first + starts).all()) else None


class Speculation(Struct, frozen=True):
    """A branch with an unknown condition, decided on an assumption."""

    branch_row: int
    reconvergence_block: int | None  # where its paths meet
    origin: int  # origin of the unknown condition, see "Origins" above


class RegisterView:
    """Registers as one group sees them; `flush` writes back what the group changed."""

    __slots__ = (
        "_state_indices",
        "active",
        "deltas",
        "dirty",
        "group",
        "mask",
        "n_words_written",
        "origins",
        "shape",
        "state",
        "values",
    )

    def __init__(self, state: RegisterState, group: LockstepGroup, *, all_lanes: bool = False) -> None:
        self.state, self.group = state, group
        self.mask: BoolArray = group.mask
        n_warps = state.shape[2] if group.common_warp_ids is None else len(group.common_warp_ids)
        self.shape = (*state.shape[:2], n_warps)
        if group.has_same_warps_in_ctas:
            self.mask = group.mask.reshape(*self.shape, WARP_SIZE)
            if not group.has_all_lanes:
                self.mask = collapse_uniform_axes(self.mask)
        self.active: BoolArray = ALL_LANES if all_lanes else self.mask  # as small as it broadcasts
        self.values: dict[int, Value] = {}
        self.origins: dict[int, UnknownOrigins | None] = {}
        self.deltas: dict[int, Deltas | None] = {}
        self.dirty: set[int] = set()
        self.n_words_written = 0  # sizes of the arrays written, before they broadcast
        self._state_indices: tuple[WarpIndices, WarpIndices, WarpIndices] | None = None

    # ---- shapes ----------------------------------------------------------------------------------

    def select_group(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the group's part of an array of the state."""
        if self.group.has_all_warps:
            return array
        sizes = array.shape[:3]
        if self.group.common_warp_ids is not None:
            return array if sizes[2] == 1 else array[:, :, self.group.common_warp_ids]
        if sizes == (1, 1, 1):
            first: NDArray[Any] = array[0, 0]
            return first
        if self._state_indices is None:
            _, n_columns, per_cta = self.state.shape
            ctas, warps = np.divmod(self.group.warp_indices, per_cta)
            self._state_indices = (*np.divmod(ctas, n_columns), warps)
        row, column, warp = self._state_indices
        found: NDArray[Any] = array[
            row if sizes[0] > 1 else 0, column if sizes[1] > 1 else 0, warp if sizes[2] > 1 else 0
        ]
        return found

    def to_warp_rows(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array of the view as [n_warp, lanes], or [1, lanes] if all warps have the same."""
        if array.ndim == 2:
            return array
        if array.shape[:3] == (1, 1, 1):
            first: NDArray[Any] = array[0, 0]
            return first
        n_lanes = array.shape[3]
        whole = array if array.shape[:3] == self.shape else np.broadcast_to(array, (*self.shape, n_lanes))
        return whole.reshape(-1, n_lanes)

    def from_warp_rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return an array of one row per warp in the shape of the view."""
        if not self.group.has_same_warps_in_ctas or rows.shape[0] == 1 or rows.ndim > 2:
            return rows
        return rows.reshape(*self.shape, rows.shape[1])

    @property
    def n_first_cta_warps(self) -> int | None:
        """Count the first CTA's warps, which come first; None if the group has other warps of other CTAs."""
        n_ctas = prod(self.state.shape[:2])
        return (
            len(self.group.warp_indices) // n_ctas
            if n_ctas == 1 or self.group.has_same_warps_in_ctas
            else None
        )

    def select_first_cta(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of the first CTA, one per warp or one for all; needs `n_first_cta_warps`."""
        rows: NDArray[Any] = array if array.ndim == 2 else array[0, 0]
        return rows if len(rows) == 1 else rows[: self.n_first_cta_warps]

    def find_cta_uniform_rows(self, arrays: list[Value]) -> list[Value] | None:
        """Return the rows of the first CTA if the group has all CTAs and they hold the same, else None."""
        n_ctas, each = prod(self.state.shape[:2]), self.n_first_cta_warps
        if each is None:
            return None
        found: list[Value] = []
        for array in arrays:
            if array.ndim > 2 and array.shape[:2] == (1, 1):
                found.append(array[0, 0])
                continue
            rows = self.to_warp_rows(array)
            if len(rows) > 1:
                table = rows.reshape(n_ctas, each, rows.shape[1])
                if bool((table != table[:1]).any()):
                    return None
                rows = table[0]
            found.append(rows)
        return found

    def to_warp_vector(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array of the view that was reduced over lanes as one number per warp, or one for all."""
        if array.size == 1:
            return array.reshape(1)
        if array.ndim > 1:
            return (array if array.shape == self.shape else np.broadcast_to(array, self.shape)).reshape(-1)
        return array

    # ---- registers -------------------------------------------------------------------------------

    def read_value(self, slot: int) -> Value:
        """Return what a register holds."""
        if self.group.has_all_warps:
            return self.state.values[slot]
        found = self.values.get(slot)
        if found is None:
            found = self.values[slot] = self.select_group(self.state.values[slot])
        return found

    def read_origin(self, slot: int) -> UnknownOrigins | None:
        """Return the origin of a register's unknown lanes, None if all are known."""
        if self.group.has_all_warps:
            known = self.state.origins[slot]
            if known is not None and not known.any():
                self.state.origins[slot] = None
            return self.state.origins[slot]
        if slot not in self.origins:
            found = self.state.origins[slot]
            own = None if found is None else self.select_group(found)
            self.origins[slot] = own if own is not None and own.any() else None
        return self.origins[slot]

    def evaluate_guard(self, guard: Guard) -> tuple[BoolArray, UnknownOrigins | None]:
        """Return the lanes whose guard is true, and the origin of what is unknown about it."""
        slot, negated = guard
        value = self.read_value(slot)
        return (~value if negated else value), self.read_origin(slot)

    def read_delta(self, slot: int) -> Deltas | None:
        """Return by how much a register grows per iteration, None if it does not."""
        if self.group.has_all_warps:
            known = self.state.deltas[slot]
            if known is not None and not known.any():
                self.state.deltas[slot] = None
            return self.state.deltas[slot]
        if slot not in self.deltas:
            found = self.state.deltas[slot]
            own = None if found is None else self.select_group(found)
            self.deltas[slot] = own if own is not None and own.any() else None
        return self.deltas[slot]

    def write(
        self,
        slot: int,
        value: Value,
        origin: UnknownOrigins | None,
        delta: Deltas | None = None,
        lanes: BoolArray | None = None,
    ) -> None:
        """Write a register in `lanes`, in all lanes of the group if None."""
        if lanes is None and not self.group.has_all_lanes:
            lanes = self.mask
        if lanes is not None:
            value = np.where(lanes, value, self.read_value(slot))
            origin = _merge_lanes(lanes, origin, self.read_origin(slot))
            delta = _merge_lanes(lanes, delta, self.read_delta(slot))
        self.n_words_written += value.size
        if self.group.has_all_warps:
            state = self.state
            state.values[slot] = _add_leading_axes(value)
            state.origins[slot] = None if origin is None else _add_leading_axes(origin)
            state.deltas[slot] = None if delta is None else _add_leading_axes(delta)
            state.exclusive_arrays -= {(0, slot), (1, slot), (2, slot)}
            return
        self.values[slot], self.origins[slot], self.deltas[slot] = value, origin, delta
        self.dirty.add(slot)

    def flush(self) -> None:
        """Write back to the state what the group wrote."""
        for slot in self.dirty:
            self._write_back(0, self.state.values, slot, self.values[slot])
            for kind, whole, own in (
                (1, self.state.origins, self.origins[slot]),
                (2, self.state.deltas, self.deltas.get(slot)),
            ):
                if own is None and whole[slot] is None:
                    continue
                dtype = np.int32 if kind == 1 else np.uint32
                if whole[slot] is None:
                    whole[slot] = np.zeros((1,) * _N_STATE_AXES, dtype=dtype)
                self._write_back(kind, whole, slot, np.zeros((1, 1), dtype=dtype) if own is None else own)
        self.dirty.clear()
        self.values.clear()
        self.origins.clear()
        self.deltas.clear()

    def _write_back(self, kind: int, arrays: list[Any], slot: int, own: NDArray[Any]) -> None:
        """Write a group's rows into an array of the state, which is copied if it is shared or too small."""
        current = arrays[slot]
        shape = (*self.state.shape, max(current.shape[3], own.shape[-1]))
        if self.group.common_warp_ids is not None:
            own = _add_leading_axes(own)
            shape = (*np.broadcast_shapes(current.shape[:2], own.shape[:2]), *shape[2:])
        if current.shape != shape or (kind, slot) not in self.state.exclusive_arrays:
            current = arrays[slot] = np.broadcast_to(current, shape).copy()
            self.state.exclusive_arrays.add((kind, slot))
        if self.group.common_warp_ids is None:
            current.reshape(-1, shape[3])[self.group.warp_indices] = own
        else:
            current[:, :, self.group.common_warp_ids] = own


def _add_leading_axes(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array with all four axes of the state."""
    return (
        array
        if array.ndim == _N_STATE_AXES
        else array.reshape((1,) * (_N_STATE_AXES - array.ndim) + array.shape)
    )


def collapse_uniform_axes(values: Value) -> Value:
    """Return an array with length 1 along each axis on which nothing changes."""
    places: list[slice] = [slice(None)] * values.ndim
    for axis, size in enumerate(values.shape):
        if size > 1:
            places[axis] = slice(0, 1)
            first = values[tuple(places)]
            places[axis] = slice(1, 2)  # compared before all others: usually it differs
            if bool((values[tuple(places)] == first).all()) and bool((values == first).all()):
                values = first
            places[axis] = slice(None)
    return values


def _merge_lanes(lanes: BoolArray, new: NDArray[Any] | None, old: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return the new origins or deltas in `lanes` and the old ones in others, None for all zero."""
    typed = old if new is None else new
    if typed is None:
        return None
    found = np.where(lanes, 0 if new is None else new, 0 if old is None else old)
    return found.astype(typed.dtype, copy=False) if found.any() else None


def join_origins(first: UnknownOrigins | None, second: UnknownOrigins | None) -> UnknownOrigins | None:
    """Return the origin of a value computed from two: of the unknown one, a divergent one if there is."""
    if first is None:
        return second
    if second is None:
        return first
    joint: UnknownOrigins = np.maximum(first, second)
    return joint


def mark_divergent(origin: UnknownOrigins) -> UnknownOrigins:
    """Return the same origins, of values whose unknown parts differ among lanes; doubts stay doubts."""
    found: UnknownOrigins = np.where(find_followed(origin), origin, origin | DIVERGENT_FLAG).astype(np.int32)
    return found


def find_followed(origin: UnknownOrigins) -> BoolArray:
    """Return the lanes whose value is computed with: known ones, and those in doubt."""
    found: BoolArray = (origin == 0) | ((origin & (DOUBT_FLAG | DIVERGENT_FLAG)) == DOUBT_FLAG)
    return found


def make_doubt_origin(row: int) -> int:
    """Return the origin of values by an instruction that has brought one of several possible ones."""
    return (row + 1) | DOUBT_FLAG


def make_divergent_origin(row: int) -> int:
    """Return the origin of values made by an instruction of which nothing is known."""
    return (row + 1) | DIVERGENT_FLAG


def drop_inactive_origins(origin: UnknownOrigins | None, active: BoolArray) -> UnknownOrigins | None:
    """Return an origin, or None if no active lane is unknown."""
    if origin is None or bool((np.where(active, origin, 0) != 0).any()):
        return origin
    return None
