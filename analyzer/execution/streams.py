"""The address stream of a few CTAs that share an SM: what a cache model is fed with.

CTAs of a grid's first wave go to SMs in turn, so SM s holds CTAs s, s + n_sms, s + 2 n_sms and so on. They
are executed side by side, and their requests are put in the order in which warps would make them that issue
one instruction each in turn; hardware's order is not known. Loops run one trip at a time, for as long as the
limits allow.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.bank_words import Windows
from analyzer.execution.budget import Budget, StopExecution
from analyzer.execution.guesses import Guesser
from analyzer.execution.image import ConstantImage
from analyzer.execution.program import CompiledKernel
from analyzer.execution.record import Addresses, Lanes, Warps
from analyzer.execution.recording import RecordedMachine
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.stand_ins import StandIns, Table
from analyzer.execution.warps import Batch, Shape, within_memory
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import Opcode, OpKind, Space
from analyzer.ir.program import Kernel

_Number = TypeVar("_Number", np.uint8, np.int32, np.int64, np.uint64)

IntArray = NDArray[np.int64]
RowArray = NDArray[np.int32]
Bytes = NDArray[np.uint8]

_SPACES = frozenset({Space.GLOBAL, Space.GENERIC, Space.LOCAL})
_KINDS = frozenset({OpKind.LOAD, OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION, OpKind.ASYNC_COPY})
_STORES = frozenset({OpKind.STORE, OpKind.REDUCTION})
_HELD_REQUESTS = 512
_ACTIONS_PER_RUN = 10  # what going from block to block costs
_WORD_BYTES = 4
_WORD_BITS = np.uint64(SECTOR_BYTES // _WORD_BYTES)  # one for each word of a sector
_ALL_WORDS = np.uint64((1 << SECTOR_BYTES // _WORD_BYTES) - 1)
# Local memory of a warp lies by itself: nothing else has addresses up here.
_LOCAL_BASE = 1 << 56
_LOCAL_SPACING_BITS = 36


class StreamLimits(Struct, frozen=True):
    """How much is recorded: sectors, and instructions of the slice that some warps run together.

    Together some 0.3 s of work; counted, so that the same launch always stops at the same place.
    """

    sectors: int = 200_000
    actions: int = 12_000


class AddressStream(Struct, frozen=True, kw_only=True, eq=False):
    """Sectors of global, generic and local memory that some co-resident CTAs ask for, in order.

    One entry for each distinct sector of a request, [n] all: rows, the instruction; warps, the number of
    the warp among those recorded (place of its CTA in `ctas` * warps_per_cta + warp); sectors, address of
    the sector's first byte; words, a bit for each 4-byte word of it that is touched; is_store (reductions
    too); requests, number of the request, never falling; turns, instructions that its warp had issued by
    then. Within a request sectors ascend. Local memory is interleaved word by word and lies apart from all
    else.

    lost: (row, requests) whose addresses nothing decides, or which engines make (bulk copies, textures);
    hanging: rows of branches that a guess decided. is_complete: the CTAs ran to their end, else `stopped`
    says what was used up.
    """

    ctas: tuple[int, ...]
    warps_per_cta: int
    rows: RowArray
    warps: RowArray
    sectors: Addresses
    words: Bytes
    is_store: NDArray[np.bool_]
    requests: IntArray
    turns: IntArray
    lost: tuple[tuple[int, int], ...]
    hanging: tuple[int, ...]
    stopped: str = ""

    @property
    def is_complete(self) -> bool:
        return not self.stopped

    def __len__(self) -> int:
        return len(self.rows)


def co_resident_ctas(
    n_ctas: int,
    *,
    n_sms: int,
    ctas_per_sm: int,
    sectors_per_cta: float | None = None,
    limits: StreamLimits | None = None,
    sm: int = 0,
    first: int = 0,
) -> tuple[int, ...]:
    """CTAs of the wave that begins at `first` on one SM, handed out in turn: all, or as many as fit.

    sectors_per_cta: of global and local memory, as an executed profile says; None where nobody knows.
    Of CTAs that do not fit whole one is left: what it reads again it then does so soonest.
    """
    held = range(first + sm, min(n_ctas, first + n_sms * ctas_per_sm), n_sms)
    if sectors_per_cta:
        fitting = int((limits or StreamLimits()).sectors / sectors_per_cta)
        held = held[: max(1, fitting)]
    return tuple(held)


def record_stream(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: Shape,
    ctas: tuple[int, ...],
    *,
    guesser: Guesser | None = None,
    limits: StreamLimits | None = None,
    tables: Mapping[int, Table] | None = None,
) -> AddressStream:
    """Execute these CTAs side by side and keep what they ask of memory, up to the limits.

    CTAs whose shared memory takes too much room together are left out from the end. tables: that rows of
    instructions lead into by words that nobody knows (`StandIns`), where their size is known.
    """
    limits = limits or StreamLimits()
    ctas = ctas[: within_memory(kernel, shape, len(ctas))]
    numbers = np.array(ctas, dtype=np.int64)
    batch = Batch(kernel, image, shape, numbers, np.ones(len(numbers)))
    recorder = _StreamRecorder(kernel.cfg.kernel, numbers, shape.warps_per_cta, limits.sectors)
    decide = guesser or Guesser(kernel)
    words = StandIns(kernel, batch.unknown_words, tables)
    machine = RecordedMachine(kernel, batch, decide, recorder, _ActionBudget(limits.actions), stand_ins=words)
    stopped = ""
    machine.start()
    try:
        machine.run()
    except StopExecution as stop:
        stopped = str(stop)
    return recorder.stream(tuple(sorted(machine.tally.hanging)), stopped)


class _ActionBudget(Budget):
    """A budget of actions: warps are so few that each costs the same, however many it is done for."""

    __slots__ = ()

    def spend(self, n_actions: int, n_words: int) -> None:
        """See `Budget`. Raises StopExecution."""
        self.spent += _ACTIONS_PER_RUN + n_actions
        if self.spent > self.limit:
            raise StopExecution(f"more than {self.limit:,} instructions")


class _Held(Struct):
    """Requests of one call: place among warps, turn and lanes of each, at one instruction."""

    row: int
    warps: IntArray
    turns: IntArray
    active: Lanes
    addresses: Addresses


class _Measured(Struct):
    """Requests whose sectors are known: `counts` of them each, one after the other in `sectors`, `words`."""

    rows: RowArray
    warps: IntArray
    turns: IntArray
    counts: IntArray
    sectors: Addresses
    words: Bytes


class _StreamRecorder:
    """A `Recorder` that keeps sectors of global, generic and local memory."""

    def __init__(self, kernel: Kernel, ctas: IntArray, warps_per_cta: int, max_sectors: int) -> None:
        self.kernel, self.ctas, self.warps_per_cta = kernel, ctas, warps_per_cta
        self.max_sectors, self.n_sectors = max_sectors, 0
        self.stop_row = 0
        self.running: Warps = np.zeros(0, dtype=np.int64)
        self.running_places: IntArray = self.running
        self.issued: IntArray = np.zeros(len(ctas) * warps_per_cta, dtype=np.int64)
        self.lost_requests: dict[int, int] = {}
        self.held: list[_Held] = []
        self.n_held = 0
        self.followed: list[bool] = kernel.vocabulary.mask(_is_followed)[kernel.opcode_ids].tolist()
        self.parts: list[_Measured] = []

    def run(self, start: int, stop: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`."""
        self.running, self.running_places = warps, self._places(warps)
        self.issued[self.running_places] += stop - start
        self.stop_row = stop

    def guard(self, row: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`: what a guard leaves stands in the access."""

    def access(self, row: int, warps: Warps, active: Lanes, addresses: Addresses) -> None:
        """See `Recorder`. Raises StopExecution where there are more sectors than wanted."""
        if not self.followed[row]:
            return
        places = self.running_places if warps is self.running else self._places(warps)
        runs: NDArray[np.bool_] = np.any(active, axis=1)
        if not runs.all():
            places, active, addresses = places[runs], active[runs], addresses[runs]
        turns = self.issued[places] - (self.stop_row - row)
        self.held.append(_Held(row, places, turns, active.copy(), addresses.astype(np.uint64)))
        self.n_held += len(places)
        if self.n_held >= _HELD_REQUESTS:
            self._reduce()
            if self.n_sectors > self.max_sectors:
                raise StopExecution(f"more than {self.max_sectors:,} sectors")

    def lost(self, row: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`."""
        if self.kernel.opcode(row).space not in (*_SPACES, Space.TEXTURE):
            return
        self.lost_requests[row] = self.lost_requests.get(row, 0) + int(active.any(axis=1).sum())

    def _places(self, warps: Warps) -> IntArray:
        ctas, own = np.divmod(warps, self.warps_per_cta)
        places: IntArray = np.searchsorted(self.ctas, ctas) * self.warps_per_cta + own
        return places

    def _reduce(self) -> None:
        """Turn what is held into sectors, instructions of one kind together."""
        by_kind: dict[tuple[Space | None, int], list[_Held]] = {}
        for held in self.held:
            opcode = self.kernel.opcode(held.row)
            by_kind.setdefault((opcode.space, opcode.width_bytes), []).append(held)
        for (space, width), group in by_kind.items():
            self._measure(group, space, width)
        self.held.clear()
        self.n_held = 0

    def _measure(self, group: list[_Held], space: Space | None, width: int) -> None:
        sizes = [len(held.warps) for held in group]
        rows = np.repeat(np.array([held.row for held in group], dtype=np.int32), sizes)
        warps = np.concatenate([held.warps for held in group])
        turns = np.concatenate([held.turns for held in group])
        active = np.concatenate([held.active for held in group])
        addresses = np.concatenate([held.addresses for held in group])
        if space is Space.GENERIC:
            windows = Windows()
            active = active & ~(windows.shared_lanes(addresses) | windows.local_lanes(addresses))
            kept: NDArray[np.bool_] = np.any(active, axis=1)
            rows, warps, turns = rows[kept], warps[kept], turns[kept]
            active, addresses = active[kept], addresses[kept]
        if space is Space.LOCAL:
            keys, active = _local_keys(addresses, active, warps, width)
        else:
            keys, active = _global_keys(addresses, active, width)
        self.parts.append(_Measured(rows, warps, turns, *_distinct(keys, active)))
        self.n_sectors += len(self.parts[-1].sectors)

    def stream(self, hanging: tuple[int, ...], stopped: str) -> AddressStream:
        """All that was told, warps taking turns."""
        if self.held:
            self._reduce()
        rows = _joined([part.rows for part in self.parts], np.int32)
        warps = _joined([part.warps for part in self.parts], np.int64)
        turns = _joined([part.turns for part in self.parts], np.int64)
        counts = _joined([part.counts for part in self.parts], np.int64)
        sectors = _joined([part.sectors for part in self.parts], np.uint64)
        words = _joined([part.words for part in self.parts], np.uint8)
        order = np.argsort(turns * len(self.issued) + warps, kind="stable")
        starts = np.cumsum(counts) - counts
        counts = counts[order]
        ends = np.cumsum(counts)
        places = np.arange(len(sectors)) + np.repeat(starts[order] - (ends - counts), counts)
        rows = np.repeat(rows[order], counts)
        return AddressStream(
            ctas=tuple(self.ctas.tolist()),
            warps_per_cta=self.warps_per_cta,
            rows=rows,
            warps=np.repeat(warps[order], counts).astype(np.int32),
            sectors=sectors[places],
            words=words[places],
            is_store=self.kernel.vocabulary.mask(_is_store)[self.kernel.opcode_ids][rows],
            requests=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
            turns=np.repeat(turns[order], counts),
            lost=tuple(sorted(self.lost_requests.items())),
            hanging=hanging,
            stopped=stopped,
        )


def _joined(parts: list[NDArray[_Number]], dtype: type[_Number]) -> NDArray[_Number]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _is_followed(opcode: Opcode) -> bool:
    return opcode.kind in _KINDS and opcode.space in _SPACES


def _is_store(opcode: Opcode) -> bool:
    return opcode.kind in _STORES


def _global_keys(addresses: Addresses, active: Lanes, width: int) -> tuple[Addresses, Lanes]:
    """Sectors of each lane with the words touched of each; [n, 32], or [n, 64] where a lane touches two."""
    size, word = np.uint64(SECTOR_BYTES), np.uint64(_WORD_BYTES)
    start, last = addresses % size, np.uint64(max(width, 1) - 1)
    first_word, last_word = start // word, (start + last) // word
    words = (np.uint64(2) << last_word) - (np.uint64(1) << first_word)
    first = addresses // size
    keys = first << _WORD_BITS | words & _ALL_WORDS
    if bool(((last_word < _WORD_BITS) | ~active).all()):
        return keys, active
    more = (first + np.uint64(1)) << _WORD_BITS | words >> _WORD_BITS
    return np.concatenate([keys, more], axis=1), np.concatenate(
        [active, active & (last_word >= _WORD_BITS)], axis=1
    )


def _local_keys(addresses: Addresses, active: Lanes, warps: IntArray, width: int) -> tuple[Addresses, Lanes]:
    """The same where each word of a thread lies beside that word of its neighbours, [n, 32 k]."""
    word, n_words = np.uint64(_WORD_BYTES), max(1, width // _WORD_BYTES)
    base = np.uint64(_LOCAL_BASE) + (warps.astype(np.uint64) << np.uint64(_LOCAL_SPACING_BITS))
    lane = np.arange(WARP_LANES, dtype=np.uint64) * word
    row_bytes = np.uint64(WARP_LANES * _WORD_BYTES)
    tables = [
        _global_keys(
            base[:, None] + (addresses // word + np.uint64(k)) * row_bytes + lane, active, _WORD_BYTES
        )[0]
        for k in range(n_words)
    ]
    return np.concatenate(tables, axis=1), np.tile(active, (1, n_words))


def _distinct(keys: Addresses, active: Lanes) -> tuple[IntArray, Addresses, Bytes]:
    """How many distinct sectors each row has in its active places, their addresses, and words touched."""
    leads = active.argmax(axis=1)
    filled = np.where(active, keys, keys[np.arange(len(keys)), leads][:, None])
    filled.sort(axis=1)
    sectors = filled >> _WORD_BITS
    new = np.ones(filled.shape, dtype=np.bool_)
    np.not_equal(sectors[:, 1:], sectors[:, :-1], out=new[:, 1:])
    counts: IntArray = new.sum(axis=1, dtype=np.int64)
    starts = np.flatnonzero(new)
    words = (filled & _ALL_WORDS).astype(np.uint8).reshape(-1)
    touched = np.bitwise_or.reduceat(words, starts) if len(starts) else words
    return counts, sectors[new] * np.uint64(SECTOR_BYTES), touched
