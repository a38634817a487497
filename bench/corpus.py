"""Check how well real dumps are read: parsed, known, counted, and equal to NVIDIA's own tools.

    python bench/corpus.py DUMP.sass ... [--graphs FOLDER]

DUMP is `cuobjdump -sass` text; FOLDER holds pairs NAME.hex.txt (`nvdisasm -c -hex`) and NAME.dot
(`nvdisasm -bbcfg`). Prints one table by architecture, as docs/corpus.md shows it.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bbcfg import compare_graph
from rich.console import Console
from rich.table import Table

import analyzer
from analyzer.hardware.gpu_database import load_arch, strip_arch_suffix
from analyzer.ir.module import Kernel, Module
from analyzer.isa.control_encoding import decode_control_code_columns
from analyzer.text.errors import WarplensError

# An instruction line, read independently of the parser: address, guard, opcode name, up to the semicolon.
_PLAIN = re.compile(rb"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@\S+\s+)?([A-Z][A-Z0-9_]*)[^;\n]*;", re.M)
# The extra operand of these MMAs prints `.reuse` without a bit of its own (docs/corpus.md); texture
# instructions have the bit set and print nothing.
_REUSE_EXCEPTIONS = re.compile(r"\b(HMMA|IMMA)\.SP|\b[OQ]MMA\.SF|\bT(EX|LD4)\b")


@dataclass(slots=True)
class ArchCounts:
    """Counts over the kernels of one architecture."""

    kernels: int = 0
    instructions: int = 0
    unparsed: int = 0  # instructions that the grammar rejects
    unknown_pipe: int = 0  # instructions without a scheduling class on the architecture
    reuse_differs: int = 0  # instructions whose reuse bits and `.reuse` suffixes differ in number
    files: set[str] = field(default_factory=set)


def add_kernel(tally: ArchCounts, kernel: Kernel, unparsed: frozenset[int]) -> None:
    """Add one kernel's counts to those of its architecture; unparsed: text ids."""
    opcodes = kernel.form_table.opcodes
    supported = load_arch(kernel.arch).sched
    has_pipe = np.array([o.is_known and o.sched_class in supported for o in opcodes], dtype=bool)
    tally.kernels += 1
    tally.instructions += len(kernel)
    tally.unknown_pipe += int((~has_pipe[kernel.opcode_ids]).sum())
    ids, counts = np.unique(kernel.text_ids, return_counts=True)
    tally.unparsed += sum(int(n) for i, n in zip(ids, counts, strict=True) if i in unparsed)
    tally.reuse_differs += count_reuse_differences(kernel)


def count_reuse_differences(kernel: Kernel) -> int:
    """Count instructions whose number of reuse bits differs from that of `.reuse` suffixes in their text."""
    if kernel.control_words is None:
        return 0
    masks = decode_control_code_columns(kernel.control_words).reuse_mask
    bits = np.unpackbits(masks[:, None], axis=1).sum(axis=1)
    texts = kernel.form_table.texts
    printed = np.array([text.count(".reuse") for text in texts])
    exempt = np.array([bool(_REUSE_EXCEPTIONS.search(text)) for text in texts])
    return int(((bits != printed[kernel.text_ids]) & ~exempt[kernel.text_ids]).sum())


def has_equal_opcode_counts(path: Path, module: Module) -> bool:
    """Return whether the module's opcode histogram equals that of a regular expression over the text."""
    ours: Counter[str] = Counter()
    for kernel in module.kernels:
        names = [opcode.name for opcode in kernel.form_table.opcodes]
        for number, count in enumerate(np.bincount(kernel.opcode_ids, minlength=len(names))):
            ours[names[number]] += int(count)
    plain = Counter(name.decode() for name in _PLAIN.findall(path.read_bytes()))
    return Counter({n: c for n, c in ours.items() if c}) == plain


def count_dumps(paths: Iterable[Path], console: Console) -> dict[str, ArchCounts]:
    """Count each dump by architecture; print dumps that cannot be read or whose opcode counts differ."""
    tallies: dict[str, ArchCounts] = {}
    for path in paths:
        try:
            module = analyzer.load(str(path)).module
        except WarplensError as error:
            console.print(f"{path.name}: {error}", markup=False)
            continue
        skipped = any(d.code == "unsupported-architecture" for d in module.diagnostics)
        if not skipped and not has_equal_opcode_counts(path, module):
            console.print(f"{path.name}: opcode counts differ from the text", markup=False)
        for kernel in module.kernels:
            tally = tallies.setdefault(strip_arch_suffix(kernel.arch), ArchCounts())
            tally.files.add(str(path))
            add_kernel(tally, kernel, module.form_table.unparsed)
    return tallies


def make_table(tallies: dict[str, ArchCounts]) -> Table:
    """Build the table: one row per architecture and a total."""
    table = Table(title="real dumps, by architecture")
    for name in ("arch", "dumps", "kernels", "instructions", "parsed", "known pipe", "reuse bits differ"):
        table.add_column(name, justify="left" if name == "arch" else "right")
    total = ArchCounts()
    for arch, tally in sorted(tallies.items(), key=lambda item: int(item[0][3:])):
        table.add_row(arch, *_format_cells(tally))
        total.kernels += tally.kernels
        total.instructions += tally.instructions
        total.unparsed += tally.unparsed
        total.unknown_pipe += tally.unknown_pipe
        total.reuse_differs += tally.reuse_differs
        total.files |= tally.files
    table.add_row("all", *_format_cells(total), style="bold")
    return table


def _format_cells(tally: ArchCounts) -> tuple[str, ...]:
    n = max(1, tally.instructions)
    return (
        str(len(tally.files)),
        f"{tally.kernels:,}",
        f"{tally.instructions:,}",
        f"{1 - tally.unparsed / n:.4%}",
        f"{1 - tally.unknown_pipe / n:.4%}",
        f"{tally.reuse_differs:,}",
    )


def compare_graphs(folder: Path, console: Console) -> None:
    """Compare control flow with every graph of nvdisasm in a folder, and print how many are equal."""
    equal = different = 0
    for graph in sorted(folder.glob("*.dot")):
        text = graph.with_suffix(".hex.txt")
        if text.exists():
            right, wrong = compare_graph(analyzer.load(str(text)).module, graph)
            equal += right
            different += wrong
    console.print(f"control flow equal to nvdisasm -bbcfg: {equal:,} of {equal + different:,} kernels")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dumps", nargs="*", type=Path)
    parser.add_argument("--graphs", type=Path)
    arguments = parser.parse_args()
    console = Console(width=110)
    if arguments.dumps:
        console.print(make_table(count_dumps(arguments.dumps, console)))
    if arguments.graphs:
        compare_graphs(arguments.graphs, console)


if __name__ == "__main__":
    main()
