"""Decisions of branches whose condition is unknown: by the user, else by a stated rule.

Exit of a loop, the first that applies:
1. the trips that the user gave (--trip) for this loop;
2. a loop that retries an atomic exchange of its own (`retry_loops`) is left by one lane of each address that
   lanes of a warp meet on, and by all lanes where addresses are unknown; what else leaves it is not taken;
3. 1 trip for a spin loop, or for one that would run further CTAs (work stealing);
4. the trips that the user gave for all loops;
5. `ASSUMED_TRIP_COUNT`.

Where the least or the most work is asked for (`WorkAssumption`), as for the ends of an interval, a loop of
which nothing is known takes 1 trip or 4,096, and a branch goes where less or more code waits.

Any other branch:
1. the taken share that the user gave (--taken);
2. where an exchange decides it, it goes as if that had succeeded, around the loop that would retry it;
3. slow paths, paths for improbable numbers and early exits are not taken, loops are entered;
4. half of the warps take it, or half of the lanes if the condition differs among lanes.
"""

import numpy as np

from analyzer.execution.acceleration.exchange_turns import ExchangeTurns
from analyzer.execution.acceleration.symbolic_iteration import SymbolicIteration
from analyzer.execution.acceleration.work_sides import WorkSides
from analyzer.execution.lowering.retry_loops import is_exchange
from analyzer.execution.lowering.segments import CompiledKernel, Terminator
from analyzer.execution.lowering.spin_loops import has_cta_work_stealing, is_spin_loop
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.register_state import RegisterView, UnknownOrigins
from analyzer.execution.machine.unknown_words import find_instruction_rows
from analyzer.execution.profile.branch_rules import BranchTakenRule
from analyzer.execution.profile.work_assumption import MAX_UNKNOWN_TRIPS, MIN_UNKNOWN_TRIPS, WorkAssumption
from analyzer.execution.static_counts.block_counts import (
    ASSUMED_TRIP_COUNT,
    TripCountRule,
    estimate_branch_probabilities,
)
from analyzer.execution.static_counts.branch_heuristics import find_likely_successor
from analyzer.flow.loops import Loop
from analyzer.ir.arrays import BoolArray
from analyzer.ir.opcode import AddressSpace
from analyzer.ir.scheduling import WARP_SIZE

_RARE_PATH_REASON = "slow paths and early ends are rare, loops are entered"
_ORDINARY_NUMBER_REASON = "numbers are seldom huge, tiny or equal"
_WARP_HASH_FACTOR = 0x9E3779B1  # an odd number that scatters neighbor warps


class BranchDecider:
    """Decides branches that launch facts do not decide."""

    def __init__(
        self,
        kernel: CompiledKernel,
        trips: tuple[TripCountRule, ...] = (),
        taken: tuple[BranchTakenRule, ...] = (),
        assumption: WorkAssumption = WorkAssumption.LIKELY,
    ) -> None:
        self.kernel, self.trip_rules, self.assumption = kernel, trips, assumption
        self._work_sides = WorkSides(kernel)
        self.user_taken_shares = {rule.address: rule.share for rule in taken}
        self.reasons: dict[int, str] = {}  # by the row of the branch, how it was decided
        self.assumed_taken_shares: dict[int, float] = {}  # by row
        # Branches and loops that neither the user nor the code settles: all but slow paths for rare numbers,
        # loops that wait, atomics that are retried.
        self.open_rows: set[int] = set()
        self.open_loops: set[int] = set()
        self.used_trip_rules: set[TripCountRule] = set()
        self.assumed_trips: dict[int, tuple[int, str]] = {}  # by loop, with the reason
        self._has_cta_stealing = has_cta_work_stealing(kernel.cfg)
        self._turns = ExchangeTurns(kernel)
        self._exited_loops: dict[int, Loop | None] = {}  # by row of the branch

    def __call__(
        self, machine: AbstractMachine, view: RegisterView, end: Terminator, unknown: UnknownOrigins
    ) -> BoolArray:
        """Return the lanes that take the branch, [n_warp or 1, 32 or 1]."""
        address = int(self.kernel.cfg.kernel.addresses[end.row])
        if address in self.user_taken_shares:
            self.reasons[end.row] = f"taken by {self.user_taken_shares[address]:.0%}, as --taken says"
            return self._spread_taken_share(view, unknown, self.user_taken_shares[address])
        loop = self._find_exited_loop(end)
        if loop is not None:
            return self._decide_loop_exit(machine, view, end, loop, unknown)
        return self._decide_forward_branch(view, end, unknown)

    def is_open(self, row: int) -> bool:
        """Return whether neither the user nor the code settled a branch or jump that execution met."""
        return row in self.open_rows or row not in self.reasons

    # ---- loops -----------------------------------------------------------------------------------

    def find_loop_of_branch(self, row: int) -> Loop | None:
        """Return the loop that the branch at a row leaves; None if it leaves none."""
        block = self.kernel.cfg.block_of[row]
        first, last = self.kernel.entry_segments[block], self.kernel.entry_segments[block]
        while last + 1 < len(self.kernel.segments) and self.kernel.segments[last + 1].block == block:
            last += 1
        return next(
            (
                self._find_exited_loop(s.terminator)
                for s in self.kernel.segments[first : last + 1]
                if s.terminator.row == row
            ),
            None,
        )

    def _find_exited_loop(self, end: Terminator) -> Loop | None:
        """Return the innermost loop that one side of the branch leaves and the other does not."""
        if end.row not in self._exited_loops:
            self._exited_loops[end.row] = self._search_exited_loop(end)
        return self._exited_loops[end.row]

    def _search_exited_loop(self, end: Terminator) -> Loop | None:
        segments, loop_forest = self.kernel.segments, self.kernel.loop_forest
        block = self.kernel.cfg.block_of[end.row]
        sides = [None if side is None else segments[side].block for side in (end.target, end.fall_through)]
        for index in loop_forest.find_enclosing_loops(block):
            loop = loop_forest.loops[index]
            inside = [side in loop.blocks for side in sides]
            if inside[0] != inside[1]:
                return loop
        return None

    def _decide_loop_exit(
        self,
        machine: AbstractMachine,
        view: RegisterView,
        end: Terminator,
        loop: Loop,
        unknown: UnknownOrigins,
    ) -> BoolArray:
        """Let lanes leave a loop that retries an exchange, and warps any other after its trips."""
        target = None if end.target is None else self.kernel.segments[end.target].block
        leads_out = target not in loop.blocks
        if self._turns.find_retry_loop(loop) is not None and self._find_user_trips(loop) is None:
            leaves = self._turns.find_leaving_lanes(machine, view, end, loop)
            self.reasons[end.row] = self._turns.describe_turns(loop)
        else:
            leaves = self._find_leaving_warps(machine, view, end, loop, unknown)
        found: BoolArray = leaves if leads_out else ~leaves
        return found

    def _find_leaving_warps(
        self,
        machine: AbstractMachine,
        view: RegisterView,
        end: Terminator,
        loop: Loop,
        unknown: UnknownOrigins,
    ) -> BoolArray:
        """Return the warps that have arrived at a loop's header as often as it has trips, [n_warp, 1]."""
        rows = view.group.warp_indices
        trips = self._find_trips(loop, end, unknown)
        header = machine.count_segment_runs(self.kernel.entry_segments[loop.header])
        left = machine.find_speculative_exit_runs(loop.index)
        arrivals = header[rows] - (0 if left is None else left[rows])
        stays = (arrivals < trips)[:, None]
        if isinstance(machine, SymbolicIteration) and machine.loop.index == loop.index:
            more = -((arrivals - trips) // machine.period)
            machine.limit_repeats(view, np.maximum(more, 1))
        elif not stays.all():
            own = np.zeros(machine.batch.n_warps, dtype=np.int64) if left is None else left.copy()
            leaving = rows[~stays[:, 0]]
            own[leaving] = header[leaving]
            machine.speculative_exit_runs[loop.index] = own
        leaves: BoolArray = ~stays
        return leaves

    def _find_trips(self, loop: Loop, end: Terminator, unknown: UnknownOrigins) -> int:
        """Return the trips of a loop, assumed at the first branch that leaves it."""
        if loop.index not in self.assumed_trips:
            self.assumed_trips[loop.index] = self._assume_trips(loop, unknown)
        if loop.index in self.open_loops:
            self.open_rows.add(end.row)
        trips, self.reasons[end.row] = self.assumed_trips[loop.index]
        return trips

    def _assume_trips(self, loop: Loop, unknown: UnknownOrigins) -> tuple[int, str]:
        """Return the trips of a loop and the reason, by the rules above."""
        if (count := self._find_user_trips(loop)) is not None:
            return count, f"{count} trips, as --trip says"
        if is_spin_loop(self.kernel.cfg, loop):
            return 1, "a loop that waits is passed at once"
        if self._is_exchanged_within(loop, unknown):
            return 1, "1 trip: an atomic that is retried succeeds at once"
        if self._has_cta_stealing and self._is_read_from_shared(unknown):
            return 1, "CTAs that it would take from the launch run by themselves"
        for rule in self.trip_rules:
            if rule.is_general:
                return rule.count, f"{rule.count} trips, as --trip says"
        trips = self._assume_unknown_trips(loop)
        return trips, f"{trips} trips assumed"

    def _assume_unknown_trips(self, loop: Loop) -> int:
        """Return the trips of a loop of which nothing is known; of nested ones, one takes the most."""
        self.open_loops.add(loop.index)
        if self.assumption is WorkAssumption.LEAST:
            return MIN_UNKNOWN_TRIPS
        others = self.kernel.loop_forest.loops
        is_beside_most = any(
            trips == MAX_UNKNOWN_TRIPS and (others[index].blocks & loop.blocks)
            for index, (trips, _) in self.assumed_trips.items()
        )
        return (
            ASSUMED_TRIP_COUNT
            if self.assumption is WorkAssumption.LIKELY or is_beside_most
            else MAX_UNKNOWN_TRIPS
        )

    def _is_read_from_shared(self, unknown: UnknownOrigins) -> bool:
        """Return whether all unknown words of a condition are loaded from shared memory."""
        kernel = self.kernel.cfg.kernel
        rows = find_instruction_rows(unknown)
        return all(row < len(kernel) and kernel.find_opcode(row).space is AddressSpace.SHARED for row in rows)

    def _find_user_trips(self, loop: Loop) -> int | None:
        """Return the trips that the user gave for this loop."""
        cfg = self.kernel.cfg
        row = cfg.blocks[loop.header].start
        address, origin = int(cfg.kernel.addresses[row]), cfg.kernel.find_source_line(row)
        for rule in self.trip_rules:
            if rule.matches(address, origin):
                self.used_trip_rules.add(rule)
                return rule.count
        return None

    def _is_exchanged_within(self, loop: Loop, unknown: UnknownOrigins) -> bool:
        """Return whether an unknown condition depends on an atomic exchange within the loop."""
        cfg = self.kernel.cfg
        return any(
            row < len(cfg.kernel)
            and cfg.block_of[row] in loop.blocks
            and is_exchange(cfg.kernel.find_opcode(row))
            for row in find_instruction_rows(unknown)
        )

    # ---- other branches --------------------------------------------------------------------------

    def _decide_forward_branch(
        self, view: RegisterView, end: Terminator, unknown: UnknownOrigins
    ) -> BoolArray:
        """Let a share of the warps or lanes take a branch that leaves no loop."""
        taken = self._turns.find_taken_on_success(end, unknown)
        if taken is not None:
            self.reasons[end.row] = f"{'taken' if taken else 'not taken'}: an atomic that is retried succeeds"
            return np.full((1, 1), taken, dtype=bool)
        if end.row not in self.assumed_taken_shares:
            self.assumed_taken_shares[end.row], self.reasons[end.row] = self._assume_taken_share(end)
        return self._spread_taken_share(view, unknown, self.assumed_taken_shares[end.row])

    def _assume_taken_share(self, end: Terminator) -> tuple[float, str]:
        """Return the share of warps that take a branch, and the reason."""
        likely = self._find_likely_share(end)
        if end.row not in self.open_rows or self.assumption is WorkAssumption.LIKELY:
            return likely
        share = self._work_sides.find_taken_share(end, self.assumption)
        return (
            likely
            if share is None
            else (share, f"{'taken' if share else 'not taken'}: {self.assumption} work")
        )

    def _find_likely_share(self, end: Terminator) -> tuple[float, str]:
        """Return the likely share, and the reason; record the branch as open unless the code settles it."""
        cfg, segments = self.kernel.cfg, self.kernel.segments
        if end.target is None or end.fall_through is None:
            self.open_rows.add(end.row)
            return 0.0, "an early end is not taken"
        sides = [segments[end.target].block, segments[end.fall_through].block]
        if sides[0] == sides[1]:
            return 0.0, "both ways are the same"
        block = cfg.block_of[end.row]
        share = estimate_branch_probabilities(cfg, self.kernel.loop_forest, block, sides)[0]
        is_improbable = find_likely_successor(cfg, block) in sides
        if not is_improbable and (0 < share < 1 or sides[share > 0] not in cfg.calling_blocks):
            self.open_rows.add(end.row)
        if 0 < share < 1:
            return share, "half of the warps take it"
        reason = _ORDINARY_NUMBER_REASON if is_improbable else _RARE_PATH_REASON
        return share, f"{'taken' if share else 'not taken'}: {reason}"

    def _spread_taken_share(self, view: RegisterView, unknown: UnknownOrigins, share: float) -> BoolArray:
        """Return warps that make up a share, or lanes if the condition differs among lanes."""
        if share <= 0 or share >= 1:
            return np.full((1, 1), share > 0, dtype=bool)
        if unknown.shape[1] > 1:
            lanes = (np.arange(WARP_SIZE) * 11 % WARP_SIZE)[None, :]
            return np.asarray(lanes < round(share * WARP_SIZE))
        scattered = (view.group.warp_indices * _WARP_HASH_FACTOR) % (1 << 32) / float(1 << 32)
        return np.asarray(scattered < share)[:, None]
