"""Compare what advice promises with what following it gains, on pairs of compiled kernels.

    python bench/advice_pairs.py > docs/advice-promises.md

`tests/advice/pairs/RULE/*.cu` have kernels `faulty…`, and `mended…` that do what the rule says;
`tests/advice/build_pairs.py` compiles them. `NAME.json` (of `pair.cu`: `launch.json`), or one for each
architecture, launches them. The gain is the difference between both that the default model predicts. No GPU.
"""

import gzip
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

from markdown import render_table
from msgspec import Struct

from analyzer.execution.binding.launch_file import load_launch_file
from analyzer.pipeline import Options, analyze
from analyzer.report.analyze_schema import AdviceEntry, KernelReport

PAIRS = Path(__file__).resolve().parents[1] / "tests" / "advice" / "pairs"
GPU_BY_ARCH = {75: "t4", 80: "a100", 86: "rtx 3090", 90: "h100", 120: "rtx 5090"}
_FAULTY = re.compile(r"__global__ void faulty(\w*)\(")
_HEAD = """# Promises of advice

Made by `python bench/advice_pairs.py`: kernels of `tests/advice/pairs` with one fault, and the same kernels
with it mended as the rule says, compiled by nvcc 13. *Promised* is the gain that `--advice` prints for
the first; *gained* is what the model predicts the second to save.

"""


class Pair(Struct, frozen=True):
    """A kernel with a fault and the same kernel without it, compiled for one architecture."""

    rule: str
    file: str  # stem of the source
    arch: int
    suffix: str  # of the names of both kernels

    def __str__(self) -> str:
        return f"{self.rule}/{self.file}{self.suffix}_{self.arch}"

    @property
    def reports(self) -> tuple[KernelReport, KernelReport]:
        """The faulty kernel and the mended one, analyzed with the advice of the rule."""
        found = _analyze_file(self.rule, self.file, self.arch)
        return found[f"faulty{self.suffix}"], found[f"mended{self.suffix}"]

    def find_advice(self, report: KernelReport) -> AdviceEntry | None:
        """Return what the rule says of a kernel."""
        return next((entry for entry in report.advice if entry.rule == self.rule), None)


def list_pairs() -> list[Pair]:
    """Return all pairs, by rule, file, architecture and place in the file."""
    return [
        Pair(source.parent.name, source.stem, arch, suffix)
        for source in sorted(PAIRS.glob("*/*.cu"))
        for arch in GPU_BY_ARCH
        if source.with_name(f"{source.stem}_{arch}.res").is_file()
        for suffix in _FAULTY.findall(source.read_text())
    ]


@cache
def _analyze_file(rule: str, file: str, arch: int) -> dict[str, KernelReport]:
    folder, launches = PAIRS / rule, "launch" if file == "pair" else file
    table = next(
        path for name in (f"{launches}_{arch}", launches) if (path := folder / f"{name}.json").is_file()
    )
    options = Options(launch_table=load_launch_file(table), advice=True, advice_rules=(rule,))
    with tempfile.TemporaryDirectory() as unpacked:
        dump = unpack(folder / f"{file}_{arch}.sass", Path(unpacked))
        report = analyze(str(dump), GPU_BY_ARCH[arch], options=options)
    return {kernel.name: kernel for kernel in report.kernels}


def unpack(dump: Path, into: Path) -> Path:
    """Return a dump, unpacked with its resources where it is compressed."""
    packed = dump.with_name(dump.name + ".gz")
    if not packed.is_file():
        return dump
    shutil.copy(dump.with_suffix(".res"), into)
    (into / dump.name).write_bytes(gzip.decompress(packed.read_bytes()))
    return into / dump.name


def main() -> None:
    """Print the page."""
    rows = []
    for pair in list_pairs():
        faulty, mended = pair.reports
        advice, before = pair.find_advice(faulty), faulty.predictions[0].cycles
        gain = before - mended.predictions[0].cycles
        promised = "nothing" if advice is None else f"{advice.gain_share:.1%}"
        ratio = "" if advice is None or not gain else f"{advice.gain_cycles / gain:.2f}"
        name = f"{pair.file}{pair.suffix}"
        rows.append([pair.rule, name, f"sm_{pair.arch}", promised, f"{gain / before:.1%}", ratio])
    head = ("rule", "kernel", "architecture", "promised", "gained", "promised / gained")
    print(_HEAD + render_table(head, rows), end="")


if __name__ == "__main__":
    main()
