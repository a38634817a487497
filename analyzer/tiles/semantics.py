"""What tile operations compute: operation names → functions on the values of many programs.

Only what masks, loop bounds, conditions and known arrays depend on is computed: integers, truth values and
pointers. A result that no rule gives is `Unknown`, and so is what is loaded from memory that the launch does
not describe.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Protocol, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.ir.tile_operations import (
    DenseAttribute,
    FloatAttribute,
    IntegerAttribute,
    Operation,
    PointerType,
    StringAttribute,
    TensorType,
)
from analyzer.tiles.comparisons import Relation, compare, reinterpret_unsigned, select, wrap
from analyzer.tiles.values import (
    TRUE,
    IntArray,
    Shape,
    TensorDescriptor,
    TileInteger,
    TileMask,
    TilePointer,
    TileValue,
    Unknown,
    add,
    apply,
    check_size,
    combine_masks,
    conjoin,
    find_extremes,
    make_flag,
    make_integer,
    make_range,
    materialize,
    materialize_mask,
    multiply,
    negate,
    scale,
    with_shape,
)
from analyzer.tiles.work import count_bits, name_type

Operands = list[TileValue]
_Number = TypeVar("_Number", bound=np.generic)


class EvaluationContext(Protocol):
    """What operations ask of the launch."""

    grid: tuple[int, int, int]
    program_ids: tuple[IntArray, IntArray, IntArray]

    def find_contents(self, argument: int, type_name: str) -> NDArray[np.int64] | int | None:
        """Return the numbers that an argument points to, one number for all, or None if not known."""

    def name_argument(self, argument: int) -> str:
        """Return the name of an argument."""

    def note(self, assumption: str) -> None:
        """Keep an assumption for the report."""


Evaluate = Callable[[EvaluationContext, Operation, Operands], TileValue]


def find_shape(operation: Operation) -> Shape:
    """Return the shape of the first result; () of a number."""
    kind = operation.results[0].type if operation.results else None
    return kind.shape if isinstance(kind, TensorType) else ()


def find_bits(operation: Operation) -> int:
    """Return the bits of the first result."""
    kind = operation.results[0].type
    return 1 if name_type(kind) == "i1" else count_bits(kind) or 64


def find_unknown(operands: Operands) -> Unknown:
    """Return why a result is unknown: the first unknown operand's reason."""
    return next((each for each in operands if isinstance(each, Unknown)), Unknown())


def read_integer_attribute(operation: Operation, name: str, default: int = 0) -> int:
    """Return an integer attribute."""
    found = operation.find_attribute(name)
    return found.value if isinstance(found, IntegerAttribute) else default


def _evaluate_constant(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    value = operation.find_attribute("value")
    shape = find_shape(operation)
    while isinstance(value, DenseAttribute) and len(value.values) == 1:
        value = value.values[0]
    if isinstance(value, IntegerAttribute):
        if name_type(operation.results[0].type) == "i1":
            return make_flag(bool(value.value), shape)
        if not -(1 << 63) <= value.value < 1 << 63:
            return Unknown()
        return make_integer(value.value, shape)
    if isinstance(value, FloatAttribute):
        return TileInteger(shape, np.array([value.value], dtype=np.float64))
    if isinstance(value, DenseAttribute) and value.values and shape:
        numbers = [each.value for each in value.values if isinstance(each, IntegerAttribute)]
        if len(numbers) == prod(shape):
            array = np.array(numbers, dtype=np.int64).reshape(1, *shape)
            return TileInteger(shape, np.zeros(1, dtype=np.int64), (), (array,))
    return Unknown()


_AXES = {"x": 0, "y": 1, "z": 2}


def _find_axis(operation: Operation) -> int:
    found = operation.find_attribute("axis")
    if isinstance(found, StringAttribute):
        return _AXES.get(found.text.strip().lower(), 0)
    return found.value if isinstance(found, IntegerAttribute) and 0 <= found.value < 3 else 0


def _evaluate_program_id(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    return TileInteger((), context.program_ids[_find_axis(operation)])


def _evaluate_program_count(
    context: EvaluationContext, operation: Operation, operands: Operands
) -> TileValue:
    return make_integer(context.grid[_find_axis(operation)])


def _evaluate_range(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    start, end = (read_integer_attribute(operation, name) for name in ("start", "end"))
    return make_range(start, max(1, end - start))


def _keep(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    return operands[0] if operands else Unknown()


def _evaluate_splat(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    return reshape_lazily(operands[0], find_shape(operation))


def reshape_lazily(value: TileValue, shape: Shape) -> TileValue:
    """Return a splat, or a tile with axes of length 1, as a tile of a larger shape."""
    match value:
        case TileInteger():
            if len(value.shape) != len(shape):
                parts = tuple(part.reshape(part.shape[0], *[1] * len(shape)) for part in value.parts)
                return TileInteger(shape, value.base, (), parts)
            return with_shape(value, shape)
        case TileMask():
            if len(value.shape) != len(shape):
                return TileMask(shape, value.flag)
            return TileMask(shape, value.flag, value.intervals, value.parts)
        case TilePointer():
            offset = value.offset
            moved = reshape_lazily(offset, shape) if isinstance(offset, TileInteger) else offset
            return TilePointer(value.argument, moved if isinstance(moved, TileInteger) else Unknown(), shape)
        case _:
            return value


def _map_pointer(value: TileValue, shape: Shape, change: Callable[[TileValue], TileValue]) -> TileValue:
    if isinstance(value, TilePointer):
        moved = change(value.offset)
        return TilePointer(
            value.argument, moved if isinstance(moved, TileInteger) else find_unknown([moved]), shape
        )
    return change(value)


def _evaluate_expand_dims(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    axis, shape = read_integer_attribute(operation, "axis"), find_shape(operation)
    places = [each for each in range(len(shape)) if each != axis]
    return _map_pointer(operands[0], shape, lambda value: move_axes(value, shape, places))


def move_axes(value: TileValue, shape: Shape, places: list[int]) -> TileValue:
    """Return a tile whose axis k is now axis places[k] of a tile of `shape`; the other axes are new."""

    def move(part: NDArray[_Number]) -> NDArray[_Number]:
        lengths = [1] * len(shape)
        for axis, place in enumerate(places):
            lengths[place] = part.shape[axis + 1]
        order = np.argsort(places, kind="stable")
        return part.transpose(0, *(int(each) + 1 for each in order)).reshape(part.shape[0], *lengths)

    if isinstance(value, TileInteger):
        strides = tuple((places[axis], stride) for axis, stride in value.strides)
        return TileInteger(shape, value.base, strides, tuple(move(part) for part in value.parts))
    if isinstance(value, TileMask):
        intervals = tuple((places[axis], first, end) for axis, first, end in value.intervals)
        return TileMask(shape, value.flag, intervals, tuple(move(part) for part in value.parts))
    return value


def _evaluate_transpose(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    order, shape = operation.find_attribute("order"), find_shape(operation)
    if not isinstance(order, DenseAttribute):
        places = list(reversed(range(len(shape))))
    else:
        numbers = [each.value for each in order.values if isinstance(each, IntegerAttribute)]
        if sorted(numbers) != list(range(len(shape))):
            return Unknown()
        places = [numbers.index(axis) for axis in range(len(shape))]
    return _map_pointer(operands[0], shape, lambda value: move_axes(value, shape, places))


def _evaluate_reshape(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    shape = find_shape(operation)
    return _map_pointer(operands[0], shape, lambda value: _reshape(value, shape))


def _reshape(value: TileValue, shape: Shape) -> TileValue:
    if isinstance(value, TileInteger):
        if value.is_splat:
            return TileInteger(shape, value.base)
        numbers = _fill(materialize(value), value.shape)
        return TileInteger(shape, np.zeros(1, dtype=np.int64), (), (numbers.reshape(-1, *shape),))
    if isinstance(value, TileMask):
        if value.is_splat:
            return TileMask(shape, value.flag)
        flags = _fill(materialize_mask(value), value.shape)
        return TileMask(shape, TRUE, (), (flags.reshape(-1, *shape),))
    return value


def _fill(array: NDArray[_Number], shape: Shape) -> NDArray[_Number]:
    """Return an array with all axes of a tile at their full length."""
    whole = (array.shape[0], *shape)
    check_size(whole)
    return np.broadcast_to(array, whole)


def _evaluate_join(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    """Return two tiles side by side: `tt.join` along a new last axis, `tt.cat` along the first one."""
    shape = find_shape(operation)
    function = np.concatenate if operation.name == "tt.cat" else np.stack
    axis = 1 if operation.name == "tt.cat" else -1
    if all(isinstance(each, TileMask) for each in operands):
        flags = [_fill(materialize_mask(each), each.shape) for each in operands if isinstance(each, TileMask)]
        return TileMask(shape, TRUE, (), (function(_align_programs(flags), axis=axis),))
    numbers = [_fill(materialize(each), each.shape) for each in operands if isinstance(each, TileInteger)]
    if len(numbers) < len(operands):
        return find_unknown(operands)
    return TileInteger(
        shape, np.zeros(1, dtype=np.int64), (), (function(_align_programs(numbers), axis=axis),)
    )


def _align_programs(arrays: list[NDArray[_Number]]) -> list[NDArray[_Number]]:
    """Return arrays with as many programs each."""
    n_programs = max(len(each) for each in arrays)
    return [np.broadcast_to(each, (n_programs, *each.shape[1:])) for each in arrays]


Binary = Callable[[TileInteger, TileInteger], TileInteger]


def _make_integer_operation(function: Binary) -> Evaluate:
    def evaluate(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
        a, b = operands[0], operands[1]
        if not isinstance(a, TileInteger) or not isinstance(b, TileInteger):
            return find_unknown(operands)
        return with_shape(wrap(function(a, b), find_bits(operation)), find_shape(operation))

    return evaluate


def _subtract(a: TileInteger, b: TileInteger) -> TileInteger:
    return add(a, b, -1)


def _divide_array(a: IntArray, b: IntArray) -> IntArray:
    """Return quotients rounded towards zero; 0 where the divisor is 0."""
    divisor = np.where(b == 0, 1, b)
    quotient = np.abs(a) // np.abs(divisor)
    result: IntArray = np.where((a < 0) != (divisor < 0), -quotient, quotient)
    return result


def _remain_array(a: IntArray, b: IntArray) -> IntArray:
    return a - _divide_array(a, b) * b


def _is_inside(a: TileInteger, b: TileInteger) -> bool:
    """Return whether 0 <= a < b in all programs and elements."""
    if not b.is_splat or a.base.dtype != np.int64:
        return False
    low, high = find_extremes(a)
    return bool(((low >= 0) & (high < b.base)).all())


def _divide(a: TileInteger, b: TileInteger) -> TileInteger:
    if _is_inside(a, b):
        return make_integer(0, a.shape)
    return _divide_affine(a, b) or apply(_divide_array, a, b)


def _divide_affine(a: TileInteger, b: TileInteger) -> TileInteger | None:
    """Return base // d + (rest // d) where the rest of an affine tile stays below what the base leaves.

    A tile of 64 from 64 · pid divided by 128 is pid // 2 in all elements.
    """
    if not b.is_splat or a.parts or a.is_splat or not (b.base > 0).all():
        return None
    low, high = find_extremes(a)
    if not (low >= 0).all() or not (low // b.base == high // b.base).all():
        return None
    return TileInteger(a.shape, low // b.base)


def _remain(a: TileInteger, b: TileInteger) -> TileInteger:
    if _is_inside(a, b):
        return a
    quotient = _divide_affine(a, b)
    if quotient is not None:
        return add(a, scale(quotient, b.base.astype(np.int64)), -1)
    return apply(_remain_array, a, b)


def _divide_up(a: IntArray, b: IntArray) -> IntArray:
    return -(-a // np.where(b == 0, 1, b))


def _divide_down(a: IntArray, b: IntArray) -> IntArray:
    return a // np.where(b == 0, 1, b)


def _make_elementwise(function: Callable[[IntArray, IntArray], IntArray]) -> Binary:
    return lambda a, b: apply(function, a, b)


def _choose_bound(relation: Relation) -> Binary:
    """Return the function that takes the operand for which `a relation b` holds (minimum, maximum)."""

    def choose(a: TileInteger, b: TileInteger) -> TileInteger:
        flag = compare(relation, a, b, 64)
        if flag is None:
            return apply(np.minimum, a, b)
        return select(flag, a, b)

    return choose


def _shift_left(a: TileInteger, b: TileInteger) -> TileInteger:
    if b.is_splat and (b.base >= 0).all() and (b.base < 62).all():
        return scale(a, np.left_shift(1, b.base.astype(np.int64)))
    return apply(lambda left, right: np.left_shift(left, np.clip(right, 0, 63)), a, b)


def _shift_right(a: IntArray, b: IntArray) -> IntArray:
    return np.right_shift(a, np.clip(b, 0, 63))


def _make_unsigned(function: Binary) -> Evaluate:
    def evaluate(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
        a, b = operands[0], operands[1]
        if not isinstance(a, TileInteger) or not isinstance(b, TileInteger):
            return find_unknown(operands)
        bits = find_bits(operation)
        left, right = reinterpret_unsigned(a, bits), reinterpret_unsigned(b, bits)
        if left is None or right is None:
            return Unknown()
        return with_shape(wrap(function(left, right), bits), find_shape(operation))

    return evaluate


def _make_logical(
    on_masks: Callable[[TileMask, TileMask], TileMask], on_integers: Callable[[IntArray, IntArray], IntArray]
) -> Evaluate:
    integers = _make_integer_operation(_make_elementwise(on_integers))

    def evaluate(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
        a, b = operands[0], operands[1]
        if isinstance(a, TileMask) and isinstance(b, TileMask):
            return on_masks(a, b)
        return integers(context, operation, operands)

    return evaluate


def _disjoin(a: TileMask, b: TileMask) -> TileMask:
    for one, other in ((a, b), (b, a)):
        if one.is_splat and one.flag.shape[0] == 1:
            return one if one.flag[0] else other
    return combine_masks(np.logical_or, a, b)


def _exclude(a: TileMask, b: TileMask) -> TileMask:
    for one, other in ((a, b), (b, a)):
        if one.is_splat and one.flag.shape[0] == 1:
            return negate(other) if one.flag[0] else other
    return combine_masks(np.logical_xor, a, b)


def _evaluate_and(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    a, b = operands[0], operands[1]
    for one, other in ((a, b), (b, a)):
        # False and anything is false; beside an unknown condition a known one is an upper bound.
        if isinstance(one, TileMask) and isinstance(other, Unknown):
            if one.is_splat and not one.flag.any():
                return one
            context.note(f"a mask {other.reason or 'that is not known'} is assumed to be true everywhere")
            return one
    return _and(context, operation, operands)


_and = _make_logical(conjoin, np.bitwise_and)

_or = _make_logical(_disjoin, np.bitwise_or)
_xor = _make_logical(_exclude, np.bitwise_xor)


def _on_masks(of_masks: Evaluate, of_integers: Evaluate) -> Evaluate:
    """Return the function of an operation that is a logical one on truth values: numbers of one bit."""

    def evaluate(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
        is_mask = name_type(operation.results[0].type) == "i1"
        return (of_masks if is_mask else of_integers)(context, operation, operands)

    return evaluate


def _find_relation(operation: Operation) -> Relation | None:
    found = operation.find_attribute("predicate")
    if isinstance(found, IntegerAttribute):
        numbered = list(Relation)
        return numbered[found.value] if 0 <= found.value < len(numbered) else None
    text = found.text.strip() if isinstance(found, StringAttribute) else ""
    return Relation(text) if text in list(Relation) else None


def _evaluate_comparison(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    relation = _find_relation(operation)
    a, b = (_to_integer(each) for each in operands[:2])
    if relation is None or not isinstance(a, TileInteger) or not isinstance(b, TileInteger):
        return find_unknown(operands)
    if isinstance(operands[0], TileMask) and relation in _SIGNED_RELATIONS:
        a, b = b, a  # the one bit of a truth value is a sign: true is -1
    found = compare(relation, a, b, count_bits(operation.operands[0].type) or 64)
    return Unknown() if found is None else found


_SIGNED_RELATIONS = frozenset((Relation.SLT, Relation.SLE, Relation.SGT, Relation.SGE))


def _to_integer(value: TileValue) -> TileValue:
    """Return a mask as numbers 0 and 1."""
    if not isinstance(value, TileMask):
        return value
    if value.is_splat:
        return TileInteger(value.shape, value.flag.astype(np.int64))
    numbers = materialize_mask(value).astype(np.int64)
    return TileInteger(value.shape, np.zeros(1, dtype=np.int64), (), (numbers,))


def _evaluate_select(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    flag, a, b = operands[0], operands[1], operands[2]
    if not isinstance(flag, TileMask):
        return find_unknown(operands)
    return choose(flag, a, b)


def choose(flag: TileMask, a: TileValue, b: TileValue) -> TileValue:
    """Return a where a mask holds, else b."""
    if flag.is_splat and flag.flag.shape[0] == 1:
        return a if flag.flag[0] else b
    if isinstance(a, TileInteger) and isinstance(b, TileInteger):
        return select(flag, a, b)
    if isinstance(a, TileMask) and isinstance(b, TileMask):
        condition = TileMask(a.shape, flag.flag, flag.intervals, flag.parts)
        return _disjoin(conjoin(condition, a), conjoin(negate(condition), b))
    if isinstance(a, TilePointer) and isinstance(b, TilePointer):
        return _choose_pointer(flag, a, b)
    if isinstance(a, TensorDescriptor) and isinstance(b, TensorDescriptor) and a.extents is b.extents:
        return replace(a, offsets=_choose_offsets(flag, a.offsets, b.offsets))
    return a if a is b else find_unknown([a, b])


def _choose_pointer(flag: TileMask, a: TilePointer, b: TilePointer) -> TileValue:
    if a.argument != b.argument or isinstance(a.offset, Unknown) or isinstance(b.offset, Unknown):
        return TilePointer(None, Unknown(), a.shape)
    return TilePointer(a.argument, select(flag, a.offset, b.offset), a.shape)


def _choose_offsets(
    flag: TileMask, a: tuple[TileInteger | Unknown, ...], b: tuple[TileInteger | Unknown, ...]
) -> tuple[TileInteger | Unknown, ...]:
    chosen = [choose(flag, ours, theirs) for ours, theirs in zip(a, b, strict=True)]
    return tuple(each if isinstance(each, TileInteger) else Unknown() for each in chosen)


def _evaluate_extension(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    value = operands[0]
    if isinstance(value, TileMask):
        number = _to_integer(value)
        is_signed = operation.name == "arith.extsi"
        return scale(number, np.array([-1])) if is_signed and isinstance(number, TileInteger) else number
    if isinstance(value, TileInteger) and operation.name == "arith.extui":
        return reinterpret_unsigned(value, count_bits(operation.operands[0].type)) or Unknown()
    return value


def _evaluate_truncation(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    value = operands[0]
    if not isinstance(value, TileInteger):
        return value
    if find_bits(operation) == 1:
        odd = apply(np.bitwise_and, value, make_integer(1, value.shape))
        return compare(Relation.NE, odd, make_integer(0, value.shape), 64) or Unknown()
    return wrap(value, find_bits(operation))


def _evaluate_pointer_sum(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    pointer, offset = operands[0], operands[1]
    shape = find_shape(operation)
    if not isinstance(pointer, TilePointer):
        return TilePointer(None, find_unknown(operands), shape)
    if isinstance(pointer.offset, Unknown) or not isinstance(offset, TileInteger):
        return TilePointer(pointer.argument, find_unknown([pointer.offset, offset]), shape)
    element = operation.results[0].type
    pointee = element.element if isinstance(element, TensorType) else element
    size = max(1, count_bits(pointee.pointee) // 8) if isinstance(pointee, PointerType) else 1
    moved = add(pointer.offset, scale(offset, np.array([size], dtype=np.int64)))
    return TilePointer(pointer.argument, with_shape(moved, shape), shape)


def _evaluate_load(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    pointer, kind = operands[0], operation.results[0].type
    place = f"loaded at line {operation.line}"
    if not isinstance(pointer, TilePointer) or pointer.argument is None:
        return Unknown(place)
    name = context.name_argument(pointer.argument)
    unknown = Unknown(f"loaded from {name} at line {operation.line}", f"--arg {name}=@FILE.npy gives it")
    contents = context.find_contents(pointer.argument, name_type(kind))
    if contents is None or isinstance(pointer.offset, Unknown):
        return unknown
    if isinstance(contents, int):
        return _as_kind(make_integer(contents, find_shape(operation)), operation)
    return _as_kind(_gather(context, operation, operands, contents, name), operation)


def _as_kind(value: TileInteger, operation: Operation) -> TileValue:
    if name_type(operation.results[0].type) != "i1":
        return value
    return compare(Relation.NE, value, make_integer(0, value.shape), 64) or Unknown()


def _gather(
    context: EvaluationContext, operation: Operation, operands: Operands, contents: IntArray, name: str
) -> TileInteger:
    """Return what an array holds where a load reads it; `other`, or 0, where its mask is false."""
    pointer, shape = operands[0], find_shape(operation)
    assert isinstance(pointer, TilePointer)
    assert isinstance(pointer.offset, TileInteger)
    size = max(1, count_bits(operation.results[0].type) // 8)
    places = materialize(pointer.offset) // size
    mask = operands[1] if len(operands) > 1 else None
    inside = (places >= 0) & (places < len(contents))
    numbers = contents[np.clip(places, 0, len(contents) - 1)]
    if isinstance(mask, TileMask):
        allowed = materialize_mask(TileMask(shape, mask.flag, mask.intervals, mask.parts))
        other = operands[2] if len(operands) > 2 else None
        instead = materialize(with_shape(other, shape)) if isinstance(other, TileInteger) else 0
        check_size(allowed.shape, numbers.shape)
        numbers = np.where(allowed, numbers, instead)
        inside = inside | ~allowed
    if not inside.all():
        context.note(f"line {operation.line} reads {name} beyond the array that is given for it")
    if not shape:
        return TileInteger((), numbers.reshape(-1))
    return TileInteger(shape, np.zeros(1, dtype=np.int64), (), (numbers,))


_REDUCTIONS: Mapping[str, Callable[..., IntArray]] = {
    "arith.addi": np.sum,
    "arith.muli": np.prod,
    "arith.maxsi": np.max,
    "arith.minsi": np.min,
    "arith.maxui": np.max,
    "arith.minui": np.min,
    "arith.ori": np.bitwise_or.reduce,
    "arith.andi": np.bitwise_and.reduce,
    "arith.xori": np.bitwise_xor.reduce,
}
# Of truth values as 0 and 1; the one bit is a sign, so that true is less than false.
_MASK_REDUCTIONS: Mapping[str, Callable[..., IntArray]] = {
    **dict.fromkeys(("arith.addi", "arith.xori"), np.bitwise_xor.reduce),
    **dict.fromkeys(("arith.andi", "arith.muli", "arith.minui", "arith.maxsi"), np.bitwise_and.reduce),
    **dict.fromkeys(("arith.ori", "arith.maxui", "arith.minsi"), np.bitwise_or.reduce),
}
_SCANS: Mapping[str, Callable[..., IntArray]] = {
    "arith.addi": np.cumsum,
    "arith.maxsi": np.maximum.accumulate,
}


def _find_combiner(operation: Operation) -> str:
    """Return the only operation of a reduction's body, "" if it has more."""
    inner = [each for region in operation.regions for block in region.blocks for each in block.operations]
    return inner[0].name if len(inner) == 2 else ""


def _evaluate_reduction(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    functions = _MASK_REDUCTIONS if isinstance(operands[0], TileMask) else _REDUCTIONS
    value, function = _to_integer(operands[0]), functions.get(_find_combiner(operation))
    if (
        not isinstance(value, TileInteger)
        or function is None
        or len(operands) != 1
        or value.base.dtype != np.int64
    ):
        return find_unknown(operands)
    axis = read_integer_attribute(operation, "axis")
    numbers = _fill(materialize(value), value.shape)
    found = function(numbers, axis=axis + 1)
    shape = find_shape(operation)
    if not shape:
        return _as_kind(TileInteger((), found.reshape(-1)), operation)
    return _as_kind(TileInteger(shape, np.zeros(1, dtype=np.int64), (), (found,)), operation)


def _evaluate_scan(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    value, function = operands[0], _SCANS.get(_find_combiner(operation))
    reverse = operation.find_attribute("reverse")
    is_reverse = isinstance(reverse, IntegerAttribute) and bool(reverse.value)
    if not isinstance(value, TileInteger) or function is None or is_reverse or value.base.dtype != np.int64:
        return find_unknown(operands)
    axis = read_integer_attribute(operation, "axis")
    numbers = _fill(materialize(value), value.shape)
    return TileInteger(value.shape, np.zeros(1, dtype=np.int64), (), (function(numbers, axis=axis + 1),))


def _evaluate_descriptor(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    rank = (len(operands) - 1) // 2
    pointer = operands[0]
    numbers = _keep_numbers(operands[1:])
    return TensorDescriptor(
        pointer if isinstance(pointer, TilePointer) else Unknown(), numbers[:rank], numbers[rank : 2 * rank]
    )


def _evaluate_block_pointer(
    context: EvaluationContext, operation: Operation, operands: Operands
) -> TileValue:
    """Return the pointer to a block that `tt.make_tensor_ptr` makes: pointer, extents, strides, offsets."""
    rank = (len(operands) - 1) // 3
    described = _evaluate_descriptor(context, operation, operands[: 2 * rank + 1])
    assert isinstance(described, TensorDescriptor)
    return replace(described, offsets=_keep_numbers(operands[2 * rank + 1 :]))


def _evaluate_advance(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    block, steps = operands[0], _keep_numbers(operands[1:])
    if not isinstance(block, TensorDescriptor) or len(block.offsets) != len(steps):
        return find_unknown(operands)
    moved = [
        add(offset, step) if isinstance(offset, TileInteger) and isinstance(step, TileInteger) else Unknown()
        for offset, step in zip(block.offsets, steps, strict=True)
    ]
    return replace(block, offsets=tuple(moved))


def _keep_numbers(operands: Operands) -> tuple[TileInteger | Unknown, ...]:
    return tuple(each if isinstance(each, TileInteger) else find_unknown([each]) for each in operands)


def _evaluate_tensor_map(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    """Return the descriptor that `ttng.tensormap_create` writes: pointer, address, box, extents, strides.

    Box and extents list the innermost axis first.
    """
    sizes = [index for index, each in enumerate(operation.operands) if index > 1]
    rank = (len(sizes) + 1) // 4
    extents = operands[2 + rank : 2 + 2 * rank]
    numbers = _keep_numbers(extents[::-1])
    pointer = operands[1] if len(operands) > 1 else Unknown()
    return TensorDescriptor(pointer if isinstance(pointer, TilePointer) else Unknown(), numbers)


def _make_float_operation(function: Callable[..., NDArray[np.float64]]) -> Evaluate:
    def evaluate(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
        numbers = [each for each in operands if isinstance(each, TileInteger) and each.is_splat]
        if len(numbers) != len(operands):
            return find_unknown(operands)
        with np.errstate(all="ignore"):
            found = function(*(each.base.astype(np.float64) for each in numbers))
        return TileInteger(find_shape(operation), found)

    return evaluate


def _evaluate_float_to_integer(
    context: EvaluationContext, operation: Operation, operands: Operands
) -> TileValue:
    value = operands[0]
    if not isinstance(value, TileInteger) or not value.is_splat or not np.isfinite(value.base).all():
        return find_unknown(operands)
    return TileInteger(value.shape, np.trunc(value.base).astype(np.int64))


_FLOAT_RELATIONS: Mapping[str, Callable[..., NDArray[np.bool_]]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def _evaluate_float_comparison(
    context: EvaluationContext, operation: Operation, operands: Operands
) -> TileValue:
    found = operation.find_attribute("predicate")
    name = found.text.strip()[1:] if isinstance(found, StringAttribute) else ""
    a, b = operands[0], operands[1]
    if name not in _FLOAT_RELATIONS or not isinstance(a, TileInteger) or not isinstance(b, TileInteger):
        return find_unknown(operands)
    if not a.is_splat or not b.is_splat:
        return Unknown()
    return TileMask(find_shape(operation), _FLOAT_RELATIONS[name](a.base, b.base))


def _absolute(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    value = operands[0]
    return apply(lambda a, b: np.abs(a), value, value) if isinstance(value, TileInteger) else value


def _evaluate_pointer_cast(context: EvaluationContext, operation: Operation, operands: Operands) -> TileValue:
    return TilePointer(None, Unknown(), find_shape(operation))


_integer = _make_integer_operation
EVALUATIONS: Mapping[str, Evaluate] = {
    "arith.constant": _evaluate_constant,
    "tt.get_program_id": _evaluate_program_id,
    "tt.get_num_programs": _evaluate_program_count,
    "tt.make_range": _evaluate_range,
    "tt.splat": _evaluate_splat,
    "tt.unsplat": _keep,
    "tt.broadcast": _evaluate_splat,
    "tt.expand_dims": _evaluate_expand_dims,
    "tt.trans": _evaluate_transpose,
    "tt.reshape": _evaluate_reshape,
    "tt.addptr": _evaluate_pointer_sum,
    "tt.load": _evaluate_load,
    "tt.reduce": _evaluate_reduction,
    "tt.scan": _evaluate_scan,
    "tt.join": _evaluate_join,
    "tt.cat": _evaluate_join,
    "tt.make_tensor_descriptor": _evaluate_descriptor,
    "tt.make_tensor_ptr": _evaluate_block_pointer,
    "tt.advance": _evaluate_advance,
    "ttng.tensormap_create": _evaluate_tensor_map,
    "ttng.reinterpret_tensor_descriptor": _keep,
    "tt.int_to_ptr": _evaluate_pointer_cast,
    "tt.bitcast": _keep,
    "ttg.convert_layout": _keep,
    "arith.index_cast": _keep,
    "arith.index_castui": _keep,
    "arith.bitcast": _keep,
    "arith.extsi": _evaluate_extension,
    "arith.extui": _evaluate_extension,
    "arith.trunci": _evaluate_truncation,
    "arith.addi": _on_masks(_xor, _integer(add)),
    "arith.subi": _on_masks(_xor, _integer(_subtract)),
    "arith.muli": _on_masks(_evaluate_and, _integer(multiply)),
    "arith.divsi": _integer(_divide),
    "arith.remsi": _integer(_remain),
    "arith.ceildivsi": _integer(_make_elementwise(_divide_up)),
    "arith.floordivsi": _integer(_make_elementwise(_divide_down)),
    "arith.minsi": _on_masks(_or, _integer(_choose_bound(Relation.SLT))),
    "arith.maxsi": _on_masks(_evaluate_and, _integer(_choose_bound(Relation.SGT))),
    "arith.shli": _integer(_shift_left),
    "arith.shrsi": _integer(_make_elementwise(_shift_right)),
    "arith.shrui": _make_unsigned(_make_elementwise(_shift_right)),
    "arith.divui": _make_unsigned(_divide),
    "arith.remui": _make_unsigned(_remain),
    "arith.ceildivui": _make_unsigned(_make_elementwise(_divide_up)),
    "arith.minui": _on_masks(_evaluate_and, _make_unsigned(_choose_bound(Relation.SLT))),
    "arith.maxui": _on_masks(_or, _make_unsigned(_choose_bound(Relation.SGT))),
    "arith.andi": _evaluate_and,
    "arith.ori": _or,
    "arith.xori": _xor,
    "arith.cmpi": _evaluate_comparison,
    "arith.select": _evaluate_select,
    "math.absi": _absolute,
    "arith.addf": _make_float_operation(np.add),
    "arith.subf": _make_float_operation(np.subtract),
    "arith.mulf": _make_float_operation(np.multiply),
    "arith.divf": _make_float_operation(np.divide),
    "math.ceil": _make_float_operation(np.ceil),
    "math.floor": _make_float_operation(np.floor),
    "arith.sitofp": _make_float_operation(np.positive),
    "arith.fptosi": _evaluate_float_to_integer,
    "arith.cmpf": _evaluate_float_comparison,
}
