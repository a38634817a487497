"""Launches of kernels that were written for other GPUs, or by others, as an H200 ran them (traces/h200).

- `suites`: kernels of bench/kernels, gemm, attention and volta, whose times on other GPUs are known, compiled
  for sm_90. Nothing about Hopper was learned from them.
- `packages`: Triton kernels of public packages with the launches of their own tests, from the corpus that
  bench/triton_corpus.py makes; their code is not shipped.
"""

import hashlib
import math
import struct
from pathlib import Path

from kernels.compiling import CompileUnit, find_dump_path
from kernels.recipes import ROOT, TableError

from groundtruth.records import CODE, H200, MeasuredLaunch, Record, read_lines

_ARCH = "sm_90"
_DEFAULT_CORPUS = Path("/tmp/corpus45")
_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3A  # in the header of a 64-bit ELF file
_MAX_FLOAT = 3.4028234663852886e38


def read_suites() -> tuple[tuple[MeasuredLaunch, CompileUnit], ...]:
    """Return the launches of the suites, with what to compile for each."""
    records = [record for record in read_lines("suites", H200) if record["status"] == "ok"]
    units = [_make_unit(record) for record in records]
    return tuple(
        (_make_launch(record, f"guest {record['suite']}", find_dump_path(unit)), unit)
        for record, unit in zip(records, units, strict=True)
    )


def _make_unit(record: Record) -> CompileUnit:
    return CompileUnit(
        suite=f"guest_{record['suite']}",
        arch=_ARCH,
        source=ROOT / record["source"],
        defines=tuple(record["defines"]),
        flags=tuple(record["flags"]),
    )


def read_packages(corpus: Path = _DEFAULT_CORPUS) -> tuple[MeasuredLaunch, ...]:
    """Return the launches of the packages' kernels whose code the corpus has. Raises TableError."""
    found = [
        _make_launch(record, "packages", _copy_bare(corpus / record["cubin"]))
        for record in read_lines("packages", H200)
        if record["status"] == "ok" and _is_code(corpus / record["cubin"], record["text_sha1"])
    ]
    if not found:
        raise TableError(f"{corpus} has none of the measured kernels: bench/triton_corpus.py makes it")
    return tuple(found)


def _copy_bare(cubin: Path) -> Path:
    """Return a copy without Triton's files beside it: arguments are given as the driver takes them.

    Beside those files, positions would count what Triton folded into the code.
    """
    code = cubin.read_bytes()
    path = CODE / "packages" / f"{hashlib.sha1(code, usedforsecurity=False).hexdigest()}.cubin"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(code)
    return path


def _is_code(path: Path, sha1: str) -> bool:
    """Return whether a cubin has the measured instructions; its line table holds the age of a source file."""
    return path.exists() and digest_instructions(path.read_bytes()) == sha1


def digest_instructions(cubin: bytes) -> str:
    """Return the SHA-1 of the sections of a 64-bit cubin that hold code, in their order."""
    (offset,) = struct.unpack_from("<Q", cubin, _SECTIONS_AT)
    size, count, names = struct.unpack_from("<HHH", cubin, _SECTION_COUNT_AT)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + index * size) for index in range(count)]
    digest = hashlib.sha1(usedforsecurity=False)
    for name, _, _, _, start, length, *_ in sections:
        if cubin.startswith(b".text.", sections[names][4] + name):
            digest.update(cubin[start : start + length])
    return digest.hexdigest()


def _make_launch(record: Record, family: str, code: Path) -> MeasuredLaunch:
    return MeasuredLaunch(
        case=record["id"],
        family=family,
        kernel=record["symbol"],
        shape=record["id"],
        gpu=H200,
        cubin=code,
        grid=tuple(record["grid"]),
        block=tuple(record["block"]),
        dynamic_shared_bytes=record["smem_dynamic_bytes"],
        arguments=tuple((str(place), _make_argument(value)) for place, value in enumerate(record["args"])),
        warm_us=record["time_us_warm_median"],
        cold_us=record["time_us_cold_median"],
        work={},
    )


def _make_argument(value: object) -> str | int | float:
    if isinstance(value, dict):
        return "zeros" if value["zeros"] else "ptr"
    assert isinstance(value, str | int | float)
    # tables hold no infinity: the largest float of 32 bits decides comparisons as it does
    return math.copysign(_MAX_FLOAT, value) if isinstance(value, float) and math.isinf(value) else value
