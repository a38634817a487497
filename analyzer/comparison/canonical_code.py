"""Instruction texts without what depends on the place of a function in its file, or on its name.

Tools print the target of a branch as an address of the file or as a label that is numbered across all
functions, and calls and relocations carry the kernel's own mangled name. All of these become offsets from the
function's first instruction:

    BRA `(.L_x_17)   ->  BRA @0x90
    BRA 0x4090       ->  BRA @0x90        of a function that begins at 0x4000
    CALL.REL.NOINC `($_Z4gemmPf$__internal_0)  ->  CALL.REL.NOINC @0x7c0

so that equal code has equal texts wherever it stands and whatever tool printed it.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from analyzer.comparison.normal_names import strip_file_hashes
from analyzer.ir.module import FormTable, Kernel
from analyzer.ir.opcode import Opcode, OpKind
from analyzer.ir.operand import Immediate

_SYMBOL = re.compile(r"`\(([^()]*)\)|(?<=[( ])[\w.$]+(?=[ )@])")
_TARGET_KINDS = frozenset(
    {OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.CALL, OpKind.RETURN, OpKind.CONVERGENCE_OPEN}
)


def list_canonical_texts(kernel: Kernel, rows: Sequence[int] | None = None) -> list[str]:
    """Return the canonical text of each instruction, [n]; of some rows only where they are given."""
    numbers = kernel.text_ids if rows is None else kernel.text_ids[np.asarray(rows, dtype=np.int64)]
    texts = kernel.form_table.texts
    found = [texts[number] for number in numbers.tolist()]
    base = int(kernel.addresses[0]) if len(kernel) else 0
    offsets = {name: address - base for name, address in kernel.labels}
    for at in _find_placed(kernel.form_table, numbers.tolist()):
        row = at if rows is None else rows[at]
        found[at] = _make_relative(kernel, row, base, offsets)
    return found


def _find_placed(form_table: FormTable, numbers: Sequence[int]) -> list[int]:
    """Return the positions of texts that name a place of the code, or a symbol."""
    has_target = form_table.make_opcode_mask(_has_target).tolist()
    opcode_ids, texts = form_table.opcode_ids, form_table.texts
    placed = {n for n in set(numbers) if has_target[int(opcode_ids[n])] or "(" in texts[n]}
    return [at for at, number in enumerate(numbers) if number in placed] if placed else []


def _has_target(opcode: Opcode) -> bool:
    return opcode.kind in _TARGET_KINDS or opcode.name == "LEPC"


def _make_relative(kernel: Kernel, row: int, base: int, offsets: Mapping[str, int]) -> str:
    """Return the text of a row with offsets from the function's start in place of addresses and labels."""
    text = kernel.form_table.texts[int(kernel.text_ids[row])]
    if "(" in text:
        return _SYMBOL.sub(lambda found: _replace_symbol(found, kernel.name, offsets), text)
    operands = kernel.decode_form(row).operands
    if not operands or not isinstance(operands[-1], Immediate):
        return text
    head, blank, _ = text.rpartition(" ")
    return f"{head}{blank}@{int(operands[-1].value) - base:#x}"


def _replace_symbol(found: "re.Match[str]", own_name: str, offsets: Mapping[str, int]) -> str:
    symbol = found[1] or found[0]
    if symbol in offsets:
        return f"@{offsets[symbol]:#x}"
    if symbol in (own_name, f".text.{own_name}"):
        return "@0x0"
    return strip_file_hashes(found[0]).replace(own_name, "@") if own_name else found[0]
