"""Parameters and constants of kernels from `cuobjdump -elf` text, in a file of its own or before a dump.

The text of a cubin begins with a line that names its architecture; one text may hold several cubins. The
parser takes lines in order and keeps the current section, because the meaning of a line depends on it.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

from analyzer.files import read_lines
from analyzer.frontend.cubin_constants import (
    CONSTANT_VARIABLE_BANK,
    ConstantBanks,
    add_bank,
    find_uninitialized_variables,
    parse_section_bank,
)
from analyzer.frontend.kernel_metadata import KernelMetadata
from analyzer.ir.module import ConstantBank, Relocation

ELF_HEADER = re.compile(rb"^64-?bit (?:ELF|elf):", re.M)
_ARCH_LINE = re.compile(r"64-?bit (?:ELF|elf):.*\bsm=(\d+[a-z]?)")
_CODE_LINE = re.compile(rb"^[ \t]*code for sm_\d")
_SECTION_LINE = re.compile(r"\.section (\S+)(?:\s.*)?")
_ATTRIBUTE = re.compile(r"\tAttribute:\t(\w+)")
_VALUE = re.compile(r"\tValue:\t(.*)")
_PARAMETER = re.compile(
    r"Index : \S+\s+Ordinal : 0x([0-9a-f]{1,8})\s+Offset\s+: 0x([0-9a-f]{1,8})\s+Size\s+: 0x([0-9a-f]{1,8})"
)
_POINTEE_SPACE = re.compile(r"\s+Pointee's logAlignment : \S+\s+Space : 0x([0-9a-f]{1,8})")
_WORD = re.compile(r"0x([0-9a-f]{8})")
# Value, size, type, section and name of a symbol: cuobjdump 13.1 prints the type as a number, 13.5 as a word.
_HEX = r"(0x[0-9a-f]{1,16}|0)"
_SYMBOL_ROWS = (
    re.compile(
        rf"\s*{_HEX}\s+{_HEX}\s+{_HEX}\s+(?P<type>{_HEX})\s+{_HEX}\s+(?P<section>{_HEX})\s+(?P<name>\S+)"
    ),
    re.compile(rf"\s*{_HEX}\s+{_HEX}\s+{_HEX}\s+(?P<type>OBJECT)\s.*\s(?P<section>{_HEX})\s+(?P<name>\S+)"),
)
_SECTION_ROW = re.compile(
    r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+\S.*?\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+(\S+)"
)
_RELOCATION = re.compile(r"0x([0-9a-f]{1,16})\s+(\S+)\s+R_CUDA_(\w+)(?:\s+(-?)0x([0-9a-f]{1,16}))?")
_RELOCATION_SECTION = re.compile(r"\.rela?(\.nv\.constant\S+)")
_MAX_LINE_BYTES = 1 << 16
_STT_OBJECT = 1
_RELOCATIONS_32BIT = frozenset({"32", "G32"})

MetadataByKernel = dict[tuple[str, str], KernelMetadata]


def read_elf_text(path: Path) -> MetadataByKernel:
    """Return the metadata by (architecture, kernel) of a file. Raises OSError."""
    with path.open("rb") as file:
        return parse_elf_text(read_lines(file, _MAX_LINE_BYTES))


def parse_elf_text(lines: Iterable[bytes]) -> MetadataByKernel:
    """Return the metadata by (architecture, kernel); lines without any are ignored."""
    parser = ElfTextParser()
    for line in lines:
        parser.feed_line(line)
    return parser.finish()


class ElfTextFilter:
    """Parses the `cuobjdump -elf` text in a dump and replaces it by empty lines, which keep line numbers."""

    __slots__ = ("_inside", "_parser", "_rest")

    def __init__(self) -> None:
        self._parser = ElfTextParser()
        self._rest = b""
        self._inside = False

    def filter_chunks(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks with the same number of lines, those of ELF text empty."""
        for chunk in chunks:
            text = self._rest + chunk
            end = text.rfind(b"\n") + 1
            self._rest = text[end:]
            yield self._filter_text(text[:end])
        yield self._filter_text(self._rest)

    def collect_metadata(self) -> MetadataByKernel:
        """Return the metadata of all cubins, once all chunks have been taken."""
        return self._parser.finish()

    def _filter_text(self, text: bytes) -> bytes:
        if not self._inside and not ELF_HEADER.search(text):
            return text
        kept = []
        for line in text.splitlines(keepends=True):
            if ELF_HEADER.match(line):
                self._inside = True
            elif _CODE_LINE.match(line):
                self._inside = False
            if self._inside:
                self._parser.feed_line(line)
            kept.append(b"\n" if self._inside else line)
        return b"".join(kept)


class _CubinTables(Struct):
    """Tables of one cubin under construction."""

    arch: str
    sections: dict[int, str] = field(default_factory=dict)  # names by index
    object_sizes: dict[str, int] = field(default_factory=dict)  # in bytes, by symbol
    # By index of the section: (offset, size, name).
    variables: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    kernels: dict[str, KernelMetadata] = field(default_factory=dict)
    constant_contents: dict[str, bytearray] = field(default_factory=dict)  # by name of the section
    # By name of the relocation section: (offset, size, symbol, addend).
    relocations: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)


class ElfTextParser:
    """Parser state: the cubin and section that the next line belongs to."""

    __slots__ = ("_attribute", "_cubin", "_done", "_kernel", "_parameter", "_section")

    def __init__(self) -> None:
        self._cubin = _CubinTables("")
        self._done: MetadataByKernel = {}
        self._section = ""
        self._kernel: KernelMetadata | None = None
        self._attribute = ""
        self._parameter: tuple[int, int, int] | None = None

    def feed_line(self, line: bytes) -> None:
        """Parse the next line."""
        text = line[:_MAX_LINE_BYTES].decode("utf-8", "replace").rstrip("\r\n")
        if match := _ARCH_LINE.match(text):
            self._finish_cubin()
            self._cubin = _CubinTables(f"sm_{match[1]}")
            self._enter_section("Sections:")
        elif text.startswith("."):
            named = _SECTION_LINE.fullmatch(text)
            self._enter_section(named[1] if named else text)
        elif self._kernel is not None:
            self._parse_info_line(text, self._kernel)
        elif self._section == "Sections:":
            if row := _SECTION_ROW.fullmatch(text):
                self._cubin.sections[int(row[1], 16)] = row[2]
        elif self._section == ".symtab":
            self._parse_symbol(text)
        elif self._section in self._cubin.constant_contents:
            self._parse_words(text)
        elif self._section in self._cubin.relocations:
            self._parse_relocation(text)

    def finish(self) -> MetadataByKernel:
        """Return the metadata of all cubins read so far."""
        self._finish_cubin()
        self._cubin = _CubinTables(self._cubin.arch)
        return self._done

    def _enter_section(self, section: str) -> None:
        self._section, self._kernel, self._attribute = section, None, ""
        if name := section.removeprefix(".nv.info.") if section.startswith(".nv.info.") else "":
            self._kernel = self._cubin.kernels.setdefault(name, KernelMetadata())
            self._kernel.has_parameter_info = True
        elif parse_section_bank(section):
            self._cubin.constant_contents[section] = bytearray()
        elif match := _RELOCATION_SECTION.fullmatch(section):
            self._section = match[0]
            self._cubin.relocations[match[0]] = []

    def _parse_info_line(self, text: str, kernel: KernelMetadata) -> None:
        if match := _ATTRIBUTE.match(text):
            self._attribute, self._parameter = match[1], None
        elif match := _VALUE.match(text):
            self._parse_attribute_value(match[1], kernel)
        elif self._parameter is not None and (match := _POINTEE_SPACE.match(text)):
            kernel.add_parameter(*self._parameter, int(match[1], 16))
            self._parameter = None

    def _parse_attribute_value(self, value: str, kernel: KernelMetadata) -> None:
        if self._attribute in ("EIATTR_KPARAM_INFO", "EIATTR_KPARAM_INFO_V2"):
            if match := _PARAMETER.match(value):
                self._parameter = (int(match[1], 16), int(match[2], 16), int(match[3], 16))
                kernel.add_parameter(*self._parameter, 0)
            return
        numbers = [int(word, 16) for word in re.findall(r"0x([0-9a-f]{1,8})\b", value)]
        if self._attribute == "EIATTR_PARAM_CBANK" and len(numbers) == 2:
            kernel.parameter_base = numbers[1] & 0xFFFF
        elif self._attribute == "EIATTR_REQNTID" and len(numbers) == 3:
            kernel.set_required_block(*numbers)
        elif self._attribute == "EIATTR_CTA_PER_CLUSTER" and len(numbers) == 3:
            kernel.set_cluster(*numbers)

    def _parse_symbol(self, text: str) -> None:
        match = next((m for pattern in _SYMBOL_ROWS if (m := pattern.fullmatch(text))), None)
        if match is None:
            return
        value, size = int(match[2], 16), int(match[3], 16)
        is_object = match["type"] == "OBJECT" or int(match["type"], 16) & 0xF == _STT_OBJECT
        if is_object and size:
            self._cubin.object_sizes[match["name"]] = size
            variables = self._cubin.variables.setdefault(int(match["section"], 16), [])
            variables.append((value, size, match["name"]))

    def _parse_words(self, text: str) -> None:
        for word in _WORD.findall(text):
            self._cubin.constant_contents[self._section] += int(word, 16).to_bytes(4, "little")

    def _parse_relocation(self, text: str) -> None:
        if match := _RELOCATION.fullmatch(text.strip()):
            addend = int(match[5] or "0", 16) * (-1 if match[4] else 1)
            size = 4 if match[3] in _RELOCATIONS_32BIT else 8
            self._cubin.relocations[self._section].append((int(match[1], 16), size, match[2], addend))

    def _finish_cubin(self) -> None:
        """Move the metadata of the cubin that ends here to the results."""
        cubin = self._cubin
        banks = self._build_banks(cubin)
        for name, metadata in cubin.kernels.items():
            metadata.constant_banks = banks.find_banks(name)
            self._done[cubin.arch, name] = metadata

    def _build_banks(self, cubin: _CubinTables) -> ConstantBanks:
        banks = ConstantBanks()
        numbers = {name: index for index, name in cubin.sections.items()}
        for section, contents in cubin.constant_contents.items():
            named = parse_section_bank(section)
            if named is None:
                continue
            number, owner = named
            variables = cubin.variables.get(numbers.get(section, -1), [])
            unset = (
                find_uninitialized_variables(bytes(contents), variables)
                if number == CONSTANT_VARIABLE_BANK
                else ()
            )
            add_bank(
                banks,
                owner,
                ConstantBank(
                    number=number,
                    contents=bytes(contents),
                    relocations=tuple(self._build_relocations(cubin, section, len(contents))),
                    uninitialized=tuple(unset),
                ),
            )
        return banks

    def _build_relocations(self, cubin: _CubinTables, section: str, limit: int) -> Iterator[Relocation]:
        for kind in (".rel", ".rela"):
            for offset, size, symbol, addend in cubin.relocations.get(kind + section, ()):
                if offset + size <= limit:
                    yield Relocation(
                        offset=offset,
                        size_bytes=size,
                        symbol=symbol,
                        object_bytes=cubin.object_sizes.get(symbol),
                        addend=addend,
                    )
