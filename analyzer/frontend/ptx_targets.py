"""The architecture that PTX is assembled for: what its `.target` allows, and which GPU it is wanted for.

PTX for `sm_80` can be assembled for every later architecture, PTX for `sm_100f` for later ones of the same
family (10.x), and PTX for `sm_90a` for that one alone (`ptxas --help`, `--gpu-name`).

>>> choose_target(PtxTarget(80, "", 2), "sm_90")
'sm_90'
>>> choose_target(PtxTarget(90, "a", 2), "sm_90")
'sm_90a'
>>> choose_target(PtxTarget(90, "a", 2), "sm_100") is None
True
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from analyzer.frontend.sass_diagnostics import MIN_ARCH
from analyzer.text.errors import InputError
from analyzer.text.source import Location, locate

_TARGET = re.compile(
    rb"^[ \t]*(?:\.version[ \t]+\S+[ \t]+)?\.target[ \t]+(?:\w+[ \t]*,[ \t]*)*?(sm_(\d{2,3})([af]?))\b", re.M
)
_ARCH = re.compile(r"sm_(\d{2,3})([af]?)")


class PtxTarget(Struct, frozen=True):
    """The `.target` of a PTX module."""

    number: int  # 90 of `sm_90a`
    suffix: str  # `a`: this architecture alone; `f`: its family; "": all later ones
    offset: int = 0  # in the file, in bytes

    @property
    def arch(self) -> str:
        """`sm_90a`."""
        return f"sm_{self.number}{self.suffix}"


def find_ptx_target(path: str, text: bytes) -> PtxTarget:
    """Return the `.target` of PTX. Raises InputError where it has none."""
    match = _TARGET.search(text)
    if match is None:
        raise InputError(f"{path}: PTX without a .target", hint="write `.target sm_90` after .version")
    return PtxTarget(int(match[2]), match[3].decode(), match.start(1))


def choose_target(target: PtxTarget, wanted: str) -> str | None:
    """Return what to assemble for a GPU of `wanted` (`sm_90`, or with a suffix); None where nothing fits."""
    match = _ARCH.fullmatch(wanted)
    if match is None:
        return None
    number, suffix = int(match[1]), match[2]
    if target.suffix == "a":
        return target.arch if number == target.number and suffix in ("", "a") else None
    if number < target.number:
        return None
    if target.suffix == "f":
        return wanted if suffix else f"{wanted}f" if number // 10 == target.number // 10 else None
    return wanted


def choose_targets(path: str, text: bytes, wanted: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to assemble PTX for, and which of the wanted architectures it cannot be assembled for.

    wanted: architectures of the GPUs; where empty, the PTX's own.
    Raises InputError, at the `.target`, where nothing can be assembled.
    """
    target = find_ptx_target(path, text)
    if not wanted:
        if target.number < MIN_ARCH:
            raise InputError(
                f"PTX for {target.arch} and later, and encodings before sm_{MIN_ARCH} are not read",
                location=_locate_target(path, text, target),
                hint="name the GPU that it is for: --gpu h100",
            )
        return (target.arch,), ()
    chosen = [(arch, choose_target(target, arch)) for arch in dict.fromkeys(wanted)]
    refused = tuple(arch for arch, found in chosen if found is None)
    found = tuple(dict.fromkeys(arch for _, arch in chosen if arch is not None))
    if not found:
        raise InputError(
            f"PTX for {target.arch} cannot be assembled for {', '.join(refused)}: {describe_target(target)}",
            location=_locate_target(path, text, target),
            hint=_suggest(target, refused[0]),
        )
    return found, refused


def describe_target(target: PtxTarget) -> str:
    """Return for what PTX of this target can be assembled, as part of a sentence."""
    if target.suffix == "a":
        return f"its code is for sm_{target.number} alone"
    if target.suffix == "f":
        return f"its code is for sm_{target.number} and later ones of its family"
    return f"its code is for sm_{target.number} and later"


def _suggest(target: PtxTarget, wanted: str) -> str:
    same = f"choose a GPU of sm_{target.number} (`warplens gpus` lists them)"
    return f"{same}, or compile the source again for {wanted.rstrip('af')}"


def _locate_target(path: str, text: bytes, target: PtxTarget) -> Location:
    return locate(path, text, target.offset, length=len(target.arch))
