"""The warps of some CTAs: who they are, what special registers and constants they see."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.boxes import cta_places
from analyzer.execution.constant_reads import WORD_BYTES
from analyzer.execution.image import ConstantImage
from analyzer.execution.lanes import UNEVEN, Origins, smallest, uneven
from analyzer.execution.program import Access, CompiledKernel
from analyzer.execution.returning import steps_over_calls
from analyzer.execution.shared_memory import Loaded, kept_bytes
from analyzer.execution.step import Bits, Value, Words
from analyzer.execution.unknown_words import UnknownWords
from analyzer.flow.postdom import blocks_between, immediate_postdominators
from analyzer.ir.launch import Dim3
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import OpKind
from analyzer.ir.operand import Barrier

IntArray = NDArray[np.int64]
_LANES = np.arange(WARP_LANES, dtype=np.uint32)[None, None, None, :]
_MASK32 = 0xFFFFFFFF
KEPT_SHARED_BYTES = 128 << 20


class Regions:
    """Static facts about branches: where their paths meet, and what runs in between."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self._meeting: dict[int, int | None] = {}
        self._writes: dict[tuple[int, int | None], tuple[int, ...]] = {}

    @cached_property
    def _postdominators(self) -> tuple[int | None, ...]:
        return immediate_postdominators(*steps_over_calls(self.kernel.cfg))

    def meeting_block(self, row: int) -> int | None:
        """The block from which on it does not matter which way was taken; None where only the end is common.

        All ways on from the branch meet there, and its lanes are together again: what leads to the BSYNC of a
        barrier that is open at the branch runs once for each part of the warp.
        """
        if row not in self._meeting:
            cfg = self.kernel.cfg
            block: int | None = cfg.block_of[row]
            waited_for = self._open_barriers[cfg.block_of[row]]
            while block is not None:
                block = self._postdominators[block]
                if block is None or not waited_for:
                    break
                if self._synced(block) in waited_for:
                    block = block + 1 if block + 1 < len(cfg.blocks) else None
                    break
            self._meeting[row] = block
        return self._meeting[row]

    def _synced(self, block: int) -> int | None:
        """The barrier that a block ends by waiting at."""
        form = self.kernel.cfg.kernel.form(self.kernel.cfg.blocks[block].stop - 1)
        if form.opcode.kind is not OpKind.CONVERGENCE_WAIT:
            return None
        return next((o.index for o in form.operands if isinstance(o, Barrier)), None)

    @cached_property
    def _open_barriers(self) -> tuple[frozenset[int], ...]:
        """Barriers that may be open at the end of each block."""
        cfg = self.kernel.cfg
        opened: list[frozenset[int]] = []
        for span in cfg.blocks:
            forms = (cfg.kernel.form(row) for row in range(span.start, span.stop))
            opens = (f for f in forms if f.opcode.kind is OpKind.CONVERGENCE_OPEN)
            opened.append(frozenset(o.index for f in opens for o in f.operands if isinstance(o, Barrier)))
        found = list(opened)
        work = list(range(len(found)))
        while work:
            block = work.pop()
            onward = found[block] - {self._synced(block)}
            for follower in cfg.flow[block]:
                joint = found[follower] | onward
                if joint != found[follower]:
                    found[follower] = joint
                    work.append(follower)
        return tuple(found)

    def blocks(self, row: int, stop: int | None) -> frozenset[int]:
        """Blocks that may run between the branch and its meeting block."""
        return blocks_between(self.kernel.cfg.flow, self.kernel.cfg.block_of[row], stop)

    def writes(self, row: int, stop: int | None) -> tuple[int, ...]:
        """Registers of the slice that those blocks write."""
        key = (row, stop)
        if key not in self._writes:
            cfg, rows = self.kernel.cfg, self.kernel.slice.rows
            found: set[int] = set()
            for block in self.blocks(row, stop):
                span = cfg.blocks[block]
                for number in range(span.start, span.stop):
                    if rows[number]:
                        found.update(cfg.kernel.form(number).written)
            self._writes[key] = tuple(sorted(found))
        return self._writes[key]


class Shape(Struct, frozen=True, eq=False):
    """Launch dimensions that are all known.

    shared_bytes: where a CTA's shared memory ends; shared_start_bytes: where the kernel's own begins.
    """

    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    shared_start_bytes: int

    @property
    def warps_per_cta(self) -> int:
        return -(-self.block.count // WARP_LANES)


def within_memory(kernel: CompiledKernel, shape: Shape, n_ctas: int) -> int:
    """So many CTAs, at least one, or fewer where their shared memory, if it is kept, takes too much room."""
    if kernel.slice.keeps_shared:
        n_ctas = min(n_ctas, KEPT_SHARED_BYTES // max(1, kept_bytes(shape.shared_bytes)))
    return max(1, n_ctas)


class Batch:
    """CTAs executed together; row r is warp r % warps_per_cta of the CTA `cta_numbers[r // warps_per_cta]`.

    weights[r]: CTAs of the grid that this row's CTA stands for. cta_shape: the CTAs as rows and columns, in
    order; what is the same along either is held once. room_bytes: for all CTAs' shared memories, None without
    limit (see `SharedMemory`).
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        image: ConstantImage,
        shape: Shape,
        cta_numbers: IntArray,
        weights: NDArray[np.float64],
        cta_shape: tuple[int, int] | None = None,
        room_bytes: int | None = None,
    ) -> None:
        self.room_bytes = room_bytes
        self.kernel, self.image, self.shape = kernel, image, shape
        self.cta_numbers, self.cta_weights = cta_numbers, weights
        self.cta_shape = cta_shape or (len(cta_numbers), 1)
        per_cta = shape.warps_per_cta
        self.n_warps = len(cta_numbers) * per_cta
        self.ctas: IntArray = np.repeat(np.arange(len(cta_numbers), dtype=np.int64), per_cta)
        self.warps: IntArray = np.tile(np.arange(per_cta, dtype=np.int64), len(cta_numbers))
        self.weights: NDArray[np.float64] = np.repeat(weights, per_cta)
        self.regions = Regions(kernel)
        self.unknown_words = UnknownWords(kernel)
        self.shared_bytes = shape.shared_bytes
        self.origins: dict[int, int] = {}
        # where CTAs stand for others: the next CTA along each axis, and how many there are
        self.neighbours: tuple[IntArray, ...] = ()
        self.box_counts: tuple[IntArray, ...] = ()
        self._own: list[str] = []
        self._specials: dict[str, tuple[Value, Origins | None]] = {}
        self._constants: dict[tuple[int, int], tuple[Words, Origins | None]] = {}
        thread = self._threads()
        live: Bits = thread < shape.block.count
        every = np.broadcast_to(live, (*self.cta_shape, per_cta, WARP_LANES))
        self.live: Bits = every.reshape(-1, WARP_LANES).copy()
        self.all_live = bool(live.all())

    def _threads(self) -> NDArray[np.int64]:
        """Number of each thread in its CTA; one row where a CTA has one warp."""
        warps = np.arange(self.shape.warps_per_cta, dtype=np.int64)
        return warps[None, None, :, None] * WARP_LANES + _LANES.astype(np.int64)

    def rearranged(self, order: IntArray, cta_shape: tuple[int, int]) -> "Batch":
        """The same CTAs in another order, as rows and columns."""
        numbers, weights = self.cta_numbers[order], self.cta_weights[order]
        return Batch(self.kernel, self.image, self.shape, numbers, weights, cta_shape, self.room_bytes)

    # ---- what is unknown -------------------------------------------------------------------------

    @property
    def _text_base(self) -> int:
        return len(self.kernel.cfg.kernel) + 1

    def note_origin(self, row: int, origin: int) -> None:
        """Remember what the branch at `row` hangs on."""
        self.origins.setdefault(row, origin & ~UNEVEN)

    def origin_text(self, origin: int) -> tuple[str, int | None]:
        """What an origin number stands for, and its row where it is an instruction."""
        if origin <= len(self.kernel.cfg.kernel):
            return "", origin - 1
        place = origin - self._text_base
        unknowns = self.image.unknowns
        return (unknowns[place] if place < len(unknowns) else self._own[place - len(unknowns)]), None

    @property
    def has_buffers(self) -> bool:
        """Some allocation's contents are known."""
        return self.image.has_contents

    def meeting_block(self, row: int) -> int | None:
        return self.regions.meeting_block(row)

    def region_writes(self, row: int, stop: int | None) -> tuple[int, ...]:
        return self.regions.writes(row, stop)

    # ---- constants -------------------------------------------------------------------------------

    def constant(self, bank: int, offset: int) -> tuple[Words, Origins | None]:
        """A word of a constant bank."""
        found = self._constants.get((bank, offset))
        if found is None:
            value, unknown = self.image.word(bank, offset)
            origin = None if not unknown else np.full((1, 1), self._text_base + unknown, np.int32)
            found = self._constants[bank, offset] = (np.full((1, 1), value, np.uint32), origin)
        return found

    def constants(self, bank: int, offsets: IntArray) -> tuple[Words, Origins | None]:
        """Words of a constant bank, at an offset of each lane's own."""
        if offsets.size == 1:
            return self.constant(bank, int(offsets.reshape(1)[0]))
        values, unknown = self.image.read_words(bank, offsets)
        origin = np.where(unknown > 0, unknown + self._text_base, 0).astype(np.int32)
        return values, origin if origin.any() else None

    # ---- special registers -----------------------------------------------------------------------

    def special(self, name: str) -> tuple[Value, Origins | None]:
        """A special register by its printed name; unknown ones (clocks, SM numbers) have an origin."""
        if name not in self._specials:
            maker = _SPECIALS.get(name)
            value = _ZERO if maker is None else maker(self)
            unknown = None if maker else np.full((1, 1), self._special_origin(name) | UNEVEN, np.int32)
            self._specials[name] = (value, unknown)
        return self._specials[name]

    def _special_origin(self, name: str) -> int:
        self._own.append(f"special register {name}")
        return self._text_base + len(self.image.unknowns) + len(self._own) - 1

    def thread_index(self, axis: int) -> Words:
        """threadIdx along an axis."""
        block, thread = self.shape.block, self._threads()
        if axis == 0:
            found = thread % block.x if block.x < block.count else thread
        elif axis == 1:
            found = thread // block.x % block.y
        else:
            found = thread // (block.x * block.y)
        return smallest(found.astype(np.uint32))

    def cta_index(self, axis: int) -> Words:
        """blockIdx along an axis, [CTA row, CTA column, 1, 1] or smaller."""
        found = cta_places(self.shape.grid, self.cta_numbers)[axis]
        return smallest(found.reshape(*self.cta_shape, 1, 1).astype(np.uint32))

    def cluster_rank(self) -> Words:
        """Rank of the CTA in its cluster."""
        cluster = self.shape.cluster
        x, y, z = (self.cta_index(axis).astype(np.int64) for axis in range(3))
        rank = x % cluster.x + cluster.x * (y % cluster.y + cluster.y * (z % cluster.z))
        return smallest(np.asarray(rank).astype(np.uint32))

    # ---- memory ----------------------------------------------------------------------------------

    def load_global(self, access: Access, addresses: NDArray[np.uint64]) -> list[Loaded] | None:
        """What supplied buffers hold there, register by register; None where none is touched."""
        n_words = len([slot for slot in access.results if slot < 256])
        size = access.width_bytes
        values: list[Words] = []
        known = np.zeros((1, 1), dtype=bool)
        for allocation in self.image.allocations:
            contents, fill = allocation.contents, allocation.fill
            if contents is None and fill is None:
                continue
            inside = allocation.holds(addresses, size)
            if not inside.any():
                continue
            if fill is not None and size >= WORD_BYTES:
                words = [np.full((1, 1), fill, np.uint32)] * n_words
                if inside.all():
                    return [Loaded(word, None) for word in words]
            else:
                offsets = np.where(inside, addresses - np.uint64(allocation.address), 0).astype(np.int64)
                if contents is None:
                    contents = np.frombuffer((fill or 0).to_bytes(WORD_BYTES, "little") * 2, np.uint8)
                    offsets %= WORD_BYTES
                words = [self._word(contents, offsets + 4 * k, min(4, size), access) for k in range(n_words)]
            values = (
                [np.where(inside, *pair) for pair in zip(words, values, strict=True)] if values else words
            )
            known = known | inside
        if not values:
            return None
        unknown = None if known.all() else np.where(known, 0, uneven(access.row)).astype(np.int32)
        return [Loaded(word, unknown) for word in values]

    @staticmethod
    def _word(contents: NDArray[np.uint8], offsets: IntArray, size: int, access: Access) -> Words:
        value = np.zeros(offsets.shape, dtype=np.uint32)
        for byte in range(size):
            value |= contents[offsets + byte].astype(np.uint32) << np.uint32(8 * byte)
        if access.is_signed and size < 4:
            bits = np.uint32(8 * size)
            sign = np.uint32(1) << (bits - np.uint32(1))
            value = (value ^ sign) - sign
        return value


_ZERO: Words = np.zeros((1, 1, 1, 1), dtype=np.uint32)


def _lane_mask(rule: Callable[[int], int]) -> Callable[[Batch], Value]:
    words = np.array([rule(lane) & _MASK32 for lane in range(WARP_LANES)], dtype=np.uint32)
    return lambda batch: words.reshape(_LANES.shape)


def _constant(rule: Callable[[Batch], int]) -> Callable[[Batch], Value]:
    return lambda batch: np.full((1, 1, 1, 1), rule(batch), dtype=np.uint32)


_SPECIALS: dict[str, Callable[[Batch], Value]] = {
    "SR_TID.X": lambda batch: batch.thread_index(0),
    "SR_TID.Y": lambda batch: batch.thread_index(1),
    "SR_TID.Z": lambda batch: batch.thread_index(2),
    "SR_TID": lambda batch: (
        batch.thread_index(0)
        | batch.thread_index(1) << np.uint32(16)
        | batch.thread_index(2) << np.uint32(26)
    ),
    "SR_CTAID.X": lambda batch: batch.cta_index(0),
    "SR_CTAID.Y": lambda batch: batch.cta_index(1),
    "SR_CTAID.Z": lambda batch: batch.cta_index(2),
    "SR_NTID.X": _constant(lambda batch: batch.shape.block.x),
    "SR_NTID.Y": _constant(lambda batch: batch.shape.block.y),
    "SR_NTID.Z": _constant(lambda batch: batch.shape.block.z),
    "SR_NCTAID.X": _constant(lambda batch: batch.shape.grid.x),
    "SR_NCTAID.Y": _constant(lambda batch: batch.shape.grid.y),
    "SR_NCTAID.Z": _constant(lambda batch: batch.shape.grid.z),
    "SR_CgaCtaId": lambda batch: batch.cluster_rank(),
    "SR_CgaSize": _constant(lambda batch: 0),  # code takes it off addresses of its own CTA
    "SR_LANEID": lambda batch: _LANES,
    "SR_EQMASK": _lane_mask(lambda lane: 1 << lane),
    "SR_LTMASK": _lane_mask(lambda lane: (1 << lane) - 1),
    "SR_LEMASK": _lane_mask(lambda lane: (2 << lane) - 1),
    "SR_GTMASK": _lane_mask(lambda lane: ~((2 << lane) - 1)),
    "SR_GEMASK": _lane_mask(lambda lane: ~((1 << lane) - 1)),
    "SR_SWINHI": _constant(lambda batch: batch.image.windows.shared >> 32),
    "SR_LWINHI": _constant(lambda batch: batch.image.windows.local >> 32),
    "SR_SWINLO": _constant(lambda batch: 0),
    "SR_LWINLO": _constant(lambda batch: 0),
    "SRZ": _constant(lambda batch: 0),
}
