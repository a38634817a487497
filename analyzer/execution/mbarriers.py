"""What a CTA says to its mbarriers: which instructions meet at which of them.

Barriers that the same instructions go through in turn are the stages of a pipeline: one ring. One CTA is
executed with the addresses, parities and byte counts of mbarrier instructions in its slice. Then CTAs side by
side begin their loops: by the coordinates of their tiles, copies of which several CTAs ask are told.
"""

from collections.abc import Iterable
from contextlib import suppress

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.access_log import MemoryLog, wants_none
from analyzer.execution.budget import Budget, StopExecution
from analyzer.execution.closing import Closer
from analyzer.execution.compiling import with_mbarriers
from analyzer.execution.guesses import Guesser
from analyzer.execution.image import ConstantImage
from analyzer.execution.lanes import Group, View
from analyzer.execution.machine import Machine
from analyzer.execution.memory import lane_addresses
from analyzer.execution.mixing import mixing_factors
from analyzer.execution.program import Action, CompiledKernel, Segment, Signal
from analyzer.execution.step import Bits
from analyzer.execution.warps import Batch, Shape
from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import Semantics

_WITHIN_CTA = 0xFFFFFF  # address bits above say which CTA of the cluster
_PARITY_BIT = 31
_MOST_STEPS = 40_000  # some seconds
_MOST_ARRIVALS = 400  # at a loop header that cannot be closed: its rings have gone round many times
_FEW_ARRIVALS = 6
_MOST_CTAS = 160


class Ring(Struct, frozen=True):
    """Mbarriers that are used in turn.

    barriers: how many; free_waits: waits of a warp that pass before anything has arrived, for it asks for the
    phase before the first.
    """

    barriers: int
    free_waits: int


class RingUse(Struct, frozen=True):
    """An instruction at a ring; expected_bytes: that it announces, in the mean.

    share: of the warps that come to it, those that do it.
    """

    ring: int
    meaning: Semantics
    expected_bytes: float
    share: float


class Rings(Struct, frozen=True):
    """Rings of a kernel, and the instructions that use them, by row.

    descriptors: of products of the tensor core, by row. distinct_share: of the tiles that CTAs of a wave
    copy, those that no other of them copies too; None where their coordinates are not known.
    """

    rings: tuple[Ring, ...]
    uses: dict[int, RingUse]
    descriptors: dict[int, int]
    distinct_share: float | None


def has_mbarriers(cfg: Cfg) -> bool:
    """Whether a kernel waits for mbarriers."""
    kernel = cfg.kernel
    waits = kernel.vocabulary.mask(lambda opcode: opcode.semantics is Semantics.MBARRIER_WAIT)
    return bool(waits[kernel.opcode_ids].any())


def find_rings(kernel: CompiledKernel, image: ConstantImage, shape: Shape) -> Rings | None:
    """The rings of a launch; None where no address of an mbarrier is known."""
    compiled = with_mbarriers(kernel)
    one = _listen(compiled, image, shape, 1, _MOST_ARRIVALS)
    if not one.heard:
        return None
    rings = _rings(one)
    if not any(use.meaning is Semantics.MBARRIER_COPY for use in rings.uses.values()):
        return rings
    many = _listen(compiled, image, shape, min(_MOST_CTAS, shape.grid.count), _FEW_ARRIVALS)
    return replace(rings, distinct_share=many.distinct_share())


def _listen(
    compiled: CompiledKernel, image: ConstantImage, shape: Shape, n_ctas: int, most_arrivals: int
) -> "_Listener":
    """The first CTAs, executed; loops that cannot be closed are left after so many arrivals."""
    batch = Batch(compiled, image, shape, np.arange(n_ctas, dtype=np.int64), np.ones(n_ctas))
    machine = _Listener(compiled, batch, most_arrivals)
    machine.start()
    with suppress(StopExecution):
        machine.run()
    return machine


class _Heard(Struct, eq=False):
    """What one instruction said: to which mbarriers, bytes and times.

    parities: by warp and barrier, the first one that was asked for, with the turn in which it was.
    """

    meaning: Semantics
    addresses: set[int] = field(default_factory=set)
    parities: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    n_bytes: float = 0.0
    times: int = 0


class _Listener(Machine):
    """A machine that hears what is said to mbarriers."""

    def __init__(self, kernel: CompiledKernel, batch: Batch, most_arrivals: int) -> None:
        super().__init__(kernel, batch, Guesser(kernel), Budget(_MOST_STEPS))
        self.tally.memory = MemoryLog(batch, wants=wants_none)
        self.most_arrivals = most_arrivals
        self.close = Closer(self) if most_arrivals > _FEW_ARRIVALS else None
        self.descriptors: dict[int, int] = {}
        self.tiles: list[NDArray[np.uint64]] = []
        self.heard: dict[int, _Heard] = {}
        self.arrivals: dict[int, int] = {}
        self.turn = 0
        self.runs: dict[int, int] = {}
        self.on_header = self._at_header

    def _at_header(self, segment: Segment, group: Group) -> bool:
        """True where a group has gone round a loop often enough."""
        key = segment.index
        self.arrivals[key] = self.arrivals.get(key, 0) + 1
        if self.close is not None:
            self.close(segment, group)
        return self.arrivals[key] > self.most_arrivals

    def execute(self, segment: Segment, group: Group) -> None:
        """See `Machine`."""
        self.runs[segment.index] = self.runs.get(segment.index, 0) + len(group.rows)
        super().execute(segment, group)

    def shares(self) -> dict[int, float]:
        """Of the warps that came to each instruction, those that said something, by row."""
        runs = {
            row: self.runs[segment.index]
            for segment in self.kernel.segments
            if segment.index in self.runs
            for row in range(segment.start, segment.stop)
        }
        return {row: one.times / runs[row] for row, one in self.heard.items()}

    def distinct_share(self) -> float | None:
        """Of all tiles copied, different ones."""
        if not self.tiles:
            return None
        tiles = np.concatenate(self.tiles)
        return len(np.unique(tiles)) / len(tiles)

    def tell_signal(self, action: Action, view: View, lanes: Bits | None) -> None:
        """See `Machine`."""
        signal = action.signal
        if signal is None:
            return
        if signal.address is None or signal.meaning is None:
            self._hear_product(signal, view)
            return
        places, origin = lane_addresses(signal.address, view)
        if origin is not None and bool(origin.any()):
            return
        active = view.active if lanes is None else view.active & lanes
        shape = view.group.mask.shape
        chosen = np.broadcast_to(view.flat(active), shape) & view.group.mask
        self._hear_tile(signal, view, chosen)
        address = np.broadcast_to(view.flat(places), shape)
        word = None
        if signal.word is not None and _is_known(view, signal.word):
            word = np.broadcast_to(view.flat(view.value(signal.word)), shape)
        heard = self.heard.setdefault(signal.row, _Heard(signal.meaning))
        self.turn += 1
        for row in np.flatnonzero(chosen.any(axis=1)).tolist():
            lane = int(chosen[row].argmax())
            place = int(address[row, lane]) & _WITHIN_CTA
            heard.addresses.add(place)
            heard.times += 1
            if word is None:
                continue
            told = int(word[row, lane])
            if signal.meaning is Semantics.MBARRIER_WAIT:
                asked = (self.turn, told >> _PARITY_BIT)
                heard.parities.setdefault((int(view.group.rows[row]), place), asked)
            else:
                heard.n_bytes += told

    def _hear_product(self, signal: Signal, view: View) -> None:
        """The descriptor of a product, taken to be the same in all warps and rounds."""
        if signal.word is not None and _is_known(view, signal.word):
            self.descriptors[signal.row] = int(view.value(signal.word).reshape(-1)[0])

    def _hear_tile(self, signal: Signal, view: View, chosen: Bits) -> None:
        """The tiles that a copy's warps ask for: its row and coordinates mixed to one number for each."""
        if not signal.coordinates or not all(_is_known(view, slot) for slot in signal.coordinates):
            return
        warps = chosen.any(axis=1)
        mixed = np.full(int(warps.sum()), np.uint64(signal.row))
        lanes = chosen[warps].argmax(axis=1)
        for slot, factor in zip(signal.coordinates, mixing_factors(len(signal.coordinates)), strict=True):
            words = np.broadcast_to(view.flat(view.value(slot)), chosen.shape)[warps, lanes]
            mixed = (mixed + words.astype(np.uint64)) * factor
        self.tiles.append(mixed)


def _is_known(view: View, slot: int) -> bool:
    """Whether a register holds known words in all lanes; RZ says nothing."""
    if slot < 0:
        return False
    unknown = view.origin(slot)
    return unknown is None or not bool(unknown.any())


def _rings(listener: _Listener) -> Rings:
    """What one CTA said; tiles are not compared."""
    heard, shares = listener.heard, listener.shares()
    groups: list[_Group] = []
    for row, one in heard.items():
        meets = [not one.addresses.isdisjoint(group.addresses) for group in groups]
        met = [group for group, does in zip(groups, meets, strict=True) if does]
        apart = [group for group, does in zip(groups, meets, strict=True) if not does]
        rows = [row, *(other for group in met for other in group.rows)]
        groups = [*apart, _Group(rows, one.addresses.union(*(group.addresses for group in met)))]
    uses: dict[int, RingUse] = {}
    for number, group in enumerate(groups):
        for row in group.rows:
            one = heard[row]
            n_bytes = one.n_bytes / max(1, one.times)
            uses[row] = RingUse(number, one.meaning, n_bytes, min(1.0, shares[row]))
    rings = (Ring(len(group.addresses), _free_waits(heard[row] for row in group.rows)) for group in groups)
    return Rings(tuple(rings), uses, listener.descriptors, None)


class _Group(Struct, frozen=True, eq=False):
    """Instructions that share mbarriers."""

    rows: list[int]
    addresses: set[int]


def _free_waits(group: Iterable[_Heard]) -> int:
    """Barriers at which a warp begins with the phase before the first, which is over; the most of any."""
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for one in group:
        for key, asked in one.parities.items():
            first[key] = min(asked, first.get(key, asked))
    free: dict[int, int] = {}
    for (warp, _), (_, parity) in first.items():
        free[warp] = free.get(warp, 0) + parity
    return max(free.values(), default=0)
