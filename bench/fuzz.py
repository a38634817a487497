"""Run warplens on changed and damaged inputs of every kind, and report what it must never do.

    python bench/fuzz.py --count 50000 --seed 1                        # all kinds in turn
    python bench/fuzz.py --kind 'ptx*' --count 500 --keep /tmp/found   # keeps the smallest case of each fault

Faults: a traceback or an internal error; an exit code that docs/exit-codes.md does not have; more than 20 s
of processor time, 300 s in all, or 1 GiB of memory; a control character in an output; JSON that is none; an
input that is overwritten, a file that nobody asked for; success in silence where half of the code is gone.

Case N of a kind and seed is always the same: `--kind KIND --first N --count 1` repeats it. Each case runs in
a fork of a process that has loaded all modules, in a folder of its own. An input got past its parser where
the exit code is 0 or 1.
"""

import argparse
import json
import os
import pkgutil
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from fuzz_inputs import KINDS, Case, list_seeds, make_case

import analyzer
from analyzer.cli.app import main as run_command_line

EXIT_CODES = frozenset({0, 1, 2})  # 130 is for an interrupt
MAX_PROCESSOR_S = 20
MAX_WALL_S = 300  # of a machine that others keep busy
MAX_MEMORY_KIB = 1 << 20
MAX_ADDRESS_BYTES = 6 << 30
_BATCH = 20
T = TypeVar("T", bytes, str)
_MAX_SHRINKING_RUNS = 120


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one case did."""

    number: int
    case: Case
    faults: tuple[str, ...]
    exit_code: int
    processor_s: float
    memory_kib: int


def run_case(case: Case) -> Outcome:
    """Run a case in a fork of this process, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="warplens-fuzz-") as top:
        root = Path(top, "a")
        folder = root / "work"
        for place in (folder, root / "tmp", root / "home"):
            place.mkdir(parents=True)
        for name, data in case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        inherited_kib = _count_resident_kib()  # what a fork begins with is not the command's
        child = os.fork()
        if not child:
            _run_in_child(case, root)
        status, usage = _wait_for(child)
        processor_s, memory_kib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss - inherited_kib
        outcome = Outcome(0, case, (), status, processor_s, memory_kib)
        return replace(outcome, faults=tuple(_find_faults(Path(top), outcome)))


def _count_resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 10


def _run_in_child(case: Case, root: Path) -> None:
    """Run the command line as the console script does, with limits; does not return."""
    code = 70
    try:
        os.setsid()
        os.chdir(root / "work")
        tempfile.tempdir = None
        places = {"HOME": "home", "XDG_CACHE_HOME": "home", "XDG_CONFIG_HOME": "home", "TMPDIR": "tmp"}
        os.environ.update({name: str(root / place) for name, place in places.items()})
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_PROCESSOR_S + 5, MAX_PROCESSOR_S + 10))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))
        flags = os.O_WRONLY | os.O_CREAT
        for descriptor, path, flag in (
            (0, os.devnull, os.O_RDONLY),
            (1, "../.out", flags),
            (2, "../.err", flags),
        ):
            os.dup2(os.open(path, flag, 0o600), descriptor)
        sys.stdin = os.fdopen(0, encoding="utf-8")
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")
        sys.argv = ["warplens", *case.arguments]
        run_command_line()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 71
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _wait_for(child: int) -> tuple[int, resource.struct_rusage]:
    """Return exit code (negative: the signal) and use of a child, which is killed after `MAX_WALL_S`."""
    deadline = time.monotonic() + MAX_WALL_S
    pause_s = 0.002
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(pause_s)
        pause_s = min(0.05, pause_s * 1.3)


def _find_faults(top: Path, outcome: Outcome) -> Iterator[str]:
    """Yield the faults of a case that has run, each as a text that is the same for the same fault."""
    case, status = outcome.case, outcome.exit_code
    out, err = ((top / "a" / name).read_bytes().decode("utf-8", "replace") for name in (".out", ".err"))
    if "Traceback (most recent" in err or "error: internal error" in err:
        yield f"internal error: {_summarize(err)}"
    if outcome.processor_s > MAX_PROCESSOR_S or status < 0:
        yield f"too slow, or killed: status {status}"
    elif status not in EXIT_CODES:
        yield f"exit code {status}"
    if (
        status == 2
        and "error: " not in err
        and "Usage:" not in out + err
        and "--strict" not in case.arguments
    ):
        yield "code 2 without a message"
    if outcome.memory_kib > MAX_MEMORY_KIB:
        yield "memory"
    yield from _find_faulty_texts(out, err, case)
    yield from _find_faulty_files(top, case)
    if case.change == "half" and status == 0 and is_silent(out):
        yield "half of the code is gone, in silence"


def _summarize(err: str) -> str:
    """Return the last place in our sources, and the error."""
    places = re.findall(r'File "[^"]*?/(analyzer/[^"]+)", line (\d+)', err)
    last = next(
        (line for line in reversed(err.splitlines()) if re.match(r"\w+(?:Error|Exception)\b", line)), ""
    )
    return f"{':'.join(places[-1]) if places else '?'} {last[:100]}"


def _find_faulty_texts(out: str, err: str, case: Case) -> Iterator[str]:
    if any(map(is_control, out)):
        yield "control character in the output"
    if any(map(is_control, err)):
        yield "control character in a message"
    if (
        out
        and "-o" not in case.arguments
        and "--format json" in " ".join(case.arguments)
        and not is_json(out)
    ):
        yield "no JSON"


def _find_faulty_files(top: Path, case: Case) -> Iterator[str]:
    """Yield what is wrong with the files after a run."""
    folder = top / "a" / "work"
    named = [*case.arguments, *(word.partition("=")[2] for word in case.arguments)]
    outputs = {Path(os.path.normpath(folder / word)) for word in named if word and "\0" not in word}
    outputs |= {folder / "warplens-baseline.json", folder / "warplens-baseline", top / "a" / "home"}
    outputs |= {top / "a" / name for name in (".out", ".err")}
    inputs = {folder / name: data for name, data in case.files.items()}
    for path in (path for path in top.rglob("*") if path.is_file() or path.is_symlink()):
        if path in inputs:
            if not outputs & {path, *path.parents} and path.read_bytes() != inputs[path]:
                yield "an input is overwritten"
        elif not outputs & {path, *path.parents}:
            yield f"a file is left: {path.relative_to(top).parts[1]}"


def is_control(character: str) -> bool:
    """Return whether a character would steer a terminal."""
    return character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")


def is_silent(text: str) -> bool:
    """Return whether a report, as JSON, says of nothing that it is missing."""
    return not any(kernel["missing_code"] for kernel in json.loads(text)["kernels"])


def is_json(text: str) -> bool:
    """Return whether a text is JSON."""
    try:
        json.loads(text, parse_constant=_refuse_constant)  # NaN and Infinity are none of JSON's
    except ValueError:
        return False
    return True


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def minimise(case: Case, fault: str) -> Case:
    """Return a case with as little of its first file, and then of its command line, as the fault needs."""
    name = next(iter(case.files))
    runs = iter(range(_MAX_SHRINKING_RUNS))

    def has_fault(other: Case) -> bool:
        return next(runs, None) is not None and fault in run_case(other).faults

    def with_lines(lines: list[bytes]) -> Case:
        return replace(case, files={**case.files, name: b"".join(lines)})

    case = with_lines(
        _drop_parts(case.files[name].splitlines(keepends=True), lambda ls: has_fault(with_lines(ls)))
    )
    words = _drop_parts([*case.arguments], lambda ws: has_fault(replace(case, arguments=tuple(ws))))
    return replace(case, arguments=tuple(words))


def _drop_parts(parts: list[T], is_enough: Callable[[list[T]], bool]) -> list[T]:
    """Return what remains of a list where ever smaller runs of it are dropped as long as it is enough."""
    size = len(parts) // 2
    while size:
        at = 0
        while at < len(parts):
            shorter = parts[:at] + parts[at + size :]
            if is_enough(shorter):
                parts = shorter
            else:
                at += size
        size //= 2
    return parts


def prepare_worker() -> None:
    """Load all that commands load, so that forks start at once."""
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", WARPLENS_TRACEBACK="1", COLUMNS="120")
    for module in pkgutil.walk_packages(analyzer.__path__, "analyzer."):
        with suppress(ImportError):  # of an extra that is not installed
            import_module(module.name)  # all, so that sources may be edited meanwhile
    for kind in KINDS:
        list_seeds(kind)


def run_batch(kind: str, numbers: range, seed: int) -> list[Outcome]:
    """Run cases of a kind one after another; only those with faults keep their files."""
    outcomes = [replace(run_case(make_case(kind, f"{seed}:{n}")), number=n) for n in numbers]
    return [each if each.faults else replace(each, case=replace(each.case, files={})) for each in outcomes]


def run_all(options: argparse.Namespace) -> Iterator[Outcome]:
    """Yield the outcomes of all cases, as they come, with the progress on standard error."""
    kinds = [kind for kind in KINDS if fnmatchcase(kind, options.kind)]
    stop = options.first + -(-options.count // max(1, len(kinds)))
    start = time.monotonic()
    done = 0
    with ProcessPoolExecutor(options.jobs, get_context("fork"), prepare_worker) as pool:
        futures = [
            pool.submit(run_batch, kind, range(at, min(at + _BATCH, stop)), options.seed)
            for at in range(options.first, stop, _BATCH)
            for kind in kinds
        ]
        for future in as_completed(futures):
            yield from future.result()
            done += len(future.result())
            rate = done / (time.monotonic() - start)
            print(f"{done:,} cases, {rate:.1f} each second", end="\r", file=sys.stderr, flush=True)


def keep_smallest(outcome: Outcome, fault: str, folder: Path) -> Path:
    """Write the files of the smallest case with a fault and its command line; return their folder."""
    case = minimise(outcome.case, fault)
    place = folder / f"{case.kind}-{outcome.number}"
    for name, data in case.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    command = shlex.join(["warplens", *case.arguments])
    (place / "fault.txt").write_text(f"{fault}\n{command}\n", "utf-8", "backslashreplace")
    return place


def main() -> int:
    """Run the cases; return 1 if any has a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="cases, of all kinds together")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="*", metavar="GLOB", help="of " + ", ".join(KINDS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", type=Path, help="folder for the smallest case of each fault")
    options = parser.parse_args()
    faults: Counter[tuple[str, str]] = Counter()
    outcomes: list[Outcome] = []
    for outcome in run_all(options):
        outcomes.append(outcome)
        for fault in outcome.faults:
            faults[outcome.case.kind, fault] += 1
            if faults[outcome.case.kind, fault] == 1:
                report_fault(outcome, fault, options.keep)
    print_summary(outcomes, faults)
    return int(bool(faults))


def report_fault(outcome: Outcome, fault: str, keep: Path | None) -> None:
    """Print a fault and how to repeat it; keep its smallest case if asked."""
    words = shlex.join(outcome.case.arguments)
    text = f"{outcome.case.kind} {outcome.number}: {fault}: {words}"
    print(text.encode("ascii", "backslashreplace").decode()[:300], flush=True)
    if keep is not None:
        print(f"    kept in {keep_smallest(outcome, fault, keep)}", flush=True)


def print_summary(outcomes: list[Outcome], faults: Mapping[tuple[str, str], int]) -> None:
    """Print how many inputs of each kind got past the parser, and the faults with their number."""
    for kind in sorted({outcome.case.kind for outcome in outcomes}):
        own = [outcome for outcome in outcomes if outcome.case.kind == kind]
        past = sum(outcome.exit_code in (0, 1) for outcome in own)
        mean_s = sum(outcome.processor_s for outcome in own) / len(own)
        print(f"{kind:22} {len(own):6,} cases, past the parser {past / len(own):4.0%}, {mean_s:.2f} s each")
    for (kind, fault), count in sorted(faults.items()):
        print(f"{count:6,} x {kind}: {fault}".encode("ascii", "backslashreplace").decode())
    past = sum(outcome.exit_code in (0, 1) for outcome in outcomes)
    peak_kib = max((outcome.memory_kib for outcome in outcomes), default=0)
    longest_s = max((outcome.processor_s for outcome in outcomes), default=0.0)
    print(
        f"{len(outcomes):,} cases, {past / max(1, len(outcomes)):.0%} past the parser, "
        f"{sum(faults.values()):,} faults; "
        f"most memory {peak_kib >> 10:,} MiB, most processor time {longest_s:.1f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
