"""Loads that the exit of a loop depends on, and what elements they read.

`for (i = 0; i < counts[e]; i++)` depends on one load, which one number everywhere in `counts` settles. The
rows of a sparse matrix, `for (i = start[r]; i < start[r + 1]; i++)`, depend on the difference of two.
"""

from msgspec import Struct

from analyzer.flow.def_use import DefUseChains
from analyzer.ir.opcode import GLOBAL_SPACES, MEMORY_KINDS, OpKind, Semantics

_MAX_ROWS = 64  # that are looked at
_WIDE_COMPARE_MODIFIER = "EX"  # upper half of a compare of 64 bits
_FLOAT_KINDS = frozenset({OpKind.FLOAT, OpKind.HALF, OpKind.DOUBLE})
_NARROW_ELEMENTS = {"U8": "u8", "S8": "i8", "U16": "u16", "S16": "i16"}
_FLOAT_ELEMENTS = {4: "f32", 8: "f64"}
_DOUBLEWORD_BYTES = 8


class BoundLoad(Struct, frozen=True):
    """A load from global memory that the exit of a loop depends on."""

    row: int
    element: str  # type of what it reads, as in `--arg 3=fill:i64:N`; "" for an int32


def find_bound_loads(chains: DefUseChains, exit_row: int) -> tuple[BoundLoad, ...]:
    """Return the loads from which the condition of a branch is computed, in the order of the code."""
    kernel = chains.cfg.kernel
    work, seen, is_wide = [exit_row], {exit_row}, False
    float_reads: dict[int, bool] = {}  # by row of the load
    while work and len(seen) <= _MAX_ROWS:
        row = work.pop()
        opcode = kernel.find_opcode(row)
        is_wide = is_wide or _WIDE_COMPARE_MODIFIER in opcode.modifiers
        reads_float = opcode.kind in _FLOAT_KINDS or opcode.semantics is Semantics.FLOAT_TO_INT
        for source in sorted(chains.producers(row)):
            producer = kernel.find_opcode(source)
            if producer.kind is OpKind.LOAD and producer.space in GLOBAL_SPACES:
                float_reads[source] = float_reads.get(source, False) or reads_float
            elif producer.kind not in MEMORY_KINDS and source not in seen:
                seen.add(source)
                work.append(source)
    return tuple(
        BoundLoad(row, _find_element(chains, row, reads_float=float_reads[row], is_wide=is_wide))
        for row in sorted(float_reads)
    )


def _find_element(chains: DefUseChains, row: int, *, reads_float: bool, is_wide: bool) -> str:
    opcode = chains.cfg.kernel.find_opcode(row)
    narrow = next((_NARROW_ELEMENTS[word] for word in opcode.modifiers if word in _NARROW_ELEMENTS), "")
    if narrow:
        return narrow
    if reads_float:
        return _FLOAT_ELEMENTS.get(opcode.width_bytes, "")
    return "i64" if is_wide and opcode.width_bytes == _DOUBLEWORD_BYTES else ""
