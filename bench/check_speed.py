"""Measure the cold and the warm analysis of a library of a thousand kernels, as ratios in one run.

    python bench/check_speed.py                  # builds the library with nvcc, in a temporary folder
    python bench/check_speed.py LIBRARY.cubin    # another one
    python bench/check_speed.py --rounds 5 --kernels 1000

Cold: the whole process, reading and disassembling included, on one core (`taskset`), with `-j 1` and with
`-j 2`; with and without an assumed launch, by which kernels are executed. Warm: the processor time of a
hundred unchanged kernels, as one library and as a hundred files, start included. All reports must be equal.
Of several rounds, which alternate, the one with the least wall time (warm: processor time) counts.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from analyzer.frontend.cuda_tools import find_tool, make_tool_environment

ROOT = Path(__file__).resolve().parents[1]
_ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
}
# Analyzes FILES on a GPU, as `check` does: a launch is assumed, and each kernel has limits of its own.
_SCRIPT = """
import sys
from pathlib import Path
from analyzer.pipeline.cached_analysis import analyze_files
from analyzer.pipeline.options import Options
from analyzer.render.json import render_json
jobs, assumes, folder, *files = sys.argv[1:]
options = Options(
    jobs=int(jobs),
    assumes_launch=assumes == "1",
    shares_steps=False,
    cache_folder=Path(folder) if folder else None,
)
sys.stdout.write(render_json(analyze_files(files, "a100", options)))
"""
_TEMPLATE = """
template <int N> __global__ void {name}(const float* x, const float* y, float* z, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  {head}
  for (int k = 0; k < n; k += {step}) {{
    {body}
  }}
  if (i < n) z[i] = a + b;
}}
"""
_HEADS = (
    "float a = N, b = 0;",
    "__shared__ float s[256 + N]; float a = N, b = 1; s[threadIdx.x] = x[i]; __syncthreads();",
    "float a = x[i], b = y[i * N];",
)
_BODIES = (
    "a = a * x[i + k * N] + b; b += y[k];",
    "a += __expf(x[i * N + k]) * y[k]; b = fmaxf(b, a);",
    "for (int u = 0; u < N % 7 + 1; ++u) { a += x[i + u * 32 + k]; b -= y[u]; }",
    "if (x[k] > N) a += sqrtf(y[k + i]); else b += __sinf(y[k]);",
    "a += __shfl_xor_sync(~0u, b, N % 32); b = a * x[k] + N;",
)


@dataclass(frozen=True, slots=True)
class RunCost:
    """Time of one process with its children, and a digest of what it printed."""

    wall_s: float
    processor_s: float
    digest: str


def measure(files: list[Path], *, jobs: int, assumes: bool, cache: Path | None, cores: set[int]) -> RunCost:
    """Run one analysis in a process of its own, on some cores."""
    arguments = [str(jobs), str(int(assumes)), str(cache or ""), *map(str, files)]
    before = os.times()
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments],
        stdout=subprocess.PIPE,
        env=_ENVIRONMENT,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    wall_s = time.perf_counter() - started
    after = os.times()
    processor_s = after.children_user + after.children_system - before.children_user - before.children_system
    return RunCost(wall_s, processor_s, hashlib.sha256(done.stdout).hexdigest()[:12])


def build_library(folder: Path, n_kernels: int) -> Path:
    """Compile a library of so many kernels for sm_80; return its cubin."""
    combinations = [(head, body) for head in _HEADS for body in _BODIES]
    n_sizes = -(-n_kernels // len(combinations))
    source, lines, names = folder / "library.cu", list[str](), list[str]()
    for number, (head, body) in enumerate(combinations):
        name = f"kernel_{number:02d}"
        lines.append(_TEMPLATE.format(name=name, head=head, body=body, step=number % 3 + 1))
        names += [f"{name}<{size + 1}>" for size in range(n_sizes)]
    lines += [
        f"template __global__ void {name}(const float*, const float*, float*, int);"
        for name in names[:n_kernels]
    ]
    source.write_text("\n".join(lines))
    cubin = folder / "library.cubin"
    subprocess.run(["nvcc", "-cubin", "-arch=sm_80", "-o", str(cubin), str(source)], check=True)
    return cubin


def dump_some(cubin: Path, folder: Path, n_kernels: int) -> tuple[Path, list[Path]]:
    """Return the first kernels of a library as one dump, and as one dump each."""
    tool = find_tool("cuobjdump")
    if tool is None:
        raise RuntimeError("cuobjdump is not found")
    run = subprocess.run(
        [tool.path, "-sass", str(cubin)], stdout=subprocess.PIPE, check=True, env=make_tool_environment(tool)
    )
    text = run.stdout.decode()
    head, *functions = text.split("\t\tFunction : ")
    some = functions[:n_kernels]
    together = folder / "some.sass"
    together.write_text("\t\tFunction : ".join([head, *some]))
    each = []
    for number, function in enumerate(some):
        each.append(folder / f"one{number:03d}.sass")
        each[-1].write_text(f"{head}\t\tFunction : {function}")
    return together, each


def measure_cold(library: Path, rounds: int) -> list[tuple[str, str, float, float]]:
    """Return (what, how, wall seconds, ratio to one core) of each way to run. Raises RuntimeError."""
    cores = sorted(os.sched_getaffinity(0))
    ways = {
        "one core, -j 1": (1, {cores[0]}),
        "two cores, -j 1": (1, set(cores[:2])),
        "two cores, -j 2": (2, set(cores[:2])),
    }
    rows = []
    for assumes in (False, True):
        best: dict[str, RunCost] = {}
        for _ in range(rounds):
            for way, (jobs, own) in ways.items():
                cost = measure([library], jobs=jobs, assumes=assumes, cache=None, cores=own)
                if way not in best or cost.wall_s < best[way].wall_s:
                    best[way] = cost
        if len({cost.digest for cost in best.values()}) != 1:
            raise RuntimeError("the reports differ")
        what = "launch assumed" if assumes else "no launch"
        first = next(iter(best.values())).wall_s
        rows += [(what, way, cost.wall_s, first / cost.wall_s) for way, cost in best.items()]
    return rows


def measure_warm(
    together: Path, each: list[Path], folder: Path, rounds: int
) -> list[tuple[str, float, float]]:
    """Return (what, processor seconds cold, warm) of unchanged kernels. Raises RuntimeError."""
    rows = []
    for name, files in (("one library", [together]), ("one file each", each)):
        cores = set(os.sched_getaffinity(0))
        cache = folder / f"cache of {name}"
        shutil.rmtree(cache, ignore_errors=True)
        cold = measure(files, jobs=1, assumes=True, cache=cache, cores=cores)
        warm = [measure(files, jobs=2, assumes=True, cache=cache, cores=cores) for _ in range(rounds)]
        if {cold.digest} != {cost.digest for cost in warm}:
            raise RuntimeError("the reports differ")
        rows.append((name, cold.processor_s, min(cost.processor_s for cost in warm)))
    return rows


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", nargs="?", type=Path)
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=["all", "cold", "warm"], default="all")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="warplens-") as name:
        folder = Path(name)
        library = arguments.library or build_library(folder, arguments.kernels)
        if arguments.part != "warm":
            table = Table("cold analysis", "how", "wall s", "times one core", title=str(library.name))
            for what, way, wall_s, ratio in measure_cold(library, arguments.rounds):
                table.add_row(what, way, f"{wall_s:.2f}", f"{ratio:.2f}")
            console.print(table)
        if arguments.part != "cold":
            table = Table("100 unchanged kernels", "cold, processor s", "warm, processor s", "share")
            for what, cold_s, warm_s in measure_warm(
                *dump_some(library, folder, 100), folder, arguments.rounds
            ):
                table.add_row(what, f"{cold_s:.2f}", f"{warm_s:.2f}", f"{warm_s / cold_s:.1%}")
            console.print(table)


if __name__ == "__main__":
    main()
