"""Reads trace files and lists of them, plain or compressed by gzip or xz."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from analyzer.files import split_dense_pieces
from analyzer.frontend.input_format import MAX_XZ_MEMORY_BYTES
from analyzer.frontend.trace_lines import TraceSyntaxError, parse_line
from analyzer.frontend.trace_module import build_trace_module
from analyzer.frontend.trace_parser import RETRACE_HINT, parse_trace
from analyzer.ir.module import Module
from analyzer.ir.trace import MemoryCopy, Trace
from analyzer.text.errors import InputError
from analyzer.text.source import locate

GZIP_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"
_CHUNK_BYTES = 8 << 20
_MAX_LIST_BYTES = 16 << 20
_MAX_TEXT_BYTES = 64 << 30
_MIN_LIMIT_BYTES = 256 << 20
_MAX_UNPACK_RATIO = 500
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

    Raises InputError for data that are damaged, that unpack to more than 64 GiB, or to more than 500 times
    their size: traces are packed to a hundredth, bombs to a thousandth.
    """
    n_packed = n_bytes = 0

    def count() -> Iterator[bytes]:
        nonlocal n_packed
        for chunk in chunks:
            n_packed += len(chunk)
            yield chunk

    for piece in split_dense_pieces(_decompress(path, count())):
        n_bytes += len(piece)
        if n_bytes > min(_MAX_TEXT_BYTES, _MIN_LIMIT_BYTES + _MAX_UNPACK_RATIO * n_packed):
            raise InputError(
                f"{path}: unpacks to more than {n_bytes >> 20:,} MiB, too much for {n_packed:,} bytes",
                hint="unpack it yourself if it is a trace, or trace fewer kernels at a time",
            )
        yield piece


def _decompress(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    source = iter(chunks)
    head = next(source, b"")
    while 0 < len(head) < len(XZ_MAGIC) and (more := next(source, b"")):
        head += more
    if head.startswith(GZIP_MAGIC):
        yield from _gunzip(path, chain([head], source))
    elif head.startswith(XZ_MAGIC):
        yield from _unxz(path, chain([head], source))
    else:
        yield from chain([head], source)


def _gunzip(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    import zlib

    unpacker = zlib.decompressobj(31)
    try:
        for chunk in chunks:
            while chunk:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(31)
                yield unpacker.decompress(chunk, _CHUNK_BYTES)
                chunk = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    except zlib.error as error:
        raise _make_damaged_error(path, str(error)) from None
    if not unpacker.eof:
        raise _make_damaged_error(path, "it ends too early")


def _unxz(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    import lzma

    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY_BYTES)
    try:
        for chunk in chunks:
            while chunk or not unpacker.needs_input:
                if unpacker.eof:
                    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY_BYTES)
                yield unpacker.decompress(chunk, _CHUNK_BYTES)
                chunk = unpacker.unused_data if unpacker.eof else b""
                if unpacker.eof and not chunk:
                    break
    except lzma.LZMAError as error:
        raise _make_damaged_error(path, str(error)) from None
    if not unpacker.eof:
        raise _make_damaged_error(path, "it ends too early")


def _make_damaged_error(path: str, reason: str) -> InputError:
    return InputError(f"{path}: the compressed file is damaged: {reason}", hint="copy or trace it again")


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
