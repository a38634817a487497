"""Registers and shared memory that the whole text of nvdisasm states.

    .section .text.tile,"ax",@progbits        .section .nv.shared.tile,"aw",@nobits
    .sectioninfo @"SHI_REGISTERS=40"          .zero 49152

From sm_90 on, registers stand in `.nv.info` alone: a word with the kernel, and one with the number, below
`nvinfo : EIATTR_REGCOUNT`.

A text that lists `.nv.info`, but no shared memory of a kernel, says that it has none; code alone (`-c`) does
not say so.
"""

import re

from analyzer.ir.module import KernelResources

_REGISTERS = re.compile(rb'\.sectioninfo\s+@"SHI_REGISTERS=(\d{1,3})"')
_SECTION = re.compile(rb"\.section\s+\.([^,\s]{1,4096})")
_ATTRIBUTE = re.compile(rb"//-+ nvinfo : (EIATTR_\w+)")
_WORD = re.compile(rb"/\*[0-9a-f]+\*/\s+\.word\s+(?:index@\((.{1,4096})\)|0x([0-9a-f]{1,8}))$")
_ZERO_BYTES = re.compile(rb"\.zero\s+(\d{1,9})$")
_SHARED_SECTION, _INFO_SECTION = "nv.shared.", "nv.info"


class ListedResources:
    """What the lines so far state, by kernel."""

    __slots__ = ("_attribute", "_kernel", "_lists_tables", "_owner", "_registers", "_shared_bytes")

    def __init__(self) -> None:
        self._registers: dict[str, int] = {}
        self._shared_bytes: dict[str, int] = {}
        self._attribute, self._kernel = b"", ""  # of the table of kernels that is being read
        self._owner = ""  # kernel whose shared memory the current section is
        self._lists_tables = False

    def feed_line(self, line: bytes, kernel: str) -> bool:
        """Read a line without spaces around it; return whether it was one of these.

        kernel: whose code stands last.
        """
        if line.startswith(b"/"):
            return self._feed_attribute(line)
        if not line.startswith(b"."):
            return False
        if match := _REGISTERS.match(line):
            self._registers[kernel] = int(match[1])
        elif match := _SECTION.match(line):
            name = match[1].decode("utf-8", "replace")
            self._lists_tables |= name.startswith(_INFO_SECTION)
            self._owner = name.removeprefix(_SHARED_SECTION) if name.startswith(_SHARED_SECTION) else ""
            if self._owner:
                self._shared_bytes[self._owner] = 0
        elif self._owner and (match := _ZERO_BYTES.match(line)):
            self._shared_bytes[self._owner] += int(match[1])
        else:
            return False
        return True

    def _feed_attribute(self, line: bytes) -> bool:
        """Read a line of `.nv.info`; return whether it was one that counts."""
        if match := _ATTRIBUTE.match(line):
            self._attribute, self._kernel = match[1], ""
        elif self._attribute == b"EIATTR_REGCOUNT" and (match := _WORD.match(line)):
            if match[1]:
                self._kernel = match[1].decode("utf-8", "replace")
            elif self._kernel:
                self._registers[self._kernel] = int(match[2], 16)
        else:
            return False
        return True

    def find(self, kernel: str) -> KernelResources | None:
        """Return the resources of a kernel, None where the text does not state them."""
        registers = self._registers.get(kernel)
        if registers is None:
            return None
        shared_bytes = self._shared_bytes.get(kernel, 0 if self._lists_tables else None)
        return KernelResources(registers=registers, has_exact_registers=True, shared_bytes=shared_bytes)
