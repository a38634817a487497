"""Mbarriers that instructions go through in turn: what is known of a kernel's pipelines between its warps."""

from msgspec import Struct

from analyzer.ir.opcode import Semantics


class OddEnds(Struct, frozen=True):
    """Rounds before the first one in which it is done, and after the last one.

    every_time: each time that the loop is gone through; else of all rounds together. is_guarded: warps come
    to it in all rounds, and it is predicated off in these; else they do not come to it. few: rounds in which
    it is done, however long the loop, where these are fewer than the others: then only the shorter one of
    before and after says where.
    """

    before: int
    after: int
    every_time: bool
    is_guarded: bool
    few: int = 0

    def leaves_out(self, number: int, of: int) -> bool:
        """Whether it is not done in a round, by its number among so many."""
        first, stop = self.before, of - self.after
        if self.few and self.before <= self.after:
            stop = first + self.few
        elif self.few:
            first = stop - self.few
        return not first <= number < stop

    def part(self, rounds: float) -> float:
        """Of so many rounds, those in which it is done."""
        if self.few:
            return min(1.0, self.few / max(1.0, rounds))
        return max(0.0, 1.0 - (self.before + self.after) / max(1.0, rounds))


class Ring(Struct, frozen=True):
    """Mbarriers that are used in turn.

    barriers: how many; free_waits: waits of a warp that pass before anything has arrived, for it asks for the
    phase before the first.
    """

    barriers: int
    free_waits: int


class RingUse(Struct, frozen=True):
    """An instruction at a ring; expected_bytes: that it announces, in the mean; n_ctas: to which a copy goes.

    share: of the warps that come to it, those that do it, but for odd_ends of its loop, where it is left out;
    part: of its rounds, those in which warps that come to it do it, as far as it is told.
    """

    ring: int
    meaning: Semantics
    expected_bytes: float
    share: float
    odd_ends: OddEnds | None = None
    part: float = 1.0
    n_ctas: float = 1.0


class Rings(Struct, frozen=True):
    """Rings of a kernel, and the instructions that use them, by row.

    descriptors: of products of the tensor core, by row. distinct_share: of the tiles that CTAs of a wave
    copy, those that no other of them copies too; None where their coordinates are not known. pitches: from
    one box of a tensor to the next, of copies, by row (see `BoxPlaces`).
    """

    rings: tuple[Ring, ...]
    uses: dict[int, RingUse]
    descriptors: dict[int, int]
    distinct_share: float | None
    pitches: dict[int, tuple[int, ...]] = {}
