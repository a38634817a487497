"""What an undecided branch does: what the user says of it, else a stated rule.

- A loop's exit: the trips that the user gave, else one for a loop that only waits, that a
  compare-and-swap of its own ends, or that would run other CTAs, else `ASSUMED_TRIPS`.
- Another branch: the share that the user gave, else slow paths, ways for unlikely numbers and early ends are
  not taken and loops are entered, else half of the warps (of the lanes, where the condition differs among
  them) take it.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.counts import ASSUMED_TRIPS, TripRule, branch_odds
from analyzer.execution.lanes import Origins, View
from analyzer.execution.likely import likely_way
from analyzer.execution.machine import Machine
from analyzer.execution.program import CompiledKernel, End
from analyzer.execution.rules import TakenRule
from analyzer.execution.step import Bits
from analyzer.execution.trial import Trial
from analyzer.execution.unknown_words import instruction_rows
from analyzer.execution.waiting import only_waits, takes_ctas
from analyzer.flow.loops import Loop
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import OpKind, Space

IntArray = NDArray[np.int64]

_RARE = "slow paths and early ends are rare, loops are entered"
_ORDINARY = "numbers are seldom huge, tiny or equal"
_SWAP = "CAS"
_SPREAD = 0x9E3779B1  # an odd number that scatters neighbouring warps


class Guesser:
    """Decides branches that launch facts do not; `rules[row]` says how the branch at a row was decided."""

    def __init__(
        self, kernel: CompiledKernel, trips: tuple[TripRule, ...] = (), taken: tuple[TakenRule, ...] = ()
    ) -> None:
        self.kernel, self.trips = kernel, trips
        self.taken = {rule.address: rule.share for rule in taken}
        self.rules: dict[int, str] = {}
        self.shares: dict[int, float] = {}
        self.used: set[TripRule] = set()
        self.trip_of: dict[int, tuple[int, str]] = {}
        self._takes_ctas = takes_ctas(kernel.cfg)

    def __call__(self, machine: Machine, view: View, end: End, unknown: Origins) -> Bits:
        """Whether each lane takes the branch."""
        address = int(self.kernel.cfg.kernel.addresses[end.row])
        if address in self.taken:
            self.rules[end.row] = f"taken by {self.taken[address]:.0%}, as --taken says"
            return self._spread(view, unknown, self.taken[address])
        loop = self._loop_left(end)
        if loop is not None:
            return self._leave(machine, view, end, loop, unknown)
        return self._forward(view, end, unknown)

    # ---- loops -----------------------------------------------------------------------------------

    def loop_of_exit(self, row: int) -> Loop | None:
        """The loop that the branch at a row leaves; None where it leaves none."""
        block = self.kernel.cfg.block_of[row]
        first, last = self.kernel.entry_of[block], self.kernel.entry_of[block]
        while last + 1 < len(self.kernel.segments) and self.kernel.segments[last + 1].block == block:
            last += 1
        return next(
            (self._loop_left(s.end) for s in self.kernel.segments[first : last + 1] if s.end.row == row), None
        )

    def _loop_left(self, end: End) -> Loop | None:
        """The innermost loop that one side of the branch leaves and the other does not."""
        segments, nest = self.kernel.segments, self.kernel.nest
        block = self.kernel.cfg.block_of[end.row]
        sides = [None if side is None else segments[side].block for side in (end.target, end.fall)]
        for index in nest.around(block):
            loop = nest.loops[index]
            inside = [side in loop.blocks for side in sides]
            if inside[0] != inside[1]:
                return loop
        return None

    def _leave(self, machine: Machine, view: View, end: End, loop: Loop, unknown: Origins) -> Bits:
        rows = view.group.rows
        trips = self._trips(loop, end, unknown)
        header = machine.runs_of(self.kernel.entry_of[loop.header])
        left = machine.left_before(loop.index)
        arrivals = header[rows] - (0 if left is None else left[rows])
        stays = (arrivals < trips)[:, None]
        if isinstance(machine, Trial) and machine.loop.index == loop.index:
            more = -((arrivals - trips) // machine.wanted)
            machine.limit(view, np.maximum(more, 1))
        elif not stays.all():
            own = np.zeros(machine.batch.n_warps, dtype=np.int64) if left is None else left.copy()
            leaving = rows[~stays[:, 0]]
            own[leaving] = header[leaving]
            machine.left_at[loop.index] = own
        target = None if end.target is None else self.kernel.segments[end.target].block
        leads_out = target not in loop.blocks
        found: Bits = ~stays if leads_out else stays
        return found

    def _trips(self, loop: Loop, end: End, unknown: Origins) -> int:
        if loop.index not in self.trip_of:
            self.trip_of[loop.index] = self._settle(loop, unknown)
        trips, self.rules[end.row] = self.trip_of[loop.index]
        return trips

    def _settle(self, loop: Loop, unknown: Origins) -> tuple[int, str]:
        cfg = self.kernel.cfg
        row = cfg.blocks[loop.header].start
        address, origin = int(cfg.kernel.addresses[row]), cfg.kernel.origin(row)
        for rule in self.trips:
            if rule.names(address, origin):
                self.used.add(rule)
                return rule.value, f"{rule.value} trips, as --trip says"
        if only_waits(cfg, loop):
            return 1, "a loop that waits is passed at once"
        if self._only_retries(loop, unknown):
            return 1, "a loop that retries a compare-and-swap is passed at once"
        if self._takes_ctas and self._is_told_in_shared(unknown):
            return 1, "CTAs that it would take from the launch run by themselves"
        for rule in self.trips:
            if rule.is_general:
                return rule.value, f"{rule.value} trips, as --trip says"
        return ASSUMED_TRIPS, f"{ASSUMED_TRIPS} trips assumed"

    def _is_told_in_shared(self, unknown: Origins) -> bool:
        kernel = self.kernel.cfg.kernel
        rows = instruction_rows(unknown)
        return all(row < len(kernel) and kernel.opcode(row).space is Space.SHARED for row in rows)

    def _only_retries(self, loop: Loop, unknown: Origins) -> bool:
        """It goes on until a compare-and-swap of its own has found what it was to find: mostly the first."""
        cfg = self.kernel.cfg
        for row in instruction_rows(unknown):
            if row < len(cfg.kernel) and cfg.block_of[row] in loop.blocks:
                opcode = cfg.kernel.opcode(row)
                if opcode.kind is OpKind.ATOMIC and _SWAP in opcode.modifiers:
                    return True
        return False

    # ---- other branches --------------------------------------------------------------------------

    def _forward(self, view: View, end: End, unknown: Origins) -> Bits:
        if end.row not in self.shares:
            self.shares[end.row], self.rules[end.row] = self._share(end)
        return self._spread(view, unknown, self.shares[end.row])

    def _share(self, end: End) -> tuple[float, str]:
        """How often a branch is taken, and why."""
        cfg, segments = self.kernel.cfg, self.kernel.segments
        if end.target is None or end.fall is None:
            return 0.0, "an early end is not taken"
        sides = [segments[end.target].block, segments[end.fall].block]
        if sides[0] == sides[1]:
            return 0.0, "both ways are the same"
        block = cfg.block_of[end.row]
        share = branch_odds(cfg, self.kernel.nest, block, sides)[0]
        if 0 < share < 1:
            return share, "half of the warps take it"
        reason = _ORDINARY if likely_way(cfg, block) in sides else _RARE
        return share, f"{'taken' if share else 'not taken'}: {reason}"

    def _spread(self, view: View, unknown: Origins, share: float) -> Bits:
        """Warps, or where the condition differs by lane lanes, that make up a share."""
        if share <= 0 or share >= 1:
            return np.full((1, 1), share > 0, dtype=bool)
        if unknown.shape[1] > 1:
            lanes = (np.arange(WARP_LANES) * 11 % WARP_LANES)[None, :]
            return np.asarray(lanes < round(share * WARP_LANES))
        scattered = (view.group.rows * _SPREAD) % (1 << 32) / float(1 << 32)
        return np.asarray(scattered < share)[:, None]
