"""Lines that cuobjdump and nvdisasm print around SASS, and how a stream of them may be cut.

facts/FORMATS.md, sections 1 and 2, says where each comes from.
"""

import re
from collections.abc import Iterable, Iterator

# An instruction with its two hex words, of which the second holds the control fields, or any other line.
LINE = re.compile(
    rb"[ \t]*/\*([0-9a-f]{4,8})\*/[ \t]+([^;\n]*);"
    rb"(?:[ \t]*/\* 0x[0-9a-f]{16} \*/[^\n]*\n[ \t]*/\* 0x([0-9a-f]{16}) \*/)?[^\n]*\n"
    rb"|([^\n]*\n)"
)
HEX_PAIR = re.compile(rb"^[ \t]*/\* 0x[0-9a-f]{16} \*/")
STARTED = re.compile(rb"^[ \t]*/\*[0-9a-fA-F]+\*/")
DATA = re.compile(rb"^[ \t]*/\*[0-9a-f]+\*/[ \t]+\.(byte|short|word|dword|quad|string|zero|b\d+)\b")
ARCH = re.compile(rb"sm_(\d+[af]?)\b")
ARCH_FLAG = re.compile(rb"EF_CUDA_SM(\d+)")
FUNCTION = re.compile(rb"^\s*Function\s*:\s*(\S+)\s*$")
SECTION = re.compile(rb"^\s*\.section\s+\.text\.([^,\s]+)")
LABEL = re.compile(rb"^([.\w$]+):\s*(?://.*)?$")
ORIGIN = re.compile(rb'//## File "([^"]*)", line (\d+)(?: inlined at "([^"]*)", line (\d+))?')
NOISE = (
    b"Fatbin",
    b"=====",
    b"arch =",
    b"code version",
    b"host =",
    b"compile_size",
    b"compressed",
    b"producer",
    b"identifier",
    b"has debug",
    b"ptxasOptions",
    b"cuobjdump",
    b"nvdisasm",
    b"..........",
    b"Resource usage",
    b"Common:",
    b"GLOBAL:",
)


MAX_LINE_BYTES = 32 << 20


class OverlongLine(Exception):
    """A line of more than MAX_LINE_BYTES, which no tool prints."""


def at_line_ends(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut the stream so that no instruction's two lines are torn apart; the last line gets its end."""
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        last = text.rfind(b"\n", 0, end - 1) + 1 if end else 0
        if end and not HEX_PAIR.match(text[last:end]):
            end = last
        if end:
            yield text[:end]
        rest = text[end:]
        if len(rest) > MAX_LINE_BYTES:
            raise OverlongLine
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"
