"""Which results nobody can know, whatever the arguments of a launch are: forward passes over the blocks.

Products of matrices are not computed, and shared memory holds only what came from global memory where no
instruction stores anything else there. What is computed from such words is unknown too: to execute it tells
nothing, and to keep shared memory for its sake stops loops from being closed.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from analyzer.execution.sweeps import Sweeps


class Deed(Struct, frozen=True):
    """What one instruction does, as masks over storage numbers.

    kills: what is overwritten whole; guard: the bit of its predicate, 0 for none; is_source: its results are
    unknown by themselves; stored: what it stores to shared memory, None where it stores nothing there.
    """

    writes: int
    kills: int
    reads: int
    guard: int
    is_source: bool = False
    stored: int | None = None


Deeds = Sequence[Sequence[Deed]]
Followers = Sequence[tuple[int, ...]]


def stores_knowledge(deeds: Deeds, followers: Followers) -> bool:
    """Whether an instruction stores a word to shared memory that is known whichever way leads there."""
    for block, doubted in _settled(deeds, followers, _doubted_after, on_all_ways=False).items():
        for deed in deeds[block]:
            if deed.stored is not None and not deed.stored & doubted:
                return True
            doubted = _doubted_after(deed, doubted)
    return False


def unknowable(deeds: Deeds, followers: Followers, starts: Sequence[int]) -> dict[int, int]:
    """Rows whose results are unknown whichever way leads there, each with the row of a source of that.

    starts: the first row of each block.
    """
    found: dict[int, int] = {}
    sources: dict[int, dict[int, int]] = {0: {}}
    for block, lost in sorted(_settled(deeds, followers, _lost_after, on_all_ways=True).items()):
        source = sources.setdefault(block, {})
        for row, deed in enumerate(deeds[block], starts[block]):
            if deed.writes and _is_lost(deed, lost):
                known = [source[slot] for slot in _bits(deed.reads & lost) if slot in source]
                found[row] = row if deed.is_source else min(known, default=row)
                source.update(dict.fromkeys(_bits(deed.writes), found[row]))
            lost = _lost_after(deed, lost)
        for follower in followers[block]:
            sources[follower] = source | sources.get(follower, {})
    return found


def lost_stores(deeds: Deeds, followers: Followers, starts: Sequence[int]) -> frozenset[int]:
    """Rows that store to shared memory only words that are unknown whichever way leads there."""
    found: set[int] = set()
    for block, lost in _settled(deeds, followers, _lost_after, on_all_ways=True).items():
        for row, deed in enumerate(deeds[block], starts[block]):
            if deed.stored and not deed.stored & ~lost:
                found.add(row)
            lost = _lost_after(deed, lost)
    return frozenset(found)


def _settled(
    deeds: Deeds, followers: Followers, after: Callable[[Deed, int], int], *, on_all_ways: bool
) -> dict[int, int]:
    """At the entry of each block that is reached, what holds on all ways there, or on any."""
    entries = {0: 0}
    waiting = Sweeps([0])
    for block in waiting:
        mask = entries[block]
        for deed in deeds[block]:
            mask = after(deed, mask)
        for follower in followers[block]:
            before = entries.get(follower, mask)
            joined = before & mask if on_all_ways else before | mask
            if follower not in entries or joined != before:
                entries[follower] = joined
                waiting.add([follower])
    return entries


def _is_lost(deed: Deed, lost: int) -> bool:
    return deed.is_source or bool((deed.reads | deed.guard) & lost)


def _lost_after(deed: Deed, lost: int) -> int:
    """What is surely unknown behind an instruction; under a known guard, what was before it counts."""
    if not deed.writes:
        return lost
    if not _is_lost(deed, lost):
        return lost & ~deed.writes
    return lost if deed.guard and not deed.guard & lost else lost | deed.kills


def _doubted_after(deed: Deed, doubted: int) -> int:
    """What may be unknown behind an instruction."""
    if not deed.writes:
        return doubted
    if _is_lost(deed, doubted):
        return doubted | deed.writes
    return doubted if deed.guard else doubted & ~deed.kills


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
