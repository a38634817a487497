"""Detects the format of an input by its first bytes; names and suffixes are not looked at."""

import re
from enum import StrEnum

HEAD_BYTES = 1 << 16
MAX_XZ_MEMORY_BYTES = 256 << 20  # a header may ask for 4 GB; `xz -9` needs 65 MiB
_EM_CUDA = 190
_MAX_CONTROL_FRACTION = 0.02
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_CONTROL_CHARACTERS = bytes(code for code in range(32) if code not in b"\t\n\v\f\r\x1b") + b"\x7f"

_SASS_LINE = re.compile(
    rb"^[ \t]*(?:Function[ \t]*:[ \t]*\S|code for sm_\d|\.section[ \t]+\.text\.|"
    rb"\.headerflags[ \t]+@|/\*[0-9a-f]{4,8}\*/[ \t])",
    re.M,
)
_PTX_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+\d", re.M)
_PTX_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+\w", re.M)
_TRITON_IR_LINE = re.compile(rb"^[ \t]*tt\.func\b|^module\b[^\n]*\{|^#\w+ = #(?:ttg|triton_gpu)\b", re.M)
_TRACE_LINE = re.compile(
    rb"^-kernel name[ \t]*=|^#traces format|"
    rb"\A\s*(?:Memcpy(?:HtoD|DtoH),0x|kernel[\w.-]*\.trace)",
    re.M,
)
_GZIP_MAGIC, _XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"


class InputFormat(StrEnum):
    """Formats that are detected, whether or not they can be read."""

    SASS = "SASS text"
    CUBIN = "cubin"
    FATBIN = "fatbin"
    HOST_BINARY = "host binary"
    ARCHIVE = "archive"
    PTX = "PTX"
    TRITON_IR = "Triton IR"
    TRACE = "instruction trace"
    EMPTY = "empty"
    UNKNOWN_BINARY = "unknown binary"
    UTF16 = "UTF-16 text"
    UNKNOWN_TEXT = "unknown text"


def detect_format(head: bytes) -> InputFormat:
    """Return the format of an input that begins with `head`; only the first `HEAD_BYTES` are read."""
    head = head[:HEAD_BYTES]
    if not head.removeprefix(_UTF8_BOM).strip():
        return InputFormat.EMPTY
    if head.startswith((_GZIP_MAGIC, _XZ_MAGIC)):
        is_trace = _detect_text_format(_decompress_head(head)) is InputFormat.TRACE
        return InputFormat.TRACE if is_trace else InputFormat.UNKNOWN_BINARY
    return _detect_binary_format(head) or _detect_text_format(head)


def _decompress_head(head: bytes) -> bytes:
    """Return the first bytes of compressed data, decompressed; empty if it is damaged."""
    import lzma
    import zlib

    try:
        if head.startswith(_GZIP_MAGIC):
            return zlib.decompressobj(31).decompress(head, HEAD_BYTES)
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_XZ_MEMORY_BYTES).decompress(head, HEAD_BYTES)
    except (zlib.error, lzma.LZMAError):
        return b""


def _detect_binary_format(head: bytes) -> InputFormat | None:
    """Return the format by magic number or by bytes that no text contains; None for text."""
    if head.startswith(b"\x7fELF"):
        return _detect_elf_format(head)
    if head.startswith(b"\x50\xed\x55\xba"):  # 0xBA55ED50, little endian
        return InputFormat.FATBIN
    if head.startswith((b"!<arch>\n", b"!<thin>\n")):
        return InputFormat.ARCHIVE
    if head.startswith(_UTF16_BOMS) or _is_unmarked_utf16(head):
        return InputFormat.UTF16
    n_control = len(head) - len(head.translate(None, _CONTROL_CHARACTERS))
    if b"\0" in head or n_control > _MAX_CONTROL_FRACTION * len(head):
        return InputFormat.UNKNOWN_BINARY
    return None


def _detect_elf_format(head: bytes) -> InputFormat:
    if len(head) < 20:
        return InputFormat.UNKNOWN_BINARY
    machine = int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")
    return InputFormat.CUBIN if machine == _EM_CUDA else InputFormat.HOST_BINARY


def _is_unmarked_utf16(head: bytes) -> bool:
    """Return whether every other byte is NUL and the others are text."""
    for zeros, letters in ((head[1::2], head[::2]), (head[::2], head[1::2])):
        if len(zeros) >= 8 and zeros.count(0) > 0.9 * len(zeros):
            return letters.isascii() and letters.translate(None, _CONTROL_CHARACTERS) == letters
    return False


def _detect_text_format(head: bytes) -> InputFormat:
    text = head.removeprefix(_UTF8_BOM)
    if _TRACE_LINE.search(text):
        return InputFormat.TRACE
    if _SASS_LINE.search(text):
        return InputFormat.SASS
    if _PTX_VERSION.search(text) and _PTX_TARGET.search(text):
        return InputFormat.PTX
    if _TRITON_IR_LINE.search(text):
        return InputFormat.TRITON_IR
    return InputFormat.UNKNOWN_TEXT
