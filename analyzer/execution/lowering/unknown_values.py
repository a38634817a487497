"""Values that cannot be known for any arguments of a launch: forward dataflow analyses over the blocks.

MMA results are not computed, and loads from global memory return unknown words. If every store to shared
memory stores such words, loads from it are unknown too, and so is everything computed from them. Executing
these instructions finds nothing, and tracking shared memory for them would keep loops from being closed.

Both analyses hold a mask over storage numbers. `must` analysis: unknown on all paths (meet is the
intersection); `may` analysis: unknown on some path (meet is the union).

    LDS  R4, [R2]         # source of unknown values
    FADD R5, R4, R6       # unknown result, origin: the LDS
    MOV  R5, 0x1          # known again
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from analyzer.execution.lowering.worklist import Worklist


class Effect(Struct, frozen=True):
    """Effect of one instruction, as masks over storage numbers."""

    writes: int
    kills: int  # written as a whole
    reads: int
    guard_mask: int  # bit of the guard predicate, 0 for none
    is_unknown_source: bool = False  # results are unknown for any operands
    shared_store_mask: int | None = None  # registers stored to shared memory, None if it stores nothing there


BlockEffects = Sequence[Sequence[Effect]]
SuccessorLists = Sequence[tuple[int, ...]]


def has_known_shared_store(effects: BlockEffects, successors: SuccessorLists) -> bool:
    """Return whether an instruction stores a word to shared memory that is known on all paths to it."""
    for block, possibly_unknown_mask in _solve_forward_dataflow(
        effects, successors, _transfer_may_unknown, on_all_paths=False
    ).items():
        for effect in effects[block]:
            if effect.shared_store_mask is not None and not effect.shared_store_mask & possibly_unknown_mask:
                return True
            possibly_unknown_mask = _transfer_may_unknown(effect, possibly_unknown_mask)
    return False


def find_unknown_results(
    effects: BlockEffects, successors: SuccessorLists, starts: Sequence[int]
) -> dict[int, int]:
    """Find results that are unknown on all paths: {row: row of an instruction that they derive from}.

    starts: first row of each block
    """
    found: dict[int, int] = {}
    sources: dict[int, dict[int, int]] = {0: {}}
    for block, unknown_mask in sorted(
        _solve_forward_dataflow(effects, successors, _transfer_must_unknown, on_all_paths=True).items()
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
    """Return the rows that store to shared memory only words that are unknown on all paths."""
    found: set[int] = set()
    for block, unknown_mask in _solve_forward_dataflow(
        effects, successors, _transfer_must_unknown, on_all_paths=True
    ).items():
        for row, effect in enumerate(effects[block], starts[block]):
            if effect.shared_store_mask and not effect.shared_store_mask & ~unknown_mask:
                found.add(row)
            unknown_mask = _transfer_must_unknown(effect, unknown_mask)
    return frozenset(found)


def _solve_forward_dataflow(
    effects: BlockEffects,
    successors: SuccessorLists,
    transfer: Callable[[Effect, int], int],
    *,
    on_all_paths: bool,
) -> dict[int, int]:
    """Return {reachable block: mask at its entry}, which holds on all paths to it or on some path."""
    entries = {0: 0}
    worklist = Worklist([0])
    for block in worklist:
        mask = entries[block]
        for effect in effects[block]:
            mask = transfer(effect, mask)
        for successor in successors[block]:
            before = entries.get(successor, mask)
            joined = before & mask if on_all_paths else before | mask
            if successor not in entries or joined != before:
                entries[successor] = joined
                worklist.add([successor])
    return entries


def _is_result_unknown(effect: Effect, unknown_mask: int) -> bool:
    return effect.is_unknown_source or bool((effect.reads | effect.guard_mask) & unknown_mask)


def _transfer_must_unknown(effect: Effect, unknown_mask: int) -> int:
    """Return what is unknown on all paths after an instruction.

    An unknown result under a known guard adds nothing, since the old value may remain.
    """
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
    """Return what may be unknown after an instruction."""
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
