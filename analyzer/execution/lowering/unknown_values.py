"""Which results nobody can know, whatever the arguments of a launch are: forward passes over the blocks.

Products of matrices are not computed, and shared memory holds only what came from global memory where no
instruction stores anything else there. What is computed from such words is unknown too: to execute it tells
nothing, and to keep shared memory for its sake stops loops from being closed.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from analyzer.execution.lowering.worklist import Worklist


class Effect(Struct, frozen=True):
    """What one instruction does, as masks over storage numbers.

    kills: what is overwritten whole; guard: the bit of its predicate, 0 for none; is_source: its results are
    unknown by themselves; stored: what it stores to shared memory, None where it stores nothing there.
    """

    writes: int
    kills: int
    reads: int
    guard_mask: int
    is_unknown_source: bool = False
    shared_store_mask: int | None = None


BlockEffects = Sequence[Sequence[Effect]]
SuccessorLists = Sequence[tuple[int, ...]]


def has_known_shared_store(effects: BlockEffects, successors: SuccessorLists) -> bool:
    """Whether an instruction stores a word to shared memory that is known whichever way leads there."""
    for block, possibly_unknown_mask in _solve_forward_dataflow(
        effects, successors, _transfer_may_unknown, on_all_ways=False
    ).items():
        for effect in effects[block]:
            if effect.shared_store_mask is not None and not effect.shared_store_mask & possibly_unknown_mask:
                return True
            possibly_unknown_mask = _transfer_may_unknown(effect, possibly_unknown_mask)
    return False


def find_unknown_results(
    effects: BlockEffects, successors: SuccessorLists, starts: Sequence[int]
) -> dict[int, int]:
    """Rows whose results are unknown whichever way leads there, each with the row of a source of that.

    starts: the first row of each block.
    """
    found: dict[int, int] = {}
    sources: dict[int, dict[int, int]] = {0: {}}
    for block, unknown_mask in sorted(
        _solve_forward_dataflow(effects, successors, _transfer_must_unknown, on_all_ways=True).items()
    ):
        source = sources.setdefault(block, {})
        for row, effect in enumerate(effects[block], starts[block]):
            if effect.writes and _is_result_unknown(effect, unknown_mask):
                known = [
                    source[slot] for slot in _iterate_set_bits(effect.reads & unknown_mask) if slot in source
                ]
                found[row] = row if effect.is_unknown_source else min(known, default=row)
                source.update(dict.fromkeys(_iterate_set_bits(effect.writes), found[row]))
            unknown_mask = _transfer_must_unknown(effect, unknown_mask)
        for successor in successors[block]:
            sources[successor] = source | sources.get(successor, {})
    return found


def find_unknown_stores(
    effects: BlockEffects, successors: SuccessorLists, starts: Sequence[int]
) -> frozenset[int]:
    """Rows that store to shared memory only words that are unknown whichever way leads there."""
    found: set[int] = set()
    for block, unknown_mask in _solve_forward_dataflow(
        effects, successors, _transfer_must_unknown, on_all_ways=True
    ).items():
        for row, effect in enumerate(effects[block], starts[block]):
            if effect.shared_store_mask and not effect.shared_store_mask & ~unknown_mask:
                found.add(row)
            unknown_mask = _transfer_must_unknown(effect, unknown_mask)
    return frozenset(found)


def _solve_forward_dataflow(
    effects: BlockEffects,
    successors: SuccessorLists,
    after: Callable[[Effect, int], int],
    *,
    on_all_ways: bool,
) -> dict[int, int]:
    """At the entry of each block that is reached, what holds on all ways there, or on any."""
    entries = {0: 0}
    worklist = Worklist([0])
    for block in worklist:
        mask = entries[block]
        for effect in effects[block]:
            mask = after(effect, mask)
        for successor in successors[block]:
            before = entries.get(successor, mask)
            joined = before & mask if on_all_ways else before | mask
            if successor not in entries or joined != before:
                entries[successor] = joined
                worklist.add([successor])
    return entries


def _is_result_unknown(effect: Effect, unknown_mask: int) -> bool:
    return effect.is_unknown_source or bool((effect.reads | effect.guard_mask) & unknown_mask)


def _transfer_must_unknown(effect: Effect, unknown_mask: int) -> int:
    """What is surely unknown behind an instruction; under a known guard, what was before it counts."""
    if not effect.writes:
        return unknown_mask
    if not _is_result_unknown(effect, unknown_mask):
        return unknown_mask & ~effect.writes
    return (
        unknown_mask
        if effect.guard_mask and not effect.guard_mask & unknown_mask
        else unknown_mask | effect.kills
    )


def _transfer_may_unknown(effect: Effect, possibly_unknown_mask: int) -> int:
    """What may be unknown behind an instruction."""
    if not effect.writes:
        return possibly_unknown_mask
    if _is_result_unknown(effect, possibly_unknown_mask):
        return possibly_unknown_mask | effect.writes
    return possibly_unknown_mask if effect.guard_mask else possibly_unknown_mask & ~effect.kills


def _iterate_set_bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
