"""Time to analyze a cache of Triton, statically: 1,000 kernels in under 30 s on two cores.

    python bench/triton_cache.py [--kernels 1000] [--cache ~/.triton/cache] [--jobs 2]

The kernels are those of the cache given; where it has fewer, their folders are copied under other names, and
the copies are read and analyzed like any other, but nvdisasm prints an instruction that recurs once. Prints
the time of the whole command, and the processor time of this program and of nvdisasm.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from analyzer.frontend.input_folder import list_kernels

_MAX_S = 30.0


def make_cache(source: Path, target: Path, n_kernels: int) -> int:
    """Copy kernels of a cache, again and again, until there are `n_kernels`; return how many are distinct."""
    with_code, _ = list_kernels(str(source))
    for number in range(n_kernels):
        kernel = with_code[number % len(with_code)]
        folder = target / f"{number:05d}{Path(kernel.stem).parent.name[5:]}"
        folder.mkdir()
        for path in kernel.levels.values():
            shutil.copy(path, folder)
    return min(n_kernels, len(with_code))


def time_command(folder: Path, gpu: str, jobs: int) -> tuple[float, float]:
    """Return the wall time and the processor time, in seconds, of `warplens analyze FOLDER`."""
    command = [sys.executable, "-m", "analyzer", "analyze", str(folder), "-g", gpu, "--jobs", str(jobs)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    with (folder.parent / "report.txt").open("wb") as output:
        subprocess.run(command, stdout=output, check=True)
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, used_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the times; return 1 where they are longer than they may be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".triton" / "cache")
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="warplens-bench-") as temporary:
        folder = Path(temporary) / "cache"
        folder.mkdir()
        n_distinct = make_cache(options.cache, folder, options.kernels)
        wall_s, used_s = time_command(folder, options.gpu, options.jobs)
        first_line = (folder.parent / "report.txt").read_text().splitlines()[0]
    print(first_line)
    print(
        f"{options.kernels:,} kernels, {n_distinct:,} of them distinct, {options.jobs} jobs on "
        f"{len(os.sched_getaffinity(0))} cores: {wall_s:.1f} s, {used_s:.1f} s of processor time "
        f"({1000 * used_s / options.kernels:.0f} ms per kernel); at most {_MAX_S:.0f} s"
    )
    return int(wall_s > _MAX_S)


if __name__ == "__main__":
    sys.exit(main())
