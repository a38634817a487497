"""`cuobjdump -res-usage` text: registers, shared and local memory of each kernel."""

import re
from pathlib import Path

from analyzer.ir.program import Resources

_NAME = re.compile(rb"^\s*Function\s+([^\s:]+):\s*$")
_PAIR = re.compile(r"([A-Z]+(?:\[\d+\])?):(\d+)")
_ARCH = re.compile(rb"^\s*arch\s*=\s*(sm_\w+)|code for (sm_\w+)")


def read_usage_name(line: bytes) -> str:
    """The kernel that ` Function NAME:` announces, else an empty string."""
    match = _NAME.match(line)
    return match[1].decode() if match else ""


def parse_usage_line(line: str) -> Resources:
    """`REG:24 STACK:0 SHARED:0 LOCAL:0 ...` as resources."""
    values = {key: int(value) for key, value in _PAIR.findall(line)}
    return Resources(
        registers=values.get("REG"),
        registers_exact="REG" in values,
        shared_bytes=values.get("SHARED"),
        local_bytes=values.get("LOCAL"),
        stack_bytes=values.get("STACK"),
        barriers=values.get("BAR"),
    )


def read_usage(path: Path) -> dict[tuple[str, str], Resources]:
    """Resources by (architecture, kernel); the architecture is empty where the text names none."""
    found: dict[tuple[str, str], Resources] = {}
    arch, name = "", ""
    for line in path.read_bytes().splitlines():
        if match := _ARCH.search(line):
            arch = (match[1] or match[2]).decode()
        elif announced := read_usage_name(line):
            name = announced
        elif line.strip().startswith(b"REG:"):
            found[arch, name] = parse_usage_line(line.decode("utf-8", "replace").strip())
    return found
