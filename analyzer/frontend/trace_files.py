"""Reads trace files and lists of them, plain or compressed by gzip or xz."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from analyzer.files import split_dense_pieces
from analyzer.frontend.trace_lines import TraceSyntaxError, parse_line
from analyzer.frontend.trace_module import build_trace_module
from analyzer.frontend.trace_parser import RETRACE_HINT, parse_trace
from analyzer.ir.module import Module
from analyzer.ir.trace import MemoryCopy, Trace
from analyzer.text.errors import InputError
from analyzer.text.source import locate
from analyzer.unpacking import PackedError, unpack

_CHUNK_BYTES = 8 << 20
_MAX_LIST_BYTES = 16 << 20
_MAX_LIST_ENTRIES = 10_000
_KERNEL_LIST_START = re.compile(rb"\A\s*(?:Memcpy[A-Z]\w+,|kernel[\w.-]*\.trace)")


class KernelList(Struct, frozen=True):
    """Contents of `kernelslist.g`: traces and copies to the device, in the order of the run."""

    path: str
    entries: tuple[Path | MemoryCopy, ...]


def read_traces(path: str, chunks: Iterable[bytes]) -> tuple[Trace, ...]:
    """Read the traces of an input: one, or all that a list of kernels names, from the folder of the list.

    chunks: the bytes of the input, perhaps compressed. Raises InputError.
    """
    text = decompress(path, chunks)
    head = next(text, b"")
    if not _KERNEL_LIST_START.match(head):
        return (parse_trace(path, chain([head], text)),)
    whole = _read_bounded(path, chain([head], text))
    named = [step for step in parse_kernel_list(path, whole).entries if isinstance(step, Path)]
    if not named:
        raise InputError(f"{path}: the list names no trace", hint=RETRACE_HINT)
    hint = "the list of kernels names it: put it beside the list"
    return tuple(parse_trace(str(file), decompress(str(file), _read_file(file, hint))) for file in named)


def load_traces(path: str) -> tuple[Trace, ...]:
    """Read the traces of a file, see `read_traces`. Raises InputError."""
    return read_traces(path, _read_file(Path(path)))


def read_trace_module(path: str, chunks: Iterable[bytes]) -> Module:
    """Read the traces of an input as a module with one kernel per trace. Raises InputError."""
    return build_trace_module(path, read_traces(path, chunks))


def parse_kernel_list(path: str, data: bytes) -> KernelList:
    """Parse `kernelslist.g`, or the tracer's own `kernelslist`. Raises InputError."""
    folder, steps, offset = Path(path).parent, [], 0
    for line in data.splitlines(keepends=True):
        text = line.decode("utf-8", "replace").rstrip()
        try:
            if text.strip():
                steps += _parse_entry(folder, text)
        except TraceSyntaxError as error:
            raise InputError(
                error.message, location=locate(path, data, offset + error.column), hint=RETRACE_HINT
            ) from None
        offset += len(line)
        if len(steps) > _MAX_LIST_ENTRIES:
            raise InputError(
                f"{path}: more than {_MAX_LIST_ENTRIES} lines", hint="name the traces one by one"
            )
    return KernelList(path, tuple(steps))


def _parse_entry(folder: Path, text: str) -> list[Path | MemoryCopy]:
    tree = parse_line("entry", text)
    if tree.data == "launch":
        return [folder / str(tree.children[0])]
    if tree.data == "copy":
        children: list[Any] = tree.children
        address, size = children
        return [MemoryCopy(int(address, 16), int(size))]
    return []


def decompress(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of an input that may be compressed by gzip or xz, in pieces of bounded size.

    Raises InputError for data that are damaged, or that unpack to too much: see `unpack`.
    """
    try:
        yield from split_dense_pieces(unpack(chunks))
    except PackedError as error:
        hint = "copy or trace it again; unpack it yourself if it is a trace, or trace fewer kernels at a time"
        raise InputError(f"{path}: {error}", hint=hint) from None


def _read_bounded(path: str, chunks: Iterable[bytes]) -> bytes:
    data = b""
    for chunk in chunks:
        data += chunk
        if len(data) > _MAX_LIST_BYTES:
            raise InputError(f"{path}: no list of kernels is as long as that", hint=RETRACE_HINT)
    return data


def _read_file(file: Path, hint: str = "check the path and its permissions") -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            yield from iter(lambda: opened.read(_CHUNK_BYTES), b"")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}", hint=hint) from None
