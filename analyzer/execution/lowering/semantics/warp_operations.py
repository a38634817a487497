"""Operations across the active lanes of a warp: R2UR, VOTE, ELECT, SHFL, REDUX, MATCH."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    FALSE_PREDICATE,
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    make_constant,
    make_step,
)
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import Register
from analyzer.ir.scheduling import WARP_SIZE

_DISCARDED = -1
_LANES = np.arange(WARP_SIZE, dtype=np.uint32)[None, :]
_ALL_LANES = make_constant(0xFFFFFFFF)
_NO_LANES = make_constant(0)


def _broadcast_to_lanes(value: Value) -> Value:
    """Return the value of each lane, [n, 32]."""
    return np.broadcast_to(value, (value.shape[0], WARP_SIZE))


def ballot(bits: Value) -> Value:
    """Pack predicates into words, [n, 1]: bit L is that of lane L."""
    if bits.shape[1] == 1:
        return np.where(bits, _ALL_LANES, _NO_LANES)
    packed = np.packbits(bits, axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4").astype(np.uint32, copy=False)


def _find_first_lane(bits: Value) -> Value:
    """Find the lowest lane whose bit is set, [n, 1]; 0 if there is none."""
    lanes: Value = np.argmax(_broadcast_to_lanes(bits), axis=1)[:, None]
    return lanes


def _read_lane(value: Value, lane: Value) -> Value:
    """Return for each lane the value at the lane that it names."""
    if value.shape[1] == 1:
        return value
    n = max(value.shape[0], lane.shape[0])
    return np.take_along_axis(
        np.broadcast_to(value, (n, WARP_SIZE)),
        np.broadcast_to(lane, (n, lane.shape[1])).astype(np.intp, copy=False),
        axis=1,
    )


def compile_read_first_lane(form: InstructionForm) -> Step:
    """Compile R2UR: the value of the first active lane; .FILL and .BROADCAST change nothing.

    The result predicate is true in lanes with another value, and with .OR also where it was true before.
    Loops that handle one value per iteration (waterfall loops) use it.
    """
    parser = OperandParser(form)
    parser.take_modifier("FILL")
    parser.take_modifier("BROADCAST")
    accumulates = parser.take_modifier("OR")
    others = (*parser.take_result_predicates(1), _DISCARDED)[0]
    result, number = parser.take_result(), parser.take_plain_word()
    parser.expect_end()

    def first(mask: Value, x: Value) -> tuple[Value, ...]:
        return (_read_lane(x, _find_first_lane(mask)),)

    def first_and_others(mask: Value, x: Value) -> tuple[Value, ...]:
        value = _read_lane(x, _find_first_lane(mask))
        return value, x != value

    def first_and_more(mask: Value, x: Value, before: Value) -> tuple[Value, ...]:
        value = _read_lane(x, _find_first_lane(mask))
        return value, before | (x != value)

    if accumulates and others != _DISCARDED:
        sources = [number, SourceOperand((others,))]
        return make_step(
            first_and_more,
            sources,
            [result, others],
            uses_active_mask=True,
            uniform_variant=_take_uniform_value_and_before,
        )
    if others != _DISCARDED:
        return make_step(
            first_and_others,
            [number],
            [result, others],
            uses_active_mask=True,
            uniform_variant=_take_uniform_value_and_false,
        )
    return make_step(
        first,
        [number],
        [result],
        AffineRule.LINEAR,
        uses_active_mask=True,
        uniform_variant=_take_uniform_value,
    )


def _take_uniform_value(x: Value) -> tuple[Value, ...]:
    return (x,)


def _take_uniform_value_and_before(x: Value, others: Value) -> tuple[Value, ...]:
    return x, others


def _take_uniform_value_and_false(x: Value) -> tuple[Value, ...]:
    return x, FALSE_PREDICATE


def _vote_all(active: Value, mask: Value) -> Value:
    every: Value = np.all(_broadcast_to_lanes(active) | ~mask, axis=1, keepdims=True)
    return every


def _vote_any(active: Value, mask: Value) -> Value:
    some: Value = np.any(_broadcast_to_lanes(active) & mask, axis=1, keepdims=True)
    return some


_VOTE_FUNCTIONS: dict[str, Callable[[Value, Value], Value]] = {
    "ALL": _vote_all,
    "ANY": _vote_any,
    "EQ": lambda bits, mask: _vote_all(bits, mask) | ~_vote_any(bits, mask),
}


def compile_vote(form: InstructionForm) -> Step:
    """Compile VOTE, VOTEU: the ballot as a word, and a predicate: all true, any true, or all equal."""
    parser = OperandParser(form)
    vote = parser.take_choice(_VOTE_FUNCTIONS)
    word = parser.take_result() if parser.is_next(Register) else _DISCARDED
    bit, voted = parser.take_result_predicate(), parser.take_predicate()
    parser.expect_end()
    wanted = [number for number in (word, bit) if number != _DISCARDED]

    def apply(mask: Value, votes: Value) -> tuple[Value, ...]:
        results = []
        if word != _DISCARDED:
            results.append(ballot(votes & mask))
        if bit != _DISCARDED:
            results.append(vote(votes, mask))
        return tuple(results)

    return make_step(apply, [voted], wanted, uses_active_mask=True)


def compile_elect(form: InstructionForm) -> Step:
    """Compile ELECT: a predicate that is true in the first active lane, and the number of that lane."""
    parser = OperandParser(form)
    writes = parser.take_result_predicate(), parser.take_result()
    candidates = parser.take_predicate()
    parser.expect_end()

    def apply(mask: Value, bits: Value) -> tuple[Value, ...]:
        leader = _find_first_lane(bits & mask).astype(np.uint32)
        return leader == _LANES, leader

    return make_step(apply, [candidates], writes, uses_active_mask=True)


def _find_shuffle_sources(mode: str, b: Value, c: Value) -> tuple[Value, Value]:
    """Return the lane that each lane reads, and whether it is in bounds (PTX, shfl.sync)."""
    lane_mask = np.uint32(WARP_SIZE - 1)
    segment, clamp = c >> np.uint32(8) & lane_mask, c & lane_mask
    first, last = _LANES & segment, (_LANES & segment) | (clamp & ~segment)
    b = b & lane_mask
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


_SHUFFLE_MODES = {mode: mode for mode in ("UP", "DOWN", "BFLY", "IDX")}


def compile_shuffle(form: InstructionForm) -> Step:
    """Compile SHFL: the word of another lane, and whether that lane is within the segment."""
    parser = OperandParser(form)
    mode = parser.take_choice(_SHUFFLE_MODES)
    bit, result = parser.take_result_predicate(), parser.take_result()
    number, b, c = parser.take_plain_word(), parser.take_plain_word(), parser.take_plain_word()
    parser.expect_end()
    writes = [result] if bit == _DISCARDED else [result, bit]

    def apply(mask: Value, x: Value, lane: Value, bound: Value) -> tuple[Value, ...]:
        position, in_bounds = _find_shuffle_sources(mode, lane, bound)
        moved = _read_lane(x, position)
        return (moved,) if bit == _DISCARDED else (moved, in_bounds)

    if b.constant is None or c.constant is None:
        return make_step(apply, [number, b, c], writes, uses_active_mask=True)
    position, in_bounds = _find_shuffle_sources(mode, b.constant, c.constant)
    position = position.astype(np.intp)

    def apply_fixed(mask: Value, x: Value) -> tuple[Value, ...]:
        moved = x if x.shape[1] == 1 else x[:, position[0]]
        return (moved,) if bit == _DISCARDED else (moved, in_bounds)

    return make_step(apply_fixed, [number], writes, uses_active_mask=True)


_REDUCTION_FUNCTIONS: dict[str, tuple[np.ufunc, int | None]] = {
    "AND": (np.bitwise_and, 0xFFFFFFFF),
    "OR": (np.bitwise_or, 0),
    "XOR": (np.bitwise_xor, 0),
    "SUM": (np.add, 0),
    "MIN": (np.minimum, None),
    "MAX": (np.maximum, None),
}
_MIN_MAX_IDENTITIES = {
    ("MIN", False): 0xFFFFFFFF,
    ("MAX", False): 0,
    ("MIN", True): 0x7FFFFFFF,
    ("MAX", True): 0x80000000,
}


def compile_reduction(form: InstructionForm) -> Step:
    """Compile REDUX, CREDUX: the reduction over all active lanes; without a modifier it is a bitwise AND."""
    parser = OperandParser(form)
    name = parser.take_choice({word: word for word in _REDUCTION_FUNCTIONS}, "AND")
    is_signed = parser.take_choice({"S32": True, "U32": False}, False)
    result, number = parser.take_result(), parser.take_plain_word()
    parser.expect_end()
    combine, identity = _REDUCTION_FUNCTIONS[name]
    if identity is None:
        identity = _MIN_MAX_IDENTITIES[name, is_signed]
    elif is_signed and name != "SUM":
        raise UnsupportedInstructionError
    dtype, inactive_value = (np.int32 if is_signed else np.uint32), make_constant(identity)

    def apply(mask: Value, x: Value) -> tuple[Value, ...]:
        values = _broadcast_to_lanes(np.where(mask, x, inactive_value)).view(dtype)
        return (combine.reduce(values, axis=1, keepdims=True, dtype=dtype).view(np.uint32),)

    return make_step(apply, [number], [result], uses_active_mask=True)


def compile_match(form: InstructionForm) -> Step:
    """Compile MATCH.

    .ANY: mask of the active lanes with the value of this lane. .ALL: mask of all active lanes if their values
    are equal, else 0.
    """
    parser = OperandParser(form)
    is_all = parser.take_choice({"ALL": True, "ANY": False})
    is_wide = parser.take_modifier("U64")
    bit = (*parser.take_result_predicates(1), _DISCARDED)[0]
    result = parser.take_result()
    number: SourceOperand = parser.take_plain_pair() if is_wide else parser.take_plain_word()
    parser.expect_end()
    if bit != _DISCARDED and not is_all:
        raise UnsupportedInstructionError

    def match_any(mask: Value, x: Value) -> tuple[Value, ...]:
        n = max(mask.shape[0], x.shape[0])
        values, active = (np.broadcast_to(value, (n, WARP_SIZE)) for value in (x, mask))
        equal = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        return (ballot(equal.reshape(n * WARP_SIZE, WARP_SIZE)).reshape(n, WARP_SIZE),)

    def match_all(mask: Value, x: Value) -> tuple[Value, ...]:
        same = _vote_all(x == _read_lane(x, _find_first_lane(mask)), mask)
        return np.where(same, ballot(mask), _NO_LANES), same

    if not is_all:
        return make_step(match_any, [number], [result], uses_active_mask=True)
    return make_step(match_all, [number], [result, bit], uses_active_mask=True)
