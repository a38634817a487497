"""Table of PTX instructions: which function lowers each."""

from collections.abc import Callable

from analyzer.frontend.ptx.lowering_context import (
    LoweringContext,
    UnsupportedPtxError,
    find_word,
    take_operands,
)
from analyzer.frontend.ptx.lowering_extended import (
    is_carry_chain,
    lower_carry_chain,
    lower_convert_pack,
    lower_mul24,
    lower_packed_min_max,
    lower_saturated,
    lower_sign_extend,
    lower_video,
    lower_wide_bit_field,
    lower_wide_bit_insert,
    lower_wide_find,
    lower_wide_sad,
)
from analyzer.frontend.ptx.lowering_float import (
    is_float,
    lower_float_arithmetic,
    lower_float_compare,
    lower_float_divide,
    lower_float_min_max,
    lower_float_sign,
    lower_function,
    lower_set,
)
from analyzer.frontend.ptx.lowering_integer import (
    lower_absolute,
    lower_add,
    lower_bit_field,
    lower_bit_insert,
    lower_compare,
    lower_count_bits,
    lower_divide,
    lower_dot,
    lower_funnel,
    lower_logic,
    lower_lop3,
    lower_min_max,
    lower_multiply,
    lower_not,
    lower_permute,
    lower_sad,
    lower_select,
    lower_shift,
    lower_slct,
)
from analyzer.frontend.ptx.lowering_matrix import (
    lower_load_matrix,
    lower_mma,
    lower_move_matrix,
    lower_store_matrix,
    lower_tensor_core,
    lower_warpgroup,
)
from analyzer.frontend.ptx.lowering_memory import (
    lower_atomic,
    lower_copy,
    lower_load,
    lower_mbarrier,
    lower_multimem,
    lower_prefetch,
    lower_store,
    lower_tensor_map,
    lower_texture,
)
from analyzer.frontend.ptx.lowering_moves import lower_address_conversion, lower_convert, lower_move
from analyzer.frontend.ptx.lowering_warp import (
    lower_barrier,
    lower_call_result,
    lower_cluster_address,
    lower_control,
    lower_elect,
    lower_external_call,
    lower_fence,
    lower_match,
    lower_reduction,
    lower_shuffle,
    lower_space_test,
    lower_vote,
)
from analyzer.frontend.ptx.statements import PtxInstruction, PtxRegister

Lowering = Callable[[LoweringContext, PtxInstruction], None]

# Name -> (lowering of integers and bits, lowering of floats)
_ARITHMETIC: dict[str, tuple[Lowering | None, Lowering]] = {
    "add": (lower_add, lower_float_arithmetic),
    "sub": (lower_add, lower_float_arithmetic),
    "mul": (lower_multiply, lower_float_arithmetic),
    "mad": (lower_multiply, lower_float_arithmetic),
    "fma": (None, lower_float_arithmetic),
    "div": (lower_divide, lower_float_divide),
    "abs": (lower_absolute, lower_float_sign),
    "neg": (lower_absolute, lower_float_sign),
    "copysign": (None, lower_float_sign),
    "min": (lower_min_max, lower_float_min_max),
    "max": (lower_min_max, lower_float_min_max),
    "setp": (lower_compare, lower_float_compare),
}
_OTHERS: dict[str, Lowering] = {
    "rem": lower_divide,
    "mul24": lower_mul24,
    "mad24": lower_mul24,
    "sad": lower_sad,
    "dp4a": lower_dot,
    "dp2a": lower_dot,
    "and": lower_logic,
    "or": lower_logic,
    "xor": lower_logic,
    "not": lower_not,
    "cnot": lower_not,
    "lop3": lower_lop3,
    "shl": lower_shift,
    "shr": lower_shift,
    "shf": lower_funnel,
    "bfe": lower_bit_field,
    "bfi": lower_bit_insert,
    "prmt": lower_permute,
    "popc": lower_count_bits,
    "brev": lower_count_bits,
    "clz": lower_count_bits,
    "bfind": lower_count_bits,
    "selp": lower_select,
    "slct": lower_slct,
    "set": lower_set,
    "ex2": lower_function,
    "lg2": lower_function,
    "rcp": lower_function,
    "rsqrt": lower_function,
    "sqrt": lower_function,
    "sin": lower_function,
    "cos": lower_function,
    "tanh": lower_function,
    "mov": lower_move,
    "cvt": lower_convert,
    "cvta": lower_address_conversion,
    "ld": lower_load,
    "ldu": lower_load,
    "st": lower_store,
    "atom": lower_atomic,
    "red": lower_atomic,
    "cp": lower_copy,
    "mbarrier": lower_mbarrier,
    "prefetch": lower_prefetch,
    "prefetchu": lower_prefetch,
    "shfl": lower_shuffle,
    "vote": lower_vote,
    "activemask": lower_vote,
    "match": lower_match,
    "redux": lower_reduction,
    "elect": lower_elect,
    "bar": lower_barrier,
    "barrier": lower_barrier,
    "fence": lower_fence,
    "membar": lower_fence,
    "mapa": lower_cluster_address,
    "multimem": lower_multimem,
    "tex": lower_texture,
    "tld4": lower_texture,
    "szext": lower_sign_extend,
    "bmsk": lower_sign_extend,
    "isspacep": lower_space_test,
    "mma": lower_mma,
    "ldmatrix": lower_load_matrix,
    "stmatrix": lower_store_matrix,
    "movmatrix": lower_move_matrix,
    "wgmma": lower_warpgroup,
    "tcgen05": lower_tensor_core,
    "tensormap": lower_tensor_map,
    "call_external": lower_external_call,
    "call_result": lower_call_result,
}
# Modifiers that change the result, and that no lowering knows
_UNKNOWN_MODIFIERS = {
    "add": frozenset({"u16x2", "s16x2"}),
    "min": frozenset({"xorsign"}),
    "max": frozenset({"xorsign"}),
    "cvt": frozenset({"rs"}),
    "fma": frozenset({"oob"}),
}
# Operands without which an instruction is none; of others the lowering of each action says so
_LEAST_OPERANDS = {
    name: least
    for least, names in enumerate(
        (
            "activemask prefetch prefetchu mbarrier nanosleep setmaxnreg createpolicy discard applypriority",
            "abs neg not cnot popc brev clz bfind ex2 lg2 rcp rsqrt sqrt sin cos tanh mov cvt cvta ld ldu st "
            "red vote match redux elect isspacep ldmatrix stmatrix movmatrix tex tld4 tensormap multimem",
            "add addc sub subc mul div copysign min max setp rem mul24 and or xor shl shr set atom szext "
            "bmsk mapa",
            "mad madc fma mad24 sad dp4a dp2a bfe prmt shf selp slct shfl mma",
            "lop3 bfi",
        ),
        start=1,
    )
    for name in names.split()
}
_WITHOUT_MODIFIERS = frozenset({"call_external", "call_result", "trap", "brkpt", "pmevent"})
_VIDEO = frozenset({"vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset", "vavrg"})
# Forms that are lowered otherwise: where modifiers hold
_RARE: dict[str, tuple[tuple[Callable[[tuple[str, ...]], bool], Lowering], ...]] = {
    "sad": ((lambda words: words[-1] in ("s64", "u64"), lower_wide_sad),),
    "bfe": ((lambda words: words[-1] in ("s64", "u64"), lower_wide_bit_field),),
    "bfi": ((lambda words: words[-1] == "b64", lower_wide_bit_insert),),
    "bfind": ((lambda words: words[-1] in ("s64", "u64"), lower_wide_find),),
    "min": ((lambda words: words[-1] in ("s16x2", "u16x2"), lower_packed_min_max),),
    "max": ((lambda words: words[-1] in ("s16x2", "u16x2"), lower_packed_min_max),),
    "cvt": (
        (lambda words: words[0] == "pack", lower_convert_pack),
        (lambda words: "sat" in words and "f" not in "".join(words[-2:]), lower_saturated),
    ),
}
_CONTROLS = frozenset(
    {
        "nanosleep", "setmaxnreg", "griddepcontrol", "trap", "brkpt", "createpolicy", "discard",
        "applypriority", "pmevent",
    }
)  # fmt: skip


def lower_instruction(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Lower one instruction; one without a lowering makes its results unknown, and is counted."""
    ctx.begin(instruction)
    n_before = len(ctx.out)
    try:
        if not _UNKNOWN_MODIFIERS.get(instruction.name, frozenset()).isdisjoint(instruction.modifiers):
            raise UnsupportedPtxError
        _find_lowering(instruction)(ctx, instruction)
    except UnsupportedPtxError:
        del ctx.out[n_before:]
        _make_results_unknown(ctx, instruction)
    ctx.finish(instruction)


def _find_lowering(instruction: PtxInstruction) -> Lowering:
    name = instruction.name
    if not instruction.modifiers and name not in _WITHOUT_MODIFIERS:
        raise UnsupportedPtxError
    take_operands(instruction, _LEAST_OPERANDS.get(name, 0))
    if is_carry_chain(instruction):
        return lower_carry_chain
    if name.rstrip("24") in _VIDEO:
        return lower_video
    for test, lowering in _RARE.get(name, ()):
        if test(instruction.modifiers):
            return lowering
    if name in _ARITHMETIC:
        integers, floats = _ARITHMETIC[name]
        found = floats if is_float(instruction) else integers
        if found is None:
            raise UnsupportedPtxError
        return found
    if name in _CONTROLS:
        return lower_control
    if name not in _OTHERS:
        raise UnsupportedPtxError
    return _OTHERS[name]


def _make_results_unknown(ctx: LoweringContext, instruction: PtxInstruction) -> None:
    """Emit an instruction without meaning for each result: its opcode is in no table."""
    from analyzer.frontend.ptx.control_flow import find_defined_names

    ctx.note_unknown(instruction)
    mnemonic = ".".join((instruction.name.upper(), *filter(None, map(_clean, instruction.modifiers))))
    names = [n for n in find_defined_names(instruction) if n in ctx.predicates or ctx.count_words(n)]
    if not names:
        ctx.emit(f"PTX_{mnemonic}", n_defs=0)
    for name in names:
        if name in ctx.predicates:
            word = ctx.make_temporary()
            ctx.emit(f"PTX_{mnemonic}", word, has_effect=True)
            bit = ctx.take_result_predicate(PtxRegister(name))
            ctx.emit("ISETP.NE.U32.AND", bit, "PT", word, "RZ", "PT", n_defs=2)
            continue
        home = ctx.find_home(name)
        for position in range(home.n_words):
            ctx.emit(f"PTX_{mnemonic}", find_word(home, position), has_effect=True)


def _clean(word: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in word)
