"""Constant banks other than 0 in a cubin, with the bytes that the loader and the host fill in.

Relocations mark the addresses that the loader writes. Variables of bank 3 (`__constant__`) that are all zero
are taken as uninitialized, because the host may set them before the launch.
"""

import re
import struct
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from analyzer.frontend.cubin_elf import SHT_REL, SHT_RELA, CubinElf, DamagedElfError, Section, unpack_fields
from analyzer.ir.module import ConstantBank, Relocation, UninitializedConstant

CONSTANT_VARIABLE_BANK = 3  # of `__constant__` variables
_SECTION_NAME = re.compile(r"\.nv\.constant([0-9]{1,2})(?:\.(.+))?")
_REL_LAYOUT = struct.Struct("<QQ")
_RELA_LAYOUT = struct.Struct("<QQq")
_RELOCATION_TYPES_32BIT = frozenset({1, 3})  # R_CUDA_32, R_CUDA_G32; all others that occur are R_CUDA_64


class ConstantBanks(Struct):
    """The constant banks of a cubin, under construction."""

    by_kernel: dict[str, list[ConstantBank]] = field(default_factory=dict)
    common: list[ConstantBank] = field(default_factory=list)  # shared by all kernels

    def find_banks(self, kernel: str) -> list[ConstantBank]:
        """Return the banks that a kernel sees: its own one instead of a shared one of the same number."""
        own = self.by_kernel.get(kernel, [])
        numbers = {bank.number for bank in own}
        return [*own, *(bank for bank in self.common if bank.number not in numbers)]


def parse_section_bank(name: str) -> tuple[int, str] | None:
    """Return (bank, kernel or "") of a section of constants; None for bank 0 and for other sections."""
    match = _SECTION_NAME.fullmatch(name)
    return (int(match[1]), match[2] or "") if match and int(match[1]) else None


def add_bank(banks: ConstantBanks, owner: str, bank: ConstantBank) -> None:
    """Add a bank to those of its owner, or to the shared ones if the owner is ""."""
    (banks.by_kernel.setdefault(owner, []) if owner else banks.common).append(bank)


def read_constant_banks(elf: CubinElf) -> ConstantBanks:
    """Read all constant banks other than 0. Raises DamagedElfError."""
    banks = ConstantBanks()
    found = [(i, *named) for i, s in enumerate(elf.sections) if (named := parse_section_bank(s.name))]
    fixed_by: dict[int, list[Section]] = {}
    for section in elf.sections:
        if section.type in (SHT_REL, SHT_RELA):
            fixed_by.setdefault(section.info, []).append(section)
    variables = _collect_variables(
        elf, {index for index, number, _ in found if number == CONSTANT_VARIABLE_BANK}
    )
    for index, number, owner in found:
        contents = elf.read_section(elf.sections[index])
        unset = find_uninitialized_variables(contents, variables[index]) if index in variables else ()
        bank = ConstantBank(
            number=number,
            contents=contents,
            relocations=tuple(_read_relocations(elf, index, fixed_by.get(index, ()))),
            uninitialized=tuple(unset),
        )
        add_bank(banks, owner, bank)
    return banks


def find_uninitialized_variables(
    contents: bytes, variables: list[tuple[int, int, str]]
) -> Iterator[UninitializedConstant]:
    """Yield the variables that are all zero; the whole bank if it is zero and no variables are known.

    variables: (offset, size, name).
    """
    if not variables:
        if contents and not any(contents):
            yield UninitializedConstant(offset=0, size_bytes=len(contents))
        return
    for offset, size, name in sorted(variables):
        end = min(offset + size, len(contents))
        if offset < end and not any(contents[offset:end]):
            yield UninitializedConstant(offset=offset, size_bytes=end - offset, name=name)


def _collect_variables(elf: CubinElf, sections: set[int]) -> dict[int, list[tuple[int, int, str]]]:
    """Return (offset, size, name) of the variables in each of the sections."""
    found: dict[int, list[tuple[int, int, str]]] = {index: [] for index in sections}
    for number in range(elf.n_symbols if sections else 0):
        symbol = elf.read_symbol(number)
        if symbol.section_index in found and symbol.is_object and symbol.size:
            found[symbol.section_index].append((symbol.offset, symbol.size, symbol.name))
    return found


def _read_relocations(elf: CubinElf, target: int, sections: Iterable[Section]) -> Iterator[Relocation]:
    limit = elf.sections[target].size
    for section in sections:
        for offset, kind, symbol_index, addend in read_relocation_entries(elf, section):
            size = 4 if kind in _RELOCATION_TYPES_32BIT else 8
            symbol = elf.read_symbol(symbol_index)
            if offset + size > limit:
                raise DamagedElfError(f"a relocation lies outside {elf.sections[target].name[:80]}")
            yield Relocation(
                offset=offset,
                size_bytes=size,
                symbol=symbol.name,
                object_bytes=symbol.size if symbol.is_object and symbol.size else None,
                addend=addend,
            )


def read_relocation_entries(elf: CubinElf, section: Section) -> Iterator[tuple[int, int, int, int]]:
    """Yield (offset, type, index of the symbol, addend)."""
    body, layout = elf.read_section(section), _RELA_LAYOUT if section.type == SHT_RELA else _REL_LAYOUT
    for position in range(0, len(body), layout.size):
        offset, info, *addend = unpack_fields(layout, body, position, "a relocation")
        yield offset, info & 0xFFFFFFFF, info >> 32, addend[0] if addend else 0
