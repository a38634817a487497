"""Floating-point arithmetic of PTX as instructions of the target.

Functions go by MUFU. Where PTX does not ask for `.ftz`, ptxas scales subnormal arguments before and the
result after; `div.full`, `div.approx` and the functions have these instructions here too. A correctly
rounded division (`div.rn`, `rcp.rn`, `sqrt.rn`) is its fast path, without the check and the call of the
slow one, which rare operands take:

    div.rn.f32     MUFU.RCP, FCHK, 5 FFMA      sqrt.rn.f32    MUFU.RSQ, range check, 2 FMUL, 2 FFMA
    rcp.rn.f32     range check, MUFU.RCP, FFMA, FADD, FFMA
"""

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.ptx.lowering_context import (
    TYPE_BITS,
    FormTable,
    LoweringContext,
    UnsupportedPtxError,
    find_word,
    format_float,
    is_constant,
)
from analyzer.frontend.ptx.lowering_integer import (
    emit_integer_compare,
    find_join,
    find_type,
    negate,
    take_compare_predicates,
)
from analyzer.frontend.ptx.lowering_moves import find_half_bits
from analyzer.frontend.ptx.statements import PtxImmediate, PtxInstruction, PtxOperand
from analyzer.frontend.ptx.virtual_code import TRUE, ZERO, PredicateRef, VirtualOperand, WordRef

FLOAT_TYPES = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "f32x2"})
_SMALLEST_NORMAL = 1.1754943508222875e-38
_LARGE_DIVISOR = 8.507059173023462e37
_SCALE = 16777216.0
_ROUNDINGS = {"rz": ".RZ", "rm": ".RM", "rp": ".RP"}
_NATIVE_BF16 = 90
_NAMES = FormTable({
    "add": ("FADD", "DADD", "HADD2"), "sub": ("FADD", "DADD", "HADD2"), "mul": ("FMUL", "DMUL", "HMUL2"),
    "fma": ("FFMA", "DFMA", "HFMA2"), "mad": ("FFMA", "DFMA", "HFMA2"),
})  # fmt: skip
_PACKED_SINGLES = FormTable({"add": "FADD2", "mul": "FMUL2", "fma": "FFMA2", "sub": "FADD2"})


def is_float(instruction: PtxInstruction) -> bool:
    """Return whether the type of an instruction is a floating-point one."""
    return find_type(instruction) in FLOAT_TYPES


def _find_suffixes(instruction: PtxInstruction) -> str:
    words = instruction.modifiers
    rounding = next((_ROUNDINGS[word] for word in words if word in _ROUNDINGS), "")
    return (".FTZ" if "ftz" in words else "") + rounding + (".SAT" if "sat" in words else "")


def lower_float_arithmetic(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower add, sub, mul, fma and mad of floats."""
    type_name, name = find_type(instruction), instruction.name
    destination = ctx.take_destination(instruction.operands[0])
    operands = instruction.operands[1:]
    suffix = _find_suffixes(instruction)
    if type_name == "f32":
        sources = [ctx.read_float(operand) for operand in operands]
        if name == "sub":
            sources[1] = negate(sources[1]) if sources[1] != ZERO else "-RZ"
        elif name in ("add", "mul", "fma", "mad") and is_constant(sources[0]):
            sources[0], sources[1] = sources[1], sources[0]
        ctx.emit_alu(_NAMES[name][0] + suffix, destination, *sources)
    elif type_name == "f64":
        sources = [_read_double(ctx, operand) for operand in operands]
        if name == "sub":
            sources[1] = negate(sources[1])
        ctx.emit(_NAMES[name][1] + suffix, destination, *sources)
    elif type_name == "f32x2":
        pairs: list[VirtualOperand] = [ctx.read_pair(operand) for operand in operands]
        ctx.emit(_PACKED_SINGLES[name], destination, *pairs)
    else:
        _emit_half(ctx, name, type_name, destination, operands, suffix)


def _read_double(ctx: LoweringContext, operand: PtxOperand) -> VirtualOperand:
    if isinstance(operand, PtxImmediate):
        return format_float(float(operand.value))
    return ctx.read_pair(operand)


def _read_half(ctx: LoweringContext, operand: PtxOperand, type_name: str) -> VirtualOperand:
    """Return a source of one or two halves; of one, the lower half twice."""
    if isinstance(operand, PtxImmediate) and isinstance(operand.value, float):
        bits = find_half_bits(operand.value, type_name)
        word: VirtualOperand = ctx.to_register(f"{bits | bits << 16:#x}" if bits else ZERO)
    else:
        word = ctx.read_word(operand)
    if word == ZERO:
        return ZERO
    register = ctx.to_register(word)
    return register if type_name.endswith("x2") else replace(register, suffix=".H0_H0")


def _emit_half(
    ctx: LoweringContext,
    name: str,
    type_name: str,
    destination: WordRef,
    operands: tuple[PtxOperand, ...],
    suffix: str,
) -> None:
    sources = [_read_half(ctx, operand, type_name) for operand in operands]
    kind = ".BF16_V2" if type_name.startswith("bf16") else ""
    if name == "sub":
        sources[1] = negate(sources[1])
    if kind and ctx.target.number < _NATIVE_BF16 and name in ("add", "sub", "mul"):
        # sm_80 has only the multiply-add of bf16
        second = [*sources, "-RZ"] if name == "mul" else [sources[0], "1", sources[1]]
        ctx.emit(f"HFMA2{suffix}.BF16_V2", destination, *second)
        return
    ctx.emit(f"{_NAMES[name][2]}{kind}{suffix}", destination, *sources)


def lower_float_sign(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower abs, neg and copysign of floats."""
    type_name, destination = find_type(instruction), ctx.take_destination(instruction.operands[0])
    if instruction.name == "copysign":
        _copy_sign(ctx, instruction, destination)
        return
    source = instruction.operands[1]
    flush = ".FTZ" if "ftz" in instruction.modifiers else ""
    if type_name == "f32":
        ctx.emit(
            f"FADD{flush}", destination, _change_sign(ctx.read_register(source), instruction.name), "-RZ"
        )
    elif type_name == "f64":
        ctx.emit("DADD", destination, "-RZ", _change_sign(ctx.read_pair(source), instruction.name))
    else:
        mask, table = ("0x80008000", "0x3c") if instruction.name == "neg" else ("0x7fff7fff", "0xc0")
        ctx.emit("LOP3.LUT", destination, ctx.read_register(source), mask, ZERO, table, "!PT")


def _change_sign(source: WordRef, name: str) -> WordRef:
    return replace(source, prefix="-") if name == "neg" else replace(source, is_absolute=True)


def _copy_sign(ctx: LoweringContext, instruction: PtxInstruction, destination: WordRef) -> None:
    signs, numbers = (ctx.read_halves(operand) for operand in instruction.operands[1:3])
    last = destination.n_words - 1
    sign, number = ctx.to_register(signs[last]), ctx.to_register(numbers[last])
    ctx.emit("LOP3.LUT", find_word(destination, last), sign, "0x80000000", number, "0xb8", "!PT")
    if last:
        ctx.move(find_word(destination, 0), numbers[0])


def lower_float_min_max(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower min and max of floats."""
    type_name, destination = find_type(instruction), ctx.take_destination(instruction.operands[0])
    words, bit = instruction.modifiers, TRUE if instruction.name == "min" else "!PT"
    flush = ".FTZ" if "ftz" in words else ""
    nan = ".NAN" if "NaN" in words else ""
    if type_name == "f32":
        sources = [ctx.read_float(operand) for operand in instruction.operands[1:]]
        sources = sources[::-1] if is_constant(sources[0]) else sources
        if len(sources) == 3:
            ctx.emit_alu(f"FMNMX3{flush}{nan}", destination, *sources, bit)
        else:
            ctx.emit_alu(f"FMNMX{flush}{nan}", destination, *sources, bit)
    elif type_name == "f64":
        _select_double(ctx, instruction, destination)
    else:
        kind = ".BF16_V2" if type_name.startswith("bf16") else ""
        halves = [_read_half(ctx, operand, type_name) for operand in instruction.operands[1:3]]
        ctx.emit(f"HMNMX2{kind}{nan}", destination, *halves, bit)


def _select_double(ctx: LoweringContext, instruction: PtxInstruction, destination: WordRef) -> None:
    """Lower min and max of doubles as ptxas does from sm_80 on: a compare and two selects."""
    a, b = (ctx.read_pair(operand) for operand in instruction.operands[1:3])
    bit, result = ctx.make_predicate(), ctx.make_temporary(2)
    compare = "LT" if instruction.name == "min" else "GT"
    with ctx.without_guard():
        ctx.emit(f"DSETP.{compare}.AND", bit, TRUE, a, b, TRUE, n_defs=2)
        for position in range(2):
            ctx.emit("SEL", find_word(result, position), find_word(a, position), find_word(b, position), bit)
    for position in range(2):
        ctx.move(find_word(destination, position), find_word(result, position))


_COMPARES = FormTable({
    "eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "equ": "EQU", "neu": "NEU",
    "ltu": "LTU", "leu": "LEU", "gtu": "GTU", "geu": "GEU", "num": "NUM", "nan": "NAN",
})  # fmt: skip


def lower_float_compare(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower setp of floats."""
    emit_float_compare(ctx, instruction, *take_compare_predicates(ctx, instruction))


def emit_float_compare(
    ctx: LoweringContext,
    instruction: PtxInstruction,
    bit: PredicateRef | str,
    other: PredicateRef | str,
    join: str,
    joined: PredicateRef | str,
) -> None:
    """Emit the compare of an instruction's second and third operand."""
    type_name, words = find_type(instruction), instruction.modifiers
    compare = _COMPARES[words[0]]
    flush = ".FTZ" if "ftz" in words else ""
    operands = instruction.operands[1:3]
    if type_name == "f32":
        sources = ctx.fit_sources([ctx.read_float(operand) for operand in operands])
        ctx.emit(f"FSETP.{compare}{flush}.{join}", bit, other, *sources, joined, n_defs=2)
    elif type_name == "f64":
        doubles = [_read_double(ctx, operand) for operand in operands]
        ctx.emit(f"DSETP.{compare}.{join}", bit, other, *doubles, joined, n_defs=2)
    else:
        kind = ".BF16_V2" if type_name.startswith("bf16") else ""
        halves = [_read_half(ctx, operand, type_name) for operand in operands]
        ctx.emit(f"HSETP2{kind}.{compare}{flush}.{join}", bit, other, *halves, joined, n_defs=2)


def lower_set(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower set: all ones or 1.0 where the compare holds, else zero."""
    types = [word for word in instruction.modifiers if word in TYPE_BITS]
    if not types or types[0] not in ("u32", "s32", "f32", "b32"):
        raise UnsupportedPtxError
    bit = ctx.make_predicate()
    join, joined = find_join(ctx, instruction)
    with ctx.without_guard():
        emit = emit_float_compare if is_float(instruction) else emit_integer_compare
        emit(ctx, instruction, bit, TRUE, join, joined)
    value = "0x3f800000" if types[0] == "f32" else "0xffffffff"
    inverse = replace(bit, is_negated=True)
    ctx.emit("SEL", ctx.take_destination(instruction.operands[0]), ZERO, value, inverse)


# Functions

_FUNCTIONS = FormTable(
    {"ex2": "EX2", "lg2": "LG2", "rcp": "RCP", "rsqrt": "RSQ", "sqrt": "SQRT", "tanh": "TANH", "sin": "SIN",
     "cos": "COS"}
)  # fmt: skip


def lower_function(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower ex2, lg2, rcp, rsqrt, sqrt, sin, cos and tanh."""
    type_name, words = find_type(instruction), instruction.modifiers
    destination = ctx.take_destination(instruction.operands[0])
    if type_name == "f64":
        _lower_double_function(ctx, instruction, destination)
        return
    if type_name != "f32":
        _lower_half_function(ctx, instruction, destination, type_name)
        return
    source = ctx.to_register(ctx.read_word(instruction.operands[1]))
    name = _FUNCTIONS[instruction.name]
    with ctx.expansion(destination) as result:
        if "approx" not in words and instruction.name in ("rcp", "sqrt"):
            _emit_rounded_function(ctx, instruction.name, result, source)
        elif instruction.name in ("sin", "cos"):
            turned = ctx.make_temporary()
            ctx.emit("FMUL.RZ", turned, source, format_float(0.15915493667125702))
            ctx.emit(f"MUFU.{name}", result, turned)
        elif "ftz" in words or instruction.name == "tanh":
            ctx.emit(f"MUFU.{name}", result, source)
        else:
            _emit_scaled_function(ctx, instruction.name, result, source)


def _emit_scaled_function(ctx: LoweringContext, name: str, result: WordRef, source: WordRef) -> None:
    """Emit a function with the scaling of small arguments."""
    is_normal, scaled = ctx.make_predicate(), ctx.make_temporary()
    limit = format_float(-126.0 if name == "ex2" else _SMALLEST_NORMAL)
    compared = source if name == "ex2" else replace(source, is_absolute=True)
    ctx.emit("FSETP.GEU.AND", is_normal, TRUE, compared, limit, TRUE, n_defs=2)
    if name == "rcp":
        _emit_scaled_reciprocal(ctx, result, source, is_normal)
        return
    ctx.move(scaled, source)
    small = replace(is_normal, is_negated=True)
    with ctx.under(small):
        ctx.emit("FMUL", scaled, scaled, format_float(0.5 if name == "ex2" else _SCALE))
    ctx.emit(f"MUFU.{_FUNCTIONS[name]}", result, scaled)
    with ctx.under(small):
        match name:
            case "ex2":
                ctx.emit("FMUL", result, result, result)
            case "lg2":
                ctx.emit("FADD", result, result, "-24")
            case "sqrt":
                ctx.emit("FMUL", result, result, format_float(2.0**-12))
            case _:
                ctx.emit("FMUL", result, result, "4096")


def _emit_scaled_reciprocal(
    ctx: LoweringContext, result: WordRef, source: WordRef, is_normal: PredicateRef
) -> None:
    is_large, factor, scaled = ctx.make_predicate(), ctx.make_temporary(), ctx.make_temporary()
    absolute = replace(source, is_absolute=True)
    ctx.emit("FSETP.GT.AND", is_large, TRUE, absolute, format_float(_LARGE_DIVISOR), TRUE, n_defs=2)
    ctx.emit("MOV", factor, "0x4b800000")
    ctx.emit("FSEL", factor, factor, "1", replace(is_normal, is_negated=True))
    ctx.emit("FSEL", factor, factor, "0.25", replace(is_large, is_negated=True))
    ctx.emit("FMUL", scaled, source, factor)
    ctx.emit("MUFU.RCP", scaled, scaled)
    ctx.emit("FMUL", result, factor, scaled)


def _emit_rounded_function(ctx: LoweringContext, name: str, result: WordRef, source: WordRef) -> None:
    """Emit the fast path of a correctly rounded reciprocal or square root."""
    seed, rest, check, bit = (*(ctx.make_temporary() for _ in range(3)), ctx.make_predicate())
    ctx.notes.add("correctly rounded division and roots have their fast path only")
    if name == "rcp":
        ctx.emit("IADD3", check, source, "0x1800000", ZERO)
        ctx.emit("LOP3.LUT", check, check, "0x7f800000", ZERO, "0xc0", "!PT")
        _keep(ctx, "ISETP.GT.U32.AND", bit, TRUE, check, "0x1ffffff", TRUE)
        ctx.emit("MUFU.RCP", seed, source)
        ctx.emit("FFMA", rest, source, seed, "-1")
        ctx.emit("FADD.FTZ", rest, negate(rest), "-RZ")
        ctx.emit("FFMA", result, seed, rest, seed)
        return
    half, root = ctx.make_temporary(), ctx.make_temporary()
    ctx.emit("IADD3", check, source, "-0xd000000", ZERO)
    ctx.emit("MUFU.RSQ", seed, source)
    _keep(ctx, "ISETP.GT.U32.AND", bit, TRUE, check, "0x727fffff", TRUE)
    ctx.emit("FMUL.FTZ", root, source, seed)
    ctx.emit("FMUL.FTZ", half, seed, "0.5")
    ctx.emit("FFMA", rest, negate(root), root, source)
    ctx.emit("FFMA", result, rest, half, root)


def _keep(ctx: LoweringContext, mnemonic: str, *operands: VirtualOperand) -> None:
    """Emit a check whose result only the slow path reads."""
    ctx.emit(mnemonic, *operands, n_defs=2, has_effect=True)


def lower_float_divide(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower div of floats."""
    type_name, words = find_type(instruction), instruction.modifiers
    destination = ctx.take_destination(instruction.operands[0])
    if type_name == "f64":
        _divide_doubles(ctx, instruction, destination)
        return
    if type_name != "f32":
        raise UnsupportedPtxError
    a, b = (ctx.to_register(ctx.read_word(operand)) for operand in instruction.operands[1:3])
    with ctx.expansion(destination) as result:
        if "full" in words or "approx" in words:
            _divide_fast(ctx, result, a, b, words)
        else:
            _divide_rounded(ctx, result, a, b)


class _Reciprocal(Struct, frozen=True):
    """A reciprocal, and the predicates that say how its divisor was scaled."""

    word: WordRef
    is_large: PredicateRef | None
    is_normal: PredicateRef | None


def _divide_fast(
    ctx: LoweringContext, result: WordRef, a: WordRef, b: WordRef, words: tuple[str, ...]
) -> None:
    """Emit a / b; divisions by one value in a block share its reciprocal, as ptxas has them do."""
    assert ctx.current is not None
    key = ctx.known.make_key((words, "reciprocal"), ctx.current.operands[2], ctx.current)
    known = ctx.known.found.get(key) if key is not None else None
    reciprocal = known if isinstance(known, _Reciprocal) else _emit_reciprocal(ctx, b, words)
    if key is not None:
        ctx.known.found[key] = reciprocal
    if reciprocal.is_large is None and reciprocal.is_normal is None:
        ctx.emit("FMUL.FTZ", result, reciprocal.word, a)
        return
    dividend = ctx.make_temporary()
    ctx.move(dividend, a)
    _scale(ctx, dividend, reciprocal.is_large, reciprocal.is_normal)
    ctx.emit("FMUL", result, reciprocal.word, dividend)


def _emit_reciprocal(ctx: LoweringContext, b: WordRef, words: tuple[str, ...]) -> _Reciprocal:
    reciprocal, divisor = ctx.make_temporary(), ctx.make_temporary()
    absolute = replace(b, is_absolute=True)
    is_large = is_normal = None
    if "full" in words:
        is_large = ctx.make_predicate()
        ctx.emit("FSETP.GT.AND", is_large, TRUE, absolute, format_float(_LARGE_DIVISOR), TRUE, n_defs=2)
    if "ftz" not in words:
        is_normal = ctx.make_predicate()
        ctx.emit("FSETP.GEU.AND", is_normal, TRUE, absolute, format_float(_SMALLEST_NORMAL), TRUE, n_defs=2)
    ctx.move(divisor, b)
    _scale(ctx, divisor, is_large, is_normal)
    ctx.emit("MUFU.RCP", reciprocal, divisor)
    return _Reciprocal(reciprocal, is_large, is_normal)


def _scale(
    ctx: LoweringContext, word: WordRef, is_large: PredicateRef | None, is_normal: PredicateRef | None
) -> None:
    if is_large is not None:
        with ctx.under(is_large):
            ctx.emit("FMUL", word, word, "0.25")
    if is_normal is not None:
        with ctx.under(replace(is_normal, is_negated=True)):
            ctx.emit("FMUL", word, word, format_float(_SCALE))


def _divide_rounded(ctx: LoweringContext, result: WordRef, a: WordRef, b: WordRef) -> None:
    seed, error, quotient, rest = (ctx.make_temporary() for _ in range(4))
    ctx.notes.add("correctly rounded division and roots have their fast path only")
    ctx.emit("MUFU.RCP", seed, b)
    ctx.emit("FCHK", ctx.make_predicate(), a, b, has_effect=True)
    ctx.emit("FFMA", error, negate(b), seed, "1")
    ctx.emit("FFMA", error, seed, error, seed)
    ctx.emit("FFMA", quotient, a, error, ZERO)
    ctx.emit("FFMA", rest, negate(b), quotient, a)
    ctx.emit("FFMA", result, error, rest, quotient)


def _divide_doubles(ctx: LoweringContext, instruction: PtxInstruction, destination: WordRef) -> None:
    """Emit the fast path of a double division: a seed, Newton steps, one correction."""
    a, b = (ctx.read_pair(operand) for operand in instruction.operands[1:3])
    ctx.notes.add("correctly rounded division and roots have their fast path only")
    with ctx.expansion(destination) as result:
        reciprocal = _refine_reciprocal(ctx, b)
        quotient, rest = ctx.make_temporary(2), ctx.make_temporary(2)
        ctx.emit("DMUL", quotient, a, reciprocal)
        ctx.emit("DFMA", rest, negate(b), quotient, a)
        ctx.emit("DFMA", result, reciprocal, rest, quotient)


def _refine_reciprocal(ctx: LoweringContext, b: WordRef) -> WordRef:
    seed, error, better = (ctx.make_temporary(2) for _ in range(3))
    ctx.emit("MUFU.RCP64H", find_word(seed, 1), find_word(b, 1))
    ctx.emit("MOV", find_word(seed, 0), "0x1")
    ctx.emit("DFMA", error, negate(b), seed, "1")
    ctx.emit("DFMA", error, error, error, error)
    ctx.emit("DFMA", better, seed, error, seed)
    ctx.emit("DFMA", error, negate(b), better, "1")
    ctx.emit("DFMA", better, better, error, better)
    return better


def _lower_double_function(ctx: LoweringContext, instruction: PtxInstruction, destination: WordRef) -> None:
    source = ctx.read_pair(instruction.operands[1])
    with ctx.expansion(destination) as result:
        if instruction.name == "rcp":
            better = _refine_reciprocal(ctx, source)
            ctx.emit("DADD", result, better, "-RZ")
            return
        if instruction.name not in ("sqrt", "rsqrt"):
            raise UnsupportedPtxError
        seed, error, half, root = (ctx.make_temporary(2) for _ in range(4))
        ctx.emit("MUFU.RSQ64H", find_word(seed, 1), find_word(source, 1))
        ctx.emit("MOV", find_word(seed, 0), ZERO)
        ctx.emit("DMUL", error, seed, seed)
        ctx.emit("DFMA", error, source, negate(error), "1")
        ctx.emit("DFMA", half, error, "0.375", "0.5")
        ctx.emit("DMUL", error, seed, error)
        ctx.emit("DFMA", seed, half, error, seed)
        if instruction.name == "rsqrt":
            ctx.emit("DADD", result, seed, "-RZ")
            return
        ctx.emit("DMUL", root, source, seed)
        ctx.emit("DFMA", error, root, negate(root), source)
        ctx.emit("DFMA", result, error, seed, root)


def _lower_half_function(
    ctx: LoweringContext, instruction: PtxInstruction, destination: WordRef, type_name: str
) -> None:
    """Emit functions of halves: one MUFU for each."""
    name, kind = _FUNCTIONS[instruction.name], ".BF16" if type_name.startswith("bf16") else ".F16"
    source = ctx.read_register(instruction.operands[1])
    if not type_name.endswith("x2"):
        ctx.emit(f"MUFU.{name}{kind}", destination, source)
        return
    low, high, upper = (ctx.make_temporary() for _ in range(3))
    with ctx.without_guard():
        ctx.emit("PRMT", upper, source, "0x7632", source)
        ctx.emit(f"MUFU.{name}{kind}", low, source)
        ctx.emit(f"MUFU.{name}{kind}", high, upper)
    ctx.emit("PRMT", destination, low, "0x5410", high)
