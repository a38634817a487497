"""Trace files and lists of them, plain or compressed, to `Trace` values."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from analyzer.frontend.trace import HINT, parse_trace
from analyzer.frontend.trace_kernels import trace_module
from analyzer.frontend.trace_lines import LineError, parse_line
from analyzer.ir.program import Module
from analyzer.ir.trace import MemoryCopy, Trace
from analyzer.text.errors import InputError
from analyzer.text.source import locate

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_CHUNK_BYTES = 8 << 20
_MAX_LIST_BYTES = 16 << 20
_MAX_FILES = 10_000
_LIST = re.compile(rb"\A\s*(?:Memcpy[A-Z]\w+,|kernel[\w.-]*\.trace)")


class TraceList(Struct, frozen=True):
    """What `kernelslist.g` holds: traces and copies to the device, in the order of the run."""

    path: str
    steps: tuple[Path | MemoryCopy, ...]


def read_traces(path: str, chunks: Iterable[bytes]) -> tuple[Trace, ...]:
    """The traces of an input: one, or all those that a list of kernels names, which lie beside it.

    `chunks`: the bytes of the input, perhaps compressed. Raises InputError.
    """
    text = decompressed(path, chunks)
    head = next(text, b"")
    if not _LIST.match(head):
        return (parse_trace(path, chain([head], text)),)
    whole = _bounded(path, chain([head], text))
    named = [step for step in parse_list(path, whole).steps if isinstance(step, Path)]
    if not named:
        raise InputError(f"{path}: the list names no trace", hint=HINT)
    hint = "the list of kernels names it: put it beside the list"
    return tuple(parse_trace(str(file), decompressed(str(file), _read(file, hint))) for file in named)


def load_traces(path: str) -> tuple[Trace, ...]:
    """`read_traces` of a file. Raises InputError."""
    return read_traces(path, _read(Path(path)))


def read_trace_module(path: str, chunks: Iterable[bytes]) -> Module:
    """The kernels of `read_traces`."""
    return trace_module(path, read_traces(path, chunks))


def parse_list(path: str, data: bytes) -> TraceList:
    """`kernelslist.g` or the tracer's own `kernelslist`. Raises InputError."""
    folder, steps, offset = Path(path).parent, [], 0
    for line in data.splitlines(keepends=True):
        text = line.decode("utf-8", "replace").rstrip()
        try:
            if text.strip():
                steps += _step(folder, text)
        except LineError as error:
            raise InputError(
                error.message, location=locate(path, data, offset + error.column), hint=HINT
            ) from None
        offset += len(line)
        if len(steps) > _MAX_FILES:
            raise InputError(f"{path}: more than {_MAX_FILES} lines", hint="name the traces one by one")
    return TraceList(path, tuple(steps))


def _step(folder: Path, text: str) -> list[Path | MemoryCopy]:
    tree = parse_line("entry", text)
    if tree.data == "launch":
        return [folder / str(tree.children[0])]
    if tree.data == "copy":
        children: list[Any] = tree.children
        address, size = children
        return [MemoryCopy(int(address, 16), int(size))]
    return []


def decompressed(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The text of an input that may be compressed by gzip or xz, in pieces of bounded size."""
    source = iter(chunks)
    head = next(source, b"")
    while 0 < len(head) < len(XZ) and (more := next(source, b"")):
        head += more
    if head.startswith(GZIP):
        yield from _gunzip(path, chain([head], source))
    elif head.startswith(XZ):
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
        raise _damaged(path, str(error)) from None
    if not unpacker.eof:
        raise _damaged(path, "it ends too early")


def _unxz(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    import lzma

    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        for chunk in chunks:
            while chunk or not unpacker.needs_input:
                if unpacker.eof:
                    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ)
                yield unpacker.decompress(chunk, _CHUNK_BYTES)
                chunk = unpacker.unused_data if unpacker.eof else b""
                if unpacker.eof and not chunk:
                    break
    except lzma.LZMAError as error:
        raise _damaged(path, str(error)) from None
    if not unpacker.eof:
        raise _damaged(path, "it ends too early")


def _damaged(path: str, reason: str) -> InputError:
    return InputError(f"{path}: the compressed file is damaged: {reason}", hint="copy or trace it again")


def _bounded(path: str, chunks: Iterable[bytes]) -> bytes:
    data = b""
    for chunk in chunks:
        data += chunk
        if len(data) > _MAX_LIST_BYTES:
            raise InputError(f"{path}: no list of kernels is as long as that", hint=HINT)
    return data


def _read(file: Path, hint: str = "check the path and its permissions") -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            yield from iter(lambda: opened.read(_CHUNK_BYTES), b"")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}", hint=hint) from None
