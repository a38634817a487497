"""Matrix products by multiply-adds of lanes: what they multiply, and how often each loaded word is used.

A multiply-add belongs to a product of matrices where its factors come from different loads of its loop, at
most through conversions, and where lanes load each word several times:

    LDS.U16 R4, [R8]; HADD2.F32 R5, -RZ, R4.H0_H0     a factor of 16 bits
    LDS R6, [R9]                                      another one
    FFMA R0, R5, R6, R0

A dot product, whose words each come once, is none: no tile of it would read less.
"""

from collections.abc import Iterable

from msgspec import Struct

from analyzer.advice.earlier_loads import find_loop, list_loop_rows
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.opcode import GLOBAL_SPACES, SHARED_SPACES, Opcode, OpKind, Semantics
from analyzer.ir.operand import Register
from analyzer.isa.register_operands import find_register_unit
from analyzer.models.interface import ModelInput

_PRODUCTS = frozenset({Semantics.FLOAT_FMA, Semantics.HALF_FMA})
_PASSING_KINDS = frozenset({OpKind.CONVERT, OpKind.MOVE, OpKind.INTEGER, OpKind.HALF})
_MAX_CONVERSIONS = 3  # one after another
_MIN_USES = 4  # of a loaded word, by the lanes of all warps
_MIN_SHARE = 0.2  # of the executed instructions


class ScalarProducts(Struct, frozen=True):
    """The instructions of a product of matrices; all but `rows` may also do other things."""

    rows: tuple[int, ...]  # multiply-adds
    loads: tuple[int, ...]  # of their factors
    conversions: tuple[int, ...]  # between both
    is_half: bool  # the factors have 16 bits

    def count_words_per_product(self, model_input: ModelInput) -> float:
        """Count the registers that a lane loads for each multiply-add: 2 without a tile, 1 for 2 x 2."""
        counts, kernel = model_input.execution_counts, model_input.kernel
        words = sum(float(counts[row]) * len(kernel.decode_form(row).defs) for row in self.loads)
        return words / sum(float(counts[row]) for row in self.rows)


def find_scalar_products(model_input: ModelInput) -> ScalarProducts | None:
    """Return the multiply-adds of a product of matrices; None where these are few, or there are none."""
    kernel, counts = model_input.kernel, model_input.execution_counts
    mask = kernel.form_table.make_opcode_mask(_is_product)[kernel.opcode_ids] & (counts > 1)
    if counts[mask].sum() < _MIN_SHARE * max(1.0, float(counts.sum())):
        return None
    chains = find_def_use_chains(model_input.cfg)
    rows, loads, conversions = [], set[int](), set[int]()
    for row in mask.nonzero()[0].tolist():
        factors = [
            _find_loads(model_input, chains, row, unit) for unit in _list_factor_units(model_input, row)
        ]
        if len(factors) == 2 and all(found for found, _ in factors) and factors[0][0] != factors[1][0]:
            rows.append(row)
            for found, passed in factors:
                loads |= found
                conversions |= passed
    if counts[rows].sum() < _MIN_SHARE * float(counts.sum()) or not _are_used_again(model_input, loads):
        return None
    is_half = bool(conversions) or kernel.find_opcode(rows[0]).semantics is Semantics.HALF_FMA
    return ScalarProducts(tuple(rows), tuple(sorted(loads)), tuple(sorted(conversions)), is_half)


def _list_factor_units(model_input: ModelInput, row: int) -> list[int]:
    """Return the register units of the two factors of a multiply-add: its first sources."""
    operands = model_input.kernel.decode_form(row).operands[1:3]
    return [find_register_unit(one) for one in operands if isinstance(one, Register)]


def _find_loads(
    model_input: ModelInput, chains: DefUseChains, row: int, unit: int
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the loads in a row's loop that a register comes from, and the conversions on the way.

    No loads where others write it too.
    """
    kernel, loop = model_input.kernel, find_loop(model_input, row)
    found, passed = set[int](), set[int]()
    work = [(one, 0) for one in chains.sources(row).definitions.get(unit, ())]
    while work:
        one, depth = work.pop()
        opcode = kernel.find_opcode(one)
        if loop is None or find_loop(model_input, one) is not loop:
            return frozenset(), frozenset()
        if opcode.kind is OpKind.LOAD:
            found.add(one)
        elif opcode.kind in _PASSING_KINDS and not _is_product(opcode) and depth < _MAX_CONVERSIONS:
            passed.add(one)
            work += [(before, depth + 1) for before in chains.producers(one)]
        else:
            return frozenset(), frozenset()
    return frozenset(found), frozenset(passed)


def _are_used_again(model_input: ModelInput, loads: Iterable[int]) -> bool:
    """Return whether lanes load words often enough that those of a tile in registers could be shared."""
    kernel, profile = model_input.kernel, model_input.profile
    uses = {a.row: a.bytes / a.unique_bytes for a in (profile.accesses if profile else ()) if a.unique_bytes}
    if any(
        kernel.find_opcode(row).space in GLOBAL_SPACES and uses.get(row, 0.0) < _MIN_USES for row in loads
    ):
        return False
    staged = [row for row in loads if kernel.find_opcode(row).space in SHARED_SPACES]
    stored = _sum_bytes(model_input, list_staging_rows(model_input, loads))
    return not staged or _sum_bytes(model_input, staged) >= _MIN_USES * stored > 0


def list_staging_rows(model_input: ModelInput, loads: Iterable[int]) -> list[int]:
    """Return what writes shared memory in loops around some loads."""
    kernel = model_input.kernel
    loops = {loop.index for row in loads if (loop := find_loop(model_input, row)) is not None}
    around = {
        index
        for loop in loops
        for block in model_input.loop_forest.loops[loop].blocks
        for index in model_input.loop_forest.find_enclosing_loops(block)
    }
    found = {
        row
        for index in around
        for row in list_loop_rows(model_input, model_input.loop_forest.loops[index])
        if _stores_to_shared(kernel.find_opcode(row))
    }
    return sorted(found)


def _stores_to_shared(opcode: Opcode) -> bool:
    is_store = opcode.kind is OpKind.STORE and opcode.space in SHARED_SPACES
    return is_store or opcode.kind is OpKind.ASYNC_COPY


def _sum_bytes(model_input: ModelInput, rows: Iterable[int]) -> float:
    kernel, counts = model_input.kernel, model_input.execution_counts
    return sum(float(counts[row]) * (kernel.find_opcode(row).width_bytes or 0) for row in rows)


def _is_product(opcode: Opcode) -> bool:
    return opcode.semantics in _PRODUCTS
