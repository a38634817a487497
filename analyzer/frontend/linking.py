"""Put device functions behind the kernels of the same input that call them.

With `nvcc -rdc=true` each function has code of its own from address 0 on, and a call names it: by relocation
in a cubin, by its label in the text of nvdisasm. Execution follows one list of addresses, so what a kernel
calls, and what that calls, is put where the kernel's code ends, each function once:

    use     0x0b0  MOV R20, 32@lo((use + .L_x_0@srel))     0x0b0  MOV R20, 0xe0
            0x0d0  CALL.ABS.NOINC `(helper)                0x0d0  CALL.ABS.NOINC `(helper)
            0x0f0  EXIT                                    0x0f0  EXIT
    helper  0x000  FFMA R0, R4, R4, R5                     0x100  FFMA R0, R4, R4, R5       label helper

The invariant: an operand that names an address of a function names the new one. Functions that are in some
kernel now are no kernels of their own.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.ir.arrays import IdArray
from analyzer.ir.code_targets import find_code_end, find_named_target, is_call, names_code_address
from analyzer.ir.module import INSTRUCTION_BYTES, Kernel, Module, SourceLine
from analyzer.ir.opcode import Opcode, OpKind
from analyzer.ir.operand import Immediate
from analyzer.text.demangling import demangle

_CALLED_LABEL = re.compile(r"\bCALL\S*\s+`\((.*)\)$")
_CALL_HEAD = re.compile(r"(.*?\bCALL\S*\s+)")
_LAST_NUMBER = re.compile(r"0x[0-9a-f]+(?=[^x]*$)")
# 32@lo((use + .L_x_0@srel)), 32@hi((use + 0xa0)): half of an address
_HALF_ADDRESS = re.compile(r"32@(lo|hi)\(\((.{1,4096}?)(?: \+ (\.?[\w$]{1,256})(?:@\w{1,16})?)?\)\)")


class CodeRelocation(Struct, frozen=True):
    """A place in code where the loader writes an address."""

    address: int  # of the instruction, in its function
    symbol: str
    addend: int
    is_high: bool  # the upper 32 bits


def link_callees(
    module: Module, find_relocations: Callable[[Kernel], Sequence[CodeRelocation]] = lambda _: ()
) -> Module:
    """Return the module with the functions that its kernels call in them.

    find_relocations: returns those of a function's code.
    """
    named = {
        (kernel.arch, kernel.name): calls
        for kernel in module.kernels
        if (calls := dict(_iterate_named_calls(kernel, find_relocations(kernel))))
    }
    if not named:
        return module
    functions = {(kernel.arch, kernel.name): kernel for kernel in module.kernels if _is_whole(kernel)}
    names = dict(_iterate_names(functions))
    calling = {
        key: calls
        for key, symbols in named.items()
        if key in functions
        if (calls := {row: names[key[0], one] for row, one in symbols.items() if (key[0], one) in names})
    }
    linked, inside = [], set[tuple[str, str]]()
    for kernel in module.kernels:
        parts = _list_parts((kernel.arch, kernel.name), calling)
        if len(parts) > 1:
            kernel = _Linker([functions[part] for part in parts], calling, find_relocations).link()
            inside.update(parts[1:])
        linked.append(kernel)
    kept = [one for one in linked if (one.arch, one.name) not in inside]  # nobody calls a kernel
    return replace(module, kernels=tuple(kept or linked))


def _iterate_named_calls(kernel: Kernel, relocations: Sequence[CodeRelocation]) -> Iterator[tuple[int, str]]:
    """Yield the rows of calls that name a function, and its name there; no operand is decoded for that."""
    rows = np.flatnonzero(kernel.form_table.make_opcode_mask(is_call)[kernel.opcode_ids]).tolist()
    symbols = {one.address: one.symbol for one in relocations} if rows else {}
    for row in rows:
        if label := _CALLED_LABEL.search(kernel.form_table.texts[kernel.text_ids[row]]):
            yield row, label[1]
        elif symbol := symbols.get(int(kernel.addresses[row])):
            yield row, symbol


def _iterate_names(
    functions: Mapping[tuple[str, str], Kernel],
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield all names of functions, by architecture, and the ones that they have here, which come last.

    c++filt demangles operands, and no headers; a linker renames the section of a function that it has twice.
    """
    for (arch, name), function in functions.items():
        yield (arch, demangle(name)), name
        yield from (((arch, label), name) for label, address in function.labels if address == 0)
    yield from ((key, key[1]) for key in functions)


def _list_parts(
    start: tuple[str, str], calling: Mapping[tuple[str, str], Mapping[int, str]]
) -> list[tuple[str, str]]:
    """List a function and all that it calls, each once, in the order of the calls."""
    parts = [start]
    for part in parts:  # grows meanwhile
        parts += dict.fromkeys(
            key for name in calling.get(part, {}).values() if (key := (start[0], name)) not in parts
        )
    return parts


class _Linker:
    """One kernel, and the functions that are put behind it."""

    def __init__(
        self,
        parts: Sequence[Kernel],
        calling: Mapping[tuple[str, str], Mapping[int, str]],
        find_relocations: Callable[[Kernel], Sequence[CodeRelocation]],
    ) -> None:
        self.parts, self.calling, self.find_relocations = parts, calling, find_relocations
        self.bases: dict[str, int] = {}
        end = 0
        for part in parts:
            self.bases[part.name] = end
            end += find_code_end(part) * INSTRUCTION_BYTES
        self.table = parts[0].form_table
        self.new_texts: dict[str, tuple[int, int]] = {}  # to their ids, and those of texts that they replace

    def link(self) -> Kernel:
        """Return the kernel with all functions in it."""
        first = self.parts[0]
        ids = np.concatenate([self._rewrite(part) for part in self.parts])
        words = [
            part.control_words[: find_code_end(part)] for part in self.parts if part.control_words is not None
        ]
        line_ids, lines = self._join_source_lines()
        return replace(
            first,
            form_table=self.table.extend({text: like for text, (_, like) in self.new_texts.items()}),
            text_ids=ids,
            addresses=np.arange(len(ids), dtype=np.int64) * INSTRUCTION_BYTES,
            control_words=np.concatenate(words) if len(words) == len(self.parts) else None,
            labels=tuple(self._list_labels()),
            branch_targets=tuple(
                (address + base, tuple(target + base for target in targets))
                for part in self.parts
                for base in (self.bases[part.name],)
                for address, targets in part.branch_targets
            ),
            source_line_ids=line_ids,
            source_lines=lines,
            ptx_lines=None,
            read_ptx_lines=None,
        )

    def _list_labels(self) -> Iterator[tuple[str, int]]:
        for part in self.parts:
            base = self.bases[part.name]
            yield from ((name, base) for name in dict.fromkeys((part.name, demangle(part.name))))
            yield from ((name, address + base) for name, address in part.labels if name != part.name)

    def _rewrite(self, part: Kernel) -> IdArray:
        """Return the texts of a function where it lies now."""
        ids = part.text_ids[: find_code_end(part)].copy()
        calls = self.calling.get((part.arch, part.name), {})
        own_places = dict(part.labels)
        fixed = {one.address: one for one in self.find_relocations(part)}
        names_code = part.form_table.make_opcode_mask(_may_name_code)[part.form_table.opcode_ids[ids]]
        for row in np.flatnonzero(names_code).tolist():
            old_id = int(ids[row])
            text = part.form_table.texts[old_id]
            if row in calls:
                new = text if _CALLED_LABEL.search(text) else _name_callee(text, calls[row])
            elif _HALF_ADDRESS.search(text):
                new = _HALF_ADDRESS.sub(partial(self._find_half, part.name, own_places), text)
            elif (relocation := fixed.get(int(part.addresses[row]))) and relocation.symbol in self.bases:
                value = 0 if relocation.is_high else self.bases[relocation.symbol] + relocation.addend
                new = _LAST_NUMBER.sub(f"{value:#x}", text)
            else:
                new = _shift_target(text, part, row, self.bases[part.name])
            if new != text:
                number = len(self.table.texts) + len(self.new_texts)
                ids[row], _ = self.new_texts.setdefault(new, (number, old_id))
        return ids

    def _find_half(self, part: str, own_places: Mapping[str, int], match: "re.Match[str]") -> str:
        """Return half of the address that an operand of nvdisasm names; the operand where it is not here."""
        half, name, place = match.groups()
        if place in own_places:  # whatever c++filt has made of the function's name
            address = self.bases[part] + own_places[place]
        elif name in self.bases and (not place or place.startswith("0x")):
            address = self.bases[name] + int(place or "0", 16)
        else:
            return match[0]
        return "0x0" if half == "hi" else f"{address:#x}"

    def _join_source_lines(self) -> tuple[IdArray | None, tuple[SourceLine, ...]]:
        """Return the source lines of all functions, and each row's number among them."""
        columns, lines = list[IdArray](), list[SourceLine]()
        for part in self.parts:
            n = find_code_end(part)
            own = part.source_line_ids
            column = np.full(n, -1, dtype=np.int32) if own is None else own[:n]
            columns.append(np.where(column >= 0, column + len(lines), -1).astype(np.int32))
            lines += part.source_lines
        return (np.concatenate(columns) if lines else None), tuple(lines)


def _name_callee(text: str, name: str) -> str:
    head = _CALL_HEAD.match(text)
    return f"{head[1]}`({name})" if head else text


def _shift_target(text: str, part: Kernel, row: int, base: int) -> str:
    """Return a text whose address of its own function is that of the function where it lies now."""
    form = part.decode_form(row)
    if form.opcode.kind is OpKind.MOVE:
        target = form.operands[-1] if form.operands else None
        is_own = isinstance(target, Immediate) and target.value == _find_return_address(part, row)
    else:
        target = find_named_target(form)
        is_own = True
    if not base or not is_own or not isinstance(target, Immediate):
        return text
    return _LAST_NUMBER.sub(f"{int(target.value) + base:#x}", text)


def _find_return_address(part: Kernel, row: int) -> int | None:
    """Return the address behind the next call, which a move before it passes; None without a call."""
    calls = (one for one in range(row + 1, len(part)) if part.find_opcode(one).kind is OpKind.CALL)
    call = next(calls, None)
    return None if call is None else int(part.addresses[call]) + INSTRUCTION_BYTES


def _may_name_code(opcode: Opcode) -> bool:
    """Return whether an operand may be an address of code: of control flow, or of a move to a register."""
    return names_code_address(opcode) or opcode.kind is OpKind.MOVE


def _is_whole(kernel: Kernel) -> bool:
    """Return whether a function's instructions stand from address 0 on, without a gap."""
    return bool((kernel.addresses == np.arange(len(kernel)) * INSTRUCTION_BYTES).all())
