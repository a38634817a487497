"""Double-precision arithmetic on pairs of registers: DADD, DMUL, DFMA, DMNMX, DSETP."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.lowering.semantics.integer_compare import JOIN_FUNCTIONS, make_compare_step
from analyzer.execution.lowering.semantics.operand_parser import OperandParser, make_step, select, split_pair
from analyzer.execution.lowering.semantics.rounding import (
    fused_multiply_add,
    ignore_float_errors,
    take_double,
)
from analyzer.execution.lowering.semantics.single_precision import FLOAT_COMPARE_FUNCTIONS
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm


def _compile_arithmetic(form: InstructionForm, n_inputs: int, function: Callable[..., Value]) -> Step:
    parser = OperandParser(form)
    results = parser.take_results(2)
    numbers = [take_double(parser) for _ in range(n_inputs)]
    parser.expect_end()
    return make_step(
        ignore_float_errors(lambda *v: split_pair(function(*v).view(np.uint64))), numbers, results
    )


def compile_double_add(form: InstructionForm) -> Step:
    """Compile DADD."""
    return _compile_arithmetic(form, 2, np.add)


def compile_double_multiply(form: InstructionForm) -> Step:
    """Compile DMUL."""
    return _compile_arithmetic(form, 2, np.multiply)


def compile_double_fma(form: InstructionForm) -> Step:
    """Compile DFMA."""
    return _compile_arithmetic(form, 3, fused_multiply_add)


def compile_double_min_max(form: InstructionForm) -> Step:
    """Compile DMNMX: the minimum where the predicate is true, else the maximum."""
    parser = OperandParser(form)
    results, a, b = parser.take_results(2), take_double(parser), take_double(parser)
    takes_smaller = parser.take_predicate()
    parser.expect_end()

    def apply(x: Value, y: Value, bit: Value) -> tuple[Value, ...]:
        return split_pair(select(bit, np.fmin(x, y), np.fmax(x, y)).view(np.uint64))

    return make_step(ignore_float_errors(apply), [a, b, takes_smaller], results)


def compile_double_compare(form: InstructionForm) -> Step:
    """Compile DSETP."""
    parser = OperandParser(form)
    compare = parser.take_choice(FLOAT_COMPARE_FUNCTIONS)
    join = parser.take_choice({word: word for word in JOIN_FUNCTIONS})
    writes = parser.take_result_predicate(), parser.take_result_predicate()
    numbers = [take_double(parser), take_double(parser)]
    joined = parser.take_predicate()
    parser.expect_end()
    return make_compare_step(ignore_float_errors(compare), numbers, joined, join, writes, AffineRule.UNKNOWN)
