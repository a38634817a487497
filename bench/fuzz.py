"""Run warplens on damaged inputs and odd command lines, and report what it must never do.

    python bench/fuzz.py --count 20000 --seed 1                # all kinds in turn
    python bench/fuzz.py --kinds dump,trace --keep /tmp/found  # the files of each failure

Faults: a traceback or an internal error; an exit code that docs/exit-codes.md does not have; more than 20 s
of processor time, or 90 s in all; more than 1 GB of memory; a control character on the terminal; JSON that is
none; an unfinished file left behind. Case N of a seed is always the same: `--first N --count 1` repeats it.

Each case runs in a fork of a worker that has loaded all modules, in a folder of its own.
"""

import argparse
import json
import os
import pkgutil
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from fuzz_inputs import KINDS, Case, Mutator, load_kernels

import analyzer

EXIT_CODES = frozenset({0, 1, 2})  # 130 is for an interrupt
MAX_PROCESSOR_S = 20
MAX_WALL_S = 90
MAX_MEMORY_KIB = 1_000_000
MAX_ADDRESS_BYTES = 6 << 30
_BATCH = 25


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one case did."""

    number: int
    kind: str
    arguments: tuple[str, ...]
    faults: tuple[str, ...]
    exit_code: int
    processor_s: float
    memory_kib: int
    message: str


def find_faults(folder: Path, case: Case, status: int, usage: resource.struct_rusage) -> Iterator[str]:
    """Yield the faults of a case that has run in a folder."""
    out, err = ((folder / name).read_bytes().decode("utf-8", "replace") for name in (".out", ".err"))
    if "Traceback (most recent" in err or "internal error" in err:
        yield "traceback"
    processor_s = usage.ru_utime + usage.ru_stime
    if processor_s > MAX_PROCESSOR_S or status < 0:
        yield f"hang or kill: {processor_s:.0f} s, status {status}"
    elif status not in EXIT_CODES:
        yield f"exit code {status}"
    if status == 2 and "error: " not in err and "Usage:" not in out + err:
        yield "code 2 without a message"
    if usage.ru_maxrss > MAX_MEMORY_KIB:
        yield f"memory {usage.ru_maxrss >> 10} MiB"
    if any(map(is_control, out + err)):
        yield "control character"
    if status == 0 and out.startswith("{") and not is_json(out):
        yield "no JSON"
    if list(folder.rglob("*.part")):
        yield "unfinished file"


def is_control(character: str) -> bool:
    """Return whether a character would steer a terminal."""
    return character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")


def is_json(text: str) -> bool:
    """Return whether a text is JSON."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def run_case(number: int, seed: int, kinds: tuple[str, ...], keep: Path | None) -> Outcome:
    """Run one case in a fork of this process."""
    kind = kinds[number % len(kinds)]
    case = Mutator(f"{seed}:{number}").make_case(kind)
    folder = Path(tempfile.mkdtemp(prefix="warplens-fuzz-"))
    try:
        for name, data in case.files.items():
            (folder / name).write_bytes(data)
        child = os.fork()
        if not child:
            run_in_child(case, folder)
        status, usage = wait_for(child)
        faults = tuple(find_faults(folder, case, status, usage))
        message = (folder / ".err").read_text("utf-8", "surrogateescape").strip() if faults else ""
        if faults and keep is not None:
            shutil.copytree(folder, keep / f"{kind}-{number}", dirs_exist_ok=True, symlinks=True)
        processor_s = usage.ru_utime + usage.ru_stime
        return Outcome(number, kind, case.arguments, faults, status, processor_s, usage.ru_maxrss, message)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in_child(case: Case, folder: Path) -> None:
    """Run the command line as the console script does, with limits; does not return."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_PROCESSOR_S + 10, MAX_PROCESSOR_S + 20))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))
        for descriptor, name, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, ".out", os.O_WRONLY | os.O_CREAT),
            (2, ".err", os.O_WRONLY | os.O_CREAT),
        ):
            os.dup2(os.open(name, flags, 0o600), descriptor)
        sys.argv = ["warplens", *case.arguments]
        from analyzer.cli.app import main

        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 71
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def wait_for(child: int) -> tuple[int, resource.struct_rusage]:
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


def prepare_worker() -> None:
    """Load all that commands load, so that forks start at once."""
    os.environ.update(OPENBLAS_NUM_THREADS="1", WARPLENS_TRACEBACK="1", COLUMNS="120")
    os.environ["XDG_CACHE_HOME"] = os.environ["XDG_CONFIG_HOME"] = (
        tempfile.gettempdir() + "/warplens-fuzz-none"
    )
    for module in pkgutil.walk_packages(analyzer.__path__, "analyzer."):
        import_module(module.name)  # all, so that sources may be edited meanwhile
    from analyzer.cli.app import run

    folder = Path(tempfile.mkdtemp(prefix="warplens-fuzz-"))
    dump = folder / "k.sass"
    dump.write_bytes(load_kernels()[0][1])
    (folder / "t.csv").write_text("dump,gpu,grid,block,time_us\nk.sass,a100,4,64,5\n")
    launch = ["--grid", "2", "--block", "64", "--arg", "0=ptr"]
    with open(os.devnull, "w") as null:
        streams = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = null
        try:
            run(["analyze", str(dump), "-m", "all", "--all", "-g", "a100", *launch])
            run(["whatif", str(dump), "-g", "a100", "--no-elasticity", "--sweep", "sm.count=10,20"])
            run(["trace", str(dump), *launch])
            run(["validate", str(folder / "t.csv"), "-m", "roofline", "--no-cache"])
            run(["gpus"])
        finally:
            sys.stdout, sys.stderr = streams
    shutil.rmtree(folder)


def run_batch(numbers: range, seed: int, kinds: tuple[str, ...], keep: Path | None) -> list[Outcome]:
    """Run cases one after another."""
    return [run_case(number, seed, kinds, keep) for number in numbers]


def main() -> int:
    """Run the cases; return 1 if any has a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="by comma, of: " + ", ".join(KINDS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", type=Path, help="folder for the files of failures")
    options = parser.parse_args()
    kinds = tuple(options.kinds.split(","))
    stop = options.first + options.count
    batches = [range(at, min(at + _BATCH, stop)) for at in range(options.first, stop, _BATCH)]
    codes: Counter[tuple[str, int]] = Counter()
    n_faults, peak_kib, longest_s = 0, 0, 0.0
    with ProcessPoolExecutor(options.jobs, get_context("fork"), prepare_worker) as pool:
        futures = [pool.submit(run_batch, numbers, options.seed, kinds, options.keep) for numbers in batches]
        for future in futures:
            for outcome in future.result():
                codes[outcome.kind, outcome.exit_code] += 1
                peak_kib, longest_s = max(peak_kib, outcome.memory_kib), max(longest_s, outcome.processor_s)
                if outcome.faults:
                    n_faults += 1
                    report_fault(outcome)
    for kind in kinds:
        found = {code: count for (name, code), count in sorted(codes.items()) if name == kind}
        print(
            f"{kind:8} {sum(found.values()):6,}  " + "  ".join(f"code {c}: {n:,}" for c, n in found.items())
        )
    print(
        f"{sum(codes.values()):,} cases, {n_faults:,} with faults; most memory {peak_kib >> 10:,} MiB, "
        f"most processor time {longest_s:.1f} s"
    )
    return int(n_faults > 0)


def report_fault(outcome: Outcome) -> None:
    """Print a case with a fault: how to repeat it, and the end of its message."""
    words = " ".join(
        word if re.fullmatch(r"[\w./=,:-]+", word) else repr(word)[:60] for word in outcome.arguments
    )
    print(f"{outcome.kind} {outcome.number}: {'; '.join(outcome.faults)}: {words}")
    for line in outcome.message.splitlines()[-6:]:
        print(f"    {line.encode('unicode-escape').decode()[:160]}")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
