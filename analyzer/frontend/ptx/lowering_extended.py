"""Rarer integer instructions of PTX: carry chains, video instructions, saturating packs, 64-bit bit fields.

What ptxas writes for them differs by architecture; here they are sequences of the instructions that the
others are lowered to, which give the same values.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from analyzer.frontend.ptx.lowering_context import (
    TYPE_BITS,
    LoweringContext,
    UnsupportedPtxError,
    choose_word,
    find_word,
    format_integer,
    take_operands,
)
from analyzer.frontend.ptx.lowering_integer import (
    add_pairs,
    add_words,
    compare_pairs,
    emit_select,
    extend_half,
    extract_from_pair,
    find_type,
    invert,
    is_signed,
    multiply_high_pairs,
    multiply_pairs,
    negate,
    shift_pair,
)
from analyzer.frontend.ptx.statements import PtxInstruction, PtxOperand, PtxRegister
from analyzer.frontend.ptx.virtual_code import TRUE, ZERO, PredicateRef, VirtualOperand, WordRef

_FIRST_NEW_MIN_MAX = 90  # VIMNMX instead of IMNMX

# Carry chains


def is_carry_chain(instruction: PtxInstruction) -> bool:
    """Return whether an instruction reads or writes the carry: add.cc, addc, mad.lo.cc, madc …"""
    return "cc" in instruction.modifiers or instruction.name in ("addc", "subc", "madc")


def lower_carry_chain(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower add, sub and mad with carry; a difference keeps its borrow inverted, as IADD3.X takes it."""
    words = instruction.modifiers
    destination, subtracts = ctx.take_destination(instruction.operands[0]), instruction.name.startswith("sub")
    if instruction.name.startswith("mad"):
        a: Sequence[VirtualOperand] = _multiply(ctx, instruction, destination.n_words)
        b = ctx.read_halves(instruction.operands[3])
    else:
        a, b = (ctx.read_halves(operand) for operand in instruction.operands[1:3])
    carry = ctx.carry = ctx.carry or ctx.make_predicate()
    results = [ctx.make_temporary() for _ in range(destination.n_words)]
    takes = instruction.name.endswith("c")
    for place, result in enumerate(results):
        first = ctx.to_register(a[place])
        second = invert(ctx, b[place]) if subtracts else b[place]
        is_last = place + 1 == len(results)
        out: PredicateRef | str = carry if not is_last or "cc" in words else TRUE
        if takes or place:
            ctx.emit("IADD3.X", result, out, first, second, ZERO, carry, "!PT", n_defs=2)
        elif subtracts:
            ctx.emit("IADD3", result, out, first, negate(ctx.to_register(b[place])), ZERO, n_defs=2)
        else:
            ctx.emit("IADD3", result, out, first, second, ZERO, n_defs=2)
    for place, result in enumerate(results):
        ctx.move(find_word(destination, place), result)


def _multiply(ctx: LoweringContext, instruction: PtxInstruction, n_words: int) -> Sequence[VirtualOperand]:
    """Emit the lower or upper half of a product; return its words."""
    type_name, operands = find_type(instruction), instruction.operands[:3]
    product = ctx.make_temporary(n_words)
    if n_words == 1:
        a, b = (ctx.to_register(ctx.read_word(operand)) for operand in operands[1:])
        upper = f"IMAD.HI{'' if is_signed(type_name) else '.U32'}"
        ctx.emit(upper if "hi" in instruction.modifiers else "IMAD", product, a, b, ZERO)
    elif "hi" in instruction.modifiers:
        multiply_high_pairs(ctx, product, operands, type_name)
    else:
        multiply_pairs(ctx, product, operands[1], operands[2], None)
    return [find_word(product, place) for place in range(n_words)]


# Limits


def emit_min_max(
    ctx: LoweringContext, a: VirtualOperand, b: VirtualOperand, *, smaller: bool, signed: bool
) -> WordRef:
    """Emit the smaller or larger of two words."""
    name = "VIMNMX" if ctx.target.number >= _FIRST_NEW_MIN_MAX else "IMNMX"
    result = ctx.make_temporary()
    ctx.emit(f"{name}{'' if signed else '.U32'}", result, ctx.to_register(a), b, TRUE if smaller else "!PT")
    return result


def clamp(
    ctx: LoweringContext, value: VirtualOperand, type_name: str, *, source_signed: bool
) -> VirtualOperand:
    """Emit what limits a word to the range of a type of at most 32 bits."""
    bits = TYPE_BITS[type_name]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(type_name) else (0, (1 << bits) - 1)
    if source_signed:
        if low > -(1 << 31):
            value = emit_min_max(ctx, value, format_integer(low), smaller=False, signed=True)
        if high < (1 << 31) - 1:
            value = emit_min_max(ctx, value, format_integer(high), smaller=True, signed=True)
    elif high < (1 << 32) - 1:
        value = emit_min_max(ctx, value, format_integer(high), smaller=True, signed=False)
    return value


def lower_saturated(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower cvt.sat of integers of at most 32 bits."""
    to, source = (word for word in instruction.modifiers if word in TYPE_BITS)
    if max(TYPE_BITS[source], TYPE_BITS[to]) > 32:
        raise UnsupportedPtxError
    value = extract_part(ctx, instruction.operands[1], TYPE_BITS[source], 0, signed=is_signed(source))
    destination = ctx.take_destination(instruction.operands[0])
    ctx.move(destination, clamp(ctx, value, to, source_signed=is_signed(source)))


def lower_convert_pack(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower cvt.pack: two numbers, clamped and put side by side, above them the low bits of a third."""
    to, source = [word for word in instruction.modifiers if word in TYPE_BITS][:2]
    bits = int(to[1:])
    if bits < 8:
        raise UnsupportedPtxError
    parts = [
        clamp(ctx, ctx.read_word(operand), to, source_signed=is_signed(source))
        for operand in instruction.operands[1:3]
    ]
    destination = ctx.take_destination(instruction.operands[0])
    upper, lower = (ctx.to_register(part) for part in parts)
    if bits == 16:
        ctx.emit("PRMT", destination, lower, "0x5410", upper)
        return
    pair, third = ctx.make_temporary(), ctx.to_register(ctx.read_word(instruction.operands[3]))
    ctx.emit("PRMT", pair, lower, "0x40", upper)
    ctx.emit("PRMT", destination, pair, "0x5410", third)


# Parts of words: video instructions, and minimum and maximum of halves


def extract_part(
    ctx: LoweringContext, operand: PtxOperand, bits: int, place: int, *, signed: bool
) -> VirtualOperand:
    """Emit a byte, half or word of a source, extended to a word."""
    part = operand.part if isinstance(operand, PtxRegister) else ""
    if part:
        bits, place = (8 if part[0] == "b" else 16), int(part[1:])
        operand = replace(operand, part="")
    is_minus = isinstance(operand, PtxRegister) and operand.is_minus
    source = ctx.read_word(replace(operand, is_minus=False) if is_minus else operand)
    word: VirtualOperand = source
    if bits == 16 and not place:
        word = extend_half(ctx, replace(operand, is_minus=False) if is_minus else operand, signed=signed)
    elif bits < 32:
        first, top = (bits * place) // 8, 8 if signed else 0
        top = (first + bits // 8 - 1) | top
        selector = first | (first + 1 if bits == 16 else top if signed else 4) << 4
        selector |= (top if signed else 4) << 8 | (top if signed else 4) << 12
        word = ctx.make_temporary()
        ctx.emit("PRMT", word, ctx.to_register(source), f"{selector:#x}", ZERO)
    if is_minus:
        negated = ctx.make_temporary()
        ctx.emit("IADD3", negated, negate(ctx.to_register(word)), ZERO, ZERO)
        return negated
    return word


_VIDEO_JOINS = ("add", "min", "max")


def lower_video(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower the video instructions of words (vadd) and of two and four parts of words (vadd2, vadd4)."""
    name, words = instruction.name, instruction.modifiers
    n_lanes = int(name[-1]) if name[-1].isdigit() else 1
    types = [word for word in words if word in TYPE_BITS]
    to, first = types[0], types[1 if len(types) > 1 else 0]
    second = types[2] if len(types) > 2 else first
    join = next((word for word in words if word in _VIDEO_JOINS), "")
    operands = take_operands(instruction, 3)
    target = operands[0]
    if (isinstance(target, PtxRegister) and target.part) or {"shr7", "shr15", "po"} & set(words):
        raise UnsupportedPtxError
    bits, results = 32 // n_lanes, list[VirtualOperand]()
    for lane in range(n_lanes):
        a = extract_part(ctx, operands[1], bits, lane, signed=is_signed(first))
        b = extract_part(ctx, operands[2], bits, lane, signed=is_signed(second))
        value = _combine(ctx, instruction, a, b, (first, second))
        if "sat" in words:
            if n_lanes == 1:
                raise UnsupportedPtxError
            value = clamp(ctx, value, f"{to[0]}{bits}", source_signed=True)
        results.append(value)
    third = ctx.read_word(operands[3]) if len(operands) > 3 else ZERO
    destination = ctx.take_destination(target)
    ctx.move(destination, _join_lanes(ctx, name, results, join, third, signed=is_signed(to)))


def _combine(
    ctx: LoweringContext,
    instruction: PtxInstruction,
    a: VirtualOperand,
    b: VirtualOperand,
    types: tuple[str, str],
) -> VirtualOperand:
    """Emit the operation on one part."""
    action, words = instruction.name.rstrip("24")[1:], instruction.modifiers
    signed, result = is_signed(types[0]), ctx.make_temporary()
    if action in ("min", "max", "set", "absdiff") and signed != is_signed(types[1]):
        raise UnsupportedPtxError
    first, second = ctx.to_register(a), ctx.to_register(b)
    unsigned = "" if signed else ".U32"
    if action in ("min", "max"):
        return emit_min_max(ctx, first, second, smaller=action == "min", signed=signed)
    if action == "set":
        compare, bit = (
            choose_word(words, ("eq", "ne", "lt", "le", "gt", "ge")),
            ctx.make_predicate(),
        )
        ctx.emit(f"ISETP.{compare.upper()}{unsigned}.AND", bit, TRUE, first, second, TRUE, n_defs=2)
        emit_select(ctx, result, ctx.to_register("0x1"), ZERO, bit)
    elif action in ("shl", "shr"):
        _shift(ctx, result, first, second, f"{action}{'.wrap' if 'wrap' in words else ''}", signed=signed)
    elif action == "absdiff":
        ctx.emit(f"VABSDIFF{unsigned}", result, first, second, ZERO)
    elif action == "mad":
        ctx.emit("IMAD", result, first, second, ctx.to_register(ctx.read_word(instruction.operands[3])))
    elif action in ("add", "sub", "avrg"):
        ctx.emit("IADD3", result, first, negate(second) if action == "sub" else second,
                 "0x1" if action == "avrg" else ZERO)  # fmt: skip
        if action == "avrg":
            half = ctx.make_temporary()
            ctx.emit("SHF.R.S32.HI", half, ZERO, "0x1", result)
            return half
    else:
        raise UnsupportedPtxError
    return result


def _shift(
    ctx: LoweringContext, result: WordRef, source: WordRef, amount: WordRef, action: str, *, signed: bool
) -> None:
    """Emit a shift; of `.wrap` only the low five bits of the amount count."""
    if action.endswith("wrap"):
        wrapped = ctx.make_temporary()
        ctx.emit("LOP3.LUT", wrapped, amount, "0x1f", ZERO, "0xc0", "!PT")
        amount = wrapped
    if action.startswith("shl"):
        ctx.emit("SHF.L.U32", result, source, amount, ZERO)
    else:
        ctx.emit(f"SHF.R.{'S' if signed else 'U'}32.HI", result, ZERO, amount, source)


def _join_lanes(
    ctx: LoweringContext,
    name: str,
    results: Sequence[VirtualOperand],
    join: str,
    third: VirtualOperand,
    *,
    signed: bool,
) -> VirtualOperand:
    """Put the results of all parts together, or add them up."""
    if len(results) == 1:
        if not join or name == "vmad":
            return results[0]
        if join in ("min", "max"):
            return emit_min_max(ctx, results[0], third, smaller=join == "min", signed=signed)
    if join == "add":
        total = ctx.to_register(third) if third != ZERO else third
        for result in results:
            summed = ctx.make_temporary()
            add_words(ctx, summed, result, total)
            total = summed
        return total
    if join:
        raise UnsupportedPtxError
    words = [ctx.to_register(result) for result in results]
    if len(words) == 4:
        pairs = []
        for low, high in (words[:2], words[2:]):
            pair = ctx.make_temporary()
            ctx.emit("PRMT", pair, low, "0x40", high)
            pairs.append(pair)
        words = pairs
    whole = ctx.make_temporary()
    ctx.emit("PRMT", whole, words[0], "0x5410", words[1])
    return whole


def lower_packed_min_max(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower min and max of two halves of a word."""
    signed = is_signed(find_type(instruction))
    results: list[VirtualOperand] = []
    for lane in range(2):
        a, b = (extract_part(ctx, operand, 16, lane, signed=signed) for operand in instruction.operands[1:3])
        value = emit_min_max(ctx, a, b, smaller=instruction.name == "min", signed=signed)
        if "relu" in instruction.modifiers:
            value = emit_min_max(ctx, value, ZERO, smaller=False, signed=True)
        results.append(value)
    joined = _join_lanes(ctx, "", results, "", ZERO, signed=signed)
    ctx.move(ctx.take_destination(instruction.operands[0]), joined)


# Products of 24 bits, sums of differences


def lower_mul24(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower mul24 and mad24: bits 0 to 31 (.lo) or 16 to 47 (.hi) of a product of the low 24 bits."""
    if "sat" in instruction.modifiers:
        raise UnsupportedPtxError
    signed, factors = is_signed(find_type(instruction)), list[WordRef]()
    for operand in instruction.operands[1:3]:
        word = ctx.make_temporary()
        ctx.emit("SGXT" if signed else "SGXT.U32", word, ctx.to_register(ctx.read_word(operand)), "0x18")
        factors.append(word)
    destination, result = ctx.take_destination(instruction.operands[0]), ctx.make_temporary()
    if "lo" in instruction.modifiers:
        ctx.emit("IMAD", result, *factors, ZERO)
    else:
        pair = ctx.make_temporary(2)
        ctx.emit(f"IMAD.WIDE{'' if signed else '.U32'}", pair, *factors, ZERO)
        ctx.emit("SHF.R.U64", result, find_word(pair, 0), "0x10", find_word(pair, 1))
    addend = ctx.read_word(instruction.operands[3]) if len(instruction.operands) > 3 else ZERO
    add_words(ctx, destination, result, addend)


def lower_wide_sad(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower sad of 64 bits: the difference of the larger and the smaller number, and a sum."""
    type_name, (a, b, c) = find_type(instruction), map(ctx.read_halves, instruction.operands[1:4])
    bit, larger, smaller = ctx.make_predicate(), ctx.make_temporary(2), ctx.make_temporary(2)
    compare_pairs(ctx, bit, TRUE, "gt", a, b, type_name, "AND", TRUE)
    for place in range(2):
        first, second = ctx.to_register(a[place]), ctx.to_register(b[place])
        ctx.emit("SEL", find_word(larger, place), first, second, bit)
        ctx.emit("SEL", find_word(smaller, place), second, first, bit)
    difference = ctx.make_temporary(2)
    add_pairs(ctx, difference, _split(larger), _split(smaller), subtracts=True)
    add_pairs(ctx, ctx.take_destination(instruction.operands[0]), _split(difference), c)


def _split(pair: WordRef) -> tuple[WordRef, WordRef]:
    return find_word(pair, 0), find_word(pair, 1)


# Bits


def lower_wide_bit_field(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower bfe of 64 bits: the field is shifted down, then to the top and back, which extends it."""
    known = [ctx.read_word(operand) for operand in instruction.operands[2:4]]
    if all(isinstance(source, str) and source != ZERO for source in known):
        extract_from_pair(ctx, instruction, *known)
        return
    start, width = (_take_byte(ctx, operand) for operand in instruction.operands[2:4])
    rest = _find_rest(ctx, width)
    moved, top = ctx.make_temporary(2), ctx.make_temporary(2)
    shift_pair(ctx, moved, ctx.read_halves(instruction.operands[1]), start, instruction, left=False)
    shift_pair(ctx, top, _split(moved), rest, instruction, left=True)
    shift_pair(ctx, ctx.take_destination(instruction.operands[0]), _split(top), rest, instruction, left=False)


def lower_wide_bit_insert(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower bfi of 64 bits: a mask of the field selects between the shifted number and the other."""
    start, width = (_take_byte(ctx, operand) for operand in instruction.operands[3:5])
    rest, ones = _find_rest(ctx, width), ctx.make_temporary(2)
    for place in range(2):
        ctx.move(find_word(ones, place), format_integer(0xFFFFFFFF))
    low, mask, moved = ctx.make_temporary(2), ctx.make_temporary(2), ctx.make_temporary(2)
    shift_pair(ctx, low, _split(ones), rest, instruction, left=False)
    shift_pair(ctx, mask, _split(low), start, instruction, left=True)
    shift_pair(ctx, moved, ctx.read_halves(instruction.operands[1]), start, instruction, left=True)
    base, destination = (
        ctx.read_halves(instruction.operands[2]),
        ctx.take_destination(instruction.operands[0]),
    )
    for place in range(2):
        words = find_word(moved, place), find_word(mask, place), ctx.to_register(base[place])
        ctx.emit("LOP3.LUT", find_word(destination, place), *words, "0xe2", "!PT")


def _take_byte(ctx: LoweringContext, operand: PtxOperand) -> WordRef:
    word = ctx.make_temporary()
    ctx.emit("LOP3.LUT", word, ctx.to_register(ctx.read_word(operand)), "0xff", ZERO, "0xc0", "!PT")
    return word


def _find_rest(ctx: LoweringContext, width: WordRef) -> WordRef:
    """Return 64 less a width, which is limited to 64."""
    limited, rest = emit_min_max(ctx, width, "0x40", smaller=True, signed=False), ctx.make_temporary()
    ctx.emit("IADD3", rest, negate(limited), "0x40", ZERO)
    return rest


def lower_wide_find(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower bfind of 64 bits: of the upper word, or of the lower one where that has none."""
    low, high = (ctx.to_register(half) for half in ctx.read_halves(instruction.operands[1]))
    if is_signed(find_type(instruction)):
        sign, flipped = ctx.make_temporary(), ctx.make_temporary(2)
        ctx.emit("SHF.R.S32.HI", sign, ZERO, "0x1f", high)
        for place, word in enumerate((low, high)):
            ctx.emit("LOP3.LUT", find_word(flipped, place), word, sign, ZERO, "0x3c", "!PT")
        low, high = _split(flipped)
    first, second, upper = (ctx.make_temporary() for _ in range(3))
    has_upper, is_zero = ctx.make_predicate(), ctx.make_predicate()
    ctx.emit("FLO.U32", first, low)
    ctx.emit("FLO.U32", second, high)
    ctx.emit("IADD3", upper, second, "0x20", ZERO)
    ctx.emit("ISETP.NE.U32.AND", has_upper, TRUE, high, ZERO, TRUE, n_defs=2)
    found, result = ctx.make_temporary(), ctx.take_destination(instruction.operands[0])
    ctx.emit("SEL", found, upper, first, has_upper)
    if "shiftamt" not in instruction.modifiers:
        ctx.move(result, found)
        return
    amount = ctx.make_temporary()
    ctx.emit("IADD3", amount, negate(found), "0x3f", ZERO)
    ctx.emit("ISETP.EQ.U32.AND", is_zero, TRUE, found, format_integer(0xFFFFFFFF), TRUE, n_defs=2)
    ctx.emit("SEL", result, found, amount, is_zero)


def lower_sign_extend(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower szext (extend from a width on) and bmsk (a mask of a start and a width)."""
    a, b = (ctx.to_register(ctx.read_word(operand)) for operand in instruction.operands[1:3])
    if "wrap" in instruction.modifiers:
        limited = [ctx.make_temporary() for _ in (a, b)]
        for word, source in zip(limited, (a, b), strict=True):
            ctx.emit("LOP3.LUT", word, source, "0x1f", ZERO, "0xc0", "!PT")
        a, b = (a if instruction.name == "szext" else limited[0]), limited[1]
    signed = is_signed(find_type(instruction))
    name = "BMSK" if instruction.name == "bmsk" else "SGXT" if signed else "SGXT.U32"
    ctx.emit(name, ctx.take_destination(instruction.operands[0]), a, b)
