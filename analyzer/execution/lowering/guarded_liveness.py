"""Liveness of registers that are written or read under guards, step by step backwards through a block.

A value that is read only under one guard is dead before a write under the same guard. In the example the old
value of R6 is not needed:

    @P0 MOV R6, R8
    @P0 IMAD.WIDE R6, R6, 4, R2

Invariant: `guarded_reads` holds, by guard, storage that only instructions under this guard read from here on
before it is written.
"""

from msgspec import Struct

Guard = tuple[int, bool]  # storage number of the predicate, negated


class StorageMasks(Struct, frozen=True):
    """Effect of an instruction on liveness, as masks over storage numbers."""

    writes: int
    kills: int  # written as a whole
    reads: int  # live if a result is live
    required_reads: int  # live in any case
    guard: Guard | None


def apply_kills(masks: StorageMasks, guarded_reads: dict[Guard, int]) -> int:
    """Return the mask that a write makes dead before it.

    Removes from `guarded_reads` what is dead, and the guards whose predicate is written here.
    """
    killed = masks.kills if masks.guard is None else masks.kills & guarded_reads.get(masks.guard, 0)
    for guard in list(guarded_reads):
        if masks.writes >> guard[0] & 1:
            del guarded_reads[guard]
        else:
            guarded_reads[guard] &= ~killed
    return killed


def apply_reads(masks: StorageMasks, reads: int, live: int, guarded_reads: dict[Guard, int]) -> int:
    """Return the mask that a read makes live before it, its guard included; update `guarded_reads`."""
    own = (
        0
        if masks.guard is None
        else guarded_reads.get(masks.guard, 0) | (reads & ~live & ~(1 << masks.guard[0]))
    )
    for guard in guarded_reads:
        guarded_reads[guard] &= ~reads
    if masks.guard is None:
        return reads
    guarded_reads[masks.guard] = own
    return reads | 1 << masks.guard[0]
