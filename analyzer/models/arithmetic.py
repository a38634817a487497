"""Count what the instructions of a launch compute, apart from what only converts, moves or helps.

An operation counts where it computes something of its operands, in the lanes that are active; a multiply-add
counts two. Five kinds of floating-point instructions compute less than their opcode says:

    HADD2.F32 R4, -RZ, R5.H0_H0     converts (adds nothing)                     0, a conversion
    HFMA2.MMA R3, -RZ, RZ, 0, 0.5   sets a register to a constant               0
    HFMA2 R6, R4, R5, -RZ           multiplies: a multiply-add of which half is left
    HADD2 R5, R2.H0_H0, R5.H1_H1    adds two numbers, twice: half is left
    MUFU.RCP R3, R3                 where an I2F gives R3 and an integer addition takes it:
                                    the reciprocal of an integer division       0, a helper

So a product of FP16 numbers by FFMA with both operands converted counts two for each step of a lane, not six.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.tcgen05_tiles import is_tcgen05_mma
from analyzer.flow.def_use import find_def_use_chains
from analyzer.ir.arrays import FloatArray
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import Opcode, OpKind, Semantics
from analyzer.ir.operand import ConstantBankOperand, Immediate, Operand, Predicate, Register
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.interface import ModelInput

_FLOAT_KINDS = frozenset({OpKind.FLOAT, OpKind.HALF, OpKind.DOUBLE})
_ADDED_OPERANDS = 2  # of an addition or a multiplication; a multiply-add has one more
_RECIPROCAL_MODIFIER = "RCP"
_PACKED = 2  # numbers of a half-precision instruction
_ONE_HALF = frozenset({"H0_H0", "H1_H1"})  # suffixes of operands that give both the same number


class Arithmetic(Struct, frozen=True, eq=False):
    """What the mean warp computes in all executions of each instruction, [n] each."""

    flops: FloatArray  # integer operations of matrix products and dot products included
    helper_flops: FloatArray  # of moves and of integer divisions: not in `flops`
    conversions: FloatArray  # of one value of one lane

    @property
    def total_flops(self) -> float:
        """Sum up what the mean warp computes."""
        return float(self.flops.sum())


def measure_arithmetic(model_input: ModelInput) -> Arithmetic:
    """Count operations by instruction, in active lanes where execution knows these; matrix products in full.

    Where it is not known which warp issues tcgen05 products, one of a CTA does.
    """
    kernel = model_input.kernel
    ids, table = kernel.opcode_ids, kernel.form_table
    executions = model_input.execution_counts * _find_active_shares(model_input)
    nominal = executions * model_input.costs.flops[ids]
    useful = np.ones(len(kernel))
    converts = table.make_opcode_mask(_is_conversion)[ids].astype(np.float64)
    is_vector = table.make_opcode_mask(_is_vector_arithmetic)[ids] & (executions > 0)
    shares: dict[int, float] = {}
    for row in np.flatnonzero(is_vector).tolist():
        text_id = int(kernel.text_ids[row])
        if text_id not in shares:
            form = kernel.decode_form(row)
            shares[text_id] = _find_useful_share(form) * (0.5 if _computes_twice(form) else 1.0)
        useful[row] = shares[text_id]
        if not useful[row] and _widens(kernel.find_opcode(row)):
            converts[row] = 1.0
    useful[list(_iterate_division_reciprocals(model_input, executions))] = 0.0
    flops = nominal * useful
    return Arithmetic(flops, nominal - flops, executions * converts * WARP_SIZE)


def is_reciprocal(opcode: Opcode) -> bool:
    """Return whether an opcode is MUFU.RCP."""
    return opcode.semantics is Semantics.FLOAT_FUNCTION and _RECIPROCAL_MODIFIER in opcode.modifiers


def is_int_to_float(opcode: Opcode) -> bool:
    """Return whether an opcode converts an integer."""
    return opcode.semantics is Semantics.INT_TO_FLOAT


def _find_active_shares(model_input: ModelInput) -> FloatArray:
    """Return the part of each instruction's executions by a warp that counts, [n]."""
    ids, table, profile = model_input.kernel.opcode_ids, model_input.kernel.form_table, model_input.profile
    shares = np.ones(len(ids))
    if profile is None:
        shares[table.make_opcode_mask(is_tcgen05_mma)[ids]] = 1.0 / model_input.occupancy.warps_per_cta
        return shares
    lanes, runs = profile.block_active_lanes, profile.block_executions * WARP_SIZE
    active = np.where(runs > 0, lanes / np.maximum(runs, 1), 1.0)
    blocks = np.asarray(model_input.cfg.block_of)
    is_vector = ~table.make_opcode_mask(_is_matrix_product)[ids[: len(blocks)]]
    shares[: len(blocks)] = np.where(is_vector, active[blocks], 1.0)
    return shares


def _iterate_division_reciprocals(model_input: ModelInput, executions: NDArray[np.float64]) -> Iterator[int]:
    """Yield the reciprocals of integer divisions: between a conversion and an integer addition."""
    kernel = model_input.kernel
    table, ids = kernel.form_table, kernel.opcode_ids
    rows = np.flatnonzero(table.make_opcode_mask(is_reciprocal)[ids] & (executions > 0)).tolist()
    if not rows or not table.make_opcode_mask(is_int_to_float)[ids].any():
        return
    chains = find_def_use_chains(model_input.cfg)
    for row in rows:
        comes_from_integer = any(is_int_to_float(kernel.find_opcode(one)) for one in chains.producers(row))
        if comes_from_integer and any(
            kernel.find_opcode(one).kind is OpKind.INTEGER for one in chains.consumers(row)
        ):
            yield row


def _find_useful_share(form: InstructionForm) -> float:
    """Return the part of an instruction's operations that computes something."""
    sources = _list_sources(form)
    if len(sources) < _ADDED_OPERANDS:
        return 1.0
    if len(sources) == _ADDED_OPERANDS:
        return 0.0 if any(map(_is_zero, sources)) else 1.0
    *factors, addend = sources
    if any(map(_is_zero, factors)):
        return 0.0
    return 0.5 if _is_zero(addend) or any(map(_is_one, factors)) else 1.0


def _list_sources(form: InstructionForm) -> list[tuple[Operand, ...]]:
    """Return the operands that an instruction computes with; the two constants of a packed one are one."""
    sources: list[tuple[Operand, ...]] = [
        (one,) for one in form.operands[1:] if not isinstance(one, Predicate)
    ]
    constants = [number for number, one in enumerate(sources) if isinstance(one[0], Immediate)]
    if form.opcode.kind is OpKind.HALF and len(constants) == _PACKED:
        first, second = constants
        sources[first : second + 1] = [sources[first] + sources[second]]
    return sources


def _is_zero(operand: tuple[Operand, ...]) -> bool:
    return all(
        one.value == 0 if isinstance(one, Immediate) else isinstance(one, Register) and one.index is None
        for one in operand
    )


def _is_one(operand: tuple[Operand, ...]) -> bool:
    return all(isinstance(one, Immediate) and one.value == 1 for one in operand)


def _computes_twice(form: InstructionForm) -> bool:
    """Return whether both results of a packed instruction are the same, as where a program has one number."""
    if form.opcode.kind is not OpKind.HALF or _widens(form.opcode):
        return False
    sources = [one for one in _list_sources(form) if not _is_zero(one)]
    selected = [one for one, *_ in sources if isinstance(one, Register | ConstantBankOperand)]
    constants = {one for operand in sources for one in operand if isinstance(one, Immediate)}
    return bool(selected) and len(constants) < _PACKED and all(map(_takes_one_half, selected))


def _takes_one_half(operand: Register | ConstantBankOperand) -> bool:
    return not _ONE_HALF.isdisjoint(operand.suffixes)


def _is_vector_arithmetic(opcode: Opcode) -> bool:
    return opcode.flops > 0 and opcode.mma_shape is None and opcode.kind in _FLOAT_KINDS


def _widens(opcode: Opcode) -> bool:
    """Return whether a half-precision instruction writes FP32: with nothing to add, it converts."""
    return opcode.kind is OpKind.HALF and "F32" in opcode.modifiers


def _is_conversion(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.CONVERT


def _is_matrix_product(opcode: Opcode) -> bool:
    return opcode.mma_shape is not None
