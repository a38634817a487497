"""Moves, special registers and conversions of PTX as instructions of the target."""

import struct

from msgspec.structs import replace

from analyzer.frontend.ptx.lowering_context import (
    TYPE_BITS,
    LoweringContext,
    UnsupportedPtxError,
    find_single_bits,
    find_word,
    format_integer,
)
from analyzer.frontend.ptx.lowering_integer import extend_half, find_type, is_signed
from analyzer.frontend.ptx.statements import (
    PtxImmediate,
    PtxInstruction,
    PtxOperand,
    PtxRegister,
    PtxSymbol,
    PtxVector,
)
from analyzer.frontend.ptx.virtual_code import TRUE, ZERO, ConstantRef, VirtualOperand, WordRef


def lower_move(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower mov: of registers and constants, and packing and unpacking of vectors."""
    target, source = instruction.operands[:2]
    if isinstance(target, PtxVector) and isinstance(source, PtxVector):
        _copy_elements(ctx, target, source)
    elif isinstance(target, PtxVector):
        _unpack(ctx, target, source)
    elif isinstance(source, PtxVector):
        _pack(ctx, target, source)
    elif find_type(instruction) == "pred":
        result, bit = ctx.take_result_predicate(target), ctx.read_predicate(source)
        ctx.emit("PLOP3.LUT", result, TRUE, bit, TRUE, TRUE, "0xf0", "0x0", n_defs=2)
    else:
        _copy(ctx, target, source, find_type(instruction))


def _copy_elements(ctx: LoweringContext, target: PtxVector, source: PtxVector) -> None:
    """Copy a vector; all is read before anything is written."""
    if len(source.elements) != len(target.elements):
        raise UnsupportedPtxError
    values = []
    for element, to in zip(source.elements, target.elements, strict=True):
        destination, copy = ctx.take_destination(to), ctx.make_temporary(2)
        ctx.copy_halves(copy, ctx.read_halves(element))
        values.append((destination, copy))
    for destination, copy in values:
        for word in range(destination.n_words):
            ctx.move(find_word(destination, word), find_word(copy, word))


def _copy(ctx: LoweringContext, target: PtxOperand, source: PtxOperand, type_name: str) -> None:
    destination = ctx.take_destination(target)
    special = isinstance(source, PtxRegister) and source.name not in ctx.function.register_types
    if special and destination.n_words == 1 and isinstance(source, PtxRegister):
        value = ctx.read_special(source.name)
        if isinstance(value, WordRef) and ctx.guard is None and ctx.out:
            ctx.out[-1].operands = (destination, *ctx.out[-1].operands[1:])
        else:
            ctx.move(destination, value)
        return
    if destination.n_words == 1:
        if isinstance(source, PtxImmediate) and isinstance(source.value, float):
            bits = find_half_bits(source.value, type_name) if "16" in type_name else None
            ctx.move(destination, format_integer(find_single_bits(source.value) if bits is None else bits))
            return
        ctx.move(destination, ctx.read_word(source))
        return
    if destination.n_words == 4:
        home = ctx.read_vector((source,), words_each=4)
        for word in range(4):
            ctx.move(find_word(destination, word), find_word(home, word))
        return
    ctx.copy_halves(destination, ctx.read_halves(source))


def find_half_bits(value: float, type_name: str) -> int:
    """Return the bits of a number as fp16 or bf16."""
    if type_name.startswith("bf16"):
        return find_single_bits(value) >> 16
    try:
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00


def _pack(ctx: LoweringContext, target: PtxOperand, source: PtxVector) -> None:
    destination, elements = ctx.take_destination(target), source.elements
    n_elements = len(elements)
    bits = 32 * destination.n_words // n_elements
    if bits == 32:
        with ctx.expansion(destination) as result:
            values = [ctx.read_word(element) for element in elements]
            if result.n_words > 1:  # an element may be a word of the result itself
                values = [_save(ctx, value, result) for value in values]
            for word, value in enumerate(values):
                ctx.move(find_word(result, word), value)
        return
    if bits == 64:
        values = [half for element in elements for half in ctx.read_halves(element)]
        for word, value in enumerate(values):
            ctx.move(find_word(destination, word), value)
        return
    per_word = n_elements // destination.n_words
    for word in range(destination.n_words):
        part = elements[word * per_word : (word + 1) * per_word]
        _pack_word(ctx, find_word(destination, word), part, bits)


def _save(ctx: LoweringContext, value: VirtualOperand, result: WordRef) -> VirtualOperand:
    if not isinstance(value, WordRef) or value.group != result.group:
        return value
    saved = ctx.make_temporary()
    ctx.move(saved, value)
    return saved


def _pack_word(
    ctx: LoweringContext, destination: WordRef, elements: tuple[PtxOperand, ...], bits: int
) -> None:
    if bits == 16:
        low, high = (ctx.read_word(element) for element in elements)
        ctx.emit("PRMT", destination, _to_source(ctx, low), "0x5410", _to_source(ctx, high))
        return
    if bits != 8 or len(elements) != 4:
        raise UnsupportedPtxError
    words = [_to_source(ctx, ctx.read_word(element)) for element in elements]
    first, second = ctx.make_temporary(), ctx.make_temporary()
    ctx.emit("PRMT", first, words[0], "0x40", words[1])
    ctx.emit("PRMT", second, words[2], "0x40", words[3])
    ctx.emit("PRMT", destination, first, "0x5410", second)


def _to_source(ctx: LoweringContext, value: VirtualOperand) -> VirtualOperand:
    return ZERO if value == ZERO else ctx.to_register(value)


def _unpack(ctx: LoweringContext, target: PtxVector, source: PtxOperand) -> None:
    elements = target.elements
    width = _find_source_words(ctx, source)
    bits = 32 * width // len(elements)
    halves = (ctx.read_word(source),) if width == 1 else _read_words(ctx, source, width)
    if bits >= 32:
        each = bits // 32
        values = [_save_if_target(ctx, value, elements) for value in halves]
        for position, element in enumerate(elements):
            if isinstance(element, PtxRegister) and element.name == "_":
                continue
            destination = ctx.take_destination(element)
            for part in range(each):
                ctx.move(find_word(destination, part), values[position * each + part])
        return
    per_word = len(elements) // width
    for position, element in enumerate(elements):
        if isinstance(element, PtxRegister) and element.name == "_":
            continue
        word, place = divmod(position, per_word)
        selector = {16: (0x7610, 0x7632), 8: (0x4440, 0x4441, 0x4442, 0x4443)}[bits][place]
        source_word = _to_source(ctx, halves[word])
        other = source_word if bits == 16 else ZERO
        ctx.emit("PRMT", ctx.take_destination(element), source_word, f"{selector:#x}", other)


def _save_if_target(
    ctx: LoweringContext, value: VirtualOperand, elements: tuple[PtxOperand, ...]
) -> VirtualOperand:
    names = {e.name for e in elements if isinstance(e, PtxRegister)}
    homes = {ctx.homes[name].group for name in names if name in ctx.homes}
    if not isinstance(value, WordRef) or value.group not in homes:
        return value
    saved = ctx.make_temporary()
    with ctx.without_guard():
        ctx.move(saved, value)
    return saved


def _find_source_words(ctx: LoweringContext, source: PtxOperand) -> int:
    if isinstance(source, PtxRegister):
        return ctx.count_words(source.name) or 1
    return 1


def _read_words(ctx: LoweringContext, source: PtxOperand, width: int) -> tuple[VirtualOperand, ...]:
    if width == 2:
        return ctx.read_halves(source)
    if not isinstance(source, PtxRegister):
        raise UnsupportedPtxError
    home = ctx.find_home(source.name)
    return tuple(find_word(home, position) for position in range(width))


# Conversions

_ROUNDINGS = {"rn": "", "rz": ".RZ", "rm": ".RM", "rp": ".RP"}
_INTEGER_ROUNDINGS = {"rni": "", "rzi": ".TRUNC", "rmi": ".FLOOR", "rpi": ".CEIL"}
_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})


def lower_convert(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower cvt among integers and floats."""
    types = [word for word in instruction.modifiers if word in TYPE_BITS]
    if len(types) < 2:
        raise UnsupportedPtxError
    to, source = types[0], types[-1]
    if TYPE_BITS[to] <= 32 and (to.endswith("x2") or source.endswith("x2") or len(types) > 2):
        _convert_packed(ctx, instruction, to, source)
    elif to in _FLOATS and source in _FLOATS:
        _convert_float(ctx, instruction, to, source)
    elif to in _FLOATS:
        _convert_from_integer(ctx, instruction, to, source)
    elif source in _FLOATS:
        _convert_to_integer(ctx, instruction, to, source)
    elif to == "tf32":
        value = ctx.read_word(instruction.operands[1])
        ctx.emit("F2FP.TF32.F32.PACK_B", ctx.take_destination(instruction.operands[0]), value)
    else:
        _convert_integer(ctx, instruction, to, source)


def _convert_integer(ctx: LoweringContext, instruction: PtxInstruction, to: str, source: str) -> None:
    """Extend or cut an integer; `.sat` clamps it."""
    destination, operand = ctx.take_destination(instruction.operands[0]), instruction.operands[1]
    if "sat" in instruction.modifiers:
        raise UnsupportedPtxError
    bits = min(TYPE_BITS[to], TYPE_BITS[source])
    low = ctx.read_halves(operand)[0]
    if bits < 32:
        signed = is_signed(source) if TYPE_BITS[source] <= TYPE_BITS[to] else is_signed(to)
        low = _extend(ctx, operand, bits, signed=signed)
    if destination.n_words == 1:
        ctx.move(destination, low)
        return
    if TYPE_BITS[source] == 64:
        ctx.copy_halves(destination, ctx.read_halves(operand))
        return
    with ctx.expansion(destination) as result:
        if is_signed(source):
            value = ctx.to_register(low) if low != ZERO else ZERO
            ctx.emit("SHF.R.S32.HI", find_word(result, 1), ZERO, "0x1f", value)
        else:
            ctx.move(find_word(result, 1), ZERO)
        ctx.move(find_word(result, 0), low)


def _extend(ctx: LoweringContext, operand: PtxOperand, bits: int, *, signed: bool) -> VirtualOperand:
    if bits == 16:
        return extend_half(ctx, operand, signed=signed)
    source, word = ctx.read_halves(operand)[0], ctx.make_temporary()
    with ctx.without_guard():
        value = ctx.to_register(source) if source != ZERO else ZERO
        if signed:
            ctx.emit("PRMT", word, value, "0x8880", ZERO)
        else:
            ctx.emit("LOP3.LUT", word, value, "0xff", ZERO, "0xc0", "!PT")
    return word


def _convert_from_integer(ctx: LoweringContext, instruction: PtxInstruction, to: str, source: str) -> None:
    destination = ctx.take_destination(instruction.operands[0])
    rounding = next((_ROUNDINGS[word] for word in instruction.modifiers if word in _ROUNDINGS), "")
    if TYPE_BITS[source] == 64:
        value: VirtualOperand = ctx.read_pair(instruction.operands[1])
    elif TYPE_BITS[source] == 32:
        value = ctx.read_word(instruction.operands[1])
    else:
        value = _extend(ctx, instruction.operands[1], TYPE_BITS[source], signed=is_signed(source))
        source = "s32"
    kind = source.upper().replace("B", "U")
    if to == "f64":
        ctx.emit(f"I2F.F64{'' if kind == 'S32' else '.' + kind}{rounding}", destination, value)
    elif to == "f32":
        is_fast = TYPE_BITS[source] == 32 and ctx.target.number >= 80
        name = "I2FP.F32" if is_fast else "I2F"
        shown = f".{kind}" if is_fast or kind != "S32" else ""
        ctx.emit(f"{name}{shown}{rounding}", destination, value)
    else:
        suffix = "BF16" if to == "bf16" else "F16"
        ctx.emit(f"I2F.{suffix}{'' if kind == 'S32' else '.' + kind}", destination, value)


def _convert_to_integer(ctx: LoweringContext, instruction: PtxInstruction, to: str, source: str) -> None:
    destination, words = ctx.take_destination(instruction.operands[0]), instruction.modifiers
    rounding = next((_INTEGER_ROUNDINGS[word] for word in words if word in _INTEGER_ROUNDINGS), "")
    if source == "f64":
        value: VirtualOperand = ctx.read_pair(instruction.operands[1])
        kind = ".F64"
    elif source == "f32":
        value, kind = ctx.read_word(instruction.operands[1]), ""
    else:
        value, kind = _widen_half(ctx, instruction.operands[1], source), ""
    flush = ".FTZ" if "ftz" in words else ""
    kind_of_integer = "" if to == "s32" else f".{to.upper().replace('B', 'U')}"
    no_trap = "" if TYPE_BITS[to] == 64 or source == "f64" else ".NTZ"
    ctx.emit(f"F2I{flush}{kind_of_integer}{kind}{rounding}{no_trap}", destination, value)


def _widen_half(ctx: LoweringContext, operand: PtxOperand, source: str) -> VirtualOperand:
    word = ctx.make_temporary()
    with ctx.without_guard():
        _emit_widened(ctx, word, ctx.read_word(operand), source)
    return word


def _emit_widened(ctx: LoweringContext, destination: WordRef, value: VirtualOperand, source: str) -> None:
    """Convert fp16 or bf16 to a single: bf16 is its upper half."""
    if source == "bf16":
        if isinstance(value, WordRef):
            ctx.emit("IMAD.U32", destination, value, "0x10000", ZERO)
        else:
            ctx.emit("SHF.L.U32", destination, ctx.to_register(value), "0x10", ZERO)
        return
    half = replace(ctx.to_register(value), suffix=".H0_H0")
    ctx.emit("HADD2.F32", destination, "-RZ", half)


def _convert_float(ctx: LoweringContext, instruction: PtxInstruction, to: str, source: str) -> None:
    destination, words = ctx.take_destination(instruction.operands[0]), instruction.modifiers
    integral = next((_INTEGER_ROUNDINGS[w] for w in words if w in _INTEGER_ROUNDINGS), None)
    operand = instruction.operands[1]
    if to == source:
        _round_float(ctx, instruction, destination, to, integral)
    elif (to, source) == ("f64", "f32"):
        ctx.emit("F2F.F64.F32", destination, ctx.read_float(operand))
    elif (to, source) == ("f32", "f64"):
        ctx.emit("F2F.F32.F64", destination, ctx.read_pair(operand))
    elif to in ("f16", "bf16") and source == "f32":
        ctx.emit(_find_pack_mnemonic(to, words), destination, ZERO, ctx.to_register(ctx.read_word(operand)))
    elif to == "f32":
        _emit_widened(ctx, destination, ctx.read_word(operand), source)
    elif source == "f64":
        ctx.emit(f"F2F.{to.upper()}.F64", destination, ctx.read_pair(operand))
    elif to == "f64":
        ctx.emit("F2F.F64.F32", destination, _widen_half(ctx, operand, source))
    else:
        single = ctx.to_register(_widen_half(ctx, operand, source))
        ctx.emit(_find_pack_mnemonic(to, words), destination, ZERO, single)


def _round_float(
    ctx: LoweringContext, instruction: PtxInstruction, destination: WordRef, to: str, integral: str | None
) -> None:
    operand, words = instruction.operands[1], instruction.modifiers
    if to == "f64":
        if integral is None:
            ctx.copy_halves(destination, ctx.read_halves(operand))
        else:
            ctx.emit(f"FRND.F64{integral}", destination, ctx.read_pair(operand))
        return
    flush = ".FTZ" if "ftz" in words else ""
    if integral is not None:
        suffix = {"f16": ".F16", "bf16": ".BF16"}.get(to, "")
        ctx.emit(f"FRND{flush}{suffix}{integral}", destination, ctx.to_register(ctx.read_word(operand)))
    elif "sat" in words:
        ctx.emit(f"FADD{flush}.SAT", destination, ctx.to_register(ctx.read_float(operand)), "-RZ")
    elif flush:
        ctx.emit("FADD.FTZ", destination, ctx.to_register(ctx.read_float(operand)), "-RZ")
    else:
        ctx.move(destination, ctx.read_word(operand))


def _find_pack_mnemonic(to: str, words: tuple[str, ...]) -> str:
    kind = {"bf16": "BF16", "bf16x2": "BF16", "f16": "F16", "f16x2": "F16"}[to]
    relu = ".RELU" if "relu" in words else ""
    rounding = ".RZ" if "rz" in words else ""
    return f"F2FP{relu}{rounding}.{kind}.F32.PACK_AB"


def _convert_packed(ctx: LoweringContext, instruction: PtxInstruction, to: str, source: str) -> None:
    """Convert two numbers at once: singles to halves, and FP8 and FP4 from and to other formats."""
    destination = ctx.take_destination(instruction.operands[0])
    words = [ctx.to_register(ctx.read_word(operand)) for operand in instruction.operands[1:]]
    if to in ("f16x2", "bf16x2") and source == "f32":
        ctx.emit(_find_pack_mnemonic(to, instruction.modifiers), destination, *words[:2])
        return
    if len(words) == 2:
        kind = to.removesuffix("x2").upper()
        ctx.emit(f"F2FP.SATFINITE.{kind}.F32.PACK_AB_MERGE_C", destination, *words, ZERO)
        return
    if to.endswith("x2") and source.endswith("x2"):
        first, second = (kind.removesuffix("x2").upper() for kind in (to, source))
        ctx.emit(f"F2FP.{first}.{second}.UNPACK_B", destination, words[0])
        return
    raise UnsupportedPtxError


def lower_address_conversion(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower cvta: global addresses are generic ones; shared and local windows have an upper word."""
    words = instruction.modifiers
    destination = ctx.take_destination(instruction.operands[0])
    space = next((word.split("::")[0] for word in words if word not in ("to", "u32", "u64")), "")
    halves = ctx.read_halves(instruction.operands[1])
    if destination.n_words == 1:
        ctx.move(destination, halves[0])
        return
    if space not in ("shared", "local"):
        if space == "param" and "to" not in words:
            halves = _make_parameter_address(ctx, instruction.operands[1], halves[0])
        ctx.copy_halves(destination, halves)
        return
    if "to" in words:
        ctx.copy_halves(destination, (halves[0], ZERO))
        return
    upper = ctx.make_temporary()
    with ctx.without_guard():
        ctx.emit("S2R", upper, "SR_SWINHI" if space == "shared" else "SR_LWINHI")
    ctx.copy_halves(destination, (halves[0], upper))


def _make_parameter_address(
    ctx: LoweringContext, operand: PtxOperand, place: VirtualOperand
) -> tuple[VirtualOperand, VirtualOperand]:
    """Return the generic address of a parameter, such as a tensor map that is one.

    ptxas adds the place of the parameter to a window that constant bank 0 names.
    place: address in the parameter space, which is the offset in that bank; of a symbol it is known here.
    """
    window, start = ctx.target.argument_window, ctx.target.argument_window_start
    if window is None:
        raise UnsupportedPtxError
    pair, carry = ctx.make_temporary(2), ctx.make_predicate()
    low, high = ConstantRef(0, window), ConstantRef(0, window + 4)
    with ctx.without_guard():
        if isinstance(operand, PtxSymbol):
            symbol = ctx.symbols.get(operand.name)
            if symbol is None:
                raise UnsupportedPtxError
            distance = format_integer(symbol.offset - start)
            offset: VirtualOperand = ctx.to_register(distance) if distance != ZERO else ZERO
        else:
            offset = ctx.make_temporary()
            ctx.emit("IADD3", offset, place, format_integer(-start), ZERO)
        ctx.emit("IADD3", find_word(pair, 0), carry, offset, low, ZERO, n_defs=2)
        ctx.emit("IADD3.X", find_word(pair, 1), ZERO, high, ZERO, carry, "!PT")
    return find_word(pair, 0), find_word(pair, 1)
