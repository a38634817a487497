"""Hold the tasks of Triton kernels against closed forms, and against what an H100 counted.

    python bench/triton_tasks.py [--limit N]

Closed forms: all Triton launches of traces/h100 (16 kernels, and WaveTune's GEMM plan), one formula per
kernel, in terms of its shape and tiles. Counters: launches that Nsight Compute looked at, by instruction:
products, special functions, and bytes of loads and stores by lanes whose guard held.
"""

import argparse
import re
import statistics
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from groundtruth.records import (
    CODE,
    FOLDER,
    MeasuredLaunch,
    Record,
    read_launches,
    read_lines,
    read_measurements,
)
from markdown import render_table

from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.ir.launch import Dim3
from analyzer.ir.tile_operations import TritonModule
from analyzer.isa.mma_shapes import find_mma_shape
from analyzer.tiles.decomposition import TaskDecomposition, decompose_launch
from analyzer.tiles.work import Quantity

_INSTRUCTION = re.compile(r"(?:@\S+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)")
_SECTOR_BYTES = 32
_QUANTITIES = (Quantity.MMA_FMA, Quantity.XU_OPERATIONS, Quantity.BYTES_LOADED, Quantity.BYTES_STORED)
_ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "e4m3": 1}
Amounts = Mapping[Quantity, int]


@dataclass(frozen=True, slots=True)
class Decomposed:
    """A launch with its tasks, and how long they took to find."""

    launch: MeasuredLaunch
    constants: Mapping[str, int]  # tile sizes
    tasks: TaskDecomposition
    seconds: float

    def count(self, quantity: Quantity) -> int:
        """Return the total of a quantity."""
        return self.tasks.total[quantity]

    def count_data(self, quantity: Quantity) -> int:
        """Return the total without integers, such as indices, and without what threads do again."""
        return sum(
            each.amounts.values[quantity] - each.amounts.repeated[quantity]
            for each in self.tasks.operations
            if not each.work.type_name.startswith("i")
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="launches of each kernel")
    options = parser.parse_args()
    found = list(decompose_launches(options.limit))
    print(render_closed_forms(found))
    print(render_counters(found))
    seconds = [each.seconds for each in found]
    largest = max(found, key=lambda each: each.tasks.grid.count)
    print(
        f"{len(found)} launches in {sum(seconds):.0f} s, median {statistics.median(seconds) * 1e3:.0f} ms, "
        f"slowest {max(seconds):.2f} s; the largest grid, {largest.tasks.grid.count:,} programs: "
        f"{largest.seconds:.2f} s"
    )


def decompose_launches(limit: int | None) -> Iterator[Decomposed]:
    """Yield the Triton launches with their tasks; of equal ones one."""
    constants = {each["case_id"]: each.get("constexprs", {}) for each in read_measurements()[1:]}
    counts: dict[str, int] = defaultdict(int)
    for launch in read_launches():
        counts[launch.kernel] += 1
        if launch.family not in ("triton", "wavetune") or (limit and counts[launch.kernel] > limit):
            continue
        module = read_module(launch.cubin.stem)
        names = {name for each in module.functions if each.is_public for name in each.argument_names}
        arguments = [parse_argument(f"{name}={value}") for name, value in launch.arguments if name in names]
        start = time.perf_counter()
        tasks = decompose_launch(module, Dim3(*launch.grid), arguments)
        seconds = time.perf_counter() - start
        yield Decomposed(launch, constants[launch.case], tasks, seconds)


@cache
def unpack_triton_ir() -> Path:
    """Unpack the TTGIR files of the archive once, and return their folder."""
    folder = CODE / "ttgir"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        with tarfile.open(FOLDER / "kernels.tar.xz") as tar:
            wanted = [member for member in tar.getmembers() if member.name.endswith(".ttgir")]
            tar.extractall(partial, members=wanted, filter="data")
        partial.rename(folder)
    return folder


@cache
def read_module(stem: str) -> TritonModule:
    """Return the Triton IR of a kernel by the stem of its files."""
    path = unpack_triton_ir() / "triton" / f"{stem}.ttgir"
    return parse_triton_ir(path.read_text(), str(path))[0]


# ---- closed forms -------------------------------------------------------------------------------------


def _copy(w: Record, c: Mapping[str, int], n_inputs: int) -> Amounts:
    size = _ELEMENT_BYTES[w["dtype"]] * w["n"]
    return {Quantity.BYTES_LOADED: n_inputs * size, Quantity.BYTES_STORED: size}


def _rows(w: Record, c: Mapping[str, int], passes: int, vectors: int) -> Amounts:
    """Return the bytes of a kernel that reads each row `passes` times, and vectors of its length with it."""
    size = 2 * w["rows"] * w["cols"]
    return {Quantity.BYTES_LOADED: size * (passes + vectors), Quantity.BYTES_STORED: size}


def _matmul(w: Record, c: Mapping[str, int]) -> Amounts:
    size, out = _ELEMENT_BYTES[w["dtype"]], 2 if w["dtype"] == "e4m3" else _ELEMENT_BYTES[w["dtype"]]
    tiles = ceil(w["M"] / c["BM"]) * ceil(w["N"] / c["BN"])
    return {
        Quantity.MMA_FMA: tiles * c["BM"] * c["BN"] * c["BK"] * ceil(w["K"] / c["BK"]),
        Quantity.BYTES_LOADED: tiles * (c["BM"] + c["BN"]) * w["K"] * size,
        Quantity.BYTES_STORED: w["M"] * w["N"] * out,
    }


def _attention(w: Record, c: Mapping[str, int]) -> Amounts:
    heads, rows, keys, dim = w["B"] * w["H"], c["BM"], c["BN"], w["D"]
    blocks = ceil(w["S"] / rows)
    ends = [min(w["SK"], (block + 1) * rows) if w["causal"] else w["SK"] for block in range(blocks)]
    steps = sum(ceil(end / keys) for end in ends)
    seen = sum(min(ceil(end / keys) * keys, w["SK"]) for end in ends)
    return {
        Quantity.MMA_FMA: heads * steps * 2 * rows * keys * dim,
        Quantity.BYTES_LOADED: heads * (w["S"] + 2 * seen) * dim * 2,
        Quantity.BYTES_STORED: heads * w["S"] * dim * 2,
        # an exponential per score, one per row and step, and a reciprocal per row
        Quantity.XU_OPERATIONS: heads * (steps * (rows * keys + rows) + blocks * rows),
    }


def _moe(w: Record, c: Mapping[str, int]) -> Amounts:
    tiles = c["NM"] * ceil(w["N"] / c["BN"])
    slots = w["T"] * w["topk"]
    columns = ceil(w["N"] / c["BN"])
    return {
        Quantity.MMA_FMA: tiles * c["BM"] * c["BN"] * c["BK"] * ceil(w["K"] / c["BK"]),
        # Activations of slots that are no padding, and weights.
        Quantity.BYTES_LOADED: columns * slots * w["K"] * 2 + tiles * c["BN"] * w["K"] * 2,
        Quantity.BYTES_STORED: slots * w["N"] * 2,
    }


def _transpose(w: Record, c: Mapping[str, int]) -> Amounts:
    size = _ELEMENT_BYTES[w["dtype"]] * w["rows"] * w["cols"]
    return {Quantity.BYTES_LOADED: size, Quantity.BYTES_STORED: size}


def _reduce(w: Record, c: Mapping[str, int]) -> Amounts:
    return {
        Quantity.BYTES_LOADED: 4 * w["n"],
        Quantity.BYTES_STORED: 4 * ceil(w["n"] / (c["BLOCK"] * c["ITERS"])),
    }


_CLOSED_FORMS: Mapping[str, Callable[[Record, Mapping[str, int]], Amounts]] = {
    "t_vector_add": lambda w, c: _copy(w, c, 2),
    "t_silu_mul": lambda w, c: _copy(w, c, 2),
    "t_softmax": lambda w, c: _rows(w, c, 1, 0),
    "t_rmsnorm": lambda w, c: _rows(w, c, 1, 1),
    "t_layernorm": lambda w, c: _rows(w, c, 3, 2),
    "t_reduce": _reduce,
    "t_transpose": _transpose,
    "t_gather": lambda w, c: _rows(w, c, 1, 0),
    "t_matmul": _matmul,
    "t_attention": _attention,
    "t_moe_gemm": _moe,
}


def render_closed_forms(found: Iterable[Decomposed]) -> str:
    """Return how many launches of each kernel are exactly their closed form."""
    rows: dict[str, list[bool]] = defaultdict(list)
    for each in found:
        expected = _CLOSED_FORMS[each.launch.kernel](each.launch.work, each.constants)
        ours = {quantity: each.count_data(quantity) for quantity in expected}
        is_same = ours == dict(expected) and not each.tasks.assumptions
        rows[each.launch.kernel].append(is_same)
        if not is_same:
            print(f"{each.launch.case}: {ours}, expected {dict(expected)}, {each.tasks.assumptions}")
    table = [(kernel, f"{len(same)}", f"{sum(same)}") for kernel, same in sorted(rows.items())]
    return render_table(("kernel", "launches", "equal to the closed form"), table)


# ---- counters -----------------------------------------------------------------------------------------


def render_counters(found: Iterable[Decomposed]) -> str:
    """Return, for what Nsight Compute looked at, how far tasks are from the executed instructions."""
    pages = {page["case_id"]: page for page in read_lines("source_counts")}
    errors: dict[tuple[str, Quantity], list[float]] = defaultdict(list)
    for each in found:
        page = pages.get(each.launch.case)
        if page is None:
            continue
        measured = count_executed(page)
        for quantity in _QUANTITIES:
            ours, theirs = each.count(quantity), measured[quantity]
            if ours or theirs:
                errors[each.launch.kernel, quantity].append(ours / theirs - 1.0 if theirs else float("inf"))
    rows = [
        (
            kernel,
            quantity.name.lower(),
            f"{len(values)}",
            f"{sum(value == 0 for value in values)}",
            f"{max(map(abs, values)):.2%}",
        )
        for (kernel, quantity), values in sorted(errors.items())
    ]
    return render_table(("kernel", "quantity", "launches", "exact", "largest difference"), rows)


def count_executed(page: Record) -> Amounts:
    """Return what the instructions of a profiled launch did, by lanes whose guard held.

    An asynchronous copy counts its sectors instead: lanes whose source is cut off copy zeros, and are counted
    as lanes. Left out are the seeds of integer divisions, as in Triton IR.
    """
    columns = {name: place for place, name in enumerate(page["columns"])}
    totals = dict.fromkeys(_QUANTITIES, 0)
    converted: set[str] = set()  # registers that hold an integer as a number of floating point
    for row in page["rows"]:
        match = _INSTRUCTION.match(row[columns["sass"]])
        if match is None:
            continue
        name, modifiers = match[1], tuple(match[2].split(".")[1:])
        registers = re.findall(r"\bU?R\d+", row[columns["sass"]])
        lanes = row[columns["pred_on_thread_inst_executed"]]
        moved = lanes * (row[columns["access_size_bits"]] or 0) // 8
        shape = find_mma_shape(name, modifiers)
        if shape is not None:
            totals[Quantity.MMA_FMA] += row[columns["inst_executed"]] * shape.n_fmas // shape.n_warps
        elif name == "MUFU" and registers[-1] not in converted:
            totals[Quantity.XU_OPERATIONS] += lanes
        elif name == "LDGSTS":
            totals[Quantity.BYTES_LOADED] += row[columns["l2_theoretical_sectors_global"]] * _SECTOR_BYTES
        elif name == "LDG":
            totals[Quantity.BYTES_LOADED] += moved
        elif name == "STG":
            totals[Quantity.BYTES_STORED] += moved
        if registers:
            converted.discard(registers[0])
            if name == "I2F":
                converted.add(registers[0])
    return totals


if __name__ == "__main__":
    main()
