"""Double-precision arithmetic on pairs of registers: DADD, DMUL, DFMA, DMNMX, DSETP."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.semantics.floating import COMPARES
from analyzer.execution.semantics.operands import Parts, make_step, select, split_pair
from analyzer.execution.semantics.predicate import JOINS, join_step
from analyzer.execution.semantics.rounding import double, fused, quiet
from analyzer.execution.step import AffineRule, Step, Value
from analyzer.ir.program import InstructionForm


def _arithmetic(form: InstructionForm, n_inputs: int, function: Callable[..., Value]) -> Step:
    parts = Parts(form)
    results = parts.results(2)
    numbers = [double(parts) for _ in range(n_inputs)]
    parts.finish()
    return make_step(quiet(lambda *v: split_pair(function(*v).view(np.uint64))), numbers, results)


def compile_double_add(form: InstructionForm) -> Step:
    """DADD."""
    return _arithmetic(form, 2, np.add)


def compile_double_multiply(form: InstructionForm) -> Step:
    """DMUL."""
    return _arithmetic(form, 2, np.multiply)


def compile_double_fma(form: InstructionForm) -> Step:
    """DFMA."""
    return _arithmetic(form, 3, fused)


def compile_double_min_max(form: InstructionForm) -> Step:
    """DMNMX: the smaller where the predicate holds, else the larger."""
    parts = Parts(form)
    results, a, b = parts.results(2), double(parts), double(parts)
    takes_smaller = parts.bit()
    parts.finish()

    def apply(x: Value, y: Value, bit: Value) -> tuple[Value, ...]:
        return split_pair(select(bit, np.fmin(x, y), np.fmax(x, y)).view(np.uint64))

    return make_step(quiet(apply), [a, b, takes_smaller], results)


def compile_double_compare(form: InstructionForm) -> Step:
    """DSETP."""
    parts = Parts(form)
    compare = parts.choose(COMPARES)
    join = parts.choose({word: word for word in JOINS})
    writes = parts.result_bit(), parts.result_bit()
    numbers = [double(parts), double(parts)]
    joined = parts.bit()
    parts.finish()
    return join_step(quiet(compare), numbers, joined, join, writes, AffineRule.FIXED)
