"""Integer arithmetic, logic, shifts, compares and selects of PTX as instructions of the target.

64-bit operations go by words, as ptxas writes them: a sum is IADD3 with a carry and IADD3.X (one IADD.64 from
sm_100 on), a product three multiply-adds. Division is the sequence of ptxas: a reciprocal of the divisor as a
single, one Newton step in integers, two corrections. Registers of 16 bits hold garbage above bit 15, which
is cleared where it would matter.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.ptx.lowering_context import (
    TYPE_BITS,
    FormTable,
    LoweringContext,
    UnsupportedPtxError,
    find_word,
    format_integer,
    is_constant,
    take_operands,
)
from analyzer.frontend.ptx.statements import PtxInstruction, PtxOperand, PtxPair, PtxRegister
from analyzer.frontend.ptx.virtual_code import TRUE, ZERO, PredicateRef, VirtualOperand, WordRef

Lowering = Callable[[LoweringContext, PtxInstruction], None]

_LOGIC_TABLES = FormTable({"and": 0xC0, "or": 0xFC, "xor": 0x3C})
_PREDICATE_TABLES = FormTable({"and": 0x80, "or": 0xFE, "xor": 0x96})
_FIRST_NEW_MIN_MAX = 90  # VIMNMX instead of IMNMX


def find_type(instruction: PtxInstruction) -> str:
    """Return the last type among the modifiers. Raises UnsupportedPtxError without one."""
    for word in reversed(instruction.modifiers):
        if word in TYPE_BITS:
            return word
    raise UnsupportedPtxError


def is_signed(type_name: str) -> bool:
    """Return whether a type is a signed integer."""
    return type_name.startswith("s")


def negate(source: VirtualOperand) -> VirtualOperand:
    """Return the operand with the opposite sign."""
    if isinstance(source, str):
        if source == ZERO:
            return source
        return source[1:] if source.startswith("-") else f"-{source}"
    if isinstance(source, WordRef) or hasattr(source, "prefix"):
        return replace(source, prefix="" if source.prefix == "-" else "-")
    raise UnsupportedPtxError


def extend_half(ctx: LoweringContext, operand: PtxOperand, *, signed: bool) -> VirtualOperand:
    """Return a 16-bit source as a full word."""
    source = ctx.read_word(operand)
    if isinstance(source, str):
        value = int(source, 16) & 0xFFFF if source != ZERO else 0
        return format_integer(value - 0x10000 if signed and value & 0x8000 else value)
    word = ctx.make_temporary()
    with ctx.without_guard():
        if signed:
            ctx.emit_alu("PRMT", word, ctx.to_register(source), "0x9910", ZERO)
        else:
            ctx.emit_alu("LOP3.LUT", word, ctx.to_register(source), "0xffff", ZERO, "0xc0", "!PT")
    return word


def read_number(ctx: LoweringContext, operand: PtxOperand, type_name: str) -> VirtualOperand:
    """Return an integer source of at most 32 bits, extended to a word if its type is narrower."""
    if TYPE_BITS[type_name] == 16:
        return extend_half(ctx, operand, signed=is_signed(type_name))
    return ctx.read_word(operand)


# Sums


def add_words(ctx: LoweringContext, destination: WordRef, *sources: VirtualOperand) -> None:
    """Emit the sum of up to three words."""
    a, b, c = (*sources, ZERO, ZERO)[:3]
    if is_constant(a) or a == ZERO:
        a, b = b, a
    ctx.emit_alu("IADD3", destination, a, b, c)


def add_pairs(
    ctx: LoweringContext,
    destination: WordRef,
    a: tuple[VirtualOperand, VirtualOperand],
    b: tuple[VirtualOperand, VirtualOperand],
    *,
    subtracts: bool = False,
) -> None:
    """Emit a 64-bit sum or difference."""
    if subtracts and isinstance(b[0], str) and isinstance(b[1], str):
        value = -(_parse_word(b[0]) | _parse_word(b[1]) << 32)
        b, subtracts = (format_integer(value & 0xFFFFFFFF), format_integer(value >> 32 & 0xFFFFFFFF)), False
    low, high = find_word(destination, 0), find_word(destination, 1)
    if not subtracts and (is_constant(a[0]) or a[0] == ZERO):
        a, b = b, a
    carry = ctx.make_predicate()
    first, second = ctx.fit_sources((a[0], b[0]))
    upper, other = ctx.fit_sources((a[1], b[1]))
    temporary = low
    if any(isinstance(s, WordRef) and (s.group, s.word) == (low.group, low.word) for s in (upper, other)):
        temporary = ctx.make_temporary()
    with ctx.without_guard() if temporary is not low else ctx.under(ctx.guard or TRUE):
        ctx.emit("IADD3", temporary, carry, first, negate(second) if subtracts else second, ZERO, n_defs=2)
    inverted = invert(ctx, other) if subtracts else other
    ctx.emit("IADD3.X", high, upper, inverted, ZERO, carry, "!PT")
    ctx.move(low, temporary)


def _parse_word(text: str) -> int:
    return 0 if text == ZERO else int(text, 16) & 0xFFFFFFFF


def invert(ctx: LoweringContext, source: VirtualOperand) -> VirtualOperand:
    """Return the operand with all bits inverted."""
    if isinstance(source, str):
        return format_integer(~_parse_word(source) & 0xFFFFFFFF)
    return replace(source, prefix="~")


def lower_add(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower add and sub of integers."""
    if "sat" in instruction.modifiers:
        raise UnsupportedPtxError
    type_name, subtracts = find_type(instruction), instruction.name.startswith("sub")
    destination = ctx.take_destination(instruction.operands[0])
    a, b = instruction.operands[1:3]
    if TYPE_BITS[type_name] == 64:
        if not subtracts and _emit_fused_product(ctx, destination, a, b):
            return
        if ctx.target.has_wide_add:
            pair, other = ctx.read_pair(a), ctx.read_pair(b)
            ctx.emit("IADD.64", destination, pair, negate(other) if subtracts else other)
            return
        add_pairs(ctx, destination, ctx.read_halves(a), ctx.read_halves(b), subtracts=subtracts)
        return
    first, second = ctx.read_word(a), ctx.read_word(b)
    if not subtracts:
        add_words(ctx, destination, first, second)
    elif isinstance(first, WordRef) or isinstance(second, str):
        add_words(ctx, destination, ctx.to_register(first), negate(second))
    else:
        add_words(ctx, destination, negate(ctx.to_register(second)), first)


def _emit_fused_product(ctx: LoweringContext, destination: WordRef, a: PtxOperand, b: PtxOperand) -> bool:
    """Emit the sum of a product that only it reads as one multiply-add; return whether it is such a sum."""
    for operand, other in ((a, b), (b, a)):
        product = ctx.known.find_product(operand, ctx.current)
        if product is None or not isinstance(operand, PtxRegister) or ctx.uses.get(operand.name) != 1:
            continue
        first, second = product.operands[1:3]
        _multiply_wide(ctx, destination, first, second, other, find_type(product))
        return True
    return False


def lower_multiply(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower mul and mad of integers: `.lo`, `.hi` and `.wide`."""
    if "sat" in instruction.modifiers:
        raise UnsupportedPtxError
    type_name, words = find_type(instruction), instruction.modifiers
    operands = instruction.operands
    destination = ctx.take_destination(operands[0])
    addend = operands[3] if len(operands) > 3 else None
    bits = TYPE_BITS[type_name]
    unsigned = "" if is_signed(type_name) else ".U32"
    if "wide" in words:
        if addend is None and TYPE_BITS[type_name] == 32:
            ctx.known.add_product(instruction)
        _multiply_wide(ctx, destination, operands[1], operands[2], addend, type_name)
    elif bits == 64:
        if "hi" in words and addend is not None:
            product = ctx.make_temporary(2)
            multiply_high_pairs(ctx, product, operands[:3], type_name)
            add_pairs(ctx, destination, _split(product), ctx.read_halves(addend))
        elif "hi" in words:
            multiply_high_pairs(ctx, destination, operands, type_name)
        else:
            multiply_pairs(ctx, destination, operands[1], operands[2], addend)
    elif bits == 16 and "hi" in words:
        a, b = (read_number(ctx, operand, type_name) for operand in operands[1:3])
        product = ctx.make_temporary()
        multiply_words(ctx, product, a, b, ZERO)
        ctx.emit(f"SHF.R.{'S32' if not unsigned else 'U32'}.HI", destination, ZERO, "0x10", product)
    elif "hi" in words:
        a, b = ctx.fit_sources(_order(ctx.read_word(operands[1]), ctx.read_word(operands[2])))
        product = destination if addend is None else ctx.make_temporary()
        ctx.emit(f"IMAD.HI{unsigned}", product, a, b, ZERO)
        if addend is not None:
            add_words(ctx, destination, product, ctx.read_word(addend))
    else:
        a, b = _order(ctx.read_word(operands[1]), ctx.read_word(operands[2]))
        c = ZERO if addend is None else ctx.read_word(addend)
        multiply_words(ctx, destination, a, b, c)


def multiply_words(
    ctx: LoweringContext, destination: WordRef, a: VirtualOperand, b: VirtualOperand, c: VirtualOperand
) -> None:
    """Emit the lower word of a product and sum."""
    a, b = _order(a, b)
    ctx.emit_alu("IMAD", destination, a, b, c)


def _order(a: VirtualOperand, b: VirtualOperand) -> tuple[VirtualOperand, VirtualOperand]:
    return (b, a) if is_constant(a) else (a, b)


def _multiply_wide(
    ctx: LoweringContext,
    destination: WordRef,
    a: PtxOperand,
    b: PtxOperand,
    addend: PtxOperand | None,
    type_name: str,
) -> None:
    if TYPE_BITS[type_name] == 64:
        raise UnsupportedPtxError
    first, second = _order(read_number(ctx, a, type_name), read_number(ctx, b, type_name))
    if TYPE_BITS[type_name] == 16:
        multiply_words(ctx, destination, first, second, ZERO if addend is None else ctx.read_word(addend))
        return
    unsigned = "" if is_signed(type_name) else ".U32"
    c: VirtualOperand = ZERO
    if addend is not None:
        constant = ctx.find_constant(addend)
        is_bank = constant is not None and not isinstance(constant, int) and not is_constant(second)
        c = ctx.read_halves(addend)[0] if is_bank else ctx.read_pair(addend)
    ctx.emit(f"IMAD.WIDE{unsigned}", destination, *ctx.fit_sources((first, second)), c)


def multiply_pairs(
    ctx: LoweringContext,
    destination: WordRef,
    a: PtxOperand,
    b: PtxOperand,
    addend: PtxOperand | None,
) -> None:
    """Emit the lower 64 bits of a 64-bit product: three multiply-adds of words."""
    (a_low, a_high), (b_low, b_high) = ctx.read_halves(a), ctx.read_halves(b)
    with ctx.expansion(destination) as result:
        product, cross = ctx.make_temporary(2), ctx.make_temporary()
        c: VirtualOperand = ZERO if addend is None else ctx.read_pair(addend)
        ctx.emit("IMAD.WIDE.U32", product, *ctx.fit_sources(_order(a_low, b_low)), c)
        upper: VirtualOperand = find_word(product, 1)
        if b_high != ZERO:
            ctx.emit("IMAD", cross, *ctx.fit_sources(_order(a_low, b_high)), upper)
            upper = cross
        ctx.emit("IMAD", find_word(result, 1), *ctx.fit_sources(_order(a_high, b_low)), upper)
        ctx.move(find_word(result, 0), find_word(product, 0))


def multiply_high_pairs(
    ctx: LoweringContext, destination: WordRef, operands: tuple[PtxOperand, ...], type_name: str
) -> None:
    """Emit the upper 64 bits of a 64-bit product: four products of words, each with what the last carries.

    A negative factor counts 2^64 too much, so the other factor is subtracted for it.
    """
    (a_low, a_high), (b_low, b_high) = (
        tuple(ctx.to_register(half) for half in ctx.read_halves(operand)) for operand in operands[1:3]
    )
    with ctx.expansion(destination) as result:
        total, carried = ctx.make_temporary(2), ctx.make_temporary(2)
        first, second = ctx.make_temporary(2), ctx.make_temporary(2)
        ctx.emit("IMAD.WIDE.U32", first, a_low, b_low, ZERO)
        ctx.move(find_word(carried, 0), find_word(first, 1))
        ctx.move(find_word(carried, 1), ZERO)
        ctx.emit("IMAD.WIDE.U32", second, a_high, b_low, carried)
        ctx.move(find_word(carried, 0), find_word(second, 0))
        ctx.emit("IMAD.WIDE.U32", first, a_low, b_high, carried)
        ctx.move(find_word(carried, 0), find_word(second, 1))
        ctx.emit("IMAD.WIDE.U32", total, a_high, b_high, carried)
        add_pairs(ctx, total, _split(total), (find_word(first, 1), ZERO))
        if is_signed(type_name):
            for sign, other in ((a_high, (b_low, b_high)), (b_high, (a_low, a_high))):
                bit = ctx.make_predicate()
                ctx.emit("ISETP.LT.AND", bit, TRUE, sign, ZERO, TRUE, n_defs=2)
                with ctx.under(bit):
                    add_pairs(ctx, total, _split(total), other, subtracts=True)
        for word in range(2):
            ctx.move(find_word(result, word), find_word(total, word))


def _split(pair: WordRef) -> tuple[WordRef, WordRef]:
    return find_word(pair, 0), find_word(pair, 1)


def lower_sad(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower sad of at most 32 bits: |a - b| + c."""
    type_name = find_type(instruction)
    a, b, c = (read_number(ctx, operand, type_name) for operand in instruction.operands[1:4])
    unsigned = "" if is_signed(type_name) else ".U32"
    ctx.emit_alu(f"VABSDIFF{unsigned}", ctx.take_destination(instruction.operands[0]), a, b, c)


def lower_dot(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower dp4a and dp2a."""
    words = instruction.modifiers
    types = [word.upper() for word in words if word in ("s32", "u32")]
    if not types:
        raise UnsupportedPtxError
    narrow = "8" if instruction.name == "dp4a" else "16"
    first = types[0].replace("32", narrow)
    second = types[-1].replace("32", "8")
    kind = "4A" if instruction.name == "dp4a" else "2A." + ("HI" if "hi" in words else "LO")
    sources = [ctx.read_word(operand) for operand in instruction.operands[1:4]]
    ctx.emit_alu(f"IDP.{kind}.{first}.{second}", ctx.take_destination(instruction.operands[0]), *sources)


# Division


def lower_divide(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower div and rem of integers; of 64 bits by a routine whose quotient is exact."""
    type_name, gives_rest = find_type(instruction), instruction.name == "rem"
    destination = ctx.take_destination(instruction.operands[0])
    signed = is_signed(type_name)
    if TYPE_BITS[type_name] == 64:
        _divide_pairs(ctx, destination, instruction, signed=signed, gives_rest=gives_rest)
        return
    a = read_number(ctx, instruction.operands[1], type_name)
    b = read_number(ctx, instruction.operands[2], type_name)
    with ctx.expansion(destination) as result:
        if signed:
            _divide_signed(ctx, result, a, b, gives_rest=gives_rest)
        else:
            divisor = _find_reciprocal(ctx, b, signed=False)
            ctx.move(result, _divide_unsigned(ctx, a, divisor, gives_rest=gives_rest))
            _fix_division_by_zero(ctx, result, b)


def _find_reciprocal(ctx: LoweringContext, b: VirtualOperand, *, signed: bool) -> "_Divisor":
    """Return a divisor's reciprocal; divisions by one value in a block share it, as ptxas has them do."""
    assert ctx.current is not None
    key = ctx.known.make_key(("divisor", signed), ctx.current.operands[2], ctx.current)
    known = ctx.known.found.get(key) if key is not None else None
    if isinstance(known, _Divisor):
        return known
    divisor = b
    if signed and isinstance(b, str):
        if b == ZERO:
            raise UnsupportedPtxError
        number = int(b.removeprefix("-"), 16)
        divisor = format_integer(-number & 0xFFFFFFFF if number >> 31 else number)
    elif signed:
        divisor = ctx.make_temporary()
        ctx.emit("IABS", divisor, b)
    negated = negate(divisor) if isinstance(divisor, str) else ctx.make_temporary()
    if isinstance(negated, WordRef):
        ctx.emit("IADD3", negated, ZERO, negate(divisor), ZERO)
    found = _Divisor(divisor, negated, _emit_reciprocal(ctx, divisor, negated))
    if key is not None:
        ctx.known.found[key] = found
    return found


class _Divisor(Struct, frozen=True):
    """A divisor without its sign, and 2^32 over it, nearly."""

    divisor: VirtualOperand
    negated: VirtualOperand
    reciprocal: WordRef


def _emit_reciprocal(ctx: LoweringContext, b: VirtualOperand, negated: VirtualOperand) -> WordRef:
    """Emit a seed from MUFU.RCP, rounded down, and one Newton step in integers."""
    single, seed = ctx.make_temporary(), ctx.make_temporary()
    pair = ctx.make_temporary(2)
    low, reciprocal = find_word(pair, 0), find_word(pair, 1)
    ctx.emit("I2F.U32.RP", single, b)
    ctx.emit("MUFU.RCP", single, single)
    ctx.emit("IADD3", seed, single, "0xffffffe", ZERO)
    ctx.emit("F2I.FTZ.U32.TRUNC.NTZ", reciprocal, seed)
    ctx.emit("MOV", low, ZERO)
    error, better = ctx.make_temporary(), ctx.make_temporary()
    ctx.emit("IMAD", error, reciprocal, negated, ZERO)
    ctx.emit("IMAD.HI.U32", better, reciprocal, error, pair)
    return better


def _divide_unsigned(
    ctx: LoweringContext, a: VirtualOperand, divisor: _Divisor, *, gives_rest: bool
) -> WordRef:
    """Emit a / b or a mod b of unsigned words."""
    quotient, rest, b = ctx.make_temporary(), ctx.make_temporary(), divisor.divisor
    ctx.emit("IMAD.HI.U32", quotient, divisor.reciprocal, a, ZERO)
    dividend = a if isinstance(divisor.negated, WordRef) else ctx.to_register(a)
    ctx.emit("IMAD", rest, quotient, divisor.negated, dividend)
    for _ in range(2):
        is_short = ctx.make_predicate()
        ctx.emit("ISETP.GE.U32.AND", is_short, TRUE, rest, b, TRUE, n_defs=2)
        with ctx.under(is_short):
            ctx.emit("IADD3", rest, rest, negate(b), ZERO)
            if not gives_rest:
                ctx.emit("IADD3", quotient, quotient, "0x1", ZERO)
    return rest if gives_rest else quotient


def _fix_division_by_zero(ctx: LoweringContext, result: WordRef, b: VirtualOperand) -> None:
    if isinstance(b, str):
        return
    is_nonzero = ctx.make_predicate()
    ctx.emit("ISETP.NE.U32.AND", is_nonzero, TRUE, ctx.to_register(b), ZERO, TRUE, n_defs=2)
    with ctx.under(replace(is_nonzero, is_negated=True)):
        ctx.emit("LOP3.LUT", result, ZERO, b, ZERO, "0x33", "!PT")


def _divide_signed(
    ctx: LoweringContext, result: WordRef, a: VirtualOperand, b: VirtualOperand, *, gives_rest: bool
) -> None:
    dividend = ctx.make_temporary()
    ctx.emit("IABS", dividend, a)
    divisor = _find_reciprocal(ctx, b, signed=True)
    found = _divide_unsigned(ctx, dividend, divisor, gives_rest=gives_rest)
    sign = ctx.to_register(a)
    if not gives_rest:
        sign = ctx.make_temporary()
        ctx.emit_alu("LOP3.LUT", sign, a, b, ZERO, "0x3c", "!PT")
    is_positive = ctx.make_predicate()
    ctx.emit("ISETP.GE.AND", is_positive, TRUE, sign, ZERO, TRUE, n_defs=2)
    ctx.move(result, found)
    with ctx.under(replace(is_positive, is_negated=True)):
        ctx.emit("IADD3", result, negate(result), ZERO, ZERO)
    _fix_division_by_zero(ctx, result, b)


def _divide_pairs(
    ctx: LoweringContext,
    destination: WordRef,
    instruction: PtxInstruction,
    *,
    signed: bool,
    gives_rest: bool,
) -> None:
    """Emit a 64-bit division as one instruction that stands for the routine that ptxas calls."""
    a, b = (ctx.read_pair(operand) for operand in instruction.operands[1:3])
    name = "REM" if gives_rest else "DIV"
    ctx.emit(f"VIRTDIV.{name}.{'S64' if signed else 'U64'}", destination, a, b)
    ctx.notes.add("a 64-bit division is one instruction here; ptxas calls a routine of some 70")


# Absolute values, signs, minimum and maximum


def lower_absolute(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower abs and neg of integers."""
    type_name = find_type(instruction)
    destination = ctx.take_destination(instruction.operands[0])
    if TYPE_BITS[type_name] == 64:
        halves = ctx.read_halves(instruction.operands[1])
        if instruction.name == "neg":
            add_pairs(ctx, destination, (ZERO, ZERO), halves, subtracts=True)
            return
        negated, is_positive = ctx.make_temporary(2), ctx.make_predicate()
        with ctx.without_guard():
            add_pairs(ctx, negated, (ZERO, ZERO), halves, subtracts=True)
            ctx.emit("ISETP.GE.AND", is_positive, TRUE, ctx.to_register(halves[1]), ZERO, TRUE, n_defs=2)
        for position, half in enumerate(halves):
            ctx.emit("SEL", find_word(destination, position), half, find_word(negated, position), is_positive)
        return
    source = read_number(ctx, instruction.operands[1], type_name)
    if instruction.name == "neg":
        ctx.emit("IADD3", destination, negate(ctx.to_register(source)), ZERO, ZERO)
    else:
        ctx.emit("IABS", destination, source)


def lower_min_max(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower min and max of integers."""
    if "relu" in instruction.modifiers:
        raise UnsupportedPtxError
    type_name = find_type(instruction)
    takes_smaller = TRUE if instruction.name == "min" else "!PT"
    destination = ctx.take_destination(instruction.operands[0])
    if TYPE_BITS[type_name] == 64:
        compare = "lt" if instruction.name == "min" else "gt"
        bit = ctx.make_predicate()
        halves = [ctx.read_halves(operand) for operand in instruction.operands[1:3]]
        with ctx.without_guard():
            compare_pairs(ctx, bit, TRUE, compare, halves[0], halves[1], type_name, "AND", TRUE)
        temporary = ctx.make_temporary(2)
        for position in range(2):
            first, second = (ctx.to_register(half[position]) for half in halves)
            ctx.emit("SEL", find_word(temporary, position), first, second, bit)
        for position in range(2):
            ctx.move(find_word(destination, position), find_word(temporary, position))
        return
    if TYPE_BITS[type_name] not in (16, 32) or type_name.endswith("x2"):
        raise UnsupportedPtxError
    a, b = _order(*(read_number(ctx, operand, type_name) for operand in instruction.operands[1:3]))
    name = "VIMNMX" if ctx.target.number >= _FIRST_NEW_MIN_MAX else "IMNMX"
    unsigned = "" if is_signed(type_name) else ".U32"
    ctx.emit_alu(f"{name}{unsigned}", destination, a, b, takes_smaller)


# Logic and bits


def lower_logic(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower and, or, xor."""
    type_name = find_type(instruction)
    if type_name == "pred":
        bits = [ctx.read_predicate(operand) for operand in instruction.operands[1:3]]
        _emit_predicate_logic(ctx, instruction, bits[0], bits[1], _PREDICATE_TABLES[instruction.name])
        return
    table = f"{_LOGIC_TABLES[instruction.name]:#x}"
    destination = ctx.take_destination(instruction.operands[0])
    if TYPE_BITS[type_name] == 64:
        halves = [ctx.read_halves(operand) for operand in instruction.operands[1:3]]
        for position in range(2):
            a, b = _order(*(half[position] for half in halves))
            _emit_logic_word(ctx, find_word(destination, position), a, b, table)
        return
    a, b = _order(*(ctx.read_word(operand) for operand in instruction.operands[1:3]))
    _emit_logic_word(ctx, destination, a, b, table)


def _emit_logic_word(
    ctx: LoweringContext, destination: WordRef, a: VirtualOperand, b: VirtualOperand, table: str
) -> None:
    a, b = (b, a) if a == ZERO else (a, b)
    ctx.emit("LOP3.LUT", destination, *ctx.fit_sources((a, b)), ZERO, table, "!PT")


def _emit_predicate_logic(
    ctx: LoweringContext,
    instruction: PtxInstruction,
    a: PredicateRef | str,
    b: PredicateRef | str,
    table: int,
) -> None:
    """Emit PLOP3; its table has bit 4a + 2b + c, with c true."""
    result = ctx.take_result_predicate(instruction.operands[0])
    bits = 0
    for index in range(8):
        inputs = index >> 2 & 1, index >> 1 & 1
        value = {0x80: inputs[0] & inputs[1], 0xFE: inputs[0] | inputs[1], 0x96: inputs[0] ^ inputs[1]}[table]
        bits |= value << index
    ctx.emit("PLOP3.LUT", result, TRUE, a, b, TRUE, f"{bits:#x}", "0x0", n_defs=2)


def lower_not(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower not and cnot."""
    type_name = find_type(instruction)
    if type_name == "pred":
        voted = ctx.read_predicate(instruction.operands[1])
        result = ctx.take_result_predicate(instruction.operands[0])
        ctx.emit("PLOP3.LUT", result, TRUE, voted, TRUE, TRUE, "0xf", "0x0", n_defs=2)
        return
    destination = ctx.take_destination(instruction.operands[0])
    if instruction.name == "cnot":
        bit = ctx.make_predicate()
        source = ctx.read_register(instruction.operands[1])
        ctx.emit("ISETP.EQ.U32.AND", bit, TRUE, source, ZERO, TRUE, n_defs=2)
        ctx.emit("SEL", destination, ctx.to_register("0x1"), ZERO, bit)
        return
    halves = ctx.read_halves(instruction.operands[1])
    for position in range(destination.n_words):
        word = ctx.to_register(halves[position])
        ctx.emit("LOP3.LUT", find_word(destination, position), ZERO, word, ZERO, "0x33", "!PT")


def lower_lop3(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower lop3.b32; of a second result, whether any bit is set, joined with a predicate."""
    target = instruction.operands[0]
    a, b, c = (ctx.read_word(operand) for operand in instruction.operands[1:4])
    table = ctx.read_word(instruction.operands[4])
    destination = ctx.take_destination(target)
    ctx.emit("LOP3.LUT", destination, *ctx.fit_sources((a, b, c)), "0x0" if table == ZERO else table, "!PT")
    if isinstance(target, PtxPair):
        join = _JOINS[instruction.modifiers[0]]
        joined = ctx.read_predicate(take_operands(instruction, 6)[5])
        bit = ctx.take_result_predicate(target.second)
        ctx.emit(f"ISETP.NE.U32.{join}", bit, TRUE, destination, ZERO, joined, n_defs=2)


def lower_shift(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower shl and shr; the amount is clamped to the width."""
    type_name = find_type(instruction)
    destination = ctx.take_destination(instruction.operands[0])
    amount = ctx.read_word(instruction.operands[2])
    if TYPE_BITS[type_name] == 64:
        is_left = instruction.name == "shl"
        source_pair = ctx.read_halves(instruction.operands[1])
        shift_pair(ctx, destination, source_pair, amount, instruction, left=is_left)
        return
    if instruction.name == "shl":
        source = ctx.read_register(instruction.operands[1])
        if isinstance(amount, str) and 0 < _parse_word(amount) < 32:
            factor = format_integer(1 << _parse_word(amount))
            ctx.emit("IMAD.SHL.U32", destination, source, factor, ZERO)
        else:
            ctx.emit("SHF.L.U32", destination, source, amount, ZERO)
        return
    source = ctx.to_register(read_number(ctx, instruction.operands[1], type_name))
    ctx.emit(f"SHF.R.{'S32' if is_signed(type_name) else 'U32'}.HI", destination, ZERO, amount, source)


def shift_pair(
    ctx: LoweringContext,
    destination: WordRef,
    source: tuple[VirtualOperand, VirtualOperand],
    amount: VirtualOperand,
    instruction: PtxInstruction,
    *,
    left: bool,
) -> None:
    """Emit a 64-bit shift: one funnel shift for each word."""
    low, high = (ctx.to_register(half) if half != ZERO else ZERO for half in source)
    signed = "S" if is_signed(find_type(instruction)) else "U"
    with ctx.expansion(destination) as result:
        first, second = find_word(result, 0), find_word(result, 1)
        if any(isinstance(half, WordRef) and half.group == result.group for half in source):
            first = ctx.make_temporary()
        if left:
            ctx.emit("SHF.L.U32", first, low, amount, ZERO)
            ctx.emit("SHF.L.U64.HI", second, low, amount, high)
        else:
            ctx.emit(f"SHF.R.{signed}64", first, low, amount, high)
            ctx.emit(f"SHF.R.{signed}32.HI", second, ZERO, amount, high)
        ctx.move(find_word(result, 0), first)


def lower_funnel(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower shf.l and shf.r of a pair of words."""
    words = instruction.modifiers
    low, high, amount = (ctx.read_word(operand) for operand in instruction.operands[1:4])
    wrap = ".W" if "wrap" in words else ""
    destination = ctx.take_destination(instruction.operands[0])
    a, c = (ctx.to_register(low) if low != ZERO else ZERO), (ctx.to_register(high) if high != ZERO else ZERO)
    if not wrap:  # clamped to 32
        limited = ctx.make_temporary()
        name = "VIMNMX" if ctx.target.number >= _FIRST_NEW_MIN_MAX else "IMNMX"
        ctx.emit(f"{name}.U32", limited, ctx.to_register(amount), "0x20", TRUE)
        amount = limited
    mnemonic = f"SHF.L{wrap}.U32.HI" if "l" in words else f"SHF.R{wrap}.U32"
    if not wrap:
        mnemonic = "SHF.L.U64.HI" if "l" in words else "SHF.R.U64"
    ctx.emit(mnemonic, destination, a, amount, c)


def lower_bit_field(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower bfe: bits from a position on, sign- or zero-extended."""
    type_name = find_type(instruction)
    start, width = (ctx.read_word(operand) for operand in instruction.operands[2:4])
    source = ctx.read_register(instruction.operands[1])
    destination = ctx.take_destination(instruction.operands[0])
    signed = is_signed(type_name)
    shifted = ctx.make_temporary()
    with ctx.without_guard():
        if not isinstance(start, str):
            start = _take_byte(ctx, start)
        if not isinstance(width, str):
            width = _take_byte(ctx, width)
        ctx.emit(f"SHF.R.{'S32' if signed else 'U32'}.HI", shifted, ZERO, start, source)
    if not signed and isinstance(width, str) and 0 < _parse_word(width) < 32:
        mask = format_integer((1 << _parse_word(width)) - 1)
        ctx.emit("LOP3.LUT", destination, shifted, mask, ZERO, "0xc0", "!PT")
        return
    ctx.emit("SGXT" if signed else "SGXT.U32", destination, shifted, width)


def extract_from_pair(
    ctx: LoweringContext, instruction: PtxInstruction, start: VirtualOperand, width: VirtualOperand
) -> None:
    """Emit bfe of 64 bits at a constant place: a shift to the top, and one back that extends."""
    if not isinstance(start, str) or not isinstance(width, str):
        raise UnsupportedPtxError
    n_bits = min(_parse_word(width), 64 - _parse_word(start))
    if n_bits <= 0:
        raise UnsupportedPtxError
    destination = ctx.take_destination(instruction.operands[0])
    signed = "S" if is_signed(find_type(instruction)) else "U"
    low, high = (ctx.to_register(half) for half in ctx.read_halves(instruction.operands[1]))
    up, down = format_integer(64 - n_bits - _parse_word(start)), format_integer(64 - n_bits)
    moved = ctx.make_temporary(2)
    with ctx.without_guard():
        ctx.emit("SHF.L.U32", find_word(moved, 0), low, up, ZERO)
        ctx.emit("SHF.L.U64.HI", find_word(moved, 1), low, up, high)
    ctx.emit(f"SHF.R.{signed}64", find_word(destination, 0), find_word(moved, 0), down, find_word(moved, 1))
    ctx.emit(f"SHF.R.{signed}32.HI", find_word(destination, 1), ZERO, down, find_word(moved, 1))


def _take_byte(ctx: LoweringContext, source: VirtualOperand) -> WordRef:
    word = ctx.make_temporary()
    ctx.emit_alu("LOP3.LUT", word, ctx.to_register(source), "0xff", ZERO, "0xc0", "!PT")
    return word


def lower_bit_insert(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower bfi: bits of one word put into another at a position."""
    inserted, base, start, width = (ctx.read_word(operand) for operand in instruction.operands[1:5])
    destination = ctx.take_destination(instruction.operands[0])
    moved, mask = ctx.make_temporary(), ctx.make_temporary()
    with ctx.without_guard():
        if not isinstance(start, str):
            start = _take_byte(ctx, start)
        if not isinstance(width, str):
            width = _take_byte(ctx, width)
        ctx.emit("SHF.L.U32", moved, ctx.to_register(inserted), start, ZERO)
        selected: VirtualOperand = mask
        if isinstance(start, str) and isinstance(width, str):
            bits = ((1 << min(_parse_word(width), 32)) - 1) << _parse_word(start)
            selected = format_integer(bits & 0xFFFFFFFF)
        else:
            ctx.emit("BMSK", mask, ctx.to_register(start), width)
    # table of (moved & mask) | (base & ~mask), with the inputs moved, mask, base
    ctx.emit("LOP3.LUT", destination, *ctx.fit_sources((moved, selected, base)), "0xe2", "!PT")


_PERMUTE_MODES = FormTable({  # selectors for the two low bits of the third source
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333), "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
})  # fmt: skip


def _find_permute_selector(ctx: LoweringContext, mode: str, source: VirtualOperand) -> VirtualOperand:
    """Return the selector of a mode of prmt: it is looked up by two bits of the third source."""
    selectors = _PERMUTE_MODES[mode]
    if isinstance(source, str):
        return f"{selectors[0 if source == ZERO else int(source, 16) & 3]:#x}"
    pair, amount, found = ctx.make_temporary(2), ctx.make_temporary(), ctx.make_temporary()
    for place in range(2):
        ctx.move(
            find_word(pair, place), format_integer(selectors[2 * place] | selectors[2 * place + 1] << 16)
        )
    ctx.emit("LOP3.LUT", amount, source, "0x3", ZERO, "0xc0", "!PT")
    ctx.emit("SHF.L.U32", amount, amount, "0x4", ZERO)
    ctx.emit("SHF.R.U64", found, find_word(pair, 0), amount, find_word(pair, 1))
    return found


def lower_permute(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower prmt; of a mode its selector is looked up."""
    a, b, selector = (ctx.read_word(operand) for operand in instruction.operands[1:4])
    first, second = (ctx.to_register(s) if s != ZERO else ZERO for s in (a, b))
    if len(instruction.modifiers) > 1:
        selector = _find_permute_selector(ctx, instruction.modifiers[1], selector)
    shown = "0x0" if selector == ZERO else selector
    ctx.emit("PRMT", ctx.take_destination(instruction.operands[0]), first, shown, second)


def lower_count_bits(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower popc, brev, clz and bfind."""
    type_name, destination = find_type(instruction), ctx.take_destination(instruction.operands[0])
    if TYPE_BITS[type_name] == 64:
        _count_bits_of_pair(ctx, instruction, destination)
        return
    source = ctx.read_register(instruction.operands[1])
    match instruction.name:
        case "popc":
            ctx.emit("POPC", destination, source)
        case "brev":
            ctx.emit("BREV", destination, source)
        case "clz":
            place = ctx.make_temporary()
            ctx.emit("FLO.U32", place, source)
            ctx.emit("IADD3", destination, negate(place), "0x1f", ZERO)
        case _:
            unsigned = "" if is_signed(type_name) else ".U32"
            suffix = ".SH" if "shiftamt" in instruction.modifiers else ""
            ctx.emit(f"FLO{unsigned}{suffix}", destination, source)


def _count_bits_of_pair(ctx: LoweringContext, instruction: PtxInstruction, destination: WordRef) -> None:
    low, high = (ctx.to_register(half) for half in ctx.read_halves(instruction.operands[1]))
    first, second = ctx.make_temporary(), ctx.make_temporary()
    match instruction.name:
        case "popc":
            ctx.emit("POPC", first, low)
            ctx.emit("POPC", second, high)
            add_words(ctx, destination, first, second)
        case "brev":
            ctx.emit("BREV", first, high)
            ctx.emit("BREV", find_word(destination, 1), low)
            ctx.move(find_word(destination, 0), first)
        case "clz":
            bit = ctx.make_predicate()
            ctx.emit("FLO.U32", first, low)
            ctx.emit("IADD3", first, negate(first), "0x3f", ZERO)
            ctx.emit("FLO.U32", second, high)
            ctx.emit("IADD3", second, negate(second), "0x1f", ZERO)
            ctx.emit("ISETP.NE.U32.AND", bit, TRUE, high, ZERO, TRUE, n_defs=2)
            ctx.emit("SEL", destination, second, first, bit)
        case _:
            raise UnsupportedPtxError


# Compares and selects

_INTEGER_COMPARES = FormTable({
    "eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE",
    "lo": "LT", "ls": "LE", "hi": "GT", "hs": "GE",
})  # fmt: skip
_UNSIGNED_COMPARES = frozenset({"lo", "ls", "hi", "hs"})
_JOINS = FormTable({"and": "AND", "or": "OR", "xor": "XOR"})


def lower_compare(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower setp of integers, with its second result and the predicate that it is joined with."""
    emit_integer_compare(ctx, instruction, *take_compare_predicates(ctx, instruction))


def take_compare_predicates(
    ctx: LoweringContext, instruction: PtxInstruction
) -> tuple[PredicateRef | str, PredicateRef | str, str, PredicateRef | str]:
    """Return what a setp writes, compare and complement, how it is joined, and with which predicate."""
    results = instruction.operands[0]
    first, second = (results.first, results.second) if isinstance(results, PtxPair) else (results, None)
    bit = ctx.take_result_predicate(first)
    complement: PredicateRef | str = TRUE if second is None else ctx.take_result_predicate(second)
    return bit, complement, *find_join(ctx, instruction)


def find_join(ctx: LoweringContext, instruction: PtxInstruction) -> tuple[str, PredicateRef | str]:
    """Return how the result of a compare is joined, and with which predicate."""
    if len(instruction.operands) <= 3:
        return "AND", TRUE
    joined = ctx.read_predicate(instruction.operands[3])
    return _JOINS.choose(instruction.modifiers), joined


def emit_integer_compare(
    ctx: LoweringContext,
    instruction: PtxInstruction,
    bit: PredicateRef | str,
    complement: PredicateRef | str,
    join: str,
    joined: PredicateRef | str,
) -> None:
    """Emit the compare of an instruction's second and third operand."""
    type_name, name = find_type(instruction), instruction.modifiers[0]
    a, b = instruction.operands[1:3]
    if name in _UNSIGNED_COMPARES:
        type_name = type_name.replace("s", "u").replace("b", "u")
    if TYPE_BITS[type_name] == 64:
        halves = ctx.read_halves(a), ctx.read_halves(b)
        compare_pairs(ctx, bit, complement, name, *halves, type_name, join, joined)
        return
    unsigned = "" if is_signed(type_name) else ".U32"
    first, second = ctx.fit_sources((read_number(ctx, a, type_name), read_number(ctx, b, type_name)))
    mnemonic = f"ISETP.{_INTEGER_COMPARES[name]}{unsigned}.{join}"
    ctx.emit(mnemonic, bit, complement, first, second, joined, n_defs=2)


def compare_pairs(
    ctx: LoweringContext,
    bit: PredicateRef | str,
    complement: PredicateRef | str,
    name: str,
    a: tuple[VirtualOperand, VirtualOperand],
    b: tuple[VirtualOperand, VirtualOperand],
    type_name: str,
    join: str,
    joined: PredicateRef | str,
) -> None:
    """Emit a 64-bit compare: of the lower words, then of the upper ones with its result."""
    compare, unsigned = _INTEGER_COMPARES[name], "" if is_signed(type_name) else ".U32"
    lower = ctx.make_predicate()
    with ctx.without_guard():
        first, second = ctx.fit_sources((a[0], b[0]))
        ctx.emit(f"ISETP.{compare}.U32.AND", lower, TRUE, first, second, TRUE, n_defs=2)
    first, second = ctx.fit_sources((a[1], b[1]))
    mnemonic = f"ISETP.{compare}{unsigned}.{join}.EX"
    ctx.emit(mnemonic, bit, complement, first, second, joined, lower, n_defs=2)


def lower_select(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower selp of any type."""
    type_name, destination = find_type(instruction), ctx.take_destination(instruction.operands[0])
    bit = ctx.read_predicate(instruction.operands[3])
    if TYPE_BITS[type_name] == 64:
        halves = [ctx.read_halves(operand) for operand in instruction.operands[1:3]]
        with ctx.expansion(destination) as result:
            for position in range(2):
                emit_select(ctx, find_word(result, position), halves[0][position], halves[1][position], bit)
        return
    first, second = (ctx.read_word(operand) for operand in instruction.operands[1:3])
    emit_select(ctx, destination, first, second, bit)


def emit_select(
    ctx: LoweringContext,
    destination: WordRef,
    a: VirtualOperand,
    b: VirtualOperand,
    bit: PredicateRef | str,
) -> None:
    if is_constant(a) and not is_constant(b):
        a, b, bit = b, a, _negate_predicate(bit)
    ctx.emit_alu("SEL", destination, a, b, bit)


def _negate_predicate(bit: PredicateRef | str) -> PredicateRef | str:
    if isinstance(bit, PredicateRef):
        return replace(bit, is_negated=not bit.is_negated)
    return "!PT" if bit == TRUE else TRUE


def lower_slct(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower slct with a selector of 32 bits: a where c >= 0, else b."""
    bit = ctx.make_predicate()
    with ctx.without_guard():
        source = ctx.read_register(instruction.operands[3])
        if instruction.modifiers[-1] == "s32":
            ctx.emit("ISETP.GE.AND", bit, TRUE, source, ZERO, TRUE, n_defs=2)
        else:
            ctx.emit("FSETP.GE.AND", bit, TRUE, source, ZERO, TRUE, n_defs=2)
    destination = ctx.take_destination(instruction.operands[0])
    halves = [ctx.read_halves(operand) for operand in instruction.operands[1:3]]
    for position in range(destination.n_words):
        emit_select(ctx, find_word(destination, position), halves[0][position], halves[1][position], bit)
