"""Profile of an executed grid: executions of each basic block, and the memory that it accesses.

Abstract execution and recorded traces both fill this value, so that models need not know where it is from.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.profile.cta_boxes import CtaBox
from analyzer.execution.profile.missing_inputs import MissingInput
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.arrays import CountArray, FloatArray, IntArray, make_read_only
from analyzer.ir.launch import Launch
from analyzer.ir.opcode import AddressSpace


class WarpClass(Struct, frozen=True, kw_only=True, eq=False):
    """Warps that run every block equally often."""

    n_warps: int
    block_counts: IntArray  # [n_block], executions by one of these warps
    block_active_lanes: IntArray  # [n_block], active lanes summed over those executions
    example_warp: tuple[int, int]  # (CTA, warp in CTA) of one of them
    warp_slot_counts: tuple[float, ...]  # how many of them are warp 0 of their CTA, warp 1, …
    n_beside_busier_warp: int  # warps in whose CTA another warp executes ten times as much

    def __post_init__(self) -> None:
        make_read_only(self.block_counts, self.block_active_lanes)


class BlockRange(Struct, frozen=True):
    """Part of a block, instructions [start, stop), whose counts differ from those of other parts."""

    block: int
    start: int
    stop: int
    executions: int  # warp executions, summed over the grid
    active_lanes: int  # active lanes in them, summed over the grid


class MemoryAccess(Struct, frozen=True, kw_only=True):
    """Accesses of one memory instruction in one address space, summed over the grid; None if unknown.

    An LDGSTS has two: the global side, which loads, and the shared side, which stores. An access is indirect
    if its address depends on words that were loaded and whose values are unknown (a gather or scatter).
    """

    row: int
    space: AddressSpace
    is_store: bool
    requests: int  # warp executions with at least one active lane
    lanes: int  # active lanes
    bytes: int  # bytes that these lanes ask for
    sectors: int | None  # 32-byte sectors of each request, summed (global and local memory)
    # Passes through the data path. For an atomic in global memory: lanes on the word that most lanes access;
    # for a bulk copy: the requests of the copy engine, one for each line of a row of the box.
    wavefronts: int | None
    unique_bytes: int | None  # distinct bytes that the grid accesses
    provenance: Provenance
    unique_sectors: int | None = None  # distinct sectors of these bytes; of bulk copies, narrow loads
    # 128-byte lines of each request, summed, of global memory and of writes to shared memory; where requests
    # repeat a pattern at other places in a line, as many as at the first place
    lines: float | None = None
    is_indirect: bool = False
    gathered_bytes: int | None = None  # distinct bytes if indirect and each loaded word names another row
    table_bytes: float | None = None  # size of the table that is accessed; None if not bounded
    first_touch_share: float = 1.0  # share of its sectors that no earlier indirect request has asked for
    base_address: int | None = None  # the address if all unknown words were zero
    missing_inputs: tuple[MissingInput, ...] = ()  # that nobody gave and that it depends on
    address_provenance: Provenance = Provenance.TRACED  # of the addresses of requests, however often made


class UnknownBranch(Struct, frozen=True, kw_only=True):
    """A branch that the launch does not decide, and what was assumed for it."""

    row: int
    origin: str  # where the unknown value is from: a load, an argument, a constant bank
    origin_row: int | None  # the instruction that brought the value, None if none did
    rule: str  # the assumption
    hint: str  # the option by which the user can decide the branch
    instruction_share: float  # share of all executed warp instructions that depend on the branch
    missing_input: MissingInput | None = None  # the input that would decide it, if one does
    # Neither the user nor the code settles it, as it does slow paths for rare numbers, and loops that wait.
    is_open: bool = True
    decides_trips: bool = False  # it leaves a loop, whose trips are assumed


class GlobalTraffic(Struct, frozen=True, kw_only=True):
    """Global memory traffic that the whole grid asks for; None if unknown."""

    read_bytes: int
    read_unique_bytes: int | None  # distinct bytes
    written_bytes: int
    written_unique_bytes: int | None
    read_unique_sectors: int | None  # distinct sectors
    written_unique_sectors: int | None
    unique_sectors: int | None  # distinct sectors that are read or written


class ExecutionProfile(Struct, frozen=True, kw_only=True, eq=False):
    """Execution of a whole grid."""

    launch: Launch
    n_warps: int
    n_sampled_ctas: int  # CTAs that were executed or traced; see `is_sample` for the others
    warp_classes: tuple[WarpClass, ...]  # all warps of the sampled CTAs, weighted to the grid
    block_executions: CountArray  # [n_block], warp executions summed over the grid
    block_active_lanes: CountArray  # [n_block], active lanes in them
    block_provenance: tuple[Provenance, ...]  # of the counts of each block
    loop_entries: NDArray[np.float64]  # [n_loop], times that a warp enters the loop from outside
    accesses: tuple[MemoryAccess, ...]
    traffic: GlobalTraffic | None
    unknown_branches: tuple[UnknownBranch, ...]
    provenance: Provenance
    assumptions: tuple[str, ...]
    # All parts of blocks whose instructions run unequally often, since lanes reconverge inside (WARPSYNC).
    block_parts: tuple[BlockRange, ...] = ()
    is_sample: bool = False  # CTAs that were not executed are taken to be like others; false where proven
    # Scalar inputs that nobody gave and that executed code reads for its branches and addresses.
    missing_scalars: tuple[MissingInput, ...] = ()
    # Boxes of CTAs proven equivalent, at affine addresses; empty if the grid was sampled in another way.
    cta_boxes: tuple[CtaBox, ...] = ()
    missing_code: tuple[str, ...] = ()  # sentences on what a recorded trace has lost
    cta_work: FloatArray | None = None  # [CTA], instructions of each; None where all are alike, or not known

    def __post_init__(self) -> None:
        make_read_only(self.block_executions, self.block_active_lanes, self.loop_entries)

    def count_executed_instructions(self, lengths: tuple[int, ...]) -> int:
        """Count warp instructions of the whole grid.

        lengths: instructions of each block.
        """
        cut = {part.block for part in self.block_parts}
        whole = sum(
            int(warps) * length
            for block, (warps, length) in enumerate(zip(self.block_executions, lengths, strict=True))
            if block not in cut
        )
        return whole + sum(part.executions * (part.stop - part.start) for part in self.block_parts)
