"""Facts of compiled code, from this package's own analysis of the cubin.

The main loop is the one with most matrix products. Its demand per iteration is that of one warp times the
warps of a CTA; wavefronts of shared memory come from the addresses of the code. Products that one elected
warp issues for the CTA (tcgen05) are on a path that an analysis without a launch does not take: they follow
from the tile, and the main loop is the longest one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from analyzer.hardware.gpu import Gpu
from analyzer.ir.scheduling import TensorRate
from analyzer.pipeline.cached_analysis import analyze_files
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import KernelReport, LoopEntry
from analyzer.text.errors import InputError
from analyzer.tuning.kernel_facts import FACT_COLUMNS, KernelFacts

_GLOBAL_WAIT = "long_scoreboard"
Code = tuple[int, int, int, int, int]


def extract_facts(
    kernel: str, arch: str, gpu: Gpu, made_by: str, cubins: Mapping[Code, tuple[Path, int]], jobs: int = 1
) -> KernelFacts:
    """Return the facts of compiled codes.

    gpu: whose rates the cycles are at. cubins: file and bytes of dynamic shared memory by code.
    Raises InputError for a cubin without a loop that multiplies matrices.
    """
    ordered = sorted(cubins)
    code_by_file = {str(cubins[code][0]): code for code in ordered}
    report = analyze_files(list(code_by_file), gpu.key, Options(models=("warp",), is_brief=True, jobs=jobs))
    rows = {
        code_by_file[each.input]: _measure(each, gpu, code_by_file[each.input], cubins)
        for each in report.kernels
    }
    return KernelFacts(
        kernel=kernel,
        arch=arch,
        reference_gpu=gpu.key,
        made_by=made_by,
        codes=np.array(ordered, dtype=np.int64).reshape(-1, 5),
        values=np.array([rows[code] for code in ordered], dtype=np.float64).reshape(-1, len(FACT_COLUMNS)),
    )


def _measure(
    report: KernelReport, gpu: Gpu, code: Code, cubins: Mapping[Code, tuple[Path, int]]
) -> Sequence[float]:
    loop = max(report.loops, key=lambda each: (_count_tensor_cycles(each), each.instructions), default=None)
    if loop is None or not report.predictions or gpu.arch is None:
        raise _make_no_loop_error(report)
    n_warps, limits = code[3], gpu.arch.limits
    per_subcore = n_warps / limits.subcores_per_sm.value
    tensor_cycles = _count_tensor_cycles(loop) * per_subcore or _time_elected_products(code, gpu)
    if not tensor_cycles:
        raise _make_no_loop_error(report)
    resident_warps = (report.predictions[0].occupancy or 0.0) * limits.max_warps_per_sm.value
    resident_ctas = max(1.0, round(resident_warps / n_warps))  # whose wavefronts the loop's bound sums
    executed = sum(pipe.operations for pipe in report.pipes.values())
    in_loop = sum(pipe.operations for pipe in loop.pipes.values())
    facts = {
        "registers": report.registers or 0,
        "spill_bytes": report.spill_bytes or 0,
        "shared_bytes": cubins[code][1],
        "instructions": report.instructions,
        "loop_instructions": loop.instructions,
        "other_instructions": max(0.0, executed - float(loop.trip_count or 0) * in_loop),
        "tensor_cycles": tensor_cycles,
        "shared_cycles": loop.bounds.get("shared memory", 0.0) / resident_ctas,
        "issue_cycles": loop.bounds.get("issue", 0.0) / resident_ctas,
        "alu_cycles": _find_pipe_cycles(loop, "alu") * per_subcore,
        "load_store_cycles": loop.bounds.get("lsu", 0.0) / resident_ctas,
        "latency_cycles": sum(cycles for name, cycles in loop.cpi_stack.items() if name != _GLOBAL_WAIT),
    }
    return [float(facts[name]) for name in FACT_COLUMNS]


def _make_no_loop_error(report: KernelReport) -> InputError:
    return InputError(
        f"{Path(report.input).name}: no loop that multiplies matrices is found in the compiled code",
        hint="facts can be made for architectures with BF16 products",
    )


def _time_elected_products(code: Code, gpu: Gpu) -> float:
    """Return an SM's cycles for a tile's step by tcgen05, 0 where it has none or the tile has fewer rows.

    An instruction of 64 rows takes as long as one of `Tcgen05MmaTiming.rows`.
    """
    rows, columns, depth = code[:3]
    rate = gpu.find_tensor_fma_per_cycle(TensorRate.BF16)
    timings = [t for t in gpu.arch.tensor_core_product if (t.a, t.ctas) == ("shared", 1)] if gpu.arch else []
    timing = max((t for t in timings if t.m <= rows), key=lambda t: t.m, default=None)
    if timing is None or rate is None:
        return 0.0
    return rows / timing.m * timing.rows * columns * depth / rate.value


def _count_tensor_cycles(loop: LoopEntry) -> float:
    return _find_pipe_cycles(loop, "tensor")


def _find_pipe_cycles(loop: LoopEntry, name: str) -> float:
    pipe = loop.pipes.get(name)
    return 0.0 if pipe is None else float(pipe.cycles)
