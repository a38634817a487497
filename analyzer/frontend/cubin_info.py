"""Resources that a cubin states: a bounded read of its ELF tables, with no tool.

The attribute numbers are those that `cuobjdump -elf` names; the file is not trusted, so each offset
and size is checked before it is used.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from analyzer.ir.program import Resources
from analyzer.text.errors import InputError

_EM_CUDA = 190
_ABI_CUDA_13 = 0x41  # EI_OSABI of the layout that ptxas 13 writes; before it was 0x33
_HEADER = struct.Struct("<QQQIHHHHHH")  # of the ELF header, from e_entry on
_HEADER_AT = 24
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_TWO_WORDS = struct.Struct("<II")
_THREE_WORDS = struct.Struct("<III")
_ATTRIBUTE = struct.Struct("<BBH")
_SHT_SYMTAB = 2
_SHT_NOBITS = 8
_MAX_NAME = 1 << 15
_MAX_READ_TIMES = 8  # names and sections may share bytes, but not so much that a small file is costly
_MAX_BLOCK_THREADS = 1024
_UNBOUNDED_STACK = 0xFFFFFFFF
_SIZED = 4  # EIFMT_SVAL: the 16-bit value is the size of what follows


class _Attribute(IntEnum):
    """EIATTR numbers."""

    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    REGCOUNT = 0x2F
    NUM_BARRIERS = 0x4C


_OF_SYMBOL = (_Attribute.REGCOUNT, _Attribute.FRAME_SIZE, _Attribute.MIN_STACK_SIZE)


class _DamagedError(Exception):
    """An offset, size or index points outside the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class _Symbols:
    """The symbol table, the names beside it, and those names that were looked up."""

    table: bytes
    names: bytes
    known: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Facts:
    """What is known of one kernel so far; None where nothing was said."""

    registers: int | None = None
    stack_bytes: int | None = None
    frame_bytes: int | None = None
    shared_bytes: int = 0
    local_bytes: int = 0
    barriers: int = 0
    block_threads: int | None = None

    def resources(self) -> Resources:
        """A device function has a frame only; the stack of a kernel counts what it calls too."""
        stack_bytes = self.frame_bytes if self.stack_bytes is None else self.stack_bytes
        return Resources(
            registers=self.registers,
            registers_exact=self.registers is not None,
            shared_bytes=self.shared_bytes,
            local_bytes=self.local_bytes,
            stack_bytes=None if stack_bytes == _UNBOUNDED_STACK else stack_bytes,
            barriers=self.barriers,
            block_threads=self.block_threads,
            block_threads_exact=self.block_threads is not None,
        )


def read_cubin_info(data: bytes) -> dict[str, Resources]:
    """Resources of each kernel and device function with code of its own, by name.

    Numbers are those of `cuobjdump -res-usage`: from sm_90 on `shared_bytes` includes the 1024 bytes that
    the system reserves in each CTA. `block_threads` comes from `.reqntid` only; `.maxntid` is a bound.
    Raises InputError where the bytes are not a cubin or an offset points outside them.
    """
    if data[:6] != b"\x7fELF\x02\x01" or data[18:20] != _EM_CUDA.to_bytes(2, "little"):
        raise InputError(
            "this is not a 64-bit cubin", hint="make one with: nvcc -cubin, or ptxas x.ptx -o x.cubin"
        )
    try:
        return _Cubin(data).read()
    except _DamagedError as error:
        raise InputError(f"the cubin is damaged: {error}", hint="build or copy it again") from None


def _unpack(layout: struct.Struct, data: bytes, offset: int, what: str) -> tuple[int, ...]:
    if offset + layout.size > len(data):
        raise _DamagedError(f"{what} is cut off")
    return layout.unpack_from(data, offset)


@dataclass(slots=True)
class _Cubin:
    """One pass over a cubin."""

    data: bytes
    facts: dict[str, _Facts] = field(default_factory=dict)
    n_read: int = 0

    def read(self) -> dict[str, Resources]:
        sections = self._sections()
        for section in sections:
            if name := _of(section, ".text."):
                self.facts[name] = _Facts(barriers=self._flag_barriers(section))
        for section in sections:
            self._take_size(section)
        symbols = self._symbols(sections)
        for section in sections:
            if section.name == ".nv.info" or section.name.startswith(".nv.info."):
                self._take_attributes(section, symbols)
        return {name: facts.resources() for name, facts in self.facts.items()}

    def _sections(self) -> list[_Section]:
        header = _unpack(_HEADER, self.data, _HEADER_AT, "the ELF header")
        table, entry_size, count, names_index = header[2], header[7], header[8], header[9]
        if not count:
            return []
        if entry_size != _SECTION.size:
            raise _DamagedError("the section table has an unknown form")
        rows = [
            _unpack(_SECTION, self.data, table + row * _SECTION.size, "the section table")
            for row in range(count)
        ]
        if names_index >= count:
            raise _DamagedError("the section of names does not exist")
        names = self._slice(rows[names_index][4], rows[names_index][5], "the section of names")
        return [
            _Section(
                name=self._text(names, row[0]),
                type=row[1],
                flags=row[2],
                offset=row[4],
                size=row[5],
                link=row[6],
            )
            for row in rows
        ]

    def _slice(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > len(self.data):
            raise _DamagedError(f"{what} lies outside the file")
        self._charge(size)
        return self.data[offset : offset + size]

    def _charge(self, n_bytes: int) -> None:
        self.n_read += n_bytes
        if self.n_read > _MAX_READ_TIMES * len(self.data):
            raise _DamagedError("its sections overlap")

    def _text(self, names: bytes, offset: int) -> str:
        end = names.find(b"\0", offset, offset + _MAX_NAME)
        if end < 0:
            raise _DamagedError("a name does not end")
        self._charge(end - offset)
        return names[offset:end].decode("utf-8", "replace")

    def _body(self, section: _Section) -> bytes:
        if section.type == _SHT_NOBITS:
            return b""
        return self._slice(section.offset, section.size, f"section {section.name[:80]}")

    def _flag_barriers(self, section: _Section) -> int:
        """SHF_BARRIERS of the old layout; the new one has an attribute."""
        return 0 if self.data[7] == _ABI_CUDA_13 else section.flags >> 20 & 0x7F

    def _take_size(self, section: _Section) -> None:
        if facts := self.facts.get(_of(section, ".nv.shared.")):
            facts.shared_bytes = section.size
        elif facts := self.facts.get(_of(section, ".nv.local.")):
            facts.local_bytes = section.size

    def _symbols(self, sections: list[_Section]) -> _Symbols:
        table = next((s for s in sections if s.type == _SHT_SYMTAB), None)
        if table is None:
            return _Symbols(b"", b"")
        if table.link >= len(sections):
            raise _DamagedError("the symbol names do not exist")
        return _Symbols(self._body(table), self._body(sections[table.link]))

    def _symbol_name(self, symbols: _Symbols, index: int) -> str:
        if (known := symbols.known.get(index)) is None:
            row = _unpack(_SYMBOL, symbols.table, index * _SYMBOL.size, "a symbol")
            known = symbols.known[index] = self._text(symbols.names, row[0])
        return known

    def _take_attributes(self, section: _Section, symbols: _Symbols) -> None:
        owner = self.facts.get(_of(section, ".nv.info."))
        for number, value, payload in _attributes(self._body(section)):
            if number in _OF_SYMBOL:
                self._take_by_symbol(number, payload, symbols)
            elif owner is not None and number == _Attribute.NUM_BARRIERS:
                owner.barriers = value & 0xFF
            elif owner is not None and number == _Attribute.REQNTID:
                owner.block_threads = _block_threads(payload)

    def _take_by_symbol(self, number: int, payload: bytes, symbols: _Symbols) -> None:
        index, amount = _unpack(_TWO_WORDS, payload, 0, "an attribute")
        facts = self.facts.get(self._symbol_name(symbols, index))
        if facts is None:
            return
        if number == _Attribute.REGCOUNT:
            facts.registers = amount
        elif number == _Attribute.FRAME_SIZE:
            facts.frame_bytes = amount
        else:
            facts.stack_bytes = amount


def _of(section: _Section, prefix: str) -> str:
    """The kernel that a section belongs to; empty where its name begins otherwise."""
    return section.name.removeprefix(prefix) if section.name.startswith(prefix) else ""


def _attributes(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, 16-bit value, payload) of each attribute of an .nv.info section."""
    position = 0
    while position < len(body):
        form, number, value = _unpack(_ATTRIBUTE, body, position, "an attribute")
        position += _ATTRIBUTE.size
        size = value if form == _SIZED else 0
        if position + size > len(body):
            raise _DamagedError("an attribute is longer than its section")
        yield number, value, body[position : position + size]
        position += size


def _block_threads(payload: bytes) -> int | None:
    x, y, z = _unpack(_THREE_WORDS, payload, 0, "the required block size")
    threads = x * y * z
    return threads if 0 < threads <= _MAX_BLOCK_THREADS else None
