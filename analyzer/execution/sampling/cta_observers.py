"""Observations of some CTAs, for the proof that other CTAs run like them.

1. The CTAs at the corners of the grid show which shared memory each instruction accesses, and by how much
   rounding steps (a shift to the right, a division) grow from one CTA to the next: their coefficients.
2. `CtaAffinity` takes both as true.
3. The runs that prove CTAs equivalent then check them. The input of a rounding step grows evenly; so if its
   result has grown by coefficient times distance at both ends of a row of CTAs, it has in between.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.footprint.hashing import make_hash_factors
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.lowering.step import Step, Value
from analyzer.execution.machine.convergence import pack_lanes
from analyzer.execution.machine.execution_counters import ExecutionCounters
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.register_state import RegisterView, WarpIndices
from analyzer.execution.machine.shared_memory import extract_cta_offsets
from analyzer.execution.profile.cta_boxes import N_AXES, GridVector
from analyzer.ir.arrays import Addresses, BoolArray, IntArray
from analyzer.ir.opcode import AddressSpace
from analyzer.ir.scheduling import WARP_SIZE

SignatureArray = NDArray[np.uint64]

_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LANE_HASH_FACTORS = make_hash_factors(WARP_SIZE)
_WORD_BYTES = 4
_UNBOUNDED_ADDRESS = 1 << 62
_ZERO_COEFFICIENTS: GridVector = (0, 0, 0)


class SharedRange(Struct, frozen=True):
    """Bytes [low, high) of shared memory that an instruction accesses."""

    low: int
    high: int
    is_word_aligned: bool  # whole words only

    def overlaps(self, other: "SharedRange") -> bool:
        """Return whether two ranges share a byte."""
        return self.low < other.high and other.low < self.high

    def union(self, other: "SharedRange") -> "SharedRange":
        """Return the smallest range that holds both."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return SharedRange(low, high, self.is_word_aligned and other.is_word_aligned)


WHOLE_SHARED_RANGE = SharedRange(0, _UNBOUNDED_ADDRESS, is_word_aligned=False)


class CtaObservations(Struct, frozen=True, eq=False):
    """Observations of the CTAs at the corners of a grid."""

    shared_ranges: Mapping[int, SharedRange] = {}  # by row of the instruction
    # growth of a rounding step's result from one CTA of a box to the next along each axis, if it is constant
    coefficients: Mapping[Step, GridVector] = {}

    def covers_ranges(self, shared_ranges: Mapping[int, SharedRange]) -> bool:
        """Return whether instructions accessed no bytes outside of the ranges observed."""
        return all(
            row in self.shared_ranges and self.shared_ranges[row].union(reach) == self.shared_ranges[row]
            for row, reach in shared_ranges.items()
        )

    def with_shared_ranges(self, shared_ranges: Mapping[int, SharedRange]) -> "CtaObservations":
        """Return the observations with these ranges added."""
        return CtaObservations(_merge_ranges([self.shared_ranges, shared_ranges]), self.coefficients)


class _SharedRangeObserver(ExecutionListener):
    """Records the shared memory that instructions access, if its contents are tracked."""

    def __init__(self, *, tracks_shared: bool) -> None:
        self.tracks_shared = tracks_shared
        self.shared_ranges: dict[int, SharedRange] = {}

    def on_access(self, access: LoweredAccess, active: BoolArray, addresses: Addresses | None) -> None:
        """Add the bytes that active lanes access; all bytes if addresses are unknown."""
        if not self.tracks_shared or access.space is not AddressSpace.SHARED:
            return
        found = WHOLE_SHARED_RANGE if addresses is None else _find_shared_range(access, active, addresses)
        if found is not None:
            known = self.shared_ranges.get(access.row)
            self.shared_ranges[access.row] = found if known is None else known.union(found)


class CtaPositions(Struct, frozen=True, eq=False):
    """Positions of CTAs in boxes with strides."""

    box_ids: IntArray  # [cta]
    positions: IntArray  # [axis, cta], CTAs of the box that come before


class CornerObserver(_SharedRangeObserver):
    """Observes CTAs at the corners of boxes; CTAs of one box are compared."""

    def __init__(self, cta_positions: CtaPositions, *, tracks_shared: bool) -> None:
        super().__init__(tracks_shared=tracks_shared)
        self.cta_positions = cta_positions
        self.coefficients: dict[Step, GridVector | None] = {}

    def on_step(self, step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView) -> None:
        """Find the coefficients of a rounding step; they must be the same each time that it runs."""
        if step.rounded_index is None or self.coefficients.get(step, _ZERO_COEFFICIENTS) is None:
            return
        coefficients = _find_coefficients(results[step.rounded_index], view, self.cta_positions)
        self.coefficients[step] = (
            coefficients if self.coefficients.get(step, coefficients) == coefficients else None
        )

    def build_observations(self) -> CtaObservations:
        """Return what was observed."""
        return CtaObservations(
            self.shared_ranges, {step: pace for step, pace in self.coefficients.items() if pace is not None}
        )


class SignatureObserver(_SharedRangeObserver):
    """Computes a signature for each warp: equal if warps take the same paths with the same predicates.

    compared_steps: steps whose predicates are part of the signature.
    coefficients: rounding steps whose results are part of it too, without their growth up to the CTA.
    positions: see `CtaPositions`.
    """

    def __init__(
        self,
        n_warps: int,
        compared_steps: set[Step],
        coefficients: Mapping[Step, GridVector],
        positions: IntArray,
        *,
        tracks_shared: bool,
    ) -> None:
        super().__init__(tracks_shared=tracks_shared)
        self.warp_signatures: SignatureArray = np.zeros(n_warps, dtype=np.uint64)
        self.compared_steps, self.coefficients, self.positions = compared_steps, coefficients, positions

    def on_step(self, step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView) -> None:
        """Mix the predicates of a compared step, and what must stay the same, into the signatures."""
        if step not in self.compared_steps:
            return
        for place, value in enumerate(
            results if step.compute_invariants is None else (*results, *step.compute_invariants(*words))
        ):
            if value.dtype == np.bool_:
                bits = np.broadcast_to(view.to_warp_rows(value), view.group.mask.shape) & view.group.mask
                self._mix_into_signatures(
                    view.group.warp_indices, pack_lanes(bits) + np.uint64(step.writes[0] + 2)
                )
            elif place >= len(results):  # results are linear only while these stay the same
                shown = np.where(view.group.mask, view.to_warp_rows(value), 0).astype(np.uint64)
                self._mix_into_signatures(view.group.warp_indices, shown @ _LANE_HASH_FACTORS)
            elif place == step.rounded_index and step in self.coefficients:
                left = view.to_warp_rows(value) - self._compute_growth(self.coefficients[step], view)
                shown = np.where(view.group.mask, left, 0).astype(np.uint64)
                self._mix_into_signatures(view.group.warp_indices, shown @ _LANE_HASH_FACTORS)

    def _compute_growth(self, coefficients: GridVector, view: RegisterView) -> Value:
        """Return the growth of a step's result up to the CTAs of a group's warps."""
        if not any(coefficients):
            return np.zeros((1, 1), dtype=np.uint32)
        ctas = view.group.warp_indices // view.state.shape[2]
        grown: Value = (np.array(coefficients, dtype=np.int64) @ self.positions[:, ctas])[:, None].astype(
            np.uint32
        )
        return grown

    def on_accelerated_loop(self, rows: WarpIndices, repeats: IntArray, counters: ExecutionCounters) -> None:
        """Mix the number of iterations, and the segments that they ran, into the signatures."""
        factors = make_hash_factors(len(counters.segment_runs)).view(np.int64)
        period = factors @ counters.segment_runs[:, rows] + 3 * (factors @ counters.active_lanes[:, rows])
        self._mix_into_signatures(rows, (period + repeats[rows]).astype(np.uint64))

    def compute_cta_signatures(self, n_ctas: int) -> SignatureArray:
        """Return a signature for each CTA."""
        mixed = np.zeros(n_ctas, dtype=np.uint64)
        for column in self.warp_signatures.reshape(n_ctas, -1).T:
            mixed = mixed * _HASH_MULTIPLIER + column
        return mixed

    def _mix_into_signatures(self, rows: WarpIndices, more: SignatureArray) -> None:
        """Hash one number more for each warp."""
        self.warp_signatures[rows] = self.warp_signatures[rows] * _HASH_MULTIPLIER + more


def merge_observed_ranges(observers: Iterable[SignatureObserver]) -> Mapping[int, SharedRange]:
    """Return the shared memory that instructions accessed in any of these runs."""
    return _merge_ranges([observer.shared_ranges for observer in observers])


def _merge_ranges(maps: Iterable[Mapping[int, SharedRange]]) -> Mapping[int, SharedRange]:
    """Return the union of ranges by row."""
    found: dict[int, SharedRange] = {}
    for reaches in maps:
        for row, reach in reaches.items():
            found[row] = found[row].union(reach) if row in found else reach
    return found


def _find_shared_range(access: LoweredAccess, active: BoolArray, addresses: Addresses) -> SharedRange | None:
    """Return the range from the first byte to the last that active lanes access, None if none."""
    shape = np.broadcast_shapes(active.shape, addresses.shape)
    if active.all():
        places = extract_cta_offsets(addresses)
    else:
        places = extract_cta_offsets(np.broadcast_to(addresses, shape)[np.broadcast_to(active, shape)])
    if not places.size:
        return None
    in_words = access.width_bytes >= _WORD_BYTES and not bool((places & np.uint64(_WORD_BYTES - 1)).any())
    return SharedRange(int(places.min()), int(places.max()) + access.width_bytes, in_words)


def _find_coefficients(value: Value, view: RegisterView, places: CtaPositions) -> GridVector | None:
    """Return by how much a value grows from one CTA of a box to the next, None if not by a constant.

    It is taken to grow by less than half of the range of a word over the grid.
    """
    rows = view.to_warp_rows(value)
    if value.dtype == np.bool_ or len(rows) == 1:
        return _ZERO_COEFFICIENTS
    n_warps = view.state.shape[2]
    ctas, warps = np.divmod(view.group.warp_indices, n_warps)
    _, first, which = np.unique(
        places.box_ids[ctas] * n_warps + warps, return_index=True, return_inverse=True
    )
    grown = np.where(view.group.mask, rows - rows[first[which]], 0)
    distances = places.positions[:, ctas] - places.positions[:, ctas[first[which]]]
    x, y, z = (_find_coefficient_along(axis, grown, distances, view.group.mask) for axis in range(N_AXES))
    expected = (np.array([x, y, z]) @ distances)[:, None].astype(np.uint32)
    return (x, y, z) if not bool(((grown != expected) & view.group.mask).any()) else None


def _find_coefficient_along(axis: int, grown: Value, distances: IntArray, mask: BoolArray) -> int:
    """Return the growth along one axis, by the first warp that is further along this axis alone."""
    others = np.delete(distances, axis, axis=0)
    neighbor_rows = np.flatnonzero((distances[axis] > 0) & ~others.any(axis=0) & mask.any(axis=1))
    if not len(neighbor_rows):
        return 0
    row = neighbor_rows[0]
    return int(grown[row, mask[row].argmax()].view(np.int32)) // int(distances[axis, row])
