"""Turns of lanes that retry an atomic exchange on one address.

In each trip of the loop one lane of each address succeeds and leaves, so a loop takes as many trips as lanes
of the warp meet on an address. Where addresses are unknown, every lane succeeds in its first trip.

Example: lanes 0 to 31 add to s[lane / 4]: four trips, in which 8 lanes leave each.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from analyzer.execution.acceleration.symbolic_iteration import SymbolicIteration, SymbolicIterationFailed
from analyzer.execution.lowering.retry_loops import RetryLoop, find_retry_loops, is_exchange
from analyzer.execution.lowering.segments import AddressExpression, CompiledKernel, Terminator
from analyzer.execution.lowering.spin_loops import is_spin_loop
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.register_state import RegisterView, UnknownOrigins, drop_inactive_origins
from analyzer.execution.machine.tracked_memory import compute_address_strides, compute_lane_addresses
from analyzer.execution.machine.unknown_words import find_instruction_rows
from analyzer.flow.loops import Loop
from analyzer.ir.arrays import Addresses, BoolArray
from analyzer.ir.scheduling import WARP_SIZE

_MAX_BLOCKS_BEFORE_LOOP = 2
_NO_ADDRESS = np.uint64(0xFFFFFFFFFFFFFFFF)


class ExchangeTurns:
    """Outcomes of branches that depend on an atomic exchange, of one kernel."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self.most_turns: dict[int, int] = {}  # by loop, of its warps so far; 0: no address known

    @cached_property
    def retry_loops(self) -> Mapping[int, RetryLoop]:
        """Loops that retry an exchange, by index of the loop."""
        return find_retry_loops(self.kernel.cfg, self.kernel.loop_forest)

    def find_retry_loop(self, loop: Loop) -> RetryLoop | None:
        """Return what a loop retries, None if it retries no exchange."""
        return self.retry_loops.get(loop.index)

    def find_leaving_lanes(
        self, machine: AbstractMachine, view: RegisterView, end: Terminator, loop: Loop
    ) -> BoolArray:
        """Return the lanes that leave a retry loop at one of its branches, [n_warp or 1, 32 or 1].

        At a branch that does not depend on the exchange none leaves, until each lane can have had its turn.
        Raises SymbolicIterationFailed where lanes meet on other addresses in the next iteration.
        """
        retry = self.retry_loops[loop.index]
        if end.row not in retry.exit_rows:
            arrivals = machine.count_segment_runs(self.kernel.entry_segments[loop.header])
            left = machine.find_speculative_exit_runs(loop.index)
            rows = view.group.warp_indices
            tried = arrivals[rows] - (0 if left is None else left[rows])
            return np.asarray(tried > WARP_SIZE)[:, None]
        found = self._find_first_lanes(machine, view, retry, loop)
        self._record_exits(machine, view, loop, found)
        return found

    def describe_turns(self, loop: Loop) -> str:
        """Return what was assumed for a retry loop."""
        most = self.most_turns.get(loop.index, 0)
        if not most:
            return "1 trip: an atomic that is retried succeeds at once; lanes that meet would take turns"
        if most == 1:
            return "1 trip: an atomic that is retried succeeds at once, as no other warp interferes"
        return f"up to {most} trips: lanes that meet on an address take turns, no other warp interferes"

    def find_taken_on_success(self, end: Terminator, unknown: UnknownOrigins) -> bool | None:
        """Return whether a branch is taken when the exchange succeeds that it depends on; None for others."""
        for retry in self.retry_loops.values():
            if end.row in retry.taken_on_success:
                return retry.taken_on_success[end.row]
        kernel = self.kernel.cfg.kernel
        rows = find_instruction_rows(unknown)
        if not rows or not all(row < len(kernel) and is_exchange(kernel.find_opcode(row)) for row in rows):
            return None
        waits = [
            side is not None and self._leads_into_wait(end, side) for side in (end.target, end.fall_through)
        ]
        return None if waits[0] is waits[1] else waits[1]

    def _leads_into_wait(self, end: Terminator, side: int) -> bool:
        """Return whether a side of a branch enters a loop that waits for an exchange to succeed."""
        cfg, forest = self.kernel.cfg, self.kernel.loop_forest
        block, here = self.kernel.segments[side].block, cfg.block_of[end.row]
        for _ in range(_MAX_BLOCKS_BEFORE_LOOP):
            inner = forest.loop_of[block]
            if inner is not None and here not in forest.loops[inner].blocks:
                loop = forest.loops[inner]
                return loop.index in self.retry_loops or is_spin_loop(cfg, loop)
            if len(cfg.successors[block]) != 1:
                return False
            (block,) = cfg.successors[block]
        return False

    @cached_property
    def _exchange_addresses(self) -> Mapping[int, AddressExpression]:
        """Addresses of the exchanges of retry loops, by row, where the loop leaves them as they are."""
        rows = {retry.exchange_row for retry in self.retry_loops.values() if retry.lanes_take_turns}
        return {
            access.row: access.address
            for segment in self.kernel.segments
            for action in segment.actions
            if action.row in rows
            for access in action.accesses
            if access.address is not None
        }

    def _find_first_lanes(
        self, machine: AbstractMachine, view: RegisterView, retry: RetryLoop, loop: Loop
    ) -> BoolArray:
        """Return the first lane of each address that active lanes have, all lanes where it is not known."""
        everyone: BoolArray = np.ones((1, 1), dtype=bool)
        expression = self._exchange_addresses.get(retry.exchange_row)
        if expression is None or not retry.lanes_take_turns:
            return everyone
        addresses, origin = compute_lane_addresses(expression, view)
        if drop_inactive_origins(origin, view.active) is not None:
            return everyone
        if isinstance(machine, SymbolicIteration):
            strides = compute_address_strides(expression, view)
            if strides is not None and strides.shape[-1] > 1 and bool((strides != strides[..., :1]).any()):
                raise SymbolicIterationFailed("lanes take turns at other addresses")
        mask = view.group.mask
        first, most = find_first_of_each_address(
            np.broadcast_to(view.to_warp_rows(addresses), mask.shape), mask
        )
        self.most_turns[loop.index] = max(self.most_turns.get(loop.index, 0), most)
        return first

    def _record_exits(
        self, machine: AbstractMachine, view: RegisterView, loop: Loop, leaves: BoolArray
    ) -> None:
        """Record the warps all of whose lanes leave, so that the next entry of the loop counts anew."""
        rows = view.group.warp_indices
        gone = np.broadcast_to((leaves | ~view.group.mask).all(axis=1), len(rows))
        if not gone.any():
            return
        header = machine.count_segment_runs(self.kernel.entry_segments[loop.header])
        left = machine.find_speculative_exit_runs(loop.index)
        own = np.zeros(machine.batch.n_warps, dtype=np.int64) if left is None else left.copy()
        own[rows[gone]] = header[rows[gone]]
        machine.speculative_exit_runs[loop.index] = own


def find_first_of_each_address(addresses: Addresses, mask: BoolArray) -> tuple[BoolArray, int]:
    """Return the first lane of each address among a warp's lanes in `mask`, and the most lanes on one.

    addresses, mask: [n_warp, 32].
    """
    keys = np.where(mask, addresses, _NO_ADDRESS)
    order = np.argsort(keys, axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, axis=1)
    starts = np.ones(ordered.shape, dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.zeros(mask.shape, dtype=bool)
    np.put_along_axis(first, order, starts, axis=1)
    lanes = np.arange(WARP_SIZE)
    since = lanes - np.maximum.accumulate(np.where(starts, lanes, 0), axis=1) + 1
    most = np.where(np.take_along_axis(mask, order, axis=1), since, 0).max(initial=0)
    return first & mask, int(most)
