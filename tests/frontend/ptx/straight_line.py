"""Runs straight-line PTX that was lowered: its arithmetic, by the executor's steps, for several lanes.

The PTX gets its inputs in `%a0`, `%a1` … (32 bits) or `%d0` … (64 bits), read from parameters, and leaves its
result in `%r0` or `%q0`, which it stores; the value of what is stored is returned.
"""

import numpy as np
from code_rules import verify_kernel

from analyzer.execution.lowering.semantics import compile_step
from analyzer.execution.lowering.step import ConstantRead
from analyzer.frontend.ptx.lowering import read_ptx_module
from analyzer.ir.module import Kernel
from analyzer.ir.operand import Register
from analyzer.isa.register_operands import find_predicate_unit, find_register_unit

N_INPUTS = 4
_HEAD = """.version 8.5
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, {parameters})
{{
.reg .b32 %a<8>, %r<20>;
.reg .b64 %d<8>, %q<20>, %o;
.reg .b16 %h<20>;
.reg .f32 %f<20>;
.reg .f64 %g<20>;
.reg .pred %p<20>;
ld.param.u64 %o, [out];
"""


def make_kernel(body: str, *, wide: bool, target: str = "sm_80") -> Kernel:
    """Return the kernel of a body that computes %r0, or %q0 if `wide`."""
    parameters = ", ".join(f".param .u64 p{n}" for n in range(N_INPUTS))
    text = _HEAD.format(target=target, parameters=parameters)
    for n in range(N_INPUTS):
        text += f"ld.param.u64 %d{n}, [p{n}];\nld.param.u32 %a{n}, [p{n}];\n"
        # not constants for the lowering: each is set twice
        text += f"add.u64 %d{n}, %d{n}, 0;\nadd.u32 %a{n}, %a{n}, 0;\n"
    store = "st.global.u64 [%o], %q0;" if wide else "st.global.u32 [%o], %r0;"
    module = read_ptx_module(f"{text}{body}\n{store}\nret;\n}}\n", "body.ptx", target)
    (kernel,) = module.kernels
    assert not verify_kernel(kernel)
    return kernel


class StraightLine:
    """The code of a kernel, compiled once."""

    def __init__(self, kernel: Kernel) -> None:
        self.base = kernel.parameter_base or 0
        self.forms = [kernel.decode_form(row) for row in range(len(kernel))]
        self.steps = [compile_step(form) for form in self.forms]

    def run(self, inputs: tuple[int, ...]) -> int:
        """Return what the kernel stores for the values of its parameters."""
        values: dict[int, np.ndarray] = {}
        for form, step in zip(self.forms, self.steps, strict=True):
            if form.guard is not None and form.guard.index is not None:
                bit = bool(values[find_predicate_unit(form.guard)].reshape(-1)[0])
                if bit == form.guard.is_negated:
                    continue
            if form.opcode.name == "STG":
                return _read_stored(form.operands[-1], values, form.opcode.width_bytes // 4)
            assert step is not None, form.text
            words = [
                _read_constant(read, self.base, inputs)
                if isinstance(read, ConstantRead)
                else values.get(read, np.zeros((1, 1), dtype=np.uint32))
                for read in step.reads
            ]
            for slot, value in zip(step.writes, step.apply(*words), strict=True):
                if slot >= 0:
                    values[slot] = value
        raise AssertionError("no store")


def _read_stored(operand: object, values: dict[int, np.ndarray], n_words: int) -> int:
    assert isinstance(operand, Register)
    if operand.index is None:
        return 0
    first = find_register_unit(operand)
    return sum(int(values[first + n].reshape(-1)[0]) << 32 * n for n in range(n_words))


def _read_constant(read: ConstantRead, base: int, inputs: tuple[int, ...]) -> np.ndarray:
    ordinal, part = divmod(read.offset - base, 8)
    number = 0 if not ordinal else inputs[ordinal - 1] >> 8 * part & 0xFFFFFFFF
    return np.full((1, 1), number, dtype=np.uint32)
