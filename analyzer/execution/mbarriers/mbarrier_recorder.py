"""Recorder of the mbarrier operations of one CTA while it is executed."""

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.lowering.segments import MbarrierOperation, Segment
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.register_state import RegisterView
from analyzer.execution.machine.tracked_memory import compute_lane_addresses
from analyzer.ir.arrays import BoolArray
from analyzer.ir.opcode import Semantics

_CTA_ADDRESS_MASK = 0xFFFFFF  # the bits above are the rank of the CTA in its cluster
_PARITY_BIT = 31
_CTA_MASK_BIT = 16  # from which on a copy's register holds the mask of its target CTAs


class MbarrierEvents(Struct, eq=False):
    """Mbarrier operations of one instruction; a timestamp counts the operations of all instructions."""

    semantics: Semantics
    barrier_addresses: set[int] = field(default_factory=set)
    # by warp and barrier: timestamp and parity of the first wait
    first_parities: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    timestamps: dict[int, list[int]] = field(default_factory=dict)  # by warp
    expected_bytes: float = 0.0  # of expect_tx, summed over the operations
    n_target_ctas: int = 0  # of multicast copies, summed over the operations
    n_events: int = 0
    # by warp: timestamps of waits for a phase that it had waited for already; these are no events
    repeated_waits: dict[int, list[int]] = field(default_factory=dict)

    def combine(self, other: "MbarrierEvents") -> "MbarrierEvents":
        """Return the sum with another CTA's operations; timestamps and parities are this one's."""
        return replace(
            self,
            barrier_addresses=self.barrier_addresses | other.barrier_addresses,
            expected_bytes=self.expected_bytes + other.expected_bytes,
            n_target_ctas=self.n_target_ctas + other.n_target_ctas,
            n_events=self.n_events + other.n_events,
        )


class MbarrierRecorder(ExecutionListener, Struct, eq=False):
    """Records the mbarrier operations of the first CTA of a batch."""

    events: dict[int, MbarrierEvents] = field(default_factory=dict)  # by row
    matrix_descriptors: dict[int, int] = field(default_factory=dict)  # of tensor core instructions, by row
    segment_runs: dict[int, int] = field(default_factory=dict)  # by segment, summed over the CTA's warps
    has_missed_groups: bool = False  # a group ran with other warps of other CTAs: it was not recorded
    _timestamp: int = 0
    _last_parities: dict[tuple[int, int], int] = field(default_factory=dict)  # by warp and barrier

    def on_segment(self, segment: Segment, view: RegisterView) -> None:
        """Count the runs of a segment by the first CTA's warps."""
        n_warps = view.n_first_cta_warps
        if n_warps is None:
            self.has_missed_groups = True
        else:
            self.segment_runs[segment.index] = self.segment_runs.get(segment.index, 0) + n_warps

    def on_mbarrier(self, operation: MbarrierOperation, view: RegisterView, lanes: BoolArray | None) -> None:
        """Record an operation of the first CTA's warps, if its address is known."""
        n_warps = view.n_first_cta_warps
        if n_warps is None:
            return
        if operation.address is None or operation.semantics is None:
            self._record_matrix_descriptor(operation, view, lanes)
            return
        places, origin = compute_lane_addresses(operation.address, view)
        shape = (n_warps, view.group.mask.shape[1])
        chosen = view.group.mask[:n_warps]
        if lanes is not None:
            chosen = chosen & view.select_first_cta(lanes)
        if origin is not None and bool((view.select_first_cta(origin).astype(np.bool_) & chosen).any()):
            return
        address = np.broadcast_to(view.select_first_cta(places), shape)
        word = None
        if operation.operand_slot is not None and is_register_known(view, operation.operand_slot, chosen):
            word = np.broadcast_to(view.select_first_cta(view.read_value(operation.operand_slot)), shape)
        events = self.events.setdefault(operation.row, MbarrierEvents(operation.semantics))
        self._timestamp += 1
        for row in np.flatnonzero(chosen.any(axis=1)).tolist():
            lane = int(chosen[row].argmax())
            place = int(address[row, lane]) & _CTA_ADDRESS_MASK
            payload = None if word is None else int(word[row, lane])
            events.barrier_addresses.add(place)
            self._record_event(events, int(view.group.warp_indices[row]), place, payload)

    def _record_event(self, events: MbarrierEvents, warp: int, place: int, payload: int | None) -> None:
        """Record one warp's operation at a barrier.

        payload: the parity to wait for, the expected bytes, or the mask of target CTAs; None if unknown.
        """
        if events.semantics is Semantics.MBARRIER_WAIT and payload is not None:
            parity = payload >> _PARITY_BIT
            events.first_parities.setdefault((warp, place), (self._timestamp, parity))
            if self._last_parities.get((warp, place)) == parity:
                events.repeated_waits.setdefault(warp, []).append(self._timestamp)
                return
            self._last_parities[warp, place] = parity
        elif events.semantics is Semantics.MBARRIER_COPY and payload is not None:
            events.n_target_ctas += (payload >> _CTA_MASK_BIT).bit_count()
        elif payload is not None:
            events.expected_bytes += payload
        events.n_events += 1
        events.timestamps.setdefault(warp, []).append(self._timestamp)

    def _record_matrix_descriptor(
        self, operation: MbarrierOperation, view: RegisterView, lanes: BoolArray | None
    ) -> None:
        """Record the descriptor of a tensor core instruction; 0 where warps or runs have several.

        lanes: those whose guard is true. Others may hold anything there, as behind a spill under that guard.
        """
        slot, chosen = operation.operand_slot, view.group.mask[: view.n_first_cta_warps]
        if lanes is not None:
            chosen = chosen & view.select_first_cta(lanes)
        if slot is None or not chosen.any() or not is_register_known(view, slot, chosen):
            return
        found = np.broadcast_to(view.select_first_cta(view.read_value(slot)), chosen.shape)[chosen]
        first = int(found[0])
        is_single = self.matrix_descriptors.get(operation.row, first) == first and bool(
            (found == first).all()
        )
        self.matrix_descriptors[operation.row] = first if is_single else 0

    def count_executions(self, segments: tuple[Segment, ...]) -> dict[int, int]:
        """Return how often warps ran each instruction, with its guard true or not, by row."""
        return {
            row: self.segment_runs[segment.index]
            for segment in segments
            if segment.index in self.segment_runs
            for row in range(segment.start, segment.stop)
        }


def is_register_known(view: RegisterView, slot: int, lanes: BoolArray) -> bool:
    """Return whether a register other than RZ is known in these lanes of the first CTA."""
    if slot < 0:
        return False
    unknown = view.read_origin(slot)
    return unknown is None or not bool((view.select_first_cta(unknown).astype(np.bool_) & lanes).any())
