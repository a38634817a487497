"""The constant banks other than 0 that a cubin carries, with what its loader and its host fill in."""

import re
import struct
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from analyzer.frontend.cubin_elf import SHT_REL, SHT_RELA, CubinElf, DamagedError, Section, unpack
from analyzer.ir.program import ConstantBank, Relocation, UnsetConstant

USER_BANK = 3
_NAME = re.compile(r"\.nv\.constant([0-9]{1,2})(?:\.(.+))?")
_REL = struct.Struct("<QQ")
_RELA = struct.Struct("<QQq")
_ADDRESS_32 = frozenset({1, 3})  # R_CUDA_32, R_CUDA_G32; R_CUDA_64 is the one that is met


class ConstantBanks(Struct, frozen=True):
    """Banks of single kernels by name, and those that all share."""

    own: dict[str, list[ConstantBank]] = field(default_factory=dict)
    shared: list[ConstantBank] = field(default_factory=list)

    def of(self, kernel: str) -> list[ConstantBank]:
        """What a kernel sees: its own bank before a shared one of the same number."""
        own = self.own.get(kernel, [])
        numbers = {bank.number for bank in own}
        return [*own, *(bank for bank in self.shared if bank.number not in numbers)]


def section_bank(name: str) -> tuple[int, str] | None:
    """(bank, kernel or "") of a section of constants; None for bank 0 and for other sections."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), match[2] or "") if match and int(match[1]) else None


def add_bank(banks: ConstantBanks, owner: str, bank: ConstantBank) -> None:
    """Puts a bank with its owner's, or among the shared ones for no owner."""
    (banks.own.setdefault(owner, []) if owner else banks.shared).append(bank)


def read_constants(elf: CubinElf) -> ConstantBanks:
    """Raises DamagedError."""
    banks = ConstantBanks()
    found = [(i, *named) for i, s in enumerate(elf.sections) if (named := section_bank(s.name))]
    fixed_by: dict[int, list[Section]] = {}
    for section in elf.sections:
        if section.type in (SHT_REL, SHT_RELA):
            fixed_by.setdefault(section.info, []).append(section)
    variables = _variables(elf, {index for index, number, _ in found if number == USER_BANK})
    for index, number, owner in found:
        contents = elf.body(elf.sections[index])
        unset = unset_variables(contents, variables[index]) if index in variables else ()
        bank = ConstantBank(
            number=number,
            contents=contents,
            relocations=tuple(_relocations(elf, index, fixed_by.get(index, ()))),
            unset=tuple(unset),
        )
        add_bank(banks, owner, bank)
    return banks


def unset_variables(contents: bytes, variables: list[tuple[int, int, str]]) -> Iterator[UnsetConstant]:
    """Of (offset, size, name), those that are all zero; the whole bank where no names are known."""
    if not variables:
        if contents and not any(contents):
            yield UnsetConstant(offset=0, size_bytes=len(contents))
        return
    for offset, size, name in sorted(variables):
        end = min(offset + size, len(contents))
        if offset < end and not any(contents[offset:end]):
            yield UnsetConstant(offset=offset, size_bytes=end - offset, name=name)


def _variables(elf: CubinElf, sections: set[int]) -> dict[int, list[tuple[int, int, str]]]:
    """(offset, size, name) of the variables in each of the sections."""
    found: dict[int, list[tuple[int, int, str]]] = {index: [] for index in sections}
    for number in range(elf.n_symbols if sections else 0):
        symbol = elf.symbol(number)
        if symbol.section in found and symbol.is_object and symbol.size:
            found[symbol.section].append((symbol.offset, symbol.size, symbol.name))
    return found


def _relocations(elf: CubinElf, target: int, sections: Iterable[Section]) -> Iterator[Relocation]:
    limit = elf.sections[target].size
    for section in sections:
        for offset, kind, symbol_index, addend in _entries(elf, section):
            size = 4 if kind in _ADDRESS_32 else 8
            symbol = elf.symbol(symbol_index)
            if offset + size > limit:
                raise DamagedError(f"a relocation lies outside {elf.sections[target].name[:80]}")
            yield Relocation(
                offset=offset,
                size_bytes=size,
                symbol=symbol.name,
                object_bytes=symbol.size if symbol.is_object and symbol.size else None,
                addend=addend,
            )


def _entries(elf: CubinElf, section: Section) -> Iterator[tuple[int, int, int, int]]:
    """(offset, type, symbol, addend)."""
    body, layout = elf.body(section), _RELA if section.type == SHT_RELA else _REL
    for position in range(0, len(body), layout.size):
        offset, info, *addend = unpack(layout, body, position, "a relocation")
        yield offset, info & 0xFFFFFFFF, info >> 32, addend[0] if addend else 0
