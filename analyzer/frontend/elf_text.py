"""`cuobjdump -elf` text: parameters and constants of kernels, alone in a file or before a dump.

One text may hold several cubins, each begun by a line that names its architecture.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

from analyzer.frontend.cubin_constants import (
    USER_BANK,
    ConstantBanks,
    add_bank,
    section_bank,
    unset_variables,
)
from analyzer.frontend.kernel_facts import KernelFacts
from analyzer.ir.program import ConstantBank, Relocation

HEADER = re.compile(rb"^64-?bit (?:ELF|elf):", re.M)
_ARCH = re.compile(r"64-?bit (?:ELF|elf):.*\bsm=(\d+[a-z]?)")
_CODE = re.compile(rb"^[ \t]*code for sm_\d")
_SECTION_LINE = re.compile(r"\.section (\S+)(?:\s.*)?")
_ATTRIBUTE = re.compile(r"\tAttribute:\t(\w+)")
_VALUE = re.compile(r"\tValue:\t(.*)")
_PARAMETER = re.compile(
    r"Index : \S+\s+Ordinal : 0x([0-9a-f]{1,8})\s+Offset\s+: 0x([0-9a-f]{1,8})\s+Size\s+: 0x([0-9a-f]{1,8})"
)
_SPACE = re.compile(r"\s+Pointee's logAlignment : \S+\s+Space : 0x([0-9a-f]{1,8})")
_WORD = re.compile(r"0x([0-9a-f]{8})")
# Value, size, type, section and name: cuobjdump 13.1 prints the type as a number, 13.5 as a word.
_HEX = r"(0x[0-9a-f]{1,16}|0)"
_SYMBOLS = (
    re.compile(
        rf"\s*{_HEX}\s+{_HEX}\s+{_HEX}\s+(?P<type>{_HEX})\s+{_HEX}\s+(?P<section>{_HEX})\s+(?P<name>\S+)"
    ),
    re.compile(rf"\s*{_HEX}\s+{_HEX}\s+{_HEX}\s+(?P<type>OBJECT)\s.*\s(?P<section>{_HEX})\s+(?P<name>\S+)"),
)
_SECTION_ROW = re.compile(
    r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+\S.*?\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+(\S+)"
)
_RELOCATION = re.compile(r"0x([0-9a-f]{1,16})\s+(\S+)\s+R_CUDA_(\w+)(?:\s+(-?)0x([0-9a-f]{1,16}))?")
_RELOCATED = re.compile(r"\.rela?(\.nv\.constant\S+)")
_MAX_LINE = 1 << 16
_STT_OBJECT = 1
_SHORT = frozenset({"32", "G32"})

FactsByKernel = dict[tuple[str, str], KernelFacts]


def read_elf_text(path: Path) -> FactsByKernel:
    """Facts by (architecture, kernel) of a file. Raises OSError."""
    with path.open("rb") as file:
        return parse_elf_text(file)


def parse_elf_text(lines: Iterable[bytes]) -> FactsByKernel:
    """Facts by (architecture, kernel); lines that say nothing of them are passed over."""
    parser = ElfTextParser()
    for line in lines:
        parser.take(line)
    return parser.finish()


class ElfFilter:
    """Passes a dump on and keeps what `cuobjdump -elf` printed before it, whose lines it leaves empty."""

    __slots__ = ("_inside", "_parser", "_rest")

    def __init__(self) -> None:
        self._parser = ElfTextParser()
        self._rest = b""
        self._inside = False

    def chunks(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same number of lines, those of ELF text empty."""
        for chunk in chunks:
            text = self._rest + chunk
            end = text.rfind(b"\n") + 1
            self._rest = text[end:]
            yield self._filtered(text[:end])
        yield self._filtered(self._rest)

    def facts(self) -> FactsByKernel:
        return self._parser.finish()

    def _filtered(self, text: bytes) -> bytes:
        if not self._inside and not HEADER.search(text):
            return text
        kept = []
        for line in text.splitlines(keepends=True):
            if HEADER.match(line):
                self._inside = True
            elif _CODE.match(line):
                self._inside = False
            if self._inside:
                self._parser.take(line)
            kept.append(b"\n" if self._inside else line)
        return b"".join(kept)


class _Cubin(Struct):
    """What was read of one cubin so far."""

    arch: str
    sections: dict[int, str] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    variables: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    kernels: dict[str, KernelFacts] = field(default_factory=dict)
    contents: dict[str, bytearray] = field(default_factory=dict)
    relocations: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)


class ElfTextParser:
    """Takes lines in order."""

    __slots__ = ("_attribute", "_cubin", "_done", "_kernel", "_parameter", "_section")

    def __init__(self) -> None:
        self._cubin = _Cubin("")
        self._done: FactsByKernel = {}
        self._section = ""
        self._kernel: KernelFacts | None = None
        self._attribute = ""
        self._parameter: tuple[int, int, int] | None = None

    def take(self, line: bytes) -> None:
        text = line[:_MAX_LINE].decode("utf-8", "replace").rstrip("\r\n")
        if match := _ARCH.match(text):
            self._close()
            self._cubin = _Cubin(f"sm_{match[1]}")
            self._enter("Sections:")
        elif text.startswith("."):
            named = _SECTION_LINE.fullmatch(text)
            self._enter(named[1] if named else text)
        elif self._kernel is not None:
            self._take_info(text, self._kernel)
        elif self._section == "Sections:":
            if row := _SECTION_ROW.fullmatch(text):
                self._cubin.sections[int(row[1], 16)] = row[2]
        elif self._section == ".symtab":
            self._take_symbol(text)
        elif self._section in self._cubin.contents:
            self._take_words(text)
        elif self._section in self._cubin.relocations:
            self._take_relocation(text)

    def finish(self) -> FactsByKernel:
        self._close()
        self._cubin = _Cubin(self._cubin.arch)
        return self._done

    def _enter(self, section: str) -> None:
        self._section, self._kernel, self._attribute = section, None, ""
        if name := section.removeprefix(".nv.info.") if section.startswith(".nv.info.") else "":
            self._kernel = self._cubin.kernels.setdefault(name, KernelFacts())
            self._kernel.has_layout = True
        elif section_bank(section):
            self._cubin.contents[section] = bytearray()
        elif match := _RELOCATED.fullmatch(section):
            self._section = match[0]
            self._cubin.relocations[match[0]] = []

    def _take_info(self, text: str, kernel: KernelFacts) -> None:
        if match := _ATTRIBUTE.match(text):
            self._attribute, self._parameter = match[1], None
        elif match := _VALUE.match(text):
            self._take_value(match[1], kernel)
        elif self._parameter is not None and (match := _SPACE.match(text)):
            kernel.take_parameter(*self._parameter, int(match[1], 16))
            self._parameter = None

    def _take_value(self, value: str, kernel: KernelFacts) -> None:
        if self._attribute in ("EIATTR_KPARAM_INFO", "EIATTR_KPARAM_INFO_V2"):
            if match := _PARAMETER.match(value):
                self._parameter = (int(match[1], 16), int(match[2], 16), int(match[3], 16))
                kernel.take_parameter(*self._parameter, 0)
            return
        numbers = [int(word, 16) for word in re.findall(r"0x([0-9a-f]{1,8})\b", value)]
        if self._attribute == "EIATTR_PARAM_CBANK" and len(numbers) == 2:
            kernel.parameter_base = numbers[1] & 0xFFFF
        elif self._attribute == "EIATTR_REQNTID" and len(numbers) == 3:
            kernel.take_block(*numbers)
        elif self._attribute == "EIATTR_CTA_PER_CLUSTER" and len(numbers) == 3:
            kernel.take_cluster(*numbers)

    def _take_symbol(self, text: str) -> None:
        match = next((m for pattern in _SYMBOLS if (m := pattern.fullmatch(text))), None)
        if match is None:
            return
        value, size = int(match[2], 16), int(match[3], 16)
        is_object = match["type"] == "OBJECT" or int(match["type"], 16) & 0xF == _STT_OBJECT
        if is_object and size:
            self._cubin.objects[match["name"]] = size
            variables = self._cubin.variables.setdefault(int(match["section"], 16), [])
            variables.append((value, size, match["name"]))

    def _take_words(self, text: str) -> None:
        for word in _WORD.findall(text):
            self._cubin.contents[self._section] += int(word, 16).to_bytes(4, "little")

    def _take_relocation(self, text: str) -> None:
        if match := _RELOCATION.fullmatch(text.strip()):
            addend = int(match[5] or "0", 16) * (-1 if match[4] else 1)
            size = 4 if match[3] in _SHORT else 8
            self._cubin.relocations[self._section].append((int(match[1], 16), size, match[2], addend))

    def _close(self) -> None:
        """Files what was read of the cubin that ends here."""
        cubin = self._cubin
        banks = self._banks(cubin)
        for name, facts in cubin.kernels.items():
            facts.constants = banks.of(name)
            self._done[cubin.arch, name] = facts

    def _banks(self, cubin: _Cubin) -> ConstantBanks:
        banks = ConstantBanks()
        numbers = {name: index for index, name in cubin.sections.items()}
        for section, contents in cubin.contents.items():
            named = section_bank(section)
            if named is None:
                continue
            number, owner = named
            variables = cubin.variables.get(numbers.get(section, -1), [])
            unset = unset_variables(bytes(contents), variables) if number == USER_BANK else ()
            add_bank(
                banks,
                owner,
                ConstantBank(
                    number=number,
                    contents=bytes(contents),
                    relocations=tuple(self._relocations(cubin, section, len(contents))),
                    unset=tuple(unset),
                ),
            )
        return banks

    def _relocations(self, cubin: _Cubin, section: str, limit: int) -> Iterator[Relocation]:
        for kind in (".rel", ".rela"):
            for offset, size, symbol, addend in cubin.relocations.get(kind + section, ()):
                if offset + size <= limit:
                    yield Relocation(
                        offset=offset,
                        size_bytes=size,
                        symbol=symbol,
                        object_bytes=cubin.objects.get(symbol),
                        addend=addend,
                    )
