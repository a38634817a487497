"""Registers, shared and local memory of each kernel from `cuobjdump -res-usage` text."""

import re
from pathlib import Path

from analyzer.files import read_file
from analyzer.ir.module import KernelResources

_MAX_BYTES = 256 << 20
_FUNCTION_LINE = re.compile(rb"^\s*Function\s+([^\s:].*):\s*$")
# The lookbehind keeps a long run of letters from being tried at each of them.
_RESOURCE_COUNT = re.compile(r"(?<![A-Z])([A-Z]{1,16}(?:\[\d{1,4}\])?):(\d{1,10})(?!\d)")
_ARCH_LINE = re.compile(rb"^\s*arch\s*=\s*(sm_\w+)|code for (sm_\w+)")


def parse_usage_function(line: bytes) -> str:
    """Return the kernel in a line ` Function NAME:`, "" for any other line."""
    match = _FUNCTION_LINE.match(line)
    return match[1].decode() if match else ""


def parse_usage_line(line: str) -> KernelResources:
    """Parse a line `REG:24 STACK:0 SHARED:0 LOCAL:0 ...`."""
    values = {key: int(value) for key, value in _RESOURCE_COUNT.findall(line)}
    return KernelResources(
        registers=values.get("REG"),
        has_exact_registers="REG" in values,
        shared_bytes=values.get("SHARED"),
        local_bytes=values.get("LOCAL"),
        stack_bytes=values.get("STACK"),
        barriers=values.get("BAR"),
    )


def read_resource_usage(path: Path) -> dict[tuple[str, str], KernelResources]:
    """Return the resources by (architecture, kernel); the architecture is "" if the text names none.

    Raises OSError, also for a file of more than 256 MiB, and ValueError for a name that is no UTF-8.
    """
    found: dict[tuple[str, str], KernelResources] = {}
    arch, name = "", ""
    for line in read_file(path, _MAX_BYTES).splitlines():
        if match := _ARCH_LINE.search(line):
            arch = (match[1] or match[2]).decode()
        elif announced := parse_usage_function(line):
            name = announced
        elif line.strip().startswith(b"REG:"):
            found[arch, name] = parse_usage_line(line.decode("utf-8", "replace").strip())
    return found
