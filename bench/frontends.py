"""Read whole corpora of PTX and Triton IR: what is refused or unknown, and how fast.

    python bench/frontends.py read /tmp/corpus45 traces      # every .ptx, .ttir and .ttgir below
    python bench/frontends.py speed /tmp/corpus45 --count 40 # time per byte beside ptxas on the same kernels

`read` lists files that are refused, with their message, and unknown operations by name. `speed` takes
kernels for which a PTX file is there, compiles it with ptxas, and reads the PTX and the TTGIR beside
it, each in a fork that has read no kernel before: processor time, the best of three. bench/fuzz.py
reads damaged ones.
"""

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analyzer.frontend.ptx.parser import parse_ptx
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic

SUFFIXES = (".ptx", ".ttir", ".ttgir")
_TARGET = re.compile(r"^\.target\s+(sm_\w+)", re.MULTILINE)


class ReadResult(NamedTuple):
    """What a parser said of one file."""

    diagnostics: tuple[Diagnostic, ...]
    unknown: tuple[tuple[str, int], ...]


def read_file(text: str, path: str) -> ReadResult:
    """Parse a text by the suffix of its name. Raises InputError."""
    if path.endswith(".ptx"):
        _, diagnostics = parse_ptx(text, path)
        return ReadResult(diagnostics, ())
    module, diagnostics = parse_triton_ir(text, path)
    return ReadResult(diagnostics, module.unknown_operations)


def find_files(roots: Sequence[Path]) -> list[Path]:
    """Return all files of the read suffixes below the roots, in order; Triton's cache copies are left out."""
    found = {path for root in roots for path in root.rglob("*") if path.suffix in SUFFIXES}
    return sorted(path for path in found if path.is_file())


def read_all(roots: Sequence[Path]) -> int:
    """Read every file; print refusals, warnings, unknown operations and the speed; return the refusals."""
    counts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    warnings: Counter[str] = Counter()
    seconds: dict[str, float] = defaultdict(float)
    sizes: Counter[str] = Counter()
    n_refused = 0
    for path in find_files(roots):
        text = path.read_text("utf-8", "surrogateescape")
        start = time.perf_counter()
        try:
            result = read_file(text, str(path))
        except Exception as error:
            n_refused += 1
            print(f"REFUSED {path}\n  {type(error).__name__}: {str(error)[:300]}")
            continue
        finally:
            seconds[path.suffix] += time.perf_counter() - start
            sizes[path.suffix] += len(text)
        counts[path.suffix] += 1
        unknown.update(dict(result.unknown))
        warnings.update(one.code for one in result.diagnostics)
    for suffix, n_files in sorted(counts.items()):
        speed = sizes[suffix] / max(seconds[suffix], 1e-9) / 1e6
        print(f"{suffix}: {n_files} files, {sizes[suffix] / 1e6:.1f} MB, {speed:.2f} MB/s")
    print(
        f"refused: {n_refused}; warnings: {dict(warnings) or 'none'};"
        f" unknown operations: {dict(unknown) or 'none'}"
    )
    return n_refused


# ---- speed


def compare_speed(roots: Sequence[Path], count: int, seed: int) -> None:
    """Print the time of ptxas and of both parsers on the same kernels, and the ratios."""
    ptxas = which("ptxas")
    if ptxas is None:
        raise SystemExit("ptxas is not on the PATH")
    files = [path for path in find_files(roots) if path.suffix == ".ptx"]
    random.Random(seed).shuffle(files)
    totals: dict[str, float] = defaultdict(float)
    n_compared = 0
    for path in files:
        if n_compared == count:
            break
        ptxas_s = _time_ptxas(ptxas, path)
        if ptxas_s is None:
            continue
        n_compared += 1
        _add_speed(path, ptxas_s, totals)
    _print_speed(n_compared, totals)


def _add_speed(path: Path, ptxas_s: float, totals: dict[str, float]) -> None:
    text = path.read_text()
    totals["ptxas s"] += ptxas_s
    totals["PTX s"] += _time_parser(text, str(path))
    totals["PTX again s"] += _time_again(text, str(path))
    totals["PTX bytes"] += len(text)
    beside = path.with_suffix(".ttgir")
    if not beside.exists():
        return
    text = beside.read_text()
    totals["TTGIR s"] += _time_parser(text, str(beside))
    totals["TTGIR again s"] += _time_again(text, str(beside))
    totals["TTGIR bytes"] += len(text)
    totals["ptxas beside TTGIR s"] += ptxas_s


def _print_speed(n_compared: int, totals: dict[str, float]) -> None:
    ptxas_us = totals["ptxas s"] / max(totals["PTX bytes"], 1) * 1e6
    print(f"{n_compared} kernels; ptxas {totals['ptxas s']:.2f} s, {ptxas_us:.2f} us per byte of PTX")
    for name in ("PTX", "TTGIR"):
        n_bytes = totals[f"{name} bytes"]
        if not n_bytes:
            continue
        first_us, again_us = (totals[f"{name} {kind}s"] / n_bytes * 1e6 for kind in ("", "again "))
        print(
            f"{name}: {first_us:.2f} us per byte as the first file of a process,"
            f" {first_us / ptxas_us:.2f} of ptxas;"
            f" {again_us:.2f} where the shapes are known, {again_us / ptxas_us:.3f} of ptxas"
        )
    if totals["TTGIR bytes"]:
        share = totals["TTGIR s"] / totals["ptxas beside TTGIR s"]
        print(f"TTGIR as the first file: {share:.2f} of the time of ptxas on the same kernels")


def _time_ptxas(ptxas: str, path: Path) -> float | None:
    """Return the best of three times of ptxas on a file, as processor time; None where it refuses."""
    target = _TARGET.search(path.read_text()[:4096])
    if target is None:
        return None
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        command = [ptxas, f"-arch={target[1]}", str(path), "-o", str(Path(folder, "out.cubin"))]
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, capture_output=True, timeout=120)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                return None
            best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def _time_parser(text: str, path: str) -> float:
    """Return the processor time of reading a text in a process that has read nothing before."""
    return min(_time_in_fork(_time_once, text, path) for _ in range(3))


def _time_again(text: str, path: str) -> float:
    """Return the processor time of reading a text whose shapes are known."""
    return min(_time_in_fork(_time_second, text, path) for _ in range(2))


def _time_once(text: str, path: str) -> float:
    start = time.process_time()
    with suppress(InputError):
        read_file(text, path)
    return time.process_time() - start


def _time_second(text: str, path: str) -> float:
    _time_once(text, path)
    return _time_once(text, path)


def _time_in_fork(measure: Callable[[str, str], float], text: str, path: str) -> float:
    """Measure in a fork, so that this process stays one that has read nothing."""
    reading_end, writing_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing_end, str(measure(text, path)).encode())
        os._exit(0)
    os.close(writing_end)
    with os.fdopen(reading_end) as pipe:
        seconds = float(pipe.read())
    os.waitpid(child, 0)
    return seconds


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="action", required=True)
    for name in ("read", "speed"):
        one = commands.add_parser(name)
        one.add_argument("roots", nargs="+", type=Path)
        one.add_argument("--count", type=int, default=40)
        one.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _iterate_actions(arguments: argparse.Namespace) -> Iterator[int]:
    if arguments.action == "read":
        yield read_all(arguments.roots)
    elif arguments.action == "speed":
        compare_speed(arguments.roots, arguments.count, arguments.seed)
        yield 0


if __name__ == "__main__":
    sys.exit(1 if sum(_iterate_actions(_parse_arguments())) else 0)
