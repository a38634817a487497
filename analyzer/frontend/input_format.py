"""Detects the format of an input by its first bytes; names and suffixes are not looked at."""

import re
from enum import StrEnum

from analyzer.unpacking import is_packed, unpack_head

HEAD_BYTES = 1 << 16
_EM_CUDA = 190
_MAX_CONTROL_FRACTION = 0.02
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_CONTROL_CHARACTERS = bytes(code for code in range(32) if code not in b"\t\n\v\f\r\x1b") + b"\x7f"

_FUNCTION_HEADER = re.compile(rb"^[ \t]*(?:Function[ \t]*:[ \t]*\S|\.section[ \t]+\.text\.)", re.M)
_INSTRUCTION_LINE = re.compile(rb"^[ \t]*/\*[0-9a-f]{4,16}\*/[ \t]+(?!\.)", re.M)
_SASS_LINE = re.compile(
    rb"^[ \t]*(?:Function[ \t]*:[ \t]*\S|code for sm_\d|\.section[ \t]+\.text\.|"
    rb"\.headerflags[ \t]+@|/\*[0-9a-f]{4,8}\*/[ \t])",
    re.M,
)
_PTX_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+\d", re.M)
_PTX_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+\w", re.M)
_PTX_STATEMENT = re.compile(  # of PTX that has lost its header, or all but its body
    rb"^[ \t]*(?:\.(?:visible|weak|extern)[ \t]+)?\.(?:entry|func)\b|^[ \t]*\.reg[ \t]+\.\w"
    rb"|^[ \t]*(?:@!?%?[\w$]+[ \t]+)?[a-z][a-z0-9]*(?:\.[a-z0-9_]+(?:::[a-z0-9_]+)*)+"
    rb"[ \t]+[%\[{\w][^;\n=()]*;",
    re.M,
)
_TRITON_IR_LINE = re.compile(rb"^[ \t]*tt\.func\b|^module\b[^\n]*\{|^#\w+ = #(?:ttg|triton_gpu)\b", re.M)
_TRACE_LINE = re.compile(
    rb"^-kernel name[ \t]*=|^#traces format|"
    rb"\A\s*(?:Memcpy(?:HtoD|DtoH),0x|kernel[\w.-]*\.trace)",
    re.M,
)
_CUASSEMBLER_LINE = re.compile(rb"^[ \t]*\[B[0-9-]{6}:R[0-9-]:W[0-9-]:[Y-]:S\d+\]", re.M)
_DEBUGGER_LINE = re.compile(
    rb"^Dump of assembler code for function |^[ \t]*(?:=>)?[ \t]*0x[0-9a-f]{6,16} <[^\n]*>:", re.M
)
_LLVM_IR_LINE = re.compile(rb"^; ModuleID = |^target triple = |^define [^\n]*\{", re.M)
_CUDA_SOURCE_LINE = re.compile(rb"\b__(?:global|device)__\b|^[ \t]*#include[ \t]*[<\"]", re.M)
_GRAPH_LINE = re.compile(rb"\A\s*digraph\b")
_USAGE_LINE = re.compile(rb"^[ \t]*REG:\d+|^ptxas info", re.M)
_ELF_TEXT_LINE = re.compile(rb"^64-?bit (?:ELF|elf):", re.M)
_FILE_LIST_LINE = re.compile(
    rb"^(?:Extracting )?(?:ELF|PTX|NVVM|LTOIR|SASS text) (?:file|section)[ \t]+\d+[ \t]*:", re.M
)
_PROFILER_TABLE_LINE = re.compile(rb"^\"?ID\"?[,;\t]\"?Process ID\b|\bMetric Name\b|^==PROF== ", re.M)
_GUARD = re.compile(r"@!?U?P\w+\s+")
_MAX_SNIPPET_LINES = 200  # in which the first instruction of code without any header stands


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
    LISTING = "instructions without headers"
    CUASSEMBLER = "CuAssembler text"
    CUDA_GDB = "cuda-gdb's disassembly"
    NVDISASM_JSON = "nvdisasm -json"
    SOURCE_PAGE = "Nsight Compute's source page"
    PROFILER_TABLE = "another page of Nsight Compute"
    PROFILER_REPORT = "Nsight Compute report"
    TRITON_METADATA = "Triton metadata"
    LLVM_IR = "LLVM IR"
    CUDA_SOURCE = "CUDA source"
    FLOW_GRAPH = "control-flow graph"
    RESOURCE_USAGE = "resource usage"
    ELF_TABLES = "ELF tables"
    FILE_LIST = "list of a file's contents"
    JSON = "JSON"
    ZIP = "zip archive"
    EMPTY = "empty"
    UNKNOWN_BINARY = "unknown binary"
    UTF16 = "UTF-16 text"
    UNKNOWN_TEXT = "unknown text"


def detect_format(head: bytes) -> InputFormat:
    """Return the format of an input that begins with `head`; only the first `HEAD_BYTES` are read."""
    head = head[:HEAD_BYTES]
    if not head.removeprefix(_UTF8_BOM).strip():
        return InputFormat.EMPTY
    if is_packed(head):
        is_trace = _detect_text_format(unpack_head(head, HEAD_BYTES)) is InputFormat.TRACE
        return InputFormat.TRACE if is_trace else InputFormat.UNKNOWN_BINARY
    return _detect_binary_format(head) or _detect_text_format(head)


def _detect_binary_format(head: bytes) -> InputFormat | None:
    """Return the format by magic number or by bytes that no text contains; None for text."""
    if head.startswith(b"\x7fELF"):
        return _detect_elf_format(head)
    if head.startswith(b"\x50\xed\x55\xba"):  # 0xBA55ED50, little endian
        return InputFormat.FATBIN
    if head.startswith((b"!<arch>\n", b"!<thin>\n")):
        return InputFormat.ARCHIVE
    if head.startswith(b"PK\x03\x04"):
        return InputFormat.ZIP
    if head.startswith(b"NVR\0"):
        return InputFormat.PROFILER_REPORT
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
    if _CUASSEMBLER_LINE.search(text):
        return InputFormat.CUASSEMBLER
    if text.lstrip().startswith((b"[", b"{")):
        return _detect_json_format(text)
    if _DEBUGGER_LINE.search(text):
        return InputFormat.CUDA_GDB
    instruction, header = _INSTRUCTION_LINE.search(text), _FUNCTION_HEADER.search(text)
    if instruction and (header is None or instruction.start() < header.start()):
        return InputFormat.LISTING
    if _SASS_LINE.search(text):
        return InputFormat.SASS
    if _PTX_VERSION.search(text) and _PTX_TARGET.search(text):
        return InputFormat.PTX
    if _TRITON_IR_LINE.search(text):
        return InputFormat.TRITON_IR
    return _detect_loose_text(text)


def _detect_json_format(text: bytes) -> InputFormat:
    if b'"sass-instructions"' in text or b'"function-name"' in text:
        return InputFormat.NVDISASM_JSON
    is_triton = b'"num_warps"' in text and b'"shared"' in text
    return InputFormat.TRITON_METADATA if is_triton else InputFormat.JSON


def _detect_loose_text(text: bytes) -> InputFormat:
    """Return the format of a text that no line alone proves to be one."""
    from analyzer.frontend.source_page import find_columns, split_row

    lines = text.decode("utf-8", "replace").splitlines()[:_MAX_SNIPPET_LINES]
    if any(find_columns(split_row(line)) is not None for line in lines):
        return InputFormat.SOURCE_PAGE
    for pattern, found in (
        (_PROFILER_TABLE_LINE, InputFormat.PROFILER_TABLE),
        (_LLVM_IR_LINE, InputFormat.LLVM_IR),
        (_GRAPH_LINE, InputFormat.FLOW_GRAPH),
        (_CUDA_SOURCE_LINE, InputFormat.CUDA_SOURCE),
        (_PTX_STATEMENT, InputFormat.PTX),
        (_ELF_TEXT_LINE, InputFormat.ELF_TABLES),
        (_USAGE_LINE, InputFormat.RESOURCE_USAGE),
        (_FILE_LIST_LINE, InputFormat.FILE_LIST),
    ):
        if pattern.search(text):
            is_cut = found is InputFormat.ELF_TABLES and len(text) >= HEAD_BYTES  # its code may follow
            return InputFormat.SASS if is_cut else found
    return InputFormat.LISTING if any(map(_is_instruction, lines)) else InputFormat.UNKNOWN_TEXT


def _is_instruction(line: str) -> bool:
    """Return whether a line is an instruction with a known opcode, with or without an address before it."""
    from analyzer.frontend.listing_parser import strip_address
    from analyzer.isa.opcode_table import resolve_opcode

    words = _GUARD.sub("", strip_address(line), count=1).replace(";", " ").split(maxsplit=1)
    return bool(words) and words[0][:1].isupper() and resolve_opcode(words[0]).is_known
