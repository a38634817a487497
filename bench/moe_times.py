"""List the best launches of a fused-MoE kernel that published lists name, as rows of bench/suites.py.

The lists (PipeWeave's, shared/data/pipeweave/moe_tuning) name the fastest configurations of 288 shapes on
A100, A40 and H800. The kernel is this project's own (analyzer/tuning/triton_kernels), compiled by Triton
with no GPU. Routing is balanced; the grid is cut to the tiles that have work.

    python bench/moe_times.py A40 [--count 20]     # compile what is missing; needs Triton

How shapes map to arguments: bench/analyzed_time.py.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
import pyarrow.parquet as parquet
from analyzed_time import list_balanced_slots
from kernels.compiling import BUILT
from kernels.recipes import ROOT
from numpy.typing import NDArray

from analyzer.tuning.fact_extraction import Code
from analyzer.tuning.fused_moe_space import CONFIG_COLUMNS, MoeShape

LISTS = ROOT.parent / "shared" / "data" / "pipeweave" / "moe_tuning"
CUBINS = BUILT / "moe"
DEVICES = {"a100-80gb-sxm": ("A100-80GB_SXM", 80), "a40": ("A40", 86), "h800-sxm": ("H800", 90)}
_TRITON = Path("/tmp/c1e39/bin/python")
_SHAPE = ("M", "E", "topk", "H", "N")


class BestLaunch(msgspec.Struct, frozen=True):
    """The fastest configuration of a shape on a GPU."""

    gpu: str
    arch: int
    shape: MoeShape
    config: tuple[int, ...]  # as `CONFIG_COLUMNS`
    time_us: float

    @property
    def code(self) -> Code:
        """What decides its code."""
        rows, columns, depth, _, warps, stages = self.config
        return (rows, columns, depth, warps, stages)

    @property
    def cubin(self) -> Path:
        """Where its code lies once compiled, with a `.json` of its bytes of shared memory beside it."""
        rows, columns, depth, warps, stages = self.code
        return CUBINS / f"sm_{self.arch}" / f"{rows}x{columns}x{depth}_w{warps}_s{stages}.cubin"

    @property
    def case(self) -> str:
        """Its name: shape and configuration."""
        return "x".join(map(str, msgspec.structs.astuple(self.shape))) + "/" + "x".join(map(str, self.config))


def list_rows(count: int | None) -> Iterator[Mapping[str, object]]:
    """Yield rows of a table of `warplens validate`: so many of each GPU that are compiled, by a hash."""
    for gpu in DEVICES:
        launches = select_launches(gpu, count)
        compile_missing(launches)
        yield from (_make_row(launch) for launch in launches if launch.cubin.exists())


@cache
def read_best(gpu: str) -> tuple[BestLaunch, ...]:
    """Return the fastest launch of each shape of the lists of a GPU."""
    name, arch = DEVICES[gpu]
    best: dict[MoeShape, BestLaunch] = {}
    for record in parquet.read_table(LISTS / f"best_three_{name}.parquet").to_pylist():
        shape = MoeShape(*(record[column] for column in _SHAPE))
        config = tuple(record[column] for column in CONFIG_COLUMNS)
        launch = BestLaunch(gpu, arch, shape, config, record["time_us"])
        if shape not in best or launch.time_us < best[shape].time_us:
            best[shape] = launch
    return tuple(best.values())


def select_launches(gpu: str, count: int | None) -> Sequence[BestLaunch]:
    """Return so many launches of a GPU, chosen by a hash of their names; all where None."""
    return sorted(read_best(gpu), key=lambda launch: crc32(launch.case.encode()))[:count]


def compile_missing(launches: Sequence[BestLaunch]) -> None:
    """Compile, in a Python that has Triton, the codes that are not there; none where there is none."""
    missing = {(launch.arch, launch.code) for launch in launches if not launch.cubin.exists()}
    for arch in sorted({arch for arch, _ in missing}) if _TRITON.exists() else ():
        codes = sorted(code for of_arch, code in missing if of_arch == arch)
        command = [str(_TRITON), __file__, "--compile", json.dumps([arch, codes])]
        subprocess.run(command, check=True, cwd=ROOT)


def _compile(arch: int, codes: Sequence[Code]) -> None:
    from analyzer.tuning.triton_compilation import compile_codes

    for code, compiled in compile_codes(
        [(a, b, c, d, e) for a, b, c, d, e in codes], arch, "bf16", 1
    ).items():
        path = BestLaunch("", arch, MoeShape(1, 1, 1, 1, 1), (*code[:3], 1, *code[3:]), 0.0).cubin
        if compiled.cubin:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".json").write_text(json.dumps({"shared": compiled.shared_bytes}))
            path.write_bytes(compiled.cubin)


def _make_row(launch: BestLaunch) -> Mapping[str, object]:
    tile_rows, tile_columns, _, _, warps, _ = launch.config
    slots, experts = list_balanced_slots(launch.shape, tile_rows)
    width, depth = launch.shape.output_width, launch.shape.hidden
    arrays = tuple(np.asarray(one, dtype=np.int32) for one in (slots, experts, [len(slots)]))
    return {
        "case": launch.case,
        "suite": "moe",
        "dump": str(launch.cubin),
        "kernel": "fused_moe",
        "gpu": launch.gpu,
        "grid": len(experts) * -(-width // tile_columns),
        "block": 32 * warps,
        "dynamic_shared_bytes": json.loads(launch.cubin.with_suffix(".json").read_text())["shared"],
        "arguments": json.dumps(
            [
                *("ptr", "ptr", "ptr", *(f"@{_keep(array)}" for array in arrays)),
                *(width, depth, launch.shape.n_slots, depth, width * depth, depth, width),
            ]
        ),
        "time_us": launch.time_us,
        "timing": "kernel",
    }


def _keep(array: NDArray[np.int32]) -> Path:
    """Write an array by its contents and return its path."""
    path = CUBINS / "arrays" / f"{hashlib.sha256(array.tobytes()).hexdigest()[:16]}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    return path


def main() -> None:
    """Compile what a sample needs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int)
    parser.add_argument("--compile", metavar="JSON", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compile:
        arch, codes = json.loads(given.compile)
        _compile(arch, codes)
        return
    print(f"{len(list(list_rows(given.count)))} launches", file=sys.stderr)


if __name__ == "__main__":
    main()
