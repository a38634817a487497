"""Compare PTX that is executed abstractly with the SASS that ptxas makes of it, launch by launch.

    python bench/ptx_against_sass.py cuda [--arch 80]     kernels of traces/cuda, compiled here with nvcc
    python bench/ptx_against_sass.py triton FOLDER        PTX and cubins of a folder (kernels.tar.xz of
                                                          traces/h100), with the launches measured there

A row has both counts where they differ: multiply-adds, global bytes loaded and stored, shared bytes,
barriers, transcendental operations; and whether the same sectors and addresses are stored. Unrolled loops
do not show, since work is compared, not instructions.

Where they differ, as far as seen: ptxas joins atomics of a warp on one address (atomic_hotspot); it loads
from shared memory only what a masked store needs (transpositions and narrow products); polls of an mbarrier
depend on the order of warps (pipelined_sums).
"""

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import asdict

from analyzer.demand.launch_work import count_launch_work
from analyzer.frontend.ptx.lowering import read_ptx_module
from analyzer.ir.launch import Argument, Dim3, Launch, NullPointer, Pointer
from analyzer.pipeline import load
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.text.errors import ToolError

ROOT = Path(__file__).resolve().parent.parent
MEASUREMENTS = ROOT / "traces" / "h100" / "measurements.jsonl.xz"
CUDA_NAMES = ("report16", "exactness", "atomics", "generic", "specialized", "pipelines", "textures")
FIELDS = (
    "mma_fma",
    "global_loaded_bytes",
    "global_stored_bytes",
    "shared_bytes",
    "barriers",
    "xu_operations",
)


def compare_kernels(ptx: LoadedKernel, sass: LoadedKernel, launch: Launch) -> dict[str, object]:
    """Execute both; return what differs, and the times."""
    found: dict[str, object] = {"kernel": sass.name, "differs": {}}
    counts, stores = [], []
    for level, loaded in (("ptx", ptx), ("sass", sass)):
        start = time.perf_counter()
        executed = execute_kernel(loaded, launch)
        found[f"{level}_seconds"] = round(time.perf_counter() - start, 3)
        if executed is None:
            found["error"] = f"{level} not executed"
            return found
        profile = executed.profile
        counts.append(asdict(count_launch_work(loaded.cfg, profile)))
        stores.append(summarize_stores(profile.accesses))
        found[f"{level}_provenance"] = profile.provenance.value
        found[f"{level}_instructions"] = profile.count_executed_instructions(
            tuple(len(block) for block in loaded.cfg.blocks)
        )
    found["counts"] = counts
    differs = {name: [each[name] for each in counts] for name in FIELDS if counts[0][name] != counts[1][name]}
    if stores[0] != stores[1]:
        differs["stores"] = stores
    found["differs"] = differs
    return found


def summarize_stores(accesses: object) -> list[object]:
    """Return sectors and distinct bytes of all global stores together."""
    sectors = unique = 0
    bases = set()
    for access in accesses:  # type: ignore[attr-defined]
        if access.is_store and access.space in ("global", "generic"):
            sectors += access.sectors or 0
            unique += access.unique_bytes or 0
            bases.add(access.base_address)
    return [sectors, unique, min((b for b in bases if b is not None), default=0)]


def load_pair(ptx_path: Path, cubin_path: Path, arch: str) -> tuple[list[LoadedKernel], list[LoadedKernel]]:
    """Return the kernels of both forms."""
    from analyzer.pipeline.loaded_program import Program

    virtual = Program(read_ptx_module(ptx_path.read_bytes(), str(ptx_path), arch))
    return list(virtual.kernels), list(load(str(cubin_path)).kernels)


# Kernels of traces/cuda


def list_cuda_pairs(arch: str) -> Iterator[tuple[str, LoadedKernel, LoadedKernel]]:
    """Compile each file of traces/cuda twice; yield kernels by name."""
    with tempfile.TemporaryDirectory() as folder:
        for name in CUDA_NAMES:
            own = arch + "a" if name == "specialized" else arch
            if name == "specialized" and arch != "90":
                continue
            source = ROOT / "traces" / "cuda" / f"{name}.cu"
            for kind in ("ptx", "cubin"):
                output = Path(folder) / f"{name}.{kind}"
                command = ["nvcc", f"-arch=sm_{own}", f"-{kind}", str(source), "-o", str(output)]
                subprocess.run(command, check=True, capture_output=True)
            pair = load_pair(Path(folder) / f"{name}.ptx", Path(folder) / f"{name}.cubin", f"sm_{own}")
            for sass in pair[1]:
                ptx = next((each for each in pair[0] if each.name == sass.name), None)
                if ptx is not None:
                    yield name, ptx, sass


# 64-bit parameters that are numbers: PTX and cubins do not tell them from pointers.
_NUMBERS = {("saxpy_grid_stride", 4): 5000, ("row_sums_64", 2): 700, ("row_sums_64", 3): 33}


def guess_launch(kernel: LoadedKernel) -> Launch:
    """Return a small launch: pointers for pointers, and numbers that make loops run a few times."""
    arguments = []
    for parameter in kernel.kernel.parameters or ():
        value: object = _NUMBERS.get((kernel.name, parameter.ordinal), 100)
        if (kernel.name, parameter.ordinal) in _NUMBERS:
            pass
        elif parameter.size_bytes == 8 and parameter.is_pointer is not False:
            value = Pointer(None)
        elif parameter.size_bytes > 8:
            continue
        arguments.append(Argument(parameter.ordinal, value))  # type: ignore[arg-type]
    threads = kernel.kernel.resources.block_threads or 128
    two_dimensional = any(word in kernel.name for word in ("matmul", "transpose", "conv", "stencil", "2d"))
    block = Dim3(16, 16) if two_dimensional else Dim3(threads)
    return Launch(grid=Dim3(7, 7) if two_dimensional else Dim3(7), block=block,
                  dynamic_shared_bytes=4096, arguments=tuple(arguments))  # fmt: skip


# Triton kernels with measured launches


def list_measured_launches() -> dict[str, dict[str, object]]:
    """Return one launch of each Triton variant: that of the smallest grid."""
    best: dict[str, dict[str, object]] = {}
    with lzma.open(MEASUREMENTS, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            artifact = str(row.get("artifact", ""))
            if row.get("record") != "measurement" or not artifact.startswith("triton/"):
                continue
            key = artifact.removeprefix("triton/")
            if key not in best or _count(row) < _count(best[key]):
                best[key] = row
    return best


def _count(row: dict[str, object]) -> int:
    grid = row["grid"]
    assert isinstance(grid, list)
    return int(grid[0]) * int(grid[1]) * int(grid[2])


def make_measured_launch(row: dict[str, object]) -> Launch:
    """Return the launch of a record."""
    arguments = []
    for ordinal, parameter in enumerate(row["params"]):  # type: ignore[arg-type,var-annotated]
        if parameter["kind"] == "ptr":
            value: object = Pointer(parameter["bytes"]) if parameter["bytes"] else NullPointer()
        else:
            value = parameter["value"]
        arguments.append(Argument(ordinal, value))  # type: ignore[arg-type]
    return Launch(
        grid=Dim3(*row["grid"]),  # type: ignore[misc]
        block=Dim3(*row["block"]),  # type: ignore[misc]
        dynamic_shared_bytes=int(row["smem_dynamic_bytes"]),  # type: ignore[call-overload]
        arguments=tuple(arguments),
    )


def compare_triton(folder: Path, first: int, limit: int) -> Iterator[dict[str, object]]:
    """Compare each variant in a folder."""
    launches = list_measured_launches()
    paths = [path for path in sorted(folder.glob("*.ptx")) if path.stem in launches]
    for path in paths[first : first + limit]:
        row = launches[path.stem]
        try:
            ptx, sass = load_pair(path, path.with_suffix(".cubin"), "sm_90a")
        except ToolError as error:  # a busy machine
            print(f"{path.stem}: {error}", file=sys.stderr)
            continue
        found = compare_kernels(ptx[0], sass[0], make_measured_launch(row))
        yield {"variant": path.stem, "case": row["case_id"], **found}


def main() -> None:
    """Print a line for each kernel, and how many agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cuda", "triton"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--arch", default="80")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--kernel", default="")
    options = parser.parse_args()
    results: Iterator[dict[str, object]]
    if options.what == "cuda":
        results = (
            {"case": name, **compare_kernels(ptx, sass, guess_launch(sass))}
            for name, ptx, sass in list_cuda_pairs(options.arch)
            if options.kernel in sass.name
        )
    else:
        results = compare_triton(options.folder, options.first, options.limit)
    n_same = n_all = 0
    for result in results:
        n_all += 1
        n_same += not result["differs"] and "error" not in result
        print(json.dumps({k: v for k, v in result.items() if k != "counts" or result["differs"]}))
        sys.stdout.flush()
    print(f"{n_same} of {n_all} kernels agree")


if __name__ == "__main__":
    main()
