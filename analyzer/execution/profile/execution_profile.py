"""What a kernel executes: how often each block runs and what memory it touches, whoever found out.

Abstract execution, a recorded trace and static guesses all fill this one value.
"""

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.profile.cta_boxes import CtaBox
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Launch
from analyzer.ir.opcode import AddressSpace

IntArray = NDArray[np.int64]


def make_read_only(*arrays: NDArray[Any]) -> None:
    """Forbid writes to arrays that a frozen record holds."""
    for array in arrays:
        array.setflags(write=False)


class WarpClass(Struct, frozen=True, kw_only=True, eq=False):
    """Warps that run every block equally often.

    block_counts[b]: executions of block b by one of them; block_lanes[b]: active lanes summed over those
    executions; example: (CTA, warp in CTA) of one of them; seats: how many of them
    are the first warp of their CTA, the second …; n_beside: how many stand in a CTA in which another warp
    executes ten times as much.
    """

    n_warps: int
    block_counts: IntArray
    block_active_lanes: IntArray
    example_warp: tuple[int, int]
    warp_slot_counts: tuple[float, ...]
    n_beside_busier_warp: int

    def __post_init__(self) -> None:
        make_read_only(self.block_counts, self.block_active_lanes)


class BlockPart(Struct, frozen=True):
    """Rows [start, stop) of a block, executions of them and active lanes, summed over the grid."""

    block: int
    start: int
    stop: int
    executions: int
    active_lanes: int


class MemoryAccess(Struct, frozen=True, kw_only=True):
    """What one memory instruction did, summed over the whole grid; None where it is not known.

    An LDGSTS has two: the global side, which loads, and the shared side, which stores.

    requests: executions with at least one active lane; lanes: active lanes; bytes: asked for by them;
    sectors: 32-byte sectors touched, per request and summed (global, local); wavefronts: passes that the
    data path takes, of an atomic in global memory lanes on the word that most ask for, of a copy by the
    engine its requests, each of a line of a row; unique_bytes: distinct bytes touched by the grid;
    unique_sectors: distinct sectors of them, of copies by the engine; is_looked_up: it reads or writes places
    that words from memory name, and nobody knows which; row_bytes: distinct bytes of these, if each word
    names another; table_bytes: that they lie among, None where they may lie anywhere, and new_share: of its
    sectors those that none has asked for before; base: where it would go if these words were zero.
    """

    row: int
    space: AddressSpace
    is_store: bool
    requests: int
    lanes: int
    bytes: int
    sectors: int | None
    wavefronts: int | None
    unique_bytes: int | None
    provenance: Provenance
    unique_sectors: int | None = None
    is_indirect: bool = False
    gathered_bytes: int | None = None
    table_bytes: float | None = None
    first_touch_share: float = 1.0
    base_address: int | None = None


class UnknownBranch(Struct, frozen=True, kw_only=True):
    """A branch that launch facts did not decide.

    origin: where the unknown came from, as text (a load, an argument, a constant bank); origin_row: that
    instruction, None where it is none; rule: what was assumed; settle: how the user may settle it;
    share: of all executed warp instructions, those that hang on it.
    """

    row: int
    origin: str
    origin_row: int | None
    rule: str
    hint: str
    instruction_share: float


class GlobalTraffic(Struct, frozen=True, kw_only=True):
    """Bytes of global memory that the whole grid asks for, and the distinct ones among them.

    Sectors: distinct ones that these lie in; unique_sectors: read or written.
    """

    read_bytes: int
    read_unique_bytes: int | None
    written_bytes: int
    written_unique_bytes: int | None
    read_unique_sectors: int | None
    written_unique_sectors: int | None
    unique_sectors: int | None


class ExecutionProfile(Struct, frozen=True, kw_only=True, eq=False):
    """Execution of a whole grid.

    block_warps[b], block_lanes[b]: warp executions of block b and active lanes in them, summed over the grid;
    block_provenance[b]: what they rest on.
    loop_entries[l]: how often a warp comes to loop l of the nest from outside. Classes cover all
    warps that were looked at, weighted to the grid.
    parts: of blocks whose rows do not all run equally often, since lanes of a warp meet inside (WARPSYNC),
    all parts; looked_at_ctas: CTAs that were executed (or traced) one by one; the others equal one of them.
    boxes: CTAs proven to run alike, at addresses that go on evenly, where that is how the grid was cut.
    """

    launch: Launch
    n_warps: int
    n_sampled_ctas: int
    warp_classes: tuple[WarpClass, ...]
    block_executions: IntArray
    block_active_lanes: IntArray
    block_provenance: tuple[Provenance, ...]
    loop_entries: NDArray[np.float64]
    accesses: tuple[MemoryAccess, ...]
    traffic: GlobalTraffic | None
    unknown_branches: tuple[UnknownBranch, ...]
    provenance: Provenance
    assumptions: tuple[str, ...]
    block_parts: tuple[BlockPart, ...] = ()
    cta_boxes: tuple[CtaBox, ...] = ()

    def __post_init__(self) -> None:
        make_read_only(self.block_executions, self.block_active_lanes, self.loop_entries)

    def count_executed_instructions(self, lengths: tuple[int, ...]) -> int:
        """Warp instructions of the whole grid; lengths[b]: instructions of block b."""
        cut = {part.block for part in self.block_parts}
        whole = sum(
            int(warps) * length
            for block, (warps, length) in enumerate(zip(self.block_executions, lengths, strict=True))
            if block not in cut
        )
        return whole + sum(part.executions * (part.stop - part.start) for part in self.block_parts)
