"""Across the lanes of a warp: R2UR, VOTE, ELECT, SHFL, REDUX, MATCH. Lanes that are off do not count."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.semantics.operands import (
    NEVER,
    NotUnderstoodError,
    Parts,
    Source,
    full,
    make_step,
)
from analyzer.execution.step import AffineRule, Step, Value
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.operand import Register
from analyzer.ir.program import InstructionForm

_DISCARDED = -1
_LANES = np.arange(WARP_LANES, dtype=np.uint32)[None, :]
_ALL_LANES = full(0xFFFFFFFF)
_NO_LANES = full(0)


def _per_lane(value: Value) -> Value:
    """The value of each lane, [n, 32]."""
    return np.broadcast_to(value, (value.shape[0], WARP_LANES))


def ballot(bits: Value) -> Value:
    """Words whose bit L is lane L's, [n, 1]."""
    if bits.shape[1] == 1:
        return np.where(bits, _ALL_LANES, _NO_LANES)
    packed = np.packbits(bits, axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4").astype(np.uint32, copy=False)


def _first_lane(bits: Value) -> Value:
    """The lowest lane whose bit is set, [n, 1]; 0 where none is."""
    lanes: Value = np.argmax(_per_lane(bits), axis=1)[:, None]
    return lanes


def _at_lane(value: Value, lane: Value) -> Value:
    """The value that each lane finds at the lane it names."""
    if value.shape[1] == 1:
        return value
    n = max(value.shape[0], lane.shape[0])
    return np.take_along_axis(
        np.broadcast_to(value, (n, WARP_LANES)),
        np.broadcast_to(lane, (n, lane.shape[1])).astype(np.intp, copy=False),
        axis=1,
    )


def compile_first_lane(form: InstructionForm) -> Step:
    """R2UR: the value of the first active lane; .FILL and .BROADCAST say only why.

    The predicate, of loops that serve one value after the other, holds in lanes whose value is another; with
    .OR also where it held before.
    """
    parts = Parts(form)
    parts.flag("FILL")
    parts.flag("BROADCAST")
    adds = parts.flag("OR")
    others = (*parts.result_bits(1), _DISCARDED)[0]
    result, number = parts.result(), parts.plain_word()
    parts.finish()

    def first(mask: Value, x: Value) -> tuple[Value, ...]:
        return (_at_lane(x, _first_lane(mask)),)

    def first_and_others(mask: Value, x: Value) -> tuple[Value, ...]:
        value = _at_lane(x, _first_lane(mask))
        return value, x != value

    def first_and_more(mask: Value, x: Value, before: Value) -> tuple[Value, ...]:
        value = _at_lane(x, _first_lane(mask))
        return value, before | (x != value)

    if adds and others != _DISCARDED:
        sources = [number, Source((others,))]
        return make_step(first_and_more, sources, [result, others], uses_mask=True, alike=_both)
    if others != _DISCARDED:
        return make_step(first_and_others, [number], [result, others], uses_mask=True, alike=_and_no_other)
    return make_step(first, [number], [result], AffineRule.LINEAR, uses_mask=True, alike=_itself)


def _itself(x: Value) -> tuple[Value, ...]:
    return (x,)


def _both(x: Value, others: Value) -> tuple[Value, ...]:
    return x, others


def _and_no_other(x: Value) -> tuple[Value, ...]:
    return x, NEVER


def _all_of(active: Value, mask: Value) -> Value:
    every: Value = np.all(_per_lane(active) | ~mask, axis=1, keepdims=True)
    return every


def _any_of(active: Value, mask: Value) -> Value:
    some: Value = np.any(_per_lane(active) & mask, axis=1, keepdims=True)
    return some


_VOTES: dict[str, Callable[[Value, Value], Value]] = {
    "ALL": _all_of,
    "ANY": _any_of,
    "EQ": lambda bits, mask: _all_of(bits, mask) | ~_any_of(bits, mask),
}


def compile_vote(form: InstructionForm) -> Step:
    """VOTE, VOTEU: the lanes that say yes, as a word, and whether all, any or equal ones do."""
    parts = Parts(form)
    vote = parts.choose(_VOTES)
    word = parts.result() if parts.is_next(Register) else _DISCARDED
    bit, voted = parts.result_bit(), parts.bit()
    parts.finish()
    wanted = [number for number in (word, bit) if number != _DISCARDED]

    def apply(mask: Value, votes: Value) -> tuple[Value, ...]:
        results = []
        if word != _DISCARDED:
            results.append(ballot(votes & mask))
        if bit != _DISCARDED:
            results.append(vote(votes, mask))
        return tuple(results)

    return make_step(apply, [voted], wanted, uses_mask=True)


def compile_elect(form: InstructionForm) -> Step:
    """ELECT: true in the first active lane, whose number is the other result."""
    parts = Parts(form)
    writes = parts.result_bit(), parts.result()
    candidates = parts.bit()
    parts.finish()

    def apply(mask: Value, bits: Value) -> tuple[Value, ...]:
        leader = _first_lane(bits & mask).astype(np.uint32)
        return leader == _LANES, leader

    return make_step(apply, [candidates], writes, uses_mask=True)


def _shuffle_places(mode: str, b: Value, c: Value) -> tuple[Value, Value]:
    """Lane that each lane reads, and whether that is in bounds (PTX, shfl.sync)."""
    five = np.uint32(WARP_LANES - 1)
    segment, clamp = c >> np.uint32(8) & five, c & five
    first, last = _LANES & segment, (_LANES & segment) | (clamp & ~segment)
    b = b & five
    lanes = _LANES.astype(np.int32)
    match mode:
        case "UP":
            source = lanes - b.astype(np.int32)
        case "DOWN":
            source = lanes + b.astype(np.int32)
        case "BFLY":
            source = (_LANES ^ b).astype(np.int32)
        case _:
            source = (first | (b & ~segment)).astype(np.int32)
    bound = last.astype(np.int32)
    in_bounds = source >= bound if mode == "UP" else source <= bound
    return np.where(in_bounds, source, lanes), in_bounds


_SHUFFLES = {mode: mode for mode in ("UP", "DOWN", "BFLY", "IDX")}


def compile_shuffle(form: InstructionForm) -> Step:
    """SHFL: the word of another lane, and whether that lane is within the segment."""
    parts = Parts(form)
    mode = parts.choose(_SHUFFLES)
    bit, result = parts.result_bit(), parts.result()
    number, b, c = parts.plain_word(), parts.plain_word(), parts.plain_word()
    parts.finish()
    writes = [result] if bit == _DISCARDED else [result, bit]

    def apply(mask: Value, x: Value, lane: Value, bound: Value) -> tuple[Value, ...]:
        place, in_bounds = _shuffle_places(mode, lane, bound)
        moved = _at_lane(x, place)
        return (moved,) if bit == _DISCARDED else (moved, in_bounds)

    if b.constant is None or c.constant is None:
        return make_step(apply, [number, b, c], writes, uses_mask=True)
    place, in_bounds = _shuffle_places(mode, b.constant, c.constant)
    place = place.astype(np.intp)

    def apply_fixed(mask: Value, x: Value) -> tuple[Value, ...]:
        moved = x if x.shape[1] == 1 else x[:, place[0]]
        return (moved,) if bit == _DISCARDED else (moved, in_bounds)

    return make_step(apply_fixed, [number], writes, uses_mask=True)


_REDUCTIONS: dict[str, tuple[np.ufunc, int | None]] = {
    "AND": (np.bitwise_and, 0xFFFFFFFF),
    "OR": (np.bitwise_or, 0),
    "XOR": (np.bitwise_xor, 0),
    "SUM": (np.add, 0),
    "MIN": (np.minimum, None),
    "MAX": (np.maximum, None),
}
_NEUTRAL_BOUNDS = {
    ("MIN", False): 0xFFFFFFFF,
    ("MAX", False): 0,
    ("MIN", True): 0x7FFFFFFF,
    ("MAX", True): 0x80000000,
}


def compile_reduction(form: InstructionForm) -> Step:
    """REDUX, CREDUX: one word of all active lanes'; without a name it is a bitwise and."""
    parts = Parts(form)
    name = parts.choose({word: word for word in _REDUCTIONS}, "AND")
    is_signed = parts.choose({"S32": True, "U32": False}, False)
    result, number = parts.result(), parts.plain_word()
    parts.finish()
    combine, neutral = _REDUCTIONS[name]
    if neutral is None:
        neutral = _NEUTRAL_BOUNDS[name, is_signed]
    elif is_signed and name != "SUM":
        raise NotUnderstoodError
    dtype, idle = (np.int32 if is_signed else np.uint32), full(neutral)

    def apply(mask: Value, x: Value) -> tuple[Value, ...]:
        values = _per_lane(np.where(mask, x, idle)).view(dtype)
        return (combine.reduce(values, axis=1, keepdims=True, dtype=dtype).view(np.uint32),)

    return make_step(apply, [number], [result], uses_mask=True)


def compile_match(form: InstructionForm) -> Step:
    """MATCH.ANY: the active lanes with this lane's value. MATCH.ALL: all of them, if all are equal."""
    parts = Parts(form)
    asks_all = parts.choose({"ALL": True, "ANY": False})
    is_wide = parts.flag("U64")
    bit = (*parts.result_bits(1), _DISCARDED)[0]
    result = parts.result()
    number: Source = parts.plain_pair() if is_wide else parts.plain_word()
    parts.finish()
    if bit != _DISCARDED and not asks_all:
        raise NotUnderstoodError

    def match_any(mask: Value, x: Value) -> tuple[Value, ...]:
        n = max(mask.shape[0], x.shape[0])
        values, active = (np.broadcast_to(value, (n, WARP_LANES)) for value in (x, mask))
        equal = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        return (ballot(equal.reshape(n * WARP_LANES, WARP_LANES)).reshape(n, WARP_LANES),)

    def match_all(mask: Value, x: Value) -> tuple[Value, ...]:
        same = _all_of(x == _at_lane(x, _first_lane(mask)), mask)
        return np.where(same, ballot(mask), _NO_LANES), same

    if not asks_all:
        return make_step(match_any, [number], [result], uses_mask=True)
    return make_step(match_all, [number], [result, bit], uses_mask=True)
