"""What a CTA says to its mbarriers: which instructions meet at which of them.

Barriers that the same instructions go through in turn are the stages of a pipeline: one ring. One CTA is
executed with the addresses, parities and byte counts of mbarrier instructions in its slice; others, where it
does not come to all of these. Then CTAs side by side begin their loops: by the coordinates of their tiles,
copies of which several CTAs ask are told.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import reduce
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.access_log import MemoryLog, wants_none
from analyzer.execution.box_pitches import BoxPlaces
from analyzer.execution.budget import Budget, StopExecution
from analyzer.execution.closing import Closer
from analyzer.execution.compiling import with_mbarriers
from analyzer.execution.guesses import Guesser
from analyzer.execution.hearing import Ears, Heard
from analyzer.execution.image import ConstantImage
from analyzer.execution.lanes import Group, View
from analyzer.execution.machine import Machine
from analyzer.execution.mixing import mixing_factors
from analyzer.execution.odd_ends import find_odd_ends
from analyzer.execution.profile import WarpClass
from analyzer.execution.program import Action, CompiledKernel, Segment, Signal
from analyzer.execution.rings import OddEnds, Ring, Rings, RingUse
from analyzer.execution.step import Bits
from analyzer.execution.warps import Batch, Shape
from analyzer.ir.opcode import Semantics

_MOST_STEPS = 40_000  # some seconds
_MOST_ARRIVALS = 400  # at a loop header that cannot be closed: its rings have gone round many times
_FEW_ARRIVALS = 6
_MOST_CTAS = 160
_MOST_MORE = 2
_MOST_MATES = 4


def find_rings(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: Shape,
    ears: Ears | None = None,
    classes: Sequence[WarpClass] = (),
) -> Rings | None:
    """The rings of a launch; None where no address of an mbarrier is known.

    ears: what the first CTA was heard to say when the launch was executed, if that was so; classes: of its
    warps, as far as they are known.
    """
    compiled = with_mbarriers(kernel)

    def hear(cta: int) -> Ears:
        listener = _RingListener(compiled, _batch(compiled, image, shape, cta))
        return _listen(listener).own_ears

    cluster = _told([ears or hear(0), *map(hear, _mates(shape))], compiled)
    others = [_told([hear(cta)], compiled) for cta in _talkative(compiled, classes, cluster)]
    told = reduce(_Told.over, sorted((cluster, *others), key=lambda one: len(one.heard)))
    if not told.heard:
        return None
    rings = _rings(told)
    if not any(use.meaning is Semantics.MBARRIER_COPY for use in rings.uses.values()):
        return rings
    ctas = range(min(_MOST_CTAS, shape.grid.count))
    many = _listen(_TileListener(compiled, _batch(compiled, image, shape, *ctas)))
    return replace(rings, distinct_share=many.distinct_share(), pitches=many.boxes.pitches())


class _Told(Struct, frozen=True, eq=False):
    """What CTAs said, by row."""

    heard: dict[int, Heard]
    shares: dict[int, float]
    odd_ends: dict[int, OddEnds | None]
    descriptors: dict[int, int]

    def over(self, other: "_Told") -> "_Told":
        """What the other one tells, and these of instructions that it did not hear."""
        return _Told(
            self.heard | other.heard,
            self.shares | other.shares,
            self.odd_ends | other.odd_ends,
            self.descriptors | other.descriptors,
        )


def _told(cluster: Sequence[Ears], kernel: CompiledKernel) -> _Told:
    """Of CTAs that take turns, like those of a cluster, the mean; the first one tells what comes when."""
    heard: dict[int, Heard] = {}
    runs: dict[int, int] = {}
    descriptors: dict[int, int] = {}
    for ears in cluster:
        for row, one in ears.heard.items():
            heard[row] = one if row not in heard else heard[row].joined(one)
        for row, times in ears.came(kernel.segments).items():
            runs[row] = runs.get(row, 0) + times
        descriptors = ears.descriptors | descriptors
    found = find_odd_ends(heard, runs, kernel)
    odd_ends = {row: found[row].ends if row in found else None for row in heard}
    guarded = {row: one.part for row, one in found.items() if one.ends.is_guarded}
    shares = {row: min(1.0, one.times / runs[row] / guarded.get(row, 1.0)) for row, one in heard.items()}
    return _Told(heard, shares, odd_ends, descriptors)


def _mates(shape: Shape) -> list[int]:
    """CTAs of the first one's cluster, a few."""
    spans = [range(min(one, other)) for one, other in zip(shape.cluster.sizes, shape.grid.sizes, strict=True)]
    across, down, _ = shape.grid.sizes
    ctas = [x + across * (y + down * z) for z in spans[2] for y in spans[1] for x in spans[0]]
    return ctas[1:_MOST_MATES]


def _talkative(kernel: CompiledKernel, classes: Sequence[WarpClass], told: _Told) -> list[int]:
    """A few CTAs whose warps come to instructions at mbarriers that were not heard, the busiest first."""
    unheard = {
        kernel.cfg.block_of[action.row]
        for segment in kernel.segments
        for action in segment.actions
        if action.signal is not None and action.signal.meaning is not None and action.row not in told.heard
    }
    coming = [one for one in classes if any(one.block_counts[block] for block in unheard)]
    coming.sort(key=lambda one: -int(one.block_counts.sum()))
    return list(dict.fromkeys(one.example[0] for one in coming if one.example[0]))[:_MOST_MORE]


def _batch(kernel: CompiledKernel, image: ConstantImage, shape: Shape, *ctas: int) -> Batch:
    return Batch(kernel, image, shape, np.array(ctas, dtype=np.int64), np.ones(len(ctas)))


_AnyListener = TypeVar("_AnyListener", bound="_Listener")


def _listen(machine: _AnyListener) -> _AnyListener:
    machine.start()
    with suppress(StopExecution):
        machine.run()
    return machine


class _Listener(Machine):
    """A machine whose first CTA is heard; it goes round a loop so often at most."""

    def __init__(self, kernel: CompiledKernel, batch: Batch, most_arrivals: int) -> None:
        super().__init__(kernel, batch, Guesser(kernel), Budget(_MOST_STEPS))
        self.tally.memory = MemoryLog(batch, wants=wants_none)
        self.most_arrivals = most_arrivals
        self.arrivals: dict[int, int] = {}
        self.on_header = self._at_header

    def _at_header(self, segment: Segment, group: Group) -> bool:
        """True where a group has gone round a loop often enough."""
        key = segment.index
        self.arrivals[key] = self.arrivals.get(key, 0) + 1
        return self.arrivals[key] > self.most_arrivals


class _RingListener(_Listener):
    """Hears one CTA to its end where its loops can be closed."""

    def __init__(self, kernel: CompiledKernel, batch: Batch) -> None:
        super().__init__(kernel, batch, _MOST_ARRIVALS)
        self.ears = self.own_ears = Ears()
        self.close = Closer(self)

    def _at_header(self, segment: Segment, group: Group) -> bool:
        """See `_Listener`."""
        is_over = super()._at_header(segment, group)
        self.close(segment, group)
        return is_over


class _TileListener(_Listener):
    """Hears which tiles several CTAs ask for as they begin their loops, each as often as the others."""

    def __init__(self, kernel: CompiledKernel, batch: Batch) -> None:
        super().__init__(kernel, batch, _FEW_ARRIVALS)
        self.rounds: dict[int, NDArray[np.int64]] = {}
        self.tiles: list[NDArray[np.uint64]] = []
        self.rows: list[int] = []
        self.boxes = BoxPlaces()

    def _at_header(self, segment: Segment, group: Group) -> bool:
        """See `_Listener`: warps that have parted are counted apart."""
        rounds = self.rounds.setdefault(segment.index, np.zeros(self.batch.n_warps, dtype=np.int64))
        rounds[group.rows] += 1
        return int(rounds[group.rows].max(initial=0)) > self.most_arrivals

    def distinct_share(self) -> float | None:
        """Of all that is copied, what lies in different tiles; as if all were as large, where that is not
        told."""
        if not self.tiles:
            return None
        volumes = self.boxes.volumes()
        is_told = volumes.keys() >= set(self.rows)
        sizes = [
            np.full(len(t), volumes[r] if is_told else 1.0)
            for r, t in zip(self.rows, self.tiles, strict=True)
        ]
        _, firsts = np.unique(np.concatenate(self.tiles), return_index=True)
        size = np.concatenate(sizes)
        return float(size[firsts].sum() / size.sum())

    def tell_signal(self, action: Action, view: View, lanes: Bits | None) -> None:
        """See `Machine`: tensor (else row) and coordinates of a tile, mixed to one number for each warp."""
        signal = action.signal
        if signal is None or not signal.coordinates:
            return
        active = view.active if lanes is None else view.active & lanes
        chosen = np.broadcast_to(view.flat(active), view.group.mask.shape) & view.group.mask
        if not all(_is_known(view, slot, chosen) for slot in signal.coordinates):
            return
        warps = np.asarray(chosen.any(axis=1))
        first = chosen[warps].argmax(axis=1)
        words = [_words(view, slot, chosen.shape)[warps, first] for slot in signal.coordinates]
        tensor = self._tensor(signal, view, chosen, warps, first)
        source = np.full(len(first), signal.row, dtype=np.uint64) if tensor is None else tensor
        mixed = np.zeros_like(source)
        for word, factor in zip((source, *words), mixing_factors(1 + len(words)), strict=True):
            mixed = (mixed + word) * factor
        self.tiles.append(mixed)
        self.rows.append(signal.row)
        if signal.tensor is not None:
            places = np.stack(words, axis=1).astype(np.uint32).view(np.int32).astype(np.int64)
            self.boxes.add(signal.row, tensor, places)

    @staticmethod
    def _tensor(
        signal: Signal, view: View, chosen: Bits, warps: NDArray[np.bool_], first: NDArray[np.int64]
    ) -> NDArray[np.uint64] | None:
        """Where the descriptor lies of the tensor that each warp copies a box of."""
        if signal.tensor is None or not _is_known(view, signal.tensor, chosen):
            return None
        return _words(view, signal.tensor, chosen.shape)[warps, first]


def _words(view: View, slot: int, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """A register's words in the lanes of a group."""
    return np.broadcast_to(view.flat(view.value(slot)), shape).astype(np.uint64)


def _is_known(view: View, slot: int, lanes: Bits) -> bool:
    """Whether a register holds known words in these lanes of the group."""
    unknown = view.origin(slot)
    return slot >= 0 and (unknown is None or not bool((view.flat(unknown).astype(np.bool_) & lanes).any()))


def _rings(told: _Told) -> Rings:
    """Tiles are not compared."""
    heard = told.heard
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
            n_ctas = max(1.0, one.n_ctas / max(1, one.times))
            uses[row] = RingUse(
                number, one.meaning, n_bytes, told.shares[row], told.odd_ends[row], n_ctas=n_ctas
            )
    rings = (Ring(len(group.addresses), _free_waits(heard[row] for row in group.rows)) for group in groups)
    return Rings(tuple(rings), uses, told.descriptors, None)


class _Group(Struct, frozen=True, eq=False):
    """Instructions that share mbarriers."""

    rows: list[int]
    addresses: set[int]


def _free_waits(group: Iterable[Heard]) -> int:
    """Barriers at which a warp begins with the phase before the first, which is over; the most of any."""
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for one in group:
        for key, asked in one.parities.items():
            first[key] = min(asked, first.get(key, asked))
    free: dict[int, int] = {}
    for (warp, _), (_, parity) in first.items():
        free[warp] = free.get(warp, 0) + parity
    return max(free.values(), default=0)
