"""Runs of warps through basic blocks, reconstructed from a trace, with the active lanes of each run.

A tracer writes for each instruction the lanes that its guard leaves. The lanes of a run are the union over
its instructions. If every instruction of a block is predicated, lanes that pass through it with false guards
are missing there. They are recovered from the CFG: if a lane was in block A before and in block C after, A
has no edge to C, and its successor B is fully predicated, then the lane was in the run of B in between.

Example: lane 3 ends a run of A, whose only successor is the fully predicated block B, and next appears in C.
It is added to the run of B between these two runs.
"""

from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import IntArray, make_read_only
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import OpKind
from analyzer.ir.operand import Predicate
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.ir.trace import MaskArray

_NO_INDEX = -1
_MAX_HIDDEN_BLOCKS = 4  # fully predicated blocks that a lane passes one after the other


class LaneSuccessors(Struct, frozen=True, eq=False):
    """Successors of blocks, by lane."""

    taken: IntArray  # [n_block], successor of lanes in the mask of the last instruction; -1 if none is known
    fallthrough: IntArray  # [n_block], successor of the other lanes; -1 if none is known
    is_decided: NDArray[np.bool_]  # [n_block], false if the mask does not say which way a lane goes
    is_fully_predicated: NDArray[np.bool_]  # [n_block], every instruction has a guard
    # [n_row], false for instructions after a WARPSYNC of their block, where further lanes may join.
    is_before_reconvergence: NDArray[np.bool_]

    def __post_init__(self) -> None:
        make_read_only(
            self.taken,
            self.fallthrough,
            self.is_decided,
            self.is_fully_predicated,
            self.is_before_reconvergence,
        )

    def find_successors(self, block: IntArray, was_taken: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
        """Return the one or two blocks that each lane may go to next; -1 for none.

        took: whether the lane was in the mask of the block's last instruction.
        """
        taken, fallthrough, is_decided = self.taken[block], self.fallthrough[block], self.is_decided[block]
        return np.where(was_taken & is_decided, taken, fallthrough), np.where(is_decided, _NO_INDEX, taken)


@lru_cache(maxsize=8)
def build_lane_successors(cfg: Cfg) -> LaneSuccessors:
    """Build the successors of a kernel's blocks, lane by lane.

    A branch sends lanes of one warp to different blocks: those in the mask of the block's last instruction to
    `taken`, the others to `fallthrough`.
    """
    kernel = cfg.kernel
    taken, fallthrough, is_decided, hidden = [], [], [], []
    is_before_reconvergence = np.ones(len(kernel), dtype=bool)
    for block in cfg.blocks:
        forms = [kernel.decode_form(row) for row in range(block.start, block.stop)]
        kinds = [form.opcode.kind for form in forms]
        if OpKind.WARP_SYNC in kinds:
            is_before_reconvergence[block.start + kinds.index(OpKind.WARP_SYNC) + 1 : block.stop] = False
        hidden.append(not any(form.is_unconditional for form in forms))
        ends = _find_branch_targets(cfg, block.index, forms[-1])
        taken.append(ends[0])
        fallthrough.append(ends[1])
        is_decided.append(not any(isinstance(operand, Predicate) for operand in forms[-1].operands))
    return LaneSuccessors(
        np.array(taken),
        np.array(fallthrough),
        np.array(is_decided),
        np.array(hidden),
        is_before_reconvergence,
    )


def _find_branch_targets(cfg: Cfg, block: int, last: InstructionForm) -> tuple[int, int]:
    following = block + 1 if block + 1 < len(cfg.blocks) else _NO_INDEX
    match last.opcode.kind:
        case OpKind.BRANCH if not {"DIV", "CONV"} & set(last.opcode.modifiers):
            return cfg.taken_targets.get(block, _NO_INDEX), following
        case OpKind.EXIT:
            return _NO_INDEX, following
        case kind if kind in _CONTROL_TRANSFER_KINDS:
            return _NO_INDEX, _NO_INDEX
        case _:
            return following, following


_CONTROL_TRANSFER_KINDS = frozenset(
    {OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.CALL, OpKind.RETURN, OpKind.EXIT}
)


class TracedBlockRuns(Struct, frozen=True, eq=False):
    """Runs in execution order, one warp after the other; all arrays are [n_run]."""

    warp: IntArray
    block: IntArray
    masks: MaskArray  # active lanes
    last_masks: MaskArray  # active lanes of the last traced instruction of the run
    is_complete: NDArray[np.bool_]  # that is the last instruction of the block

    def __post_init__(self) -> None:
        make_read_only(self.warp, self.block, self.masks, self.last_masks, self.is_complete)


def split_block_runs(cfg: Cfg, row: IntArray, warp: IntArray, masks: MaskArray) -> TracedBlockRuns:
    """Split traced instructions into runs of blocks.

    A run ends where the warp or the block changes, or the next instruction is not further down in the block.
    Its lanes are those of any of its instructions, up to the point where further lanes may join.

    row, warp, masks: [n_instruction], in trace order.
    """
    block = np.array(cfg.block_of, dtype=np.int64)[row]
    ends = (np.diff(warp) != 0) | (np.diff(block) != 0) | (np.diff(row) <= 0)
    begins = np.flatnonzero(np.concatenate(([True], ends)))
    lasts = np.append(begins[1:], len(row)) - 1
    successors = build_lane_successors(cfg)
    found = np.bitwise_or.reduceat(
        np.where(successors.is_before_reconvergence[row], masks, np.uint32(0)), begins
    )
    found = np.where(found == 0, np.bitwise_or.reduceat(masks, begins), found)
    stops = np.array([one.stop for one in cfg.blocks], dtype=np.int64)
    runs = TracedBlockRuns(
        warp[begins], block[begins], found, masks[lasts], row[lasts] == stops[block[begins]] - 1
    )
    return _add_hidden_lanes(runs, successors) if successors.is_fully_predicated.any() else runs


class _HiddenRuns(Struct, frozen=True, eq=False):
    """Runs of fully predicated blocks, sorted by block, then in execution order."""

    runs: TracedBlockRuns
    run_indices: IntArray  # in `runs`
    sort_keys: IntArray  # block * number of runs + index of the run

    def __post_init__(self) -> None:
        make_read_only(self.run_indices, self.sort_keys)

    @staticmethod
    def build_sorted(runs: TracedBlockRuns, hidden: IntArray) -> "_HiddenRuns":
        keys = runs.block[hidden] * len(runs.block) + hidden
        order = np.argsort(keys)
        return _HiddenRuns(runs, hidden[order], keys[order])

    def find_between(self, block: IntArray, before: IntArray, after: IntArray) -> IntArray:
        """Return the first run of each block between two runs; -1 if there is none."""
        sought = block * len(self.runs.block) + before
        place = np.minimum(np.searchsorted(self.sort_keys, sought), len(self.sort_keys) - 1)
        found = self.run_indices[place]
        is_there = (self.sort_keys[place] >= sought) & (self.runs.block[found] == block) & (found < after)
        return np.where(is_there, found, _NO_INDEX)


def _add_hidden_lanes(runs: TracedBlockRuns, successors: LaneSuccessors) -> TracedBlockRuns:
    """Add lanes that passed through fully predicated blocks with false guards."""
    hidden = np.flatnonzero(successors.is_fully_predicated[runs.block])
    if not len(hidden):
        return runs
    hidden_runs = _HiddenRuns.build_sorted(runs, hidden)
    masks = runs.masks.copy()
    for lane in range(WARP_SIZE):
        bit = np.uint32(1 << lane)
        at = np.flatnonzero(runs.masks & bit)
        before, after = at[:-1], at[1:]
        same = (runs.warp[before] == runs.warp[after]) & runs.is_complete[before]
        before, after = before[same], after[same]
        was_taken = (runs.last_masks[before] & bit) != 0
        for _ in range(_MAX_HIDDEN_BLOCKS):
            first, second = successors.find_successors(runs.block[before], was_taken)
            is_unexplained = (first != runs.block[after]) & (second != runs.block[after])
            before, after, first, second = (
                before[is_unexplained],
                after[is_unexplained],
                first[is_unexplained],
                second[is_unexplained],
            )
            if not len(before):
                break
            passed = hidden_runs.find_between(first, before, after)
            passed = np.where(passed < 0, hidden_runs.find_between(second, before, after), passed)
            before, after = passed[passed >= 0], after[passed >= 0]
            was_taken = np.zeros(len(before), dtype=bool)
            masks[before] |= bit
    return replace(runs, masks=masks)
