"""Several PTX modules in one file, as `cuobjdump -ptx` prints them: one for each architecture of a binary.

    Fatbin ptx code:
    ================
    arch = sm_80
    ...
    .version 9.0

Each module is given out as a text of its own in which all other lines are empty, so that lines keep their
numbers. For a GPU the driver takes the newest module that can be compiled for it, and so do we.
"""

import re
from collections.abc import Sequence

from analyzer.frontend.ptx_targets import choose_target, find_ptx_target

_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+\d", re.M)
_HEADER = re.compile(rb"^Fatbin (?:ptx|elf|code)\b", re.M)
_ENTRY = re.compile(rb"\.entry\s+([\w$.]+)")


def split_ptx_modules(text: bytes) -> tuple[bytes, ...]:
    """Return the modules of a file; a file of at most one, with nothing around it, is itself."""
    starts = [match.start() for match in _VERSION.finditer(text)]
    if not starts or (len(starts) == 1 and _HEADER.search(text) is None):
        return (text,)
    pieces = []
    for start, following in zip(starts, [*starts[1:], len(text)], strict=True):
        header = _HEADER.search(text, start, following)
        end = following if header is None else header.start()
        pieces.append(b"\n" * text.count(b"\n", 0, start) + text[start:end])
    return tuple(pieces)


def choose_ptx_modules(
    path: str, modules: Sequence[bytes], wanted: Sequence[str]
) -> tuple[tuple[bytes, tuple[str, ...]], ...]:
    """Return the modules to read, each with the architectures to read it for, none of which means its own.

    Modules that have the same kernels stand for each other: of these, a GPU takes the newest that fits.
    """
    if not wanted:
        return tuple((module, ()) for module in modules)
    groups: dict[frozenset[bytes], list[bytes]] = {}
    for module in modules:
        groups.setdefault(frozenset(_ENTRY.findall(module)), []).append(module)
    chosen: dict[bytes, tuple[str, ...]] = {}
    for group in groups.values():
        newest_first = sorted(group, key=lambda module: -find_ptx_target(path, module).number)
        for arch in wanted:
            fits = (m for m in newest_first if choose_target(find_ptx_target(path, m), arch) is not None)
            module = next(fits, newest_first[-1])
            chosen[module] = (*chosen.get(module, ()), arch)
    return tuple(chosen.items())
