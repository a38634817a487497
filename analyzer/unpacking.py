"""The one place that unpacks gzip and xz, with limits: a small file may hold gigabytes of zeros.

ZIP is unpacked by `archives`. What is wrong with packed data is a `PackedError`; callers add the file's name.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

GZIP_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"
_CHUNK_BYTES = 8 << 20
_FEED_BYTES = 64 << 10  # so that little of a bomb is unpacked before it shows what it is
_MAX_XZ_MEMORY_BYTES = 256 << 20  # a header may ask for 4 GB; `xz -9` needs 65 MiB
_MAX_STREAM_BYTES = 64 << 30
# Traces are packed to a hundredth, bombs to a thousandth.
_MIN_LIMIT_BYTES = 64 << 20
_MAX_RATIO = 500


class PackedError(ValueError):
    """Packed data are damaged, or unpack to more than they should."""


class _Unpacker(Protocol):
    """What the decompressors of gzip and xz have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def is_packed(head: bytes) -> bool:
    """Return whether data that begin so are packed by gzip or xz."""
    return head.startswith((GZIP_MAGIC, XZ_MAGIC))


def unpack_head(head: bytes, max_bytes: int) -> bytes:
    """Return the first bytes of packed data that begin with `head`; empty if they are damaged."""
    make, _, errors = _find_method(head)
    try:
        return make().decompress(head, max_bytes)
    except errors:
        return b""


def unpack(chunks: Iterable[bytes], max_bytes: int = _MAX_STREAM_BYTES) -> Iterator[bytes]:
    """Yield the contents of data that may be packed by gzip or xz, in pieces of at most 8 MiB.

    Plain data come as they are. Raises PackedError for packed data that are damaged, or that unpack to more
    than `max_bytes`, or to more than 64 MiB and 500 times what was taken of them so far.
    """
    source = iter(chunks)
    head = next(source, b"")
    while 0 < len(head) < len(XZ_MAGIC) and (more := next(source, b"")):
        head += more
    if not is_packed(head):
        yield from chain([head], source)
        return
    n_packed = n_bytes = 0
    for n_fed, piece in _unpack_members(head, chain([head], source)):
        n_packed += n_fed
        n_bytes += len(piece)
        if n_bytes > min(max_bytes, _MIN_LIMIT_BYTES + _MAX_RATIO * n_packed):
            raise PackedError(f"unpacks to more than {n_bytes >> 20:,} MiB, too much for {n_packed:,} bytes")
        yield piece


def _unpack_members(head: bytes, chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield how much more of the packed data was taken, and what that gave."""
    make, get_rest, errors = _find_method(head)
    unpacker = make()
    try:
        for chunk in chunks:
            for at in range(0, len(chunk), _FEED_BYTES):
                rest = chunk[at : at + _FEED_BYTES]
                n_fed = len(rest)
                while rest or not (unpacker.eof or getattr(unpacker, "needs_input", True)):
                    if unpacker.eof:
                        unpacker = make()
                    yield n_fed, unpacker.decompress(rest, _CHUNK_BYTES)
                    n_fed, rest = 0, unpacker.unused_data if unpacker.eof else get_rest(unpacker)
    except errors as error:
        raise PackedError(f"the compressed file is damaged: {error}") from None
    if not unpacker.eof:
        raise PackedError("the compressed file is damaged: it ends too early")


def _find_method(
    head: bytes,
) -> tuple[Callable[[], _Unpacker], Callable[[_Unpacker], bytes], type[Exception]]:
    """Return what unpacks one member, what it has not yet taken of its data, and what it raises."""
    if head.startswith(GZIP_MAGIC):
        import zlib

        return lambda: zlib.decompressobj(31), lambda unpacker: unpacker.unconsumed_tail, zlib.error
    import lzma

    return (
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_XZ_MEMORY_BYTES),
        lambda unpacker: b"",
        lzma.LZMAError,
    )
