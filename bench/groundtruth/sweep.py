"""Choose rows of the configuration sweep, and compile their kernels with Triton again.

Of each chosen shape the fastest configurations, some of the fastest fifth and others, all by a hash, so
that a choice of the best can be judged. The cubins are not kept with the measurements.
Compiled again they differ from the measured ones in their debug information, which holds paths, so that their
SHA-1 is another; registers and spilled bytes of the first 60 are those that were measured.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

from kernels.recipes import ROOT, TableError

from groundtruth.records import (
    CODE,
    GPU,
    MeasuredLaunch,
    Record,
    make_routing,
    read_document,
    read_lines,
    unpack_code,
    write_array,
)

KERNEL_SOURCES = ROOT.parent / "shared" / "groundtruth"
TRITON_VERSION = "3.6.0"
_COMPILER = Path(__file__).with_name("compile_variants.py")
_WARP = 32
_N_FASTEST, _N_OF_FASTEST_FIFTH, _N_OF_OTHERS = 3, 5, 12
SHAPES = {"moe": 1, "gemm": 1, "attention": 1}  # how many shapes of each kernel
ALL_SHAPES = {"moe": 6, "gemm": 6, "attention": 3}


def select_sweep_rows(shapes: Mapping[str, int]) -> tuple[Record, ...]:
    """Return a sample of the rows that have a time, of so many shapes of each kernel."""
    by_shape: dict[str, list[Record]] = defaultdict(list)
    for row in read_lines("sweep"):
        if row["status"] == "ok":
            by_shape[find_sweep_shape(row)].append(row)
    found: list[Record] = []
    for family, count in shapes.items():
        names = sorted((s for s in by_shape if s.startswith(f"{family}/")), key=_hash)
        for shape in names[:count]:
            found += _sample_shape(by_shape[shape])
    return tuple(found)


def find_sweep_shape(row: Record) -> str:
    """Return the id of a row without its configuration."""
    return str(row["case_id"]).rsplit("/", 1)[0]


def _sample_shape(rows: Sequence[Record]) -> list[Record]:
    ranked = sorted(rows, key=lambda row: float(row["time_us_median"]))
    rest = ranked[_N_FASTEST:]
    fifth = rest[: len(ranked) // 5]
    others = rest[len(ranked) // 5 :]
    return [
        *ranked[:_N_FASTEST],
        *sorted(fifth, key=lambda row: _hash(row["case_id"]))[:_N_OF_FASTEST_FIFTH],
        *sorted(others, key=lambda row: _hash(row["case_id"]))[:_N_OF_OTHERS],
    ]


def _hash(text: str) -> int:
    return crc32(text.encode())


@cache
def _read_variants() -> Record:
    variants: Record = read_document("sweep_variants")["variants"]
    return variants


def compile_rows(rows: Iterable[Record], python: Path) -> None:
    """Compile the kernels of rows that are not compiled yet.

    python: an interpreter that can import Triton 3.6.0. Raises TableError.
    """
    folder = _find_folder()
    keys = {row["variant"] for row in rows}
    missing = {
        key: _read_variants()[key]["variant"]
        for key in sorted(keys)
        if not (folder / f"{key}.cubin").exists()
    }
    if not missing:
        return
    if not python.exists():
        raise TableError(
            f"{python} is not there: give --triton PYTHON, which imports Triton {TRITON_VERSION}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    job = {
        "folder": str(folder),
        "version": TRITON_VERSION,
        "sources": [str(KERNEL_SOURCES), str(unpack_code() / "sweep")],
        "variants": missing,
    }
    run = subprocess.run(
        [python, _COMPILER], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise TableError(f"Triton failed: {run.stderr[-2000:]}")


def _find_folder() -> Path:
    return CODE / "sweep"


def make_sweep_launches(rows: Iterable[Record]) -> tuple[MeasuredLaunch, ...]:
    """Return the launches of compiled rows."""
    return tuple(_make_launch(row) for row in rows)


def _make_launch(row: Record) -> MeasuredLaunch:
    variant = _read_variants()[row["variant"]]["variant"]
    x, y, z = row["grid"]
    pointers = {name for name, kind, _ in variant["sig"] if kind.startswith("*")}
    return MeasuredLaunch(
        case=row["case_id"],
        family=f"sweep {row['family']}",
        kernel=variant["kernel"],
        shape=find_sweep_shape(row),
        gpu=GPU,
        cubin=_find_folder() / f"{row['variant']}.cubin",
        grid=(x, y, z),
        block=(variant["num_warps"] * _WARP, 1, 1),
        dynamic_shared_bytes=row["smem_dynamic_bytes"],
        arguments=tuple(
            (name, _make_value(row, variant, name, value, name in pointers))
            for name, value, _ in row["params"]
        ),
        warm_us=row["time_us_median"],
        cold_us=None,
        work=row["work"],
    )


def _make_value(
    row: Record, variant: Record, name: str, value: float | None, is_pointer: bool
) -> str | int | float:
    if name.startswith("scratch"):
        return "null"
    if not is_pointer:
        assert value is not None
        return value
    if name not in ("ids_ptr", "exp_ptr"):
        return "ptr"
    work = row["work"]
    key = f"bal_{work['T']}_{work['E']}_{work['topk']}_{variant['constexprs']['BM']}"
    place = 0 if name == "ids_ptr" else 1
    return f"@{write_array(f'{key}:{place}', lambda: make_routing(key)[place])}"
