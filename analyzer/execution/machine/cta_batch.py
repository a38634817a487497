"""A batch of CTAs that are executed together: their warps, special registers and constants."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.binding.fill_patterns import find_pattern_period
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.call_returns import build_call_to_return_graph
from analyzer.execution.lowering.segments import CompiledKernel, LoweredAccess
from analyzer.execution.lowering.step import Value, WordArray
from analyzer.execution.machine.register_state import (
    DIVERGENT_FLAG,
    UnknownOrigins,
    collapse_uniform_axes,
    make_divergent_origin,
)
from analyzer.execution.machine.shared_memory import AbstractWord, align_shared_bytes
from analyzer.execution.machine.unknown_words import UnknownWords
from analyzer.execution.profile.cta_boxes import delinearize_ctas
from analyzer.flow.postdominators import compute_immediate_postdominators, find_blocks_between
from analyzer.ir.arrays import BoolArray, IntArray
from analyzer.ir.launch import Dim3
from analyzer.ir.opcode import OpKind
from analyzer.ir.operand import BarrierRegister
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.isa.register_operands import PREDICATE_BASE, format_register_unit

_LANE_IDS = np.arange(WARP_SIZE, dtype=np.uint32)[None, None, None, :]
_MASK32 = 0xFFFFFFFF
MAX_TRACKED_SHARED_BYTES = 128 << 20


class BranchRegions:
    """Static facts about branches: where their paths meet, and which blocks are in between."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self._reconvergence_blocks: dict[int, int | None] = {}
        self._written_registers: dict[tuple[int, int | None], tuple[int, ...]] = {}

    @cached_property
    def _postdominators(self) -> tuple[int | None, ...]:
        return compute_immediate_postdominators(*build_call_to_return_graph(self.kernel.cfg))

    def find_reconvergence_block(self, row: int) -> int | None:
        """Return the block from which on the branch's direction does not matter, None if only the end is.

        All paths from the branch meet there, and its lanes have reconverged: blocks on the way to the BSYNC
        of a barrier that is open at the branch run once for each part of the warp.
        """
        if row not in self._reconvergence_blocks:
            cfg = self.kernel.cfg
            block: int | None = cfg.block_of[row]
            waited_for = self._open_barriers[cfg.block_of[row]]
            while block is not None:
                block = self._postdominators[block]
                if block is None or not waited_for:
                    break
                if self._find_synced_barrier(block) in waited_for:
                    block = block + 1 if block + 1 < len(cfg.blocks) else None
                    break
            self._reconvergence_blocks[row] = block
        return self._reconvergence_blocks[row]

    def _find_synced_barrier(self, block: int) -> int | None:
        """Return the convergence barrier that the last instruction of a block waits at, None if none."""
        form = self.kernel.cfg.kernel.decode_form(self.kernel.cfg.blocks[block].stop - 1)
        if form.opcode.kind is not OpKind.CONVERGENCE_WAIT:
            return None
        return next((o.index for o in form.operands if isinstance(o, BarrierRegister)), None)

    @cached_property
    def _open_barriers(self) -> tuple[frozenset[int], ...]:
        """Convergence barriers that may be open at the end of each block."""
        cfg = self.kernel.cfg
        opened: list[frozenset[int]] = []
        for span in cfg.blocks:
            forms = (cfg.kernel.decode_form(row) for row in range(span.start, span.stop))
            opens = (f for f in forms if f.opcode.kind is OpKind.CONVERGENCE_OPEN)
            opened.append(
                frozenset(o.index for f in opens for o in f.operands if isinstance(o, BarrierRegister))
            )
        found = list(opened)
        work = list(range(len(found)))
        while work:
            block = work.pop()
            onward = found[block] - {self._find_synced_barrier(block)}
            for follower in cfg.interprocedural_successors[block]:
                joint = found[follower] | onward
                if joint != found[follower]:
                    found[follower] = joint
                    work.append(follower)
        return tuple(found)

    def find_blocks(self, row: int, stop: int | None) -> frozenset[int]:
        """Return the blocks that may run between the branch and its reconvergence block, `stop`."""
        return find_blocks_between(
            self.kernel.cfg.interprocedural_successors, self.kernel.cfg.block_of[row], stop
        )

    def find_written_registers(self, row: int, stop: int | None) -> tuple[int, ...]:
        """Return the slots of the slice that these blocks write."""
        key = (row, stop)
        if key not in self._written_registers:
            cfg, rows = self.kernel.cfg, self.kernel.slice.is_included
            found: set[int] = set()
            for block in self.find_blocks(row, stop):
                span = cfg.blocks[block]
                for number in range(span.start, span.stop):
                    if rows[number]:
                        found.update(cfg.kernel.decode_form(number).defs)
            self._written_registers[key] = tuple(sorted(found))
        return self._written_registers[key]


class LaunchShape(Struct, frozen=True, eq=False):
    """Launch dimensions that are all known."""

    grid: Dim3  # in CTAs
    block: Dim3  # in threads
    cluster: Dim3  # in CTAs
    shared_bytes: int  # of a CTA, with the reserved ones
    reserved_shared_bytes: int  # of the system, before the kernel's own

    @property
    def warps_per_cta(self) -> int:
        """Warps of a CTA; the last may have idle lanes."""
        return -(-self.block.count // WARP_SIZE)


def limit_ctas_by_memory(kernel: CompiledKernel, shape: LaunchShape, n_ctas: int) -> int:
    """Return `n_ctas`, or fewer if their tracked shared memory would take too much room; at least 1."""
    if kernel.slice.tracks_shared:
        n_ctas = min(n_ctas, MAX_TRACKED_SHARED_BYTES // max(1, align_shared_bytes(shape.shared_bytes)))
    return max(1, n_ctas)


class CtaBatch:
    """CTAs executed together; warp w of the batch is warp w % warps_per_cta of CTA w // warps_per_cta.

    cta_numbers: linear numbers in the grid.
    weights: for each CTA the number of CTAs of the grid that it represents.
    cta_shape: rows and columns that the CTAs form, in order; uniform values are held once along each.
    shared_capacity_bytes: limit of all CTAs' tracked shared memory, None for no limit (see `SharedMemory`).
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        image: ConstantImage,
        shape: LaunchShape,
        cta_numbers: IntArray,
        weights: NDArray[np.float64],
        cta_shape: tuple[int, int] | None = None,
        shared_capacity_bytes: int | None = None,
    ) -> None:
        self.shared_capacity_bytes = shared_capacity_bytes
        self.kernel, self.image, self.launch_shape = kernel, image, shape
        self.cta_numbers, self.cta_weights = cta_numbers, weights
        self.cta_shape = cta_shape or (len(cta_numbers), 1)
        per_cta = shape.warps_per_cta
        self.n_warps = len(cta_numbers) * per_cta
        self.cta_indices: IntArray = np.repeat(np.arange(len(cta_numbers), dtype=np.int64), per_cta)
        self.warp_ids: IntArray = np.tile(np.arange(per_cta, dtype=np.int64), len(cta_numbers))
        self.warp_weights: NDArray[np.float64] = np.repeat(weights, per_cta)
        self.branch_regions = BranchRegions(kernel)
        self.unknown_words = UnknownWords(kernel)
        self.shared_bytes = shape.shared_bytes
        self.branch_origins: dict[int, int] = {}
        # where CTAs represent boxes of others: per grid axis the next CTA in the batch (-1 for none), and the
        # number of CTAs along it
        self.neighbor_ctas: tuple[IntArray, ...] = ()
        self.box_counts: tuple[IntArray, ...] = ()
        self._special_register_texts: list[str] = []
        self._special_registers: dict[str, tuple[Value, UnknownOrigins | None]] = {}
        self._constants: dict[tuple[int, int], tuple[WordArray, UnknownOrigins | None]] = {}
        thread = self._make_thread_ids()
        live: BoolArray = thread < shape.block.count
        every = np.broadcast_to(live, (*self.cta_shape, per_cta, WARP_SIZE))
        self.live_lanes: BoolArray = every.reshape(-1, WARP_SIZE).copy()
        self.is_fully_live = bool(live.all())

    def _make_thread_ids(self) -> NDArray[np.int64]:
        """Return the number of each thread in its CTA, [1, 1, warp, 32]."""
        warps = np.arange(self.launch_shape.warps_per_cta, dtype=np.int64)
        return warps[None, None, :, None] * WARP_SIZE + _LANE_IDS.astype(np.int64)

    def reorder_ctas(self, order: IntArray, cta_shape: tuple[int, int]) -> "CtaBatch":
        """Return a batch of the same CTAs in another order, as rows and columns."""
        numbers, weights = self.cta_numbers[order], self.cta_weights[order]
        return CtaBatch(
            self.kernel,
            self.image,
            self.launch_shape,
            numbers,
            weights,
            cta_shape,
            self.shared_capacity_bytes,
        )

    # ---- what is unknown -------------------------------------------------------------------------

    @property
    def _first_text_origin(self) -> int:
        """First origin number that is no row of an instruction."""
        return len(self.kernel.cfg.kernel) + 1

    def record_branch_origin(self, row: int, origin: int) -> None:
        """Record the origin of the unknown condition of the branch at `row`."""
        self.branch_origins.setdefault(row, origin & ~DIVERGENT_FLAG)

    def describe_origin(self, origin: int) -> tuple[str, int | None]:
        """Return the text and the row of an origin: the row of an instruction, else the text of a reason."""
        if origin <= len(self.kernel.cfg.kernel):
            return "", origin - 1
        place = origin - self._first_text_origin
        unknowns = self.image.unknown_reasons
        return (
            unknowns[place] if place < len(unknowns) else self._special_register_texts[place - len(unknowns)]
        ), None

    @cached_property
    def fill_period_bytes(self) -> int:
        """Bytes after which all filled allocations repeat, 1 without any."""
        return self.image.fill_period_bytes

    @property
    def has_known_contents(self) -> bool:
        """True if the contents of some allocation are known."""
        return self.image.has_contents

    def find_reconvergence_block(self, row: int) -> int | None:
        """See `BranchRegions`."""
        return self.branch_regions.find_reconvergence_block(row)

    def find_region_writes(self, row: int, stop: int | None) -> tuple[int, ...]:
        """Return the slots that blocks between a branch and `stop` write."""
        return self.branch_regions.find_written_registers(row, stop)

    # ---- constants -------------------------------------------------------------------------------

    def read_constant(self, bank: int, offset: int) -> tuple[WordArray, UnknownOrigins | None]:
        """Return a word of a constant bank, and its origin if it is unknown."""
        found = self._constants.get((bank, offset))
        if found is None:
            value, unknown = self.image.read_word(bank, offset)
            origin = None if not unknown else np.full((1, 1), self._first_text_origin + unknown, np.int32)
            found = self._constants[bank, offset] = (np.full((1, 1), value, np.uint32), origin)
        return found

    def read_constants(self, bank: int, offsets: IntArray) -> tuple[WordArray, UnknownOrigins | None]:
        """Return words of a constant bank at one offset per lane, and the origin of unknown ones."""
        if offsets.size == 1:
            return self.read_constant(bank, int(offsets.reshape(1)[0]))
        values, unknown = self.image.read_words(bank, offsets)
        origin = np.where(unknown > 0, unknown + self._first_text_origin, 0).astype(np.int32)
        return values, origin if origin.any() else None

    # ---- special registers -----------------------------------------------------------------------

    def read_special_register(self, name: str) -> tuple[Value, UnknownOrigins | None]:
        """Return a special register by its printed name; unknown ones (clocks, SM numbers) have an origin."""
        if name not in self._special_registers:
            maker = _SPECIAL_REGISTERS.get(name)
            value = _ZERO if maker is None else maker(self)
            unknown = (
                None
                if maker
                else np.full(
                    (1, 1), self._add_text_origin(f"special register {name}") | DIVERGENT_FLAG, np.int32
                )
            )
            self._special_registers[name] = (value, unknown)
        return self._special_registers[name]

    def find_unset_origin(self, slot: int) -> int:
        """Return the origin of a register that is read before anything sets it."""
        name = format_register_unit(slot)
        return self._add_text_origin(f"{name}, which nothing sets before it is read") | DIVERGENT_FLAG

    @cached_property
    def unset_stack_origin(self) -> int:
        """Origin of words of the stack that nothing stores."""
        return self._add_text_origin("a word of the stack that nothing stores") | DIVERGENT_FLAG

    def _add_text_origin(self, text: str) -> int:
        """Return a new origin number for something unknown that no instruction makes."""
        self._special_register_texts.append(text)
        return (
            self._first_text_origin + len(self.image.unknown_reasons) + len(self._special_register_texts) - 1
        )

    def compute_thread_index(self, axis: int) -> WordArray:
        """Return threadIdx along an axis, as small as it is uniform."""
        block, thread = self.launch_shape.block, self._make_thread_ids()
        if axis == 0:
            found = thread % block.x if block.x < block.count else thread
        elif axis == 1:
            found = thread // block.x % block.y
        else:
            found = thread // (block.x * block.y)
        return collapse_uniform_axes(found.astype(np.uint32))

    def compute_cta_index(self, axis: int) -> WordArray:
        """Return blockIdx along an axis, [CTA row, CTA column, 1, 1] or smaller."""
        found = delinearize_ctas(self.launch_shape.grid, self.cta_numbers)[axis]
        return collapse_uniform_axes(found.reshape(*self.cta_shape, 1, 1).astype(np.uint32))

    def compute_cluster_rank(self) -> WordArray:
        """Return the rank of each CTA in its cluster."""
        cluster = self.launch_shape.cluster
        x, y, z = (self.compute_cta_index(axis).astype(np.int64) for axis in range(3))
        rank = x % cluster.x + cluster.x * (y % cluster.y + cluster.y * (z % cluster.z))
        return collapse_uniform_axes(np.asarray(rank).astype(np.uint32))

    # ---- memory ----------------------------------------------------------------------------------

    def load_global(self, access: LoweredAccess, addresses: NDArray[np.uint64]) -> list[AbstractWord] | None:
        """Return what buffers with known contents hold, one word per register; None if none is accessed."""
        n_words = len([slot for slot in access.result_slots if slot < PREDICATE_BASE])
        size = access.width_bytes
        values: list[WordArray] = []
        known = np.zeros((1, 1), dtype=bool)
        for allocation in self.image.allocations:
            contents, fill = allocation.contents, allocation.fill_pattern
            if contents is None and fill is None:
                continue
            inside = allocation.contains(addresses, size)
            if not inside.any():
                continue
            offsets = np.where(inside, addresses - np.uint64(allocation.address), 0).astype(np.int64)
            if contents is None and fill is not None:
                contents = np.frombuffer(fill * (1 + size // len(fill) + 1), np.uint8)
                offsets = offsets % len(fill)
                if not (offsets % find_pattern_period(fill)).any():  # the same everywhere: keep it small
                    offsets = np.zeros((1, 1), np.int64)
            if contents is None:
                continue
            words = [self._load_word(contents, offsets + 4 * k, min(4, size), access) for k in range(n_words)]
            if fill is not None and inside.all():
                return [AbstractWord(word, None) for word in words]
            values = (
                [np.where(inside, *pair) for pair in zip(words, values, strict=True)] if values else words
            )
            known = known | inside
        if not values:
            return None
        unknown = (
            None if known.all() else np.where(known, 0, make_divergent_origin(access.row)).astype(np.int32)
        )
        return [AbstractWord(word, unknown) for word in values]

    @staticmethod
    def _load_word(
        contents: NDArray[np.uint8], offsets: IntArray, size: int, access: LoweredAccess
    ) -> WordArray:
        """Return up to four bytes of a buffer at each offset, sign-extended if the load does so."""
        value = np.zeros(offsets.shape, dtype=np.uint32)
        for byte in range(size):
            value |= contents[offsets + byte].astype(np.uint32) << np.uint32(8 * byte)
        if access.is_signed and size < 4:
            bits = np.uint32(8 * size)
            sign = np.uint32(1) << (bits - np.uint32(1))
            value = (value ^ sign) - sign
        return value


_ZERO: WordArray = np.zeros((1, 1, 1, 1), dtype=np.uint32)


def _make_lane_mask_rule(rule: Callable[[int], int]) -> Callable[[CtaBatch], Value]:
    """Return a rule for a special register with one word per lane."""
    words = np.array([rule(lane) & _MASK32 for lane in range(WARP_SIZE)], dtype=np.uint32)
    return lambda batch: words.reshape(_LANE_IDS.shape)


def _make_constant_rule(rule: Callable[[CtaBatch], int]) -> Callable[[CtaBatch], Value]:
    """Return a rule for a special register that is the same for all CTAs."""
    return lambda batch: np.full((1, 1, 1, 1), rule(batch), dtype=np.uint32)


_SPECIAL_REGISTERS: dict[str, Callable[[CtaBatch], Value]] = {
    "SR_TID.X": lambda batch: batch.compute_thread_index(0),
    "SR_TID.Y": lambda batch: batch.compute_thread_index(1),
    "SR_TID.Z": lambda batch: batch.compute_thread_index(2),
    "SR_TID": lambda batch: (
        batch.compute_thread_index(0)
        | batch.compute_thread_index(1) << np.uint32(16)
        | batch.compute_thread_index(2) << np.uint32(26)
    ),
    "SR_CTAID.X": lambda batch: batch.compute_cta_index(0),
    "SR_CTAID.Y": lambda batch: batch.compute_cta_index(1),
    "SR_CTAID.Z": lambda batch: batch.compute_cta_index(2),
    "SR_NTID.X": _make_constant_rule(lambda batch: batch.launch_shape.block.x),
    "SR_NTID.Y": _make_constant_rule(lambda batch: batch.launch_shape.block.y),
    "SR_NTID.Z": _make_constant_rule(lambda batch: batch.launch_shape.block.z),
    "SR_NCTAID.X": _make_constant_rule(lambda batch: batch.launch_shape.grid.x),
    "SR_NCTAID.Y": _make_constant_rule(lambda batch: batch.launch_shape.grid.y),
    "SR_NCTAID.Z": _make_constant_rule(lambda batch: batch.launch_shape.grid.z),
    "SR_CgaCtaId": lambda batch: batch.compute_cluster_rank(),
    "SR_CgaSize": _make_constant_rule(lambda batch: 0),  # code takes it off addresses of its own CTA
    "SR_LANEID": lambda batch: _LANE_IDS,
    "SR_EQMASK": _make_lane_mask_rule(lambda lane: 1 << lane),
    "SR_LTMASK": _make_lane_mask_rule(lambda lane: (1 << lane) - 1),
    "SR_LEMASK": _make_lane_mask_rule(lambda lane: (2 << lane) - 1),
    "SR_GTMASK": _make_lane_mask_rule(lambda lane: ~((2 << lane) - 1)),
    "SR_GEMASK": _make_lane_mask_rule(lambda lane: ~((1 << lane) - 1)),
    "SR_SWINHI": _make_constant_rule(lambda batch: batch.image.windows.shared >> 32),
    "SR_LWINHI": _make_constant_rule(lambda batch: batch.image.windows.local >> 32),
    "SR_SWINLO": _make_constant_rule(lambda batch: 0),
    "SR_LWINLO": _make_constant_rule(lambda batch: 0),
    "SRZ": _make_constant_rule(lambda batch: 0),
}
