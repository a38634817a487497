"""Read whole corpora of PTX and Triton IR: what is refused or unknown, how fast, and what damaged files do.

    python bench/frontends.py read /tmp/corpus45 traces      # every .ptx, .ttir and .ttgir below
    python bench/frontends.py speed /tmp/corpus45 --count 40 # time per byte beside ptxas on the same kernels
    python bench/frontends.py fuzz /tmp/corpus45 --count 300 --mutants 20 --seed 1

`read` lists files that are refused, with their message, and unknown operations by name. `speed` takes
kernels for which a PTX file is there, compiles it with ptxas, and reads the PTX and the TTGIR beside
it, each in a fork that has read no kernel before: processor time, the best of three. `fuzz` reads
mutants of files (bytes flipped, lines deleted, doubled or swapped, tokens swapped, the end cut off): a
parser may refuse with an `InputError`, nothing else, and must be done in the time limit. `--command`
starts `warplens analyze` on each mutant and looks at its exit code. Mutant N of a file and a seed is
always the same.
"""

import argparse
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which
from types import FrameType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analyzer.frontend.ptx.parser import parse_ptx
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic

SUFFIXES = (".ptx", ".ttir", ".ttgir")
EXIT_CODES = frozenset({0, 1, 2})
_TARGET = re.compile(r"^\.target\s+(sm_\w+)", re.MULTILINE)
_TOKEN = re.compile(r"[%@#!]?[\w.$]+")


class ReadResult(NamedTuple):
    """What a parser said of one file."""

    diagnostics: tuple[Diagnostic, ...]
    unknown: tuple[tuple[str, int], ...]


class Deadline(Exception):
    """A file took longer than the limit."""


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


# ---- damaged files


def _flip_bytes(text: str, chance: random.Random) -> str:
    characters = list(text)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(len(characters))
        characters[place] = chr(ord(characters[place]) ^ (1 << chance.randrange(7)))
    return "".join(characters)


def _change_lines(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(lines))
        action = chance.randrange(4)
        if action == 0:
            del lines[place : place + chance.choice((1, 1, 3, 20))]
        elif action == 1:
            lines.insert(chance.randrange(len(lines) + 1), lines[place])
        elif action == 2:
            other = chance.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        else:
            lines[place] = lines[place][: chance.randrange(len(lines[place]) + 1)]
        lines = lines or [""]
    return "\n".join(lines)


def _swap_tokens(text: str, chance: random.Random) -> str:
    tokens = list(_TOKEN.finditer(text))
    if len(tokens) < 2:
        return text
    for _ in range(chance.choice((1, 2, 4))):
        first, second = sorted(chance.sample(tokens, 2), key=lambda token: token.start())
        if first.end() > second.start():
            continue
        middle = text[first.end() : second.start()]
        text = text[: first.start()] + second[0] + middle + first[0] + text[second.end() :]
    return text


def _insert_odd(text: str, chance: random.Random) -> str:
    odd = (
        "{" * 3000,
        "}" * 50,
        "(" * 3000,
        "<" * 3000,
        "9" * 5000,
        "\0",
        "\r\n",
        "%",
        "A" * 100_000,
        '"',
        "/*",
    )
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice(odd) + text[place:]


def _cut_off(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text) + 1)]


MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    *(_flip_bytes, _change_lines, _swap_tokens, _insert_odd, _cut_off),
)


def make_mutant(text: str, seed: str) -> str:
    """Return a damaged text; the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        text = chance.choice(MUTATIONS)(text, chance) or "\n"
    return text


def fuzz(roots: Sequence[Path], options: argparse.Namespace) -> int:
    """Read mutants of files; print each failure and write its input; return how many there are."""
    files = [path for path in find_files(roots) if path.stat().st_size <= options.max_bytes]
    random.Random(options.seed).shuffle(files)
    outcomes: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    end = time.monotonic() + options.seconds
    for path in files[: options.count]:
        text = path.read_text("utf-8", "surrogateescape")
        for number in range(options.mutants):
            if time.monotonic() > end:
                break
            mutant = make_mutant(text, f"{options.seed}/{path.name}/{len(text)}/{number}")
            outcome, where = _try_mutant(mutant, path.name, options)
            outcomes[outcome] += 1
            if where:
                failures[where] += 1
                if failures[where] == 1:
                    kept = options.keep / f"{outcomes.total()}-{path.name}"
                    options.keep.mkdir(parents=True, exist_ok=True)
                    kept.write_text(mutant, "utf-8", "surrogateescape")
                    print(f"FAILURE {path} mutant {number}: {where}\n  kept as {kept}", flush=True)
    print(f"mutants: {dict(outcomes)}; distinct failures: {len(failures)}")
    for where, number in failures.most_common():
        print(f"  {number} x {where}")
    return failures.total()


def _try_mutant(mutant: str, name: str, options: argparse.Namespace) -> tuple[str, str]:
    """Return the outcome by name, and where it failed, "" if it did not."""
    if options.command:
        return _try_command(mutant, name, options.limit)
    signal.signal(signal.SIGALRM, _raise_deadline)
    signal.setitimer(signal.ITIMER_REAL, options.limit)
    try:
        result = read_file(mutant, name)
    except InputError as error:
        return "refused", "" if str(error).strip() else "empty message"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        detail = "" if isinstance(error, Deadline) else f": {str(error)[:80]}"
        return "failed", f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}{detail}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ("warned" if result.diagnostics else "read"), ""


def _raise_deadline(number: int, frame: FrameType | None) -> None:
    raise Deadline("time limit")


def _try_command(mutant: str, name: str, limit: float) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(mutant, "utf-8", "surrogateescape")
        command = [
            sys.executable,
            "-m",
            "analyzer",
            "analyze",
            str(path),
            "--gpu",
            "h100",
            "--format",
            "json",
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=limit, cwd=Path(__file__).parents[1])
        except subprocess.TimeoutExpired:
            return "hung", "no end in the time limit"
    error = done.stderr.decode("utf-8", "replace")
    if "Traceback" in error or "internal error" in error:
        return "crashed", next((line for line in reversed(error.splitlines()) if line.strip()), "")[:160]
    return f"exit {done.returncode}", "" if done.returncode in EXIT_CODES else f"exit code {done.returncode}"


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="action", required=True)
    for name in ("read", "speed", "fuzz"):
        one = commands.add_parser(name)
        one.add_argument("roots", nargs="+", type=Path)
        one.add_argument("--count", type=int, default=40)
        one.add_argument("--seed", type=int, default=1)
        if name == "fuzz":
            one.add_argument("--mutants", type=int, default=10, help="of each file")
            one.add_argument("--limit", type=float, default=10.0, help="seconds for one mutant")
            one.add_argument("--seconds", type=float, default=240.0, help="for all")
            one.add_argument("--max-bytes", type=int, default=200_000)
            one.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir(), "frontends-found"))
            one.add_argument("--command", action="store_true")
    return parser.parse_args()


def _iterate_actions(arguments: argparse.Namespace) -> Iterator[int]:
    if arguments.action == "read":
        yield read_all(arguments.roots)
    elif arguments.action == "speed":
        compare_speed(arguments.roots, arguments.count, arguments.seed)
        yield 0
    else:
        yield fuzz(arguments.roots, arguments)


if __name__ == "__main__":
    sys.exit(1 if sum(_iterate_actions(_parse_arguments())) else 0)
