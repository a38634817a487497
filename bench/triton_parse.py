"""Measure how fast Triton IR is read, beside ptxas compiling the PTX of the same kernels.

    python bench/triton_parse.py                      files of traces/levels
    python bench/triton_parse.py FOLDER [--ptxas 20]  all .ttir and .ttgir below; ptxas for 20 of the kernels

One thread. Each file is read once, as for a cache folder; `cold` is the first file, with the grammar to load.
A byte is one of what each reads: of Triton IR here, of PTX there.
"""

import argparse
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

from msgspec import Struct

from analyzer.frontend.triton.parser import parse_triton_ir

ROOT = Path(__file__).resolve().parent.parent
_TARGET = re.compile(r"^\.target\s+(\w+)", re.M)


class Rate(Struct, frozen=True):
    """Files, bytes and seconds of one thread."""

    n_files: int
    n_bytes: int
    seconds: float

    def __str__(self) -> str:
        each = self.seconds / max(1, self.n_files) * 1e3
        return f"{self.n_files} files, {self.n_bytes / 1e6:.2f} MB, {self.seconds:.2f} s: " + (
            f"{self.n_bytes / 1e6 / max(self.seconds, 1e-9):.2f} MB/s, {each:.1f} ms a file"
        )


def measure_parser(paths: list[Path]) -> tuple[float, Rate]:
    """Return the seconds of the first file, and the rate of all the others."""
    texts = [(path.read_text(encoding="utf-8"), path.name) for path in paths]
    start = time.process_time()
    parse_triton_ir(*texts[0])
    first = time.process_time()
    for text, name in texts[1:]:
        parse_triton_ir(text, name)
    others = sum(len(text) for text, _ in texts[1:])
    return first - start, Rate(len(texts) - 1, others, time.process_time() - first)


def measure_ptxas(paths: list[Path]) -> Rate:
    """Return the rate at which ptxas compiles PTX for the target that it names; processor time."""
    n_bytes = 0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        target = _TARGET.search(text)
        arch = target[1] if target else "sm_90a"
        command = ["ptxas", f"-arch={arch}", "-o", "/dev/null", str(path)]
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            n_bytes += len(text)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Rate(len(paths), n_bytes, seconds)


def main() -> None:
    """Print both rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "traces" / "levels")
    parser.add_argument("--ptxas", type=int, default=20, help="kernels to compile; 0: none")
    options = parser.parse_args()
    paths = sorted([*options.folder.rglob("*.ttir"), *options.folder.rglob("*.ttgir")])
    if not paths:
        parser.error(f"no .ttir or .ttgir below {options.folder}")
    cold, rate = measure_parser(paths)
    print(f"cold   {cold * 1e3:.0f} ms")
    print(f"parser {rate}")
    sources = sorted(options.folder.rglob("*.ptx"))
    if options.ptxas and sources and shutil.which("ptxas"):
        step = max(1, len(sources) // options.ptxas)
        compiled = measure_ptxas(sources[::step][: options.ptxas])
        print(f"ptxas  {compiled}")
        ratio = (rate.n_bytes / rate.seconds) / (compiled.n_bytes / compiled.seconds)
        print(f"parser to ptxas, per byte: {ratio:.1f} times as fast")


if __name__ == "__main__":
    main()
