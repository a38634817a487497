"""Matrix instructions of PTX as instructions of the target: mma, ldmatrix, wgmma, tcgen05.

How many instructions a product takes depends on the target:

    m16n8k16 of f16      sm_75: two HMMA.1688      sm_80 on: one HMMA.16816
    m16n8k32 of FP8      sm_89, sm_120: one QMMA.16832
                         others: 12 F2FP to f16 and two HMMA.16816
"""

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.ptx.lowering_context import (
    TYPE_BITS,
    FormTable,
    LoweringContext,
    UnsupportedPtxError,
    choose_word,
    emit_group_wait,
    find_word,
    take_operands,
)
from analyzer.frontend.ptx.lowering_memory import read_memory_address
from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxImmediate,
    PtxInstruction,
    PtxOperand,
    PtxRegister,
    PtxVector,
)
from analyzer.frontend.ptx.virtual_code import TRUE, ZERO, MemoryRef, VirtualOperand, WordRef

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_TENSOR_SHAPE = re.compile(r"(\d+)x(\d+).*b$")
_REPEATS = frozenset(f"x{1 << power}" for power in range(8))
_FP8_MMA_TARGETS = (89, 120, 121)
_FIRST_DEEP_MMA = 80
_NAMES = FormTable({
    "f16": "HMMA", "bf16": "HMMA", "tf32": "HMMA", "f64": "DMMA", "s8": "IMMA", "u8": "IMMA", "s4": "IMMA",
    "u4": "IMMA", "b1": "BMMA", "e4m3": "QMMA", "e5m2": "QMMA", "e2m3": "QMMA", "e3m2": "QMMA",
    "e2m1": "QMMA",
})  # fmt: skip
_WARPGROUP_NAMES = FormTable({
    "f16": "HGMMA", "bf16": "HGMMA", "tf32": "HGMMA", "e4m3": "QGMMA", "e5m2": "QGMMA", "s8": "IGMMA",
    "u8": "IGMMA", "b1": "BGMMA",
})  # fmt: skip
# The largest k of one instruction, by input type; on sm_75 smaller.
_MAX_K = {"f16": 16, "bf16": 16, "tf32": 8, "f64": 16, "s8": 32, "u8": 32, "s4": 64, "u4": 64, "b1": 256}
_MAX_K_TURING = {"f16": 8, "s8": 16, "u8": 16, "s4": 32, "u4": 32, "b1": 128}


class _Product(Struct, frozen=True):
    m: int
    n: int
    k: int
    accumulator: str
    inputs: tuple[str, str]
    is_sparse: bool


def _parse_product(instruction: PtxInstruction) -> _Product:
    words = instruction.modifiers
    shape = next((match for word in words if (match := _SHAPE.fullmatch(word))), None)
    types = [word for word in words if word in TYPE_BITS and word != "b1"]
    if "b1" in words and types:
        types = [types[0], "b1", "b1", types[-1]]
    if shape is None or len(types) < 3:
        raise UnsupportedPtxError
    m, n, k = map(int, shape.groups())
    is_sparse = any(word in ("sp", "sp::ordered_metadata") for word in words)
    return _Product(m, n, k, types[0], (types[1], types[2]), is_sparse)


def lower_mma(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower mma.sync of any shape and type."""
    product = _parse_product(instruction)
    target, first, second, addend, *rest = instruction.operands
    if not all(isinstance(o, PtxVector) for o in (target, first, second, addend)):
        raise UnsupportedPtxError
    words_each = 2 if product.inputs[0] == "f64" else 1
    with ctx.without_guard():
        a = ctx.read_vector(_list_elements(first), words_each=words_each)
        b = ctx.read_vector(_list_elements(second), words_each=words_each)
        c = _read_accumulators(ctx, addend, words_each)
    with ctx.take_vector(_list_elements(target), words_each=words_each) as d:
        if product.inputs[0] in ("e4m3", "e5m2") and ctx.target.number not in _FP8_MMA_TARGETS:
            _emit_fp8_as_half(ctx, product, d, a, b, c)
            return
        extra = (ctx.read_register(rest[0]), "0x0") if product.is_sparse and rest else ()
        _emit_products(ctx, product, d, a, b, c, extra, instruction)


def _list_elements(operand: PtxOperand) -> tuple[PtxOperand, ...]:
    return operand.elements if isinstance(operand, PtxVector) else (operand,)


def _read_accumulators(ctx: LoweringContext, operand: PtxOperand, words_each: int) -> VirtualOperand:
    """Return the addend; RZ if all its elements are zero."""
    elements = _list_elements(operand)
    constants = [ctx.find_constant(element) for element in elements]
    zeros = [isinstance(e, PtxImmediate) and not e.value for e in elements]
    if all(zero or constant == 0 for zero, constant in zip(zeros, constants, strict=True)):
        return ZERO
    return ctx.read_vector(elements, words_each=words_each)


def _emit_products(
    ctx: LoweringContext,
    product: _Product,
    d: WordRef,
    a: WordRef,
    b: WordRef,
    c: VirtualOperand,
    extra: tuple[VirtualOperand, ...],
    instruction: PtxInstruction,
) -> None:
    """Emit one instruction, or more that go along k where the target's are smaller."""
    kind = product.inputs[0]
    is_old = ctx.target.number < _FIRST_DEEP_MMA
    largest = (_MAX_K_TURING if is_old else _MAX_K).get(kind, 32)
    n_m = 2 if is_old and product.m == 16 and kind not in ("f16",) else 1
    if kind == "e2m1" and product.k == 64:
        largest = 64
    k = min(product.k, largest * (2 if product.is_sparse else 1))
    n_k = product.k // k
    name = _find_mnemonic(product, product.m // n_m, k, instruction)
    for part in range(n_k * n_m):
        n_a, n_b, n_d = a.n_words // (n_k * n_m), b.n_words // n_k, d.n_words // n_m
        row, step = divmod(part, n_k)
        own_a = WordRef(a.group, a.word + part * n_a, n_a)
        own_b = WordRef(b.group, b.word + step * n_b, n_b)
        own_d = WordRef(d.group, d.word + row * n_d, n_d)
        own_c: VirtualOperand = own_d if step else c
        if isinstance(c, WordRef) and not step:
            own_c = WordRef(c.group, c.word + row * n_d, n_d)
        ctx.emit(name, own_d, own_a, own_b, own_c, *extra)


def _find_mnemonic(product: _Product, m: int, k: int, instruction: PtxInstruction) -> str:
    first, second = product.inputs
    shape = f"{m}{product.n}{k}"
    sparse = ".SP" if product.is_sparse else ""
    name = _NAMES[first]
    types = f".{first.upper()}.{second.upper()}"
    if any(word.startswith(("kind::mxf4", "kind::mxf8")) for word in instruction.modifiers):
        name = "OMMA.SF" if product.k == 64 else "QMMA.SF"
    match name:
        case "HMMA":
            kind = "" if first == "f16" else f".{first.upper()}"
            return f"HMMA{sparse}.{shape}.{product.accumulator.upper()}{kind}"
        case "DMMA":
            return f"DMMA.{shape}"
        case "IMMA":
            saturates = ".SAT" if "satfinite" in instruction.modifiers else ""
            return f"IMMA{sparse}.{shape}{types}{saturates}"
        case "BMMA":
            operation = "AND" if "and" in instruction.modifiers else "XOR"
            return f"BMMA.{shape}.{operation}.POPC"
        case _:
            return f"{name}{sparse}.{shape}.{product.accumulator.upper()}{types}"


def _emit_fp8_as_half(
    ctx: LoweringContext, product: _Product, d: WordRef, a: WordRef, b: WordRef, c: VirtualOperand
) -> None:
    """Emit a product of FP8 on a target without: each register becomes two of f16."""
    if product.is_sparse:
        raise UnsupportedPtxError
    wide_a, wide_b = ctx.make_temporary(2 * a.n_words), ctx.make_temporary(2 * b.n_words)
    for narrow, wide, kind in ((a, wide_a, product.inputs[0]), (b, wide_b, product.inputs[1])):
        for position in range(wide.n_words):
            source = find_word(narrow, position // 2)
            part = WordRef(source.group, source.word, suffix=".H1" if position % 2 else "")
            ctx.emit(f"F2FP.F16.{kind.upper()}.UNPACK_B", find_word(wide, position), part)
    n_steps = product.k // 16
    for step in range(n_steps):
        own_a = WordRef(wide_a.group, step * wide_a.n_words // n_steps, wide_a.n_words // n_steps)
        own_b = WordRef(wide_b.group, step * wide_b.n_words // n_steps, wide_b.n_words // n_steps)
        ctx.emit(f"HMMA.16816.{product.accumulator.upper()}", d, own_a, own_b, d if step else c)


def lower_load_matrix(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower ldmatrix of 8x8 matrices of 16-bit elements."""
    words = instruction.modifiers
    if "m8n8" not in words:
        raise UnsupportedPtxError
    count = next((word[1:] for word in words if word in ("x1", "x2", "x4")), "1")
    mode = "MT88" if "trans" in words else "M88"
    suffix = "" if count == "1" else f".{count}"
    address = read_memory_address(ctx, instruction.operands[1], "shared")
    with ctx.take_vector(_list_elements(instruction.operands[0])) as group:
        ctx.emit(f"LDSM.16.{mode}{suffix}", group, address)


def lower_store_matrix(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower stmatrix of 8x8 matrices of 16-bit elements."""
    words = instruction.modifiers
    if "m8n8" not in words:
        raise UnsupportedPtxError
    count = next((word[1:] for word in words if word in ("x1", "x2", "x4")), "1")
    mode = "MT88" if "trans" in words else "M88"
    suffix = "" if count == "1" else f".{count}"
    address = read_memory_address(ctx, instruction.operands[0], "shared")
    with ctx.without_guard():
        group = ctx.read_vector(_list_elements(instruction.operands[1]))
    ctx.emit(f"STSM.16.{mode}{suffix}", address, group, n_defs=0)


def lower_move_matrix(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower movmatrix, which transposes an 8x8 matrix held by a warp."""
    source = ctx.read_register(instruction.operands[1])
    ctx.emit("MOVM.16.MT88", ctx.take_destination(instruction.operands[0]), source)


# Warpgroups


def lower_warpgroup(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower wgmma: products of a warpgroup, their fence and their groups."""
    words = instruction.modifiers
    if "fence" in words:
        ctx.emit("WARPGROUP.ARRIVE", n_defs=0)
    elif "wait_group" in words:
        emit_group_wait(ctx, "WARPGROUP.DEPBAR.LE", "gsb0", instruction.operands)
    elif "mma_async" in words:
        _lower_warpgroup_product(ctx, instruction)
    elif "commit_group" not in words:
        raise UnsupportedPtxError


def _lower_warpgroup_product(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    product = _parse_warpgroup_product(instruction)
    target, first, second, *rest = take_operands(instruction, 3)
    if product.is_sparse:
        rest = rest[1:]
    scale: VirtualOperand = TRUE
    if rest:
        scale = ctx.read_predicate(rest[0])
    sparse = ".SP" if product.is_sparse else ""
    kind = product.inputs[0]
    types = {"f16": "", "bf16": ".BF16", "tf32": ".TF32"}.get(
        kind, "".join(f".{name.upper()}" for name in product.inputs)
    )
    accumulator = "" if product.accumulator == "s32" else f".{product.accumulator.upper()}"
    name = _WARPGROUP_NAMES[kind]
    mnemonic = f"{name}{sparse}.{product.m}x{product.n}x{product.k}{accumulator}{types}"
    with ctx.without_guard():
        if isinstance(first, PtxVector):
            sources: tuple[VirtualOperand, ...] = (
                ctx.read_vector(first.elements),
                MemoryRef(ctx.read_pair(second), kind="gdesc"),
            )
        else:
            group = ctx.make_temporary(4)
            ctx.copy_halves(WordRef(group.group, 0, 2), ctx.read_halves(first))
            ctx.copy_halves(WordRef(group.group, 2, 2), ctx.read_halves(second))
            sources = (MemoryRef(group, kind="gdesc"),)
    elements = _list_elements(target)
    in_place = ctx.find_contiguous(elements)
    group = ctx.read_vector(elements) if in_place is None else in_place
    start: tuple[VirtualOperand, ...] = () if scale == TRUE else (scale,)
    ctx.emit(mnemonic, group, *sources, group, *start, "gsb0", has_effect=True, keeps_defs=True)
    if in_place is None:
        ctx.notes.add("accumulators of a warpgroup product are copied where they do not lie side by side")
        for position, element in enumerate(elements):
            ctx.move(ctx.take_destination(element), find_word(group, position))


def _parse_warpgroup_product(instruction: PtxInstruction) -> _Product:
    words = instruction.modifiers
    shape = next((match for word in words if (match := _SHAPE.fullmatch(word))), None)
    types = [word for word in words if word in TYPE_BITS]
    if shape is None or len(types) < 2:
        raise UnsupportedPtxError
    m, n, k = map(int, shape.groups())
    return _Product(m, n, k, types[0], (types[1], types[-1]), "sp" in words)


# The tensor core of sm_100 (tcgen05)

_TENSOR_CORE_NAMES = FormTable({
    "kind::f16": "UTCHMMA", "kind::tf32": "UTCHMMA", "kind::f8f6f4": "UTCQMMA", "kind::i8": "UTCIMMA",
    "kind::mxf8f6f4": "UTCMXQMMA", "kind::mxf4": "UTCOMMA", "kind::mxf4nvf4": "UTCOMMA",
})  # fmt: skip


def lower_tensor_core(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower tcgen05."""
    action = instruction.modifiers[0].split("::")[0]
    lower = _TENSOR_CORE_ACTIONS.get(action)
    if lower is not None:
        lower(ctx, instruction)
    elif action not in ("fence", "relinquish_alloc_permit", "wait"):
        raise UnsupportedPtxError


def _read_tensor_address(ctx: LoweringContext, operand: PtxOperand) -> MemoryRef:
    if not isinstance(operand, PtxAddress):
        return MemoryRef(ctx.read_register(operand), kind="tmem")
    if operand.base is None:
        return MemoryRef(None, operand.offset, kind="tmem")
    return MemoryRef(ctx.read_register(operand.base), operand.offset, kind="tmem")


def _lower_tensor_product(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    words, operands = instruction.modifiers, list(take_operands(instruction, 4))
    name = _TENSOR_CORE_NAMES.choose(words)
    group = ".2CTA" if "cta_group::2" in words else ""
    target, first, second, descriptor = operands[:4]
    bits = [o for o in operands[4:] if isinstance(o, PtxRegister) and o.name in ctx.predicates]
    scale = ctx.read_predicate(bits[-1]) if bits else TRUE
    pair = ctx.make_temporary(2)
    with ctx.without_guard():
        ctx.copy_halves(pair, (ZERO, ctx.read_word(descriptor)))
    if isinstance(first, PtxAddress):
        a = _read_tensor_address(ctx, first)
    else:
        a = MemoryRef(ctx.read_pair(first), kind="gdesc")
    ctx.emit(
        f"{name}{group}",
        a,
        MemoryRef(ctx.read_pair(second), kind="gdesc"),
        _read_tensor_address(ctx, target),
        MemoryRef(find_word(pair, 0), kind="tmem"),
        MemoryRef(find_word(pair, 1), kind="idesc"),
        scale,
        n_defs=0,
    )


def _lower_tensor_load(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    target, source = take_operands(instruction, 2)[:2]
    address = _read_tensor_address(ctx, source)
    with ctx.take_vector(_list_elements(target)) as group:
        for suffix, place in _list_tensor_parts(ctx, instruction, address, 2):
            ctx.emit(f"LDTM{suffix}", group, place, has_effect=True, keeps_defs=place is not address)


def _lower_tensor_store(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    target, *_, source = take_operands(instruction, 2)
    address = _read_tensor_address(ctx, target)
    group = ctx.read_vector(_list_elements(source))
    for suffix, place in _list_tensor_parts(ctx, instruction, address, 1):
        ctx.emit(f"STTM{suffix}", place, group, n_defs=0)


def _list_tensor_parts(
    ctx: LoweringContext, instruction: PtxInstruction, address: MemoryRef, position: int
) -> list[tuple[str, MemoryRef]]:
    """Return suffix and address of each instruction of an access to tensor memory.

    The shape 16x32bx2 is two: of the lower lanes, and of the upper ones at an offset.
    """
    words = instruction.modifiers
    if "16x32bx2" not in words:
        return [(_find_tensor_suffix(words), address)]
    distance = ctx.find_constant(take_operands(instruction, position + 1)[position])
    if not isinstance(distance, int):
        raise UnsupportedPtxError
    repeat = choose_word(words, _REPEATS)
    upper = replace(address, offset=address.offset + distance)
    return [(f".16dp32bit_t0_t15.{repeat}", address), (f".16dp32bit_t16_t31.{repeat}", upper)]


def _find_tensor_suffix(words: Sequence[str]) -> str:
    lanes, bits = _find_tensor_shape(words)
    repeat = next((word for word in words if word in _REPEATS), "x1")
    return f".{repeat}" if (lanes, bits) == ("32", "32") else f".{lanes}dp{bits}bit.{repeat}"


def _find_tensor_shape(words: Sequence[str]) -> tuple[str, str]:
    """Return lanes and bits of `32x32b`. Raises UnsupportedPtxError."""
    found = next((match for word in words if (match := _TENSOR_SHAPE.match(word))), None)
    if found is None:
        raise UnsupportedPtxError
    return found[1], found[2]


def _lower_tensor_allocation(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower alloc: the address goes to shared memory. It is the next free one, which is followed."""
    columns = ctx.read_register(take_operands(instruction, 2)[1])
    place, bit = ctx.make_temporary(), ctx.make_predicate()
    ctx.emit("UTCATOMSWS.FIND_AND_SET.ALIGN", bit, place, columns, n_defs=2, has_effect=True)
    ctx.emit("STS", read_memory_address(ctx, instruction.operands[0], "shared"), place, n_defs=0)


def _lower_tensor_release(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    ctx.emit("UTCATOMSWS.AND", ZERO, ctx.read_register(take_operands(instruction, 1)[0]), has_effect=True)


def _lower_tensor_commit(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    words = instruction.modifiers
    multicast = any(word.startswith("multicast") for word in words)
    operands = take_operands(instruction, 1 + multicast)
    address = read_memory_address(ctx, operands[0], "shared")
    suffix = (".2CTA" if "cta_group::2" in words else "") + (".MULTICAST" if multicast else "")
    mask = ctx.read_register(operands[1]) if multicast else ZERO
    ctx.emit(f"UTCBAR{suffix}", address, mask, n_defs=0)


def _lower_tensor_copy(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    group = ".2CTA" if "cta_group::2" in instruction.modifiers else ""
    lanes, bits = _find_tensor_shape(instruction.modifiers)
    place, descriptor = take_operands(instruction, 2)[:2]
    target = _read_tensor_address(ctx, place)
    source = MemoryRef(ctx.read_pair(descriptor), kind="gdesc")
    ctx.emit(f"UTCCP.T.S{group}.{lanes}dp{bits}bit", target, source, n_defs=0)


def _lower_tensor_shift(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    ctx.emit("UTCSHIFT", _read_tensor_address(ctx, take_operands(instruction, 1)[0]), n_defs=0)


_TENSOR_CORE_ACTIONS = {
    "mma": _lower_tensor_product,
    "ld": _lower_tensor_load,
    "st": _lower_tensor_store,
    "alloc": _lower_tensor_allocation,
    "dealloc": _lower_tensor_release,
    "commit": _lower_tensor_commit,
    "cp": _lower_tensor_copy,
    "shift": _lower_tensor_shift,
}
