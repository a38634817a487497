"""Operations across lanes, CTAs and clusters, fences, and control of PTX as instructions of the target."""

from msgspec.structs import replace

from analyzer.frontend.ptx.lowering_context import (
    FormTable,
    LoweringContext,
    UnsupportedPtxError,
    choose_word,
    find_word,
    take_operands,
)
from analyzer.frontend.ptx.lowering_integer import find_type, is_signed
from analyzer.frontend.ptx.statements import PtxInstruction, PtxOperand, PtxPair, PtxRegister
from analyzer.frontend.ptx.virtual_code import TRUE, ZERO, MemoryRef, PredicateRef, VirtualOperand, WordRef

_VOTE_MODES = FormTable({"all": "ALL", "any": "ANY", "uni": "EQ"})
_REDUCTIONS = FormTable({"add": "SUM", "and": "", "or": "OR", "xor": "XOR", "min": "MIN", "max": "MAX"})


def lower_shuffle(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower shfl.sync."""
    mode = choose_word(instruction.modifiers, ("up", "down", "bfly", "idx")).upper()
    target, value, lane, bound = instruction.operands[:4]
    bit: PredicateRef | str = TRUE
    if isinstance(target, PtxPair):
        bit = ctx.take_result_predicate(target.second)
    destination = ctx.take_destination(target)
    source = ctx.read_register(value)
    operands = [_show_zero(ctx.read_word(operand)) for operand in (lane, bound)]
    ctx.emit(f"SHFL.{mode}", bit, destination, source, *operands, n_defs=2, has_effect=True)


def _show_zero(value: VirtualOperand) -> VirtualOperand:
    return "0x0" if value == ZERO else value


def lower_vote(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower vote.sync and activemask."""
    if instruction.name == "activemask":
        destination = ctx.take_destination(instruction.operands[0])
        ctx.emit("VOTE.ANY", destination, TRUE, TRUE, n_defs=2, has_effect=True)
        return
    voted = ctx.read_predicate(instruction.operands[1])
    words = instruction.modifiers
    if "ballot" in words:
        destination = ctx.take_destination(instruction.operands[0])
        ctx.emit("VOTE.ANY", destination, TRUE, voted, n_defs=2, has_effect=True)
        return
    mode = _VOTE_MODES.choose(words)
    ctx.emit(f"VOTE.{mode}", ctx.take_result_predicate(instruction.operands[0]), voted, has_effect=True)


def lower_match(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower match.sync."""
    target = instruction.operands[0]
    wide = ".U64" if find_type(instruction) == "b64" else ""
    read = ctx.read_pair if wide else ctx.read_register
    source = read(instruction.operands[1])
    destination = ctx.take_destination(target)
    if "any" in instruction.modifiers:
        ctx.emit(f"MATCH.ANY{wide}", destination, source, has_effect=True)
        return
    bit = ctx.take_result_predicate(target.second) if isinstance(target, PtxPair) else TRUE
    ctx.emit(f"MATCH.ALL{wide}", bit, destination, source, n_defs=2, has_effect=True)


def lower_reduction(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower redux.sync."""
    type_name = find_type(instruction)
    name = _REDUCTIONS.choose(instruction.modifiers)
    signed = ".S32" if is_signed(type_name) and name in ("MIN", "MAX", "SUM") else ""
    suffix = (f".{name}" if name else "") + (".F32" if type_name == "f32" else signed)
    mnemonic = ("CREDUX" if type_name == "f32" else "REDUX") + suffix
    destination = ctx.take_destination(instruction.operands[0])
    ctx.emit(mnemonic, destination, ctx.read_register(instruction.operands[1]), has_effect=True)


def lower_elect(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower elect.sync."""
    target = instruction.operands[0]
    if not isinstance(target, PtxPair):
        raise UnsupportedPtxError
    bit = ctx.take_result_predicate(target.second)
    is_sink = target.first.name == "_"
    lane: VirtualOperand = ctx.make_temporary() if is_sink else ctx.take_destination(target.first)
    ctx.emit("ELECT", bit, lane, TRUE, n_defs=2, has_effect=True)


# Barriers


def lower_barrier(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower bar and barrier: of the CTA, with and without a reduction, and of the cluster."""
    words, operands = instruction.modifiers, instruction.operands
    if words[:1] == ("cluster",):
        ctx.emit("UCGABAR_ARV" if "arrive" in words else "UCGABAR_WAIT", n_defs=0)
        return
    if words[:1] == ("warp",):
        ctx.emit("WARPSYNC", _show_zero(ctx.read_word(take_operands(instruction, 1)[0])), n_defs=0)
        return
    if "red" in words:
        _lower_barrier_reduction(ctx, instruction)
        return
    numbers = [_show_zero(ctx.read_word(operand)) for operand in operands]
    numbers = [ctx.to_register(n) if not isinstance(n, str) else n for n in numbers]
    name = "BAR.ARV" if "arrive" in words else "BAR.SYNC.DEFER_BLOCKING"
    ctx.emit(name, *(numbers or ["0x0"]), n_defs=0)


def _lower_barrier_reduction(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    target, number, *rest = take_operands(instruction, 3)
    operation = choose_word(instruction.modifiers, ("popc", "and", "or")).upper()
    voted = ctx.read_predicate(rest[-1])
    counts = [_show_zero(ctx.read_word(operand)) for operand in (number, *rest[:-1])]
    ctx.emit(f"BAR.RED.{operation}.DEFER_BLOCKING", *counts, voted, n_defs=0)
    if operation == "POPC":
        ctx.emit("B2R.RESULT", ctx.take_destination(target), has_effect=True)
    else:
        result = ctx.take_result_predicate(target)
        ctx.emit("B2R.RESULT", ZERO, result, n_defs=2, has_effect=True)


def lower_fence(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower fence and membar."""
    words = instruction.modifiers
    if "proxy" in words:
        ctx.emit("FENCE.VIEW.ASYNC", n_defs=0)
        return
    if "mbarrier_init" in words:
        return
    scope = next(
        (s for word, s in (("cta", "CTA"), ("sys", "SYS"), ("cluster", "VC")) if word in words), "GPU"
    )
    order = "SC" if "sc" in words or instruction.name == "membar" else "ALL"
    ctx.emit(f"MEMBAR.{order}.{scope}", n_defs=0)


def lower_cluster_address(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower mapa: the rank of the CTA stands in the upper byte of a shared address."""
    destination = ctx.take_destination(instruction.operands[0])
    rank = ctx.read_register(instruction.operands[2])
    low, high = ctx.read_halves(instruction.operands[1])
    ctx.emit("LEA", find_word(destination, 0), rank, low, "0x18")
    if destination.n_words == 2:
        ctx.move(find_word(destination, 1), high)


def lower_space_test(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower isspacep: whether a generic address is in a window."""
    space = instruction.modifiers[0].split("::")[0]
    result = ctx.take_result_predicate(instruction.operands[0])
    high = ctx.to_register(ctx.read_halves(instruction.operands[1])[1])
    windows = {"shared": "SR_SWINHI", "local": "SR_LWINHI"}
    upper = ctx.make_temporary()
    with ctx.without_guard():
        if space in windows:
            ctx.emit("S2R", upper, windows[space])
    if space in windows:
        ctx.emit("ISETP.EQ.U32.AND", result, TRUE, high, upper, TRUE, n_defs=2)
        return
    if space != "global":
        raise UnsupportedPtxError
    first = ctx.make_predicate()
    with ctx.without_guard():
        ctx.emit("S2R", upper, "SR_SWINHI")
        ctx.emit("ISETP.NE.U32.AND", first, TRUE, high, upper, TRUE, n_defs=2)
        other = ctx.make_temporary()
        ctx.emit("S2R", other, "SR_LWINHI")
    ctx.emit("ISETP.NE.U32.AND", result, TRUE, high, other, first, n_defs=2)


# Control


def lower_external_call(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower a call of a function that the PTX does not have: other registers keep their values."""
    (callee,) = instruction.operands
    name = getattr(callee, "name", "") or "by address"
    line, count = ctx.external_calls.get(name, (instruction.line, 0))
    ctx.external_calls[name] = line, count + 1
    ctx.emit("CALL.ABS.KEEP", ZERO, f"`({name})" if name != "by address" else "0x0", n_defs=0)


def lower_call_result(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Make a result of such a call unknown."""
    destination = ctx.take_destination(instruction.operands[0])
    for position in range(destination.n_words):
        ctx.emit("PTX_UNKNOWN", find_word(destination, position))


def lower_control(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower instructions that change nothing that is followed: sleeps, hints, register counts."""
    words = instruction.modifiers
    match instruction.name:
        case "nanosleep":
            ctx.emit("NANOSLEEP", _show_zero(ctx.read_word(instruction.operands[0])), n_defs=0)
        case "setmaxnreg":
            name = "USETMAXREG.DEALLOC" if "dec" in words else "USETMAXREG.TRY_ALLOC"
            count = _show_zero(ctx.read_word(instruction.operands[0]))
            ctx.emit(f"{name}.CTAPOOL", count, n_defs=0)
        case "griddepcontrol":
            ctx.emit("ACQBULK" if "wait" in words else "PREEXIT", n_defs=0)
        case "trap" | "brkpt":
            ctx.emit("BPT.TRAP", "0x1", n_defs=0)
        case "createpolicy":
            destination = ctx.take_destination(instruction.operands[0])
            ctx.copy_halves(destination, ("0x10000000", "0x10000000"))
        case "discard" | "applypriority":
            ctx.emit("CCTL.E.C.LDCU.IV", MemoryRef(_read_base(ctx, instruction.operands[0])), n_defs=0)
        case _:
            pass


def _read_base(ctx: LoweringContext, operand: PtxOperand) -> WordRef:
    base = getattr(operand, "base", None)
    if not isinstance(base, PtxRegister):
        raise UnsupportedPtxError
    return replace(ctx.read_pair(base), suffix=".64")
