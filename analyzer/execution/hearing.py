"""What one CTA is heard to say to its mbarriers while it is executed."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.memory import lane_addresses
from analyzer.execution.program import Segment, Signal
from analyzer.execution.step import Bits
from analyzer.ir.opcode import Semantics

if TYPE_CHECKING:
    from analyzer.execution.lanes import View

_WITHIN_CTA = 0xFFFFFF  # address bits above say which CTA of the cluster
_PARITY_BIT = 31
_CTA_MASK_BIT = 16  # from which on a copy's register says to which CTAs it goes


class Heard(Struct, eq=False):
    """What one instruction said: to which mbarriers, bytes and times.

    parities: by warp and barrier, the first one that was asked for, with the turn in which it was; turns: in
    which each warp said something, of all that any instruction was heard in; n_bytes: announced; n_ctas: to
    which copies went that said so, each time counted; repeats: turns by warp, in which it waited for a phase
    that it had waited for already, and so said nothing.
    """

    meaning: Semantics
    addresses: set[int] = field(default_factory=set)
    parities: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    turns: dict[int, list[int]] = field(default_factory=dict)
    n_bytes: float = 0.0
    n_ctas: int = 0
    times: int = 0
    repeats: dict[int, list[int]] = field(default_factory=dict)

    def joined(self, other: "Heard") -> "Heard":
        """With what another CTA said there; when, is this one's."""
        return replace(
            self,
            addresses=self.addresses | other.addresses,
            n_bytes=self.n_bytes + other.n_bytes,
            n_ctas=self.n_ctas + other.n_ctas,
            times=self.times + other.times,
        )


class Ears(Struct, eq=False):
    """Hears the first CTA of a batch.

    heard, descriptors (of products of the tensor core): by row; runs: executions of segments by its warps;
    has_missed: groups came by of which it is not known which warps are the first CTA's.
    """

    heard: dict[int, Heard] = field(default_factory=dict)
    descriptors: dict[int, int] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    has_missed: bool = False
    _turn: int = 0
    _last_asked: dict[tuple[int, int], int] = field(default_factory=dict)

    def note_run(self, segment: Segment, view: "View") -> None:
        """A group runs a segment."""
        n_warps = view.n_first
        if n_warps is None:
            self.has_missed = True
        else:
            self.runs[segment.index] = self.runs.get(segment.index, 0) + n_warps

    def hear(self, signal: Signal, view: "View", lanes: Bits | None) -> None:
        """Something is said in `lanes` of a group, in all where None."""
        n_warps = view.n_first
        if n_warps is None:
            return
        if signal.address is None or signal.meaning is None:
            self._hear_product(signal, view)
            return
        places, origin = lane_addresses(signal.address, view)
        shape = (n_warps, view.group.mask.shape[1])
        chosen = view.group.mask[:n_warps]
        if lanes is not None:
            chosen = chosen & view.of_first(lanes)
        if origin is not None and bool((view.of_first(origin).astype(np.bool_) & chosen).any()):
            return
        address = np.broadcast_to(view.of_first(places), shape)
        word = None
        if signal.word is not None and is_known(view, signal.word, chosen):
            word = np.broadcast_to(view.of_first(view.value(signal.word)), shape)
        heard = self.heard.setdefault(signal.row, Heard(signal.meaning))
        self._turn += 1
        for row in np.flatnonzero(chosen.any(axis=1)).tolist():
            lane = int(chosen[row].argmax())
            place = int(address[row, lane]) & _WITHIN_CTA
            told = None if word is None else int(word[row, lane])
            heard.addresses.add(place)
            self._note(heard, int(view.group.rows[row]), place, told)

    def _note(self, heard: Heard, warp: int, place: int, told: int | None) -> None:
        """A warp says something at a barrier: a parity to wait for, bytes, or to which CTAs it copies."""
        if heard.meaning is Semantics.MBARRIER_WAIT and told is not None:
            parity = told >> _PARITY_BIT
            heard.parities.setdefault((warp, place), (self._turn, parity))
            if self._last_asked.get((warp, place)) == parity:
                heard.repeats.setdefault(warp, []).append(self._turn)
                return
            self._last_asked[warp, place] = parity
        elif heard.meaning is Semantics.MBARRIER_COPY and told is not None:
            heard.n_ctas += (told >> _CTA_MASK_BIT).bit_count()
        elif told is not None:
            heard.n_bytes += told
        heard.times += 1
        heard.turns.setdefault(warp, []).append(self._turn)

    def _hear_product(self, signal: Signal, view: "View") -> None:
        """The descriptor of a product, taken to be the same in all warps and rounds."""
        if signal.word is not None and is_known(view, signal.word, view.group.mask[: view.n_first]):
            self.descriptors[signal.row] = int(view.of_first(view.value(signal.word)).reshape(-1)[0])

    def came(self, segments: tuple[Segment, ...]) -> dict[int, int]:
        """How often warps came to each instruction, whether they said something there or not."""
        return {
            row: self.runs[segment.index]
            for segment in segments
            if segment.index in self.runs
            for row in range(segment.start, segment.stop)
        }


def is_known(view: "View", slot: int, lanes: Bits) -> bool:
    """Whether a register holds known words in these lanes of the first CTA; RZ says nothing."""
    if slot < 0:
        return False
    unknown = view.origin(slot)
    return unknown is None or not bool((view.of_first(unknown).astype(np.bool_) & lanes).any())
