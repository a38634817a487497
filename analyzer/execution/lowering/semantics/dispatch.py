"""Dispatch: the compiler function for each semantics of the opcode table."""

from collections.abc import Callable

from analyzer.execution.lowering.semantics.bits import (
    compile_bit_count,
    compile_bit_mask,
    compile_bit_reverse,
    compile_leading_bit,
    compile_permute,
    compile_sign_extend,
)
from analyzer.execution.lowering.semantics.bitwise_logic import (
    compile_binary_logic,
    compile_logic,
    compile_predicate_compare,
    compile_predicate_logic,
)
from analyzer.execution.lowering.semantics.conversion import (
    compile_float_round,
    compile_float_to_float,
    compile_float_to_int,
    compile_int_to_float,
)
from analyzer.execution.lowering.semantics.double_precision import (
    compile_double_add,
    compile_double_compare,
    compile_double_fma,
    compile_double_min_max,
    compile_double_multiply,
)
from analyzer.execution.lowering.semantics.integer_add import compile_integer_add
from analyzer.execution.lowering.semantics.integer_compare import (
    compile_integer_compare,
    compile_predicates_to_word,
    compile_word_to_predicates,
)
from analyzer.execution.lowering.semantics.integer_multiply import (
    compile_divide,
    compile_dot_product,
    compile_multiply_add,
)
from analyzer.execution.lowering.semantics.min_max import (
    compile_absolute,
    compile_add_min_max,
    compile_distance,
    compile_min_max,
)
from analyzer.execution.lowering.semantics.moves import (
    compile_barrier_result,
    compile_constant_load,
    compile_half_constant,
    compile_move,
    compile_select,
    compile_special_register,
)
from analyzer.execution.lowering.semantics.operand_parser import UnsupportedInstructionError
from analyzer.execution.lowering.semantics.shift_add import compile_scaled_add, compile_shift_add
from analyzer.execution.lowering.semantics.shifts import (
    compile_funnel_shift,
    compile_shift_left,
    compile_shift_right,
)
from analyzer.execution.lowering.semantics.single_precision import (
    compile_division_check,
    compile_float_add,
    compile_float_compare,
    compile_float_fma,
    compile_float_function,
    compile_float_min_max,
    compile_float_multiply,
    compile_float_select,
    compile_float_set,
)
from analyzer.execution.lowering.semantics.warp_operations import (
    compile_elect,
    compile_match,
    compile_read_first_lane,
    compile_reduction,
    compile_shuffle,
    compile_vote,
)
from analyzer.execution.lowering.step import Step
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import Semantics

STEP_COMPILERS: dict[Semantics, Callable[[InstructionForm], Step]] = {
    Semantics.INT_ADD: compile_integer_add,
    Semantics.INT_MAD: compile_multiply_add,
    Semantics.INT_DOT: compile_dot_product,
    Semantics.INT_DIVIDE: compile_divide,
    Semantics.INT_SHIFT_ADD: compile_shift_add,
    Semantics.INT_SCALED_ADD: compile_scaled_add,
    Semantics.INT_MIN_MAX: compile_min_max,
    Semantics.INT_ADD_MIN_MAX: compile_add_min_max,
    Semantics.INT_ABSOLUTE: compile_absolute,
    Semantics.INT_DISTANCE: compile_distance,
    Semantics.INT_COMPARE: compile_integer_compare,
    Semantics.LOGIC: compile_logic,
    Semantics.LOGIC_OF_TWO: compile_binary_logic,
    Semantics.FUNNEL_SHIFT: compile_funnel_shift,
    Semantics.SHIFT_LEFT: compile_shift_left,
    Semantics.SHIFT_RIGHT: compile_shift_right,
    Semantics.PERMUTE: compile_permute,
    Semantics.BIT_MASK: compile_bit_mask,
    Semantics.SIGN_EXTEND: compile_sign_extend,
    Semantics.LEADING_BIT: compile_leading_bit,
    Semantics.BIT_COUNT: compile_bit_count,
    Semantics.BIT_REVERSE: compile_bit_reverse,
    Semantics.PREDICATE_LOGIC: compile_predicate_logic,
    Semantics.PREDICATE_COMPARE: compile_predicate_compare,
    Semantics.PREDICATES_TO_WORD: compile_predicates_to_word,
    Semantics.WORD_TO_PREDICATES: compile_word_to_predicates,
    Semantics.MOVE: compile_move,
    Semantics.SELECT: compile_select,
    Semantics.HALF_FMA: compile_half_constant,
    Semantics.SPECIAL_MOVE: compile_special_register,
    Semantics.SPECIAL_READ: compile_special_register,
    Semantics.CONSTANT_LOAD: compile_constant_load,
    Semantics.BARRIER_RESULT: compile_barrier_result,
    Semantics.FIRST_LANE: compile_read_first_lane,
    Semantics.VOTE: compile_vote,
    Semantics.ELECT: compile_elect,
    Semantics.SHUFFLE: compile_shuffle,
    Semantics.LANE_REDUCTION: compile_reduction,
    Semantics.LANE_MATCH: compile_match,
    Semantics.INT_TO_FLOAT: compile_int_to_float,
    Semantics.FLOAT_TO_INT: compile_float_to_int,
    Semantics.FLOAT_TO_FLOAT: compile_float_to_float,
    Semantics.FLOAT_ROUND: compile_float_round,
    Semantics.FLOAT_FUNCTION: compile_float_function,
    Semantics.FLOAT_ADD: compile_float_add,
    Semantics.FLOAT_MULTIPLY: compile_float_multiply,
    Semantics.FLOAT_FMA: compile_float_fma,
    Semantics.FLOAT_MIN_MAX: compile_float_min_max,
    Semantics.FLOAT_COMPARE: compile_float_compare,
    Semantics.FLOAT_SELECT: compile_float_select,
    Semantics.FLOAT_SET: compile_float_set,
    Semantics.DIVISION_CHECK: compile_division_check,
    Semantics.DOUBLE_ADD: compile_double_add,
    Semantics.DOUBLE_MULTIPLY: compile_double_multiply,
    Semantics.DOUBLE_FMA: compile_double_fma,
    Semantics.DOUBLE_MIN_MAX: compile_double_min_max,
    Semantics.DOUBLE_COMPARE: compile_double_compare,
}


def compile_step(form: InstructionForm) -> Step | None:
    """Compile an instruction; return None if its semantics are not modelled."""
    semantics = form.opcode.semantics
    compiler = None if semantics is None else STEP_COMPILERS.get(semantics)
    if compiler is None:
        return None
    try:
        return compiler(form)
    except UnsupportedInstructionError:
        return None
