"""`warplens tune rank`: configurations of a kernel with predicted times, from no measurement."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import output_options, write_report
from analyzer.cli.path_types import GPU_TEXT, INPUT_PATH
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.hardware.gpu import Gpu
    from analyzer.tuning.kernel_facts import KernelFacts

_KERNELS = ("fused_moe",)
_DTYPES = ("bf16", "fp16")
_SHAPE = ("m", "experts", "topk", "hidden", "intermediate")


def _shape_options(command: click.decorators.FC) -> click.decorators.FC:
    helps = ("Tokens.", "Experts on this GPU.", "Experts of each token.", "Width of a token.",
             "Width of an expert: the product is twice as wide.")  # fmt: skip
    for name, text in reversed(tuple(zip(_SHAPE, helps, strict=True))):
        command = click.option(f"--{name}", type=int, required=True, metavar="N", help=text)(command)
    return command


@click.command(
    epilog=make_examples(
        "warplens tune rank --kernel fused_moe --m 64 --experts 64 --topk 6 --hidden 3584 "
        "--intermediate 1536 --gpu a100 --top 10",
        "warplens tune rank --m 4096 --experts 8 --topk 2 --hidden 4096 --intermediate 14336 --gpu h20 "
        "--format json",
    )
)
@click.option("--kernel", default="fused_moe", show_default=True, help=f"Kernel: {', '.join(_KERNELS)}.")
@_shape_options
@click.option(
    "--gpu",
    "-g",
    required=True,
    type=GPU_TEXT,
    help="GPU by name or TOML file.",
)
@click.option(
    "--dtype", default="bf16", show_default=True, help=f"Type of the operands: {', '.join(_DTYPES)}."
)
@click.option("--top", type=click.IntRange(min=1), help="Show so many; text 10 if not given, JSON all.")
@click.option(
    "--measured",
    type=INPUT_PATH,
    help="CSV of measured configurations: their times stand, and correct the others'.",
)
@click.option(
    "--every",
    "lists_all",
    is_flag=True,
    help="Rank every configuration that can run, also those that no measured sweep found near the best.",
)
@click.option(
    "--compile", "compiles", is_flag=True, help="Compile and analyze anew with Triton; kept by content."
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), default=1, help="Processes that compile.")
@output_options("tune-rank")
def rank(
    kernel: str,
    *,
    m: int,
    experts: int,
    topk: int,
    hidden: int,
    intermediate: int,
    gpu: str,
    dtype: str,
    top: int | None,
    measured: Path | None,
    lists_all: bool,
    compiles: bool,
    jobs: int,
    output_format: str,
    output: Path | None,
) -> None:
    """Rank all configurations of a kernel for one shape, with no profile and no GPU.

    Registers, shared memory and what the main loop asks of an SM come from code that Triton compiled: facts
    of common architectures are shipped, --compile makes others.
    """
    from analyzer.hardware.gpu_selection import find_single_gpu
    from analyzer.tuning.fused_moe_space import MoeShape, check_shape
    from analyzer.tuning.moe_ranking import rank_configs, read_measurements

    _check_choice("--kernel", kernel, _KERNELS)
    _check_choice("--dtype", dtype, _DTYPES)
    shape = check_shape(MoeShape(m, experts, topk, hidden, intermediate))
    found = find_single_gpu(gpu, "")
    report = rank_configs(
        shape,
        found,
        facts=_compile_facts(found, dtype, jobs) if compiles else None,
        measurements=None if measured is None else read_measurements(measured, shape),
        top=top,
        dtype="bf16" if compiles else dtype,
        lists_all=lists_all,
    )
    write_report(report, output_format, output)


def _check_choice(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{option} {value}: not known here", hint=f"one of: {', '.join(known)}")


def _compile_facts(gpu: "Gpu", dtype: str, jobs: int) -> "KernelFacts":
    """Compile the space for the GPU's architecture and return its facts."""
    from analyzer.cli.progress import show_progress
    from analyzer.tuning.fact_extraction import extract_facts
    from analyzer.tuning.fused_moe_space import list_fitting_codes
    from analyzer.tuning.triton_compilation import compile_codes, find_triton_version, write_cubins

    if gpu.arch is None:
        raise UsageError(f"--compile: {gpu.name} is no GPU that Triton compiles for here")
    limits, version = gpu.arch.limits, find_triton_version()
    codes = list_fitting_codes(int(limits.shared_bytes_per_sm.value), int(limits.shared_bytes_per_cta.value))
    with show_progress("compiling"), tempfile.TemporaryDirectory() as folder:
        compiled = compile_codes(codes, gpu.compute_capability, dtype, jobs)
        cubins = write_cubins(compiled, Path(folder))
        return extract_facts("fused_moe", gpu.code[0], gpu, f"Triton {version}", cubins, jobs)
