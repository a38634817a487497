"""Loads, stores, atomics, copies and mbarriers of PTX as instructions of the target."""

from collections.abc import Sequence

from msgspec.structs import replace

from analyzer.frontend.ptx.lowering_context import (
    TYPE_BITS,
    FormTable,
    LoweringContext,
    UnsupportedPtxError,
    choose_word,
    emit_group_wait,
    find_word,
    format_integer,
    take_operands,
)
from analyzer.frontend.ptx.lowering_integer import add_pairs, find_type, is_signed
from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxInstruction,
    PtxOperand,
    PtxRegister,
    PtxVector,
)
from analyzer.frontend.ptx.virtual_code import (
    TRUE,
    ZERO,
    ConstantRef,
    MemoryRef,
    VirtualOperand,
    WordRef,
)

_MAX_ACCESS_BYTES = 16
_FIRST_MBARRIER_UNIT = 90  # SYNCS; before it mbarriers are words that ATOMS updates
_SPACES = ("global", "shared", "local", "param", "const")
_LOADS = FormTable({"global": "LDG.E", "shared": "LDS", "local": "LDL", "": "LD.E"})
_STORES = FormTable({"global": "STG.E", "shared": "STS", "local": "STL", "": "ST.E"})
_SIZES = FormTable({1: ".U8", 2: ".U16", 4: "", 8: ".64", 16: ".128"})


def find_space(instruction: PtxInstruction) -> str:
    """Return the state space of an access, "" for a generic one; `shared::cta` is `shared`."""
    for word in instruction.modifiers:
        space = word.split("::")[0]
        if space in _SPACES:
            return space
    return ""


def _list_elements(operand: PtxOperand) -> tuple[PtxOperand, ...]:
    return operand.elements if isinstance(operand, PtxVector) else (operand,)


def read_memory_address(ctx: LoweringContext, operand: PtxOperand, space: str) -> MemoryRef:
    address = ctx.read_address(operand, is_wide=space in ("global", ""))
    if address.base is None and space in ("global", ""):
        pair = ctx.make_temporary(2)
        with ctx.without_guard():
            ctx.move(find_word(pair, 0), format_integer(address.offset))
            ctx.move(find_word(pair, 1), ZERO)
        return MemoryRef(replace(pair, suffix=".64"), 0)
    return address


def lower_load(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower ld and ldu of any space, width and vector."""
    space, type_name = find_space(instruction), find_type(instruction)
    elements = _list_elements(instruction.operands[0])
    if space in ("param", "const"):
        _load_constants(ctx, instruction, elements, TYPE_BITS[type_name] // 8, space)
        return
    mnemonic = _LOADS[space] + _find_cache_suffix(instruction, space)
    address = read_memory_address(ctx, instruction.operands[1], space)
    keeps = "volatile" in instruction.modifiers or "acquire" in instruction.modifiers
    n_bytes = TYPE_BITS[type_name] // 8
    if n_bytes < 4 and len(elements) == 1:
        _load_part(ctx, mnemonic, elements[0], address, type_name, keeps=keeps)
    elif n_bytes < 4:
        _load_small_vector(ctx, mnemonic, elements, address, n_bytes, keeps=keeps)
    else:
        _load_words(ctx, mnemonic, elements, address, n_bytes, keeps=keeps, signed=is_signed(type_name))


def _find_cache_suffix(instruction: PtxInstruction, space: str) -> str:
    words = instruction.modifiers
    if space != "global":
        return ""
    if "nc" in words:
        return ".CONSTANT"
    if "volatile" in words or "acquire" in words or "relaxed" in words or "cv" in words:
        return ".STRONG.SYS" if "sys" in words or "volatile" in words else ".STRONG.GPU"
    return ""


def _load_part(
    ctx: LoweringContext,
    mnemonic: str,
    element: PtxOperand,
    address: MemoryRef,
    type_name: str,
    *,
    keeps: bool,
) -> None:
    """Load a byte or half word; the rest of the register is filled by its sign or zero."""
    size = f".{'S' if is_signed(type_name) else 'U'}{TYPE_BITS[type_name]}"
    destination = ctx.take_destination(element)
    _emit_load(ctx, mnemonic + size, find_word(destination, 0), address, keeps=keeps)
    _extend_result(ctx, destination, signed=is_signed(type_name))


def _extend_result(ctx: LoweringContext, destination: WordRef, *, signed: bool) -> None:
    if destination.n_words < 2:
        return
    upper, low = find_word(destination, 1), find_word(destination, 0)
    if signed:
        ctx.emit("SHF.R.S32.HI", upper, ZERO, "0x1f", low)
    else:
        ctx.move(upper, ZERO)


def _emit_load(
    ctx: LoweringContext, mnemonic: str, destination: WordRef, address: MemoryRef, *, keeps: bool
) -> None:
    ctx.emit(mnemonic, destination, address, has_effect=keeps)


def _load_small_vector(
    ctx: LoweringContext,
    mnemonic: str,
    elements: Sequence[PtxOperand],
    address: MemoryRef,
    n_bytes: int,
    *,
    keeps: bool,
) -> None:
    """Load bytes or half words side by side, and take them apart."""
    total = n_bytes * len(elements)
    group = ctx.make_temporary(max(1, total // 4))
    _emit_load(ctx, mnemonic + _SIZES[total], group, address, keeps=keeps)
    per_word = 4 // n_bytes
    for position, element in enumerate(elements):
        if isinstance(element, PtxRegister) and element.name == "_":
            continue
        word, place = divmod(position, per_word)
        selector = f"{0x7610 + 0x22 * place if n_bytes == 2 else 0x4440 + place:#x}"
        source = find_word(group, word)
        other = source if n_bytes == 2 else ZERO
        ctx.emit("PRMT", ctx.take_destination(element), source, selector, other)


def _load_words(
    ctx: LoweringContext,
    mnemonic: str,
    elements: Sequence[PtxOperand],
    address: MemoryRef,
    n_bytes: int,
    *,
    keeps: bool,
    signed: bool,
) -> None:
    words_each = n_bytes // 4
    if len(elements) == 1 and words_each == 1:
        destination = ctx.take_destination(elements[0])
        _emit_load(ctx, mnemonic, find_word(destination, 0), address, keeps=keeps)
        _extend_result(ctx, destination, signed=signed)
        return
    if len(elements) == 1:
        destination = ctx.take_destination(elements[0])
        _emit_load(ctx, mnemonic + _SIZES[n_bytes], destination, address, keeps=keeps)
        return
    per_access = max(1, _MAX_ACCESS_BYTES // n_bytes)
    for start in range(0, len(elements), per_access):
        part = elements[start : start + per_access]
        place = replace(address, offset=address.offset + start * n_bytes)
        with ctx.take_vector(part, words_each=words_each) as group:
            _emit_load(ctx, mnemonic + _SIZES[n_bytes * len(part)], group, place, keeps=keeps)


def _load_constants(
    ctx: LoweringContext,
    instruction: PtxInstruction,
    elements: Sequence[PtxOperand],
    n_bytes: int,
    space: str,
) -> None:
    """Load parameters (constant bank 0) or constants (bank 3)."""
    address = instruction.operands[1]
    if not isinstance(address, PtxAddress) or address.base is None:
        raise UnsupportedPtxError
    bank = 0 if space == "param" else 3
    constant = ctx.find_constant(address.base)
    base = None if isinstance(constant, int) else ctx.read_register(address.base)
    start = (constant if isinstance(constant, int) else 0) + address.offset
    signed = is_signed(find_type(instruction))
    for position, element in enumerate(elements):
        if isinstance(element, PtxRegister) and element.name == "_":
            continue
        place = ConstantRef(bank, start + position * n_bytes, base)
        destination = ctx.take_destination(element)
        if n_bytes < 4:
            size = f".{'S' if signed else 'U'}{8 * n_bytes}"
            ctx.emit(f"LDC{size}", find_word(destination, 0), place)
        elif n_bytes == 4:
            ctx.emit("LDC", find_word(destination, 0), place)
        elif n_bytes == 8:
            ctx.emit("LDC.64", destination, place)
            continue
        else:
            raise UnsupportedPtxError
        _extend_result(ctx, destination, signed=signed)


def lower_store(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower st of any space, width and vector."""
    space, type_name = find_space(instruction), find_type(instruction)
    if space == "param":
        raise UnsupportedPtxError
    strong = ".STRONG.SYS" if "volatile" in instruction.modifiers else ".STRONG.GPU"
    is_strong = {"volatile", "release", "relaxed"} & set(instruction.modifiers)
    mnemonic = _STORES[space] + (strong if is_strong and space in ("global", "") else "")
    address = read_memory_address(ctx, instruction.operands[0], space)
    elements = _list_elements(instruction.operands[1])
    n_bytes = TYPE_BITS[type_name] // 8
    if n_bytes < 4 and len(elements) == 1:
        value = ctx.read_halves(elements[0])[0]
        source = ZERO if value == ZERO else ctx.to_register(value)
        ctx.emit(mnemonic + _SIZES[n_bytes], address, source, n_defs=0)
    elif n_bytes < 4:
        group = _pack_small_vector(ctx, elements, n_bytes)
        ctx.emit(mnemonic + _SIZES[n_bytes * len(elements)], address, group, n_defs=0)
    else:
        _store_words(ctx, mnemonic, elements, address, n_bytes)


def _pack_small_vector(ctx: LoweringContext, elements: Sequence[PtxOperand], n_bytes: int) -> WordRef:
    words = [ctx.to_register(ctx.read_word(element)) for element in elements]
    group = ctx.make_temporary(max(1, n_bytes * len(elements) // 4))
    with ctx.without_guard():
        if n_bytes == 1:
            halves = []
            for first, second in zip(words[::2], words[1::2], strict=True):
                half = ctx.make_temporary()
                ctx.emit("PRMT", half, first, "0x3340", second)
                halves.append(half)
            words = halves
        for position in range(max(1, len(words) // 2)):
            pair = words[2 * position : 2 * position + 2]
            if len(pair) < 2:
                ctx.move(find_word(group, position), pair[0])
            else:
                ctx.emit("PRMT", find_word(group, position), pair[0], "0x5410", pair[1])
    return group


def _store_words(
    ctx: LoweringContext,
    mnemonic: str,
    elements: Sequence[PtxOperand],
    address: MemoryRef,
    n_bytes: int,
) -> None:
    words_each = n_bytes // 4
    per_access = max(1, _MAX_ACCESS_BYTES // n_bytes)
    for start in range(0, len(elements), per_access):
        part = elements[start : start + per_access]
        place = replace(address, offset=address.offset + start * n_bytes)
        size = _SIZES[n_bytes * len(part)]
        if len(part) == 1 and words_each == 1:
            value = ctx.read_halves(part[0])[0]
            source: VirtualOperand = ZERO if value == ZERO else ctx.to_register(value)
        elif len(part) == 1 and words_each == 2:
            source = ctx.read_pair(part[0])
        else:
            with ctx.without_guard():
                source = ctx.read_vector(part, words_each=words_each)
        ctx.emit(mnemonic + size, place, source, n_defs=0)


# Atomics

_ATOMIC_NAMES = {"global": ("ATOMG.E", "RED.E"), "": ("ATOM.E", "RED.E"), "shared": ("ATOMS", "ATOMS")}
_FIRST_REDG = 90
_OPERATIONS = FormTable({
    "add": "ADD", "min": "MIN", "max": "MAX", "inc": "INC", "dec": "DEC", "and": "AND", "or": "OR",
    "xor": "XOR", "exch": "EXCH", "cas": "CAS",
})  # fmt: skip
_ATOMIC_TYPES = {
    "f32": ".F32.FTZ.RN", "f64": ".F64.RN", "f16x2": ".F16x2.RN", "bf16x2": ".BF16_V2.RN", "f16": ".F16.RN",
    "bf16": ".BF16.RN", "s32": ".S32", "u64": ".64", "s64": ".S64", "b64": ".64", "b128": ".128",
}  # fmt: skip


def lower_atomic(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower atom and red."""
    space, words, operands = find_space(instruction), instruction.modifiers, instruction.operands
    if space not in _ATOMIC_NAMES:
        raise UnsupportedPtxError
    is_reduction = instruction.name == "red"
    target = operands[0] if not is_reduction else None
    address_operand, *sources = operands if is_reduction else operands[1:]
    operation = _OPERATIONS.choose(words)
    is_unused = isinstance(target, PtxRegister) and ctx.is_unused(target.name)
    if is_unused and operation not in ("EXCH", "CAS") and space != "shared":
        is_reduction = True
    values = [_read_atomic_source(ctx, source, words) for source in sources]
    address = read_memory_address(ctx, address_operand, space)
    name = _ATOMIC_NAMES[space][int(is_reduction)]
    if name == "RED.E" and ctx.target.number >= _FIRST_REDG and space == "global":
        name = "REDG.E"
    suffix = _ATOMIC_TYPES.get(find_type(instruction), "")
    if suffix == ".S32" and operation not in ("MIN", "MAX"):
        suffix = ""
    scope = "" if space == "shared" else ".STRONG.SYS" if "sys" in words else ".STRONG.GPU"
    mnemonic = f"{name}.{operation}{suffix}{scope}"
    if is_reduction and space != "shared":
        ctx.emit(mnemonic, address, *values, n_defs=0)
        return
    destination = _take_atomic_result(ctx, target, instruction)
    if space == "shared":
        ctx.emit(mnemonic, destination, address, *values, has_effect=True)
    else:
        ctx.emit(mnemonic, TRUE, destination, address, *values, n_defs=2, has_effect=True)


def _read_atomic_source(ctx: LoweringContext, source: PtxOperand, words: tuple[str, ...]) -> VirtualOperand:
    if isinstance(source, PtxVector):
        return ctx.read_vector(source.elements)
    if any(TYPE_BITS.get(word) == 64 for word in words):
        return ctx.read_pair(source)
    value = ctx.read_word(source)
    return ZERO if value == ZERO else ctx.to_register(value)


def _take_atomic_result(
    ctx: LoweringContext, target: PtxOperand | None, instruction: PtxInstruction
) -> VirtualOperand:
    if target is None or (isinstance(target, PtxRegister) and target.name == "_"):
        return ZERO
    if isinstance(target, PtxVector):
        return ctx.take_destination(target.elements[0])
    del instruction
    return ctx.take_destination(target)


# Multicast memory and textures


def lower_multimem(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower multimem.ld_reduce, .st and .red: one access to the multicast address, as ptxas writes it."""
    words, operands = instruction.modifiers, instruction.operands
    type_name, scope = find_type(instruction), ".STRONG.SYS" if "sys" in words else ".STRONG.GPU"
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    size = _SIZES[count * TYPE_BITS[type_name] // 8]
    if words[0] == "st":
        address = read_memory_address(ctx, operands[0], "global")
        values = _list_elements(operands[1])
        source = ctx.read_vector(values, words_each=TYPE_BITS[type_name] // 32)
        ctx.emit(f"STG.E{size}{scope}", address, source, n_defs=0)
        return
    operation = _OPERATIONS.choose(words)
    kind = f"{operation}.{type_name.upper()}{f'x{count}' if count > 1 else ''}{scope}{size}"
    if words[0] == "red":
        address = read_memory_address(ctx, operands[0], "global")
        source = ctx.read_vector(_list_elements(operands[1]), words_each=TYPE_BITS[type_name] // 32)
        ctx.emit(f"REDG.E.{kind}", address, source, n_defs=0)
    elif words[0] == "ld_reduce":
        address = read_memory_address(ctx, operands[1], "global")
        elements = _list_elements(operands[0])
        with ctx.take_vector(elements, words_each=TYPE_BITS[type_name] // 32) as group:
            ctx.emit(f"LDGMC.E.{kind}", group, address, has_effect=True)
    else:
        raise UnsupportedPtxError


_TEXTURE_SHAPES = FormTable({
    "1d": "1D", "2d": "2D", "3d": "3D", "a1d": "ARRAY_1D", "a2d": "ARRAY_2D", "cube": "CUBE",
    "acube": "ARRAY_CUBE",
})  # fmt: skip


def lower_texture(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower tex and tld4: coordinates in one group, further ones (level, gradients) in another."""
    words, operands = instruction.modifiers, instruction.operands
    shape, address = _TEXTURE_SHAPES.choose(words), operands[1]
    if not isinstance(address, PtxAddress) or address.base is None or "grad" in words:
        raise UnsupportedPtxError
    coordinates = ctx.read_vector(_list_coordinates(address))
    handle = ctx.to_register(ctx.read_halves(address.base)[0])
    further = [ctx.read_word(operand) for operand in operands[2:]]
    extra = _gather(ctx, further) if further else ZERO
    is_integer = words[-1] == "s32"
    gathers = next((f".{word.upper()}" for word in words if word in ("r", "g", "b", "a")), "")
    name = f"TLD4{gathers}" if instruction.name == "tld4" else "TLD.LZ" if is_integer else "TEX"
    name += ".LL" if "level" in words else ""
    with ctx.take_vector(_list_elements(operands[0]), words_each=1) as group:
        pairs = (find_word(group, 2), find_word(group, 0))
        ctx.emit(name, *pairs, coordinates, extra, handle, "0x0", shape, "0xf", n_defs=2, has_effect=True)


# Copies


def lower_copy(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower cp: copies of lanes (LDGSTS), bulk copies, and the groups that are waited for."""
    words = instruction.modifiers
    if "async" in words[:2] and "bulk" in words[:3]:
        _lower_bulk_copy(ctx, instruction)
    elif words[0] != "async":
        raise UnsupportedPtxError
    elif "commit_group" in words:
        ctx.emit("LDGDEPBAR", n_defs=0)
    elif "wait_group" in words or "wait_all" in words:
        emit_group_wait(ctx, "DEPBAR.LE", "SB0", instruction.operands)
    elif "mbarrier" in words:
        ctx.emit(
            "ARRIVES.LDGSTSBAR.64",
            read_memory_address(ctx, take_operands(instruction, 1)[0], "shared"),
            n_defs=0,
        )
    else:
        _lower_lane_copy(ctx, instruction)


def _lower_lane_copy(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    target, source, size, *rest = take_operands(instruction, 3)
    n_bytes = ctx.find_constant(size)
    if not isinstance(n_bytes, int) or n_bytes not in (4, 8, 16):
        raise UnsupportedPtxError
    bypass = ".BYPASS" if "cg" in instruction.modifiers else ""
    suffix = _SIZES[n_bytes]
    shared = ctx.read_address(target, is_wide=False)
    address = read_memory_address(ctx, source, "global")
    extra: tuple[VirtualOperand, ...] = ()
    rest = [operand for operand in rest if not _is_policy(ctx, operand)]
    mnemonic = f"LDGSTS.E{bypass}{suffix}"
    if rest and not (isinstance(rest[0], PtxRegister) and rest[0].name in ctx.predicates):
        n_read = ctx.find_constant(rest[0])
        if n_read == 0:
            extra = ("!PT",)
        elif n_read != n_bytes:  # bytes that are read: all or none, as compilers write it
            bit = ctx.make_predicate()
            with ctx.without_guard():
                ctx.emit("ISETP.NE.U32.AND", bit, TRUE, ctx.read_register(rest[0]), ZERO, TRUE, n_defs=2)
            extra = (bit,)
    elif rest:
        skips = ctx.read_predicate(rest[0])  # ignore-src
        extra = (replace(skips, is_negated=not skips.is_negated),) if not isinstance(skips, str) else ()
    ctx.emit(mnemonic, shared, address, *extra, n_defs=0)


def _is_policy(ctx: LoweringContext, operand: PtxOperand) -> bool:
    return isinstance(operand, PtxRegister) and ctx.count_words(operand.name) == 2


def _lower_bulk_copy(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    words = instruction.modifiers
    if "commit_group" in words:
        ctx.emit("UTMACMDFLUSH", n_defs=0)
    elif "wait_group" in words:
        emit_group_wait(ctx, "DEPBAR.LE", "SB0", instruction.operands)
    elif "prefetch" in words:
        _lower_bulk_prefetch(ctx, instruction)
    elif "tensor" in words:
        _lower_tensor_copy(ctx, instruction)
    else:
        _lower_plain_bulk_copy(ctx, instruction)


def _lower_bulk_prefetch(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    address = take_operands(instruction, 1)[0]
    if not isinstance(address, PtxAddress) or address.base is None:
        raise UnsupportedPtxError
    name = "UTMAPF" if "tensor" in instruction.modifiers else "UBLKPF"
    ctx.emit(name, MemoryRef(ctx.read_pair(address.base)), n_defs=0)


def _find_base(operand: PtxOperand) -> tuple[PtxOperand, int]:
    if not isinstance(operand, PtxAddress) or operand.base is None:
        raise UnsupportedPtxError
    return operand.base, operand.offset


def _read_shared_word(ctx: LoweringContext, operand: PtxOperand) -> VirtualOperand:
    """Return the shared address of an operand as a word, its offset added."""
    base, offset = _find_base(operand)
    constant = ctx.find_constant(base)
    if isinstance(constant, int):
        return format_integer(constant + offset)
    low = ctx.read_halves(base)[0]
    if not offset:
        return low
    total = ctx.make_temporary()
    ctx.emit_alu("IADD3", total, ctx.to_register(low), format_integer(offset), ZERO)
    return total


def _read_global_pair(ctx: LoweringContext, operand: PtxOperand) -> WordRef:
    base, offset = _find_base(operand)
    pair = ctx.read_pair(base)
    if not offset:
        return pair
    total = ctx.make_temporary(2)
    halves = find_word(pair, 0), find_word(pair, 1)
    with ctx.without_guard():
        add_pairs(ctx, total, halves, (format_integer(offset & 0xFFFFFFFF), format_integer(offset >> 32)))
    return total


def _lower_plain_bulk_copy(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower cp.async.bulk: the unit of its size is 16 bytes."""
    target, source, size, *rest = take_operands(instruction, 3)
    words = instruction.modifiers
    units = ctx.make_temporary()
    with ctx.without_guard():
        ctx.emit("SHF.R.U32.HI", units, ZERO, "0x4", ctx.read_register(size))
        if _loads_shared(words):
            barrier = next((operand for operand in rest if isinstance(operand, PtxAddress)), None)
            if barrier is None:
                raise UnsupportedPtxError
            group = _gather(ctx, [_read_shared_word(ctx, target), _read_shared_word(ctx, barrier)])
            address = _read_global_pair(ctx, source)
            operands = (MemoryRef(group), MemoryRef(address), units)
            name = "UBLKCP.S.G"
        else:
            address = _read_global_pair(ctx, target)
            group = _gather(ctx, [_read_shared_word(ctx, source)])
            operands = (MemoryRef(address), MemoryRef(group), units)
            reduces = words[:1] == ("reduce",)
            name = "UBLKRED.G.S.ADD" if reduces else "UBLKCP.G.S"
    ctx.emit(name, *operands, n_defs=0)


def _loads_shared(words: Sequence[str]) -> bool:
    """Return whether a copy goes to shared memory, which then stands first. Raises UnsupportedPtxError."""
    spaces = [word.split("::")[0] for word in words if word.split("::")[0] in ("shared", "global")]
    if len(spaces) < 2:
        raise UnsupportedPtxError
    return spaces[0] == "shared"


def _gather(ctx: LoweringContext, values: Sequence[VirtualOperand]) -> WordRef:
    group = ctx.make_temporary(len(values))
    for position, value in enumerate(values):
        ctx.move(find_word(group, position), value)
    return group


def _lower_tensor_copy(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: boxes of tensors."""
    words = instruction.modifiers
    dimensions = choose_word(words, ("1d", "2d", "3d", "4d", "5d")).upper()
    mode = "".join(f".{w.split('::')[-1].upper()}" for w in words if "im2col" in w or "gather4" in w)
    is_load = _loads_shared(words)
    if is_load:
        target, source, barrier = take_operands(instruction, 3)[:3]
    else:
        source, target = take_operands(instruction, 2)[:2]
    if not isinstance(source, PtxAddress) or source.base is None:
        raise UnsupportedPtxError
    with ctx.without_guard():
        tensor = _read_global_pair(ctx, replace(source, coordinates=()))
        coordinates = [ctx.read_word(element) for element in _list_coordinates(source)]
        if is_load:
            values = [_read_shared_word(ctx, target), _read_shared_word(ctx, barrier), *coordinates]
            name = f"UTMALDG.{dimensions}{mode}"
        else:
            values = [_read_shared_word(ctx, target), *coordinates]
            name = f"UTMAREDG.{dimensions}.ADD" if words[:1] == ("reduce",) else f"UTMASTG.{dimensions}{mode}"
        group = _gather(ctx, values)
    operands: tuple[VirtualOperand, ...] = (MemoryRef(group), MemoryRef(tensor))
    if is_load and "multicast::cluster" in words:
        name += ".MULTICAST"
        operands += (ctx.read_register(instruction.operands[3]),)
    ctx.emit(name, *operands, n_defs=0)


def _list_coordinates(address: PtxAddress) -> tuple[PtxOperand, ...]:
    found: tuple[PtxOperand, ...] = ()
    for operand in address.coordinates:
        found += operand.elements if isinstance(operand, PtxVector) else (operand,)
    return found


# mbarriers


def lower_mbarrier(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower mbarrier operations: SYNCS from sm_90 on, before it atomics on shared memory."""
    operands = instruction.operands
    action = instruction.modifiers[0]
    if action == "inval":
        ctx.emit("SYNCS.CCTL.IV" if ctx.target.number >= _FIRST_MBARRIER_UNIT else "NOP",
                 *((read_memory_address(ctx, operands[0], "shared"),)
                   if ctx.target.number >= _FIRST_MBARRIER_UNIT else ()), n_defs=0)  # fmt: skip
    elif action == "init":
        _initialize_mbarrier(ctx, take_operands(instruction, 2))
    elif action in ("try_wait", "test_wait"):
        _wait_at_mbarrier(ctx, instruction)
    elif action in ("arrive", "arrive_drop", "expect_tx", "complete_tx"):
        _arrive_at_mbarrier(ctx, instruction)
    else:
        raise UnsupportedPtxError


def _initialize_mbarrier(ctx: LoweringContext, operands: Sequence[PtxOperand]) -> None:
    address, pair = read_memory_address(ctx, operands[0], "shared"), ctx.make_temporary(2)
    count = ctx.read_word(operands[1])
    with ctx.without_guard():
        ctx.move(find_word(pair, 0), count)
        ctx.move(find_word(pair, 1), count)
    if ctx.target.number >= _FIRST_MBARRIER_UNIT:
        ctx.emit("SYNCS.EXCH.64", ZERO, address, pair, has_effect=True)
    else:
        ctx.emit("STS.64", address, pair, n_defs=0)


def _wait_at_mbarrier(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    target, place, phase = take_operands(instruction, 3)[:3]
    result = ctx.take_result_predicate(target)
    address = read_memory_address(ctx, place, "shared")
    word = (
        ctx.read_register(phase) if "parity" in instruction.modifiers else find_word(ctx.read_pair(phase), 1)
    )
    trial = ".TRYWAIT" if instruction.modifiers[0] == "try_wait" else ""
    if ctx.target.number >= _FIRST_MBARRIER_UNIT:
        ctx.emit(f"SYNCS.PHASECHK.TRANS64{trial}", result, address, word, has_effect=True)
        return
    state = ctx.make_temporary(2)
    ctx.emit("LDS.64", state, address, has_effect=True)
    changed = ctx.make_temporary()
    ctx.emit("LOP3.LUT", changed, find_word(state, 1), word, "0x80000000", "0x48", "!PT")
    ctx.emit("ISETP.NE.U32.AND", result, TRUE, changed, ZERO, TRUE, n_defs=2)


def _arrive_at_mbarrier(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    words, operands = instruction.modifiers, list(instruction.operands)
    target: WordRef | None = None
    if not isinstance(operands[0], PtxAddress):
        first = operands.pop(0)
        is_sink = isinstance(first, PtxRegister) and first.name == "_"
        target = None if is_sink else ctx.take_destination(first)
    if not operands:
        raise UnsupportedPtxError
    address = read_memory_address(ctx, operands[0], "shared")
    count = ctx.read_register(operands[1]) if len(operands) > 1 else None
    state: VirtualOperand = ZERO if target is None else target
    if ctx.target.number < _FIRST_MBARRIER_UNIT:
        ctx.emit("ATOMS.ARRIVE.64", state, address, ZERO if count is None else count, has_effect=True)
        return
    if "expect_tx" in words:
        name = "SYNCS.ARRIVE.TRANS64"
    else:
        name = "SYNCS.ARRIVE.TRANS64.A1T0" if count is None else "SYNCS.ARRIVE.TRANS64.ART0"
    if words[0] in ("expect_tx", "complete_tx"):
        name = "SYNCS.ARRIVE.TRANS64.A0TR"
    if "shared::cluster" in words:
        ctx.notes.add("an arrival at the mbarrier of another CTA counts as one of this CTA")
    ctx.emit(name, state, address, ZERO if count is None else count, has_effect=True)


def lower_tensor_map(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower tensormap: fields are replaced in shared memory, and all lanes copy the map from there."""
    words, operands = instruction.modifiers, instruction.operands
    if "cp_fenceproxy" in words:
        lane, word = ctx.make_temporary(), ctx.make_temporary()
        place, target = ctx.make_temporary(), ctx.make_temporary(2)
        ctx.emit("S2R", lane, "SR_LANEID")
        ctx.emit("LEA", place, lane, ctx.to_register(_read_shared_word(ctx, operands[1])), "0x2")
        ctx.emit("LDS", word, MemoryRef(place))
        ctx.emit("IMAD.WIDE.U32", target, lane, "0x4", _read_global_pair(ctx, operands[0]))
        ctx.emit("STG.E", MemoryRef(replace(target, suffix=".64")), word, n_defs=0)
        return
    if "replace" not in words or find_space(instruction) != "shared":
        raise UnsupportedPtxError
    address = read_memory_address(ctx, operands[0], "shared")
    if words[-1] == "b64":
        ctx.emit("STS.64", address, ctx.read_pair(operands[-1]), n_defs=0)
        return
    word = ctx.make_temporary()
    ctx.emit("LDS", word, address)
    value = ctx.read_register(operands[-1])
    ctx.emit("LOP3.LUT", word, word, value, ZERO, "0xfc", "!PT")
    ctx.emit("STS", address, word, n_defs=0)


def lower_prefetch(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower prefetch of a line to a cache, and of a tensor map."""
    if "tensormap" in instruction.modifiers:
        base, _ = _find_base(instruction.operands[0])
        ctx.emit("UTMACCTL.PF", MemoryRef(ctx.read_pair(base)), n_defs=0)
        return
    level = "PF1" if "L1" in instruction.modifiers else "PF2"
    ctx.emit(f"CCTL.E.{level}", read_memory_address(ctx, instruction.operands[0], "global"), n_defs=0)
