"""`warplens tune export`: a file of fused-MoE configurations for vLLM or SGLang."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line, write_text
from analyzer.cli.path_types import INPUT_PATH, OUTPUT_FILE_OR_FOLDER, claim_named_file
from analyzer.cli.tune_inputs import parse_sizes, select_part
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from analyzer.tuning.moe_config_files import MoeConfig

_TOKENS = "1,2,4,8,16,24,32,48,64,96,128,256,512,1024,1536,2048,3072,4096"  # sizes that both engines tune for
_KERNEL = "grouped_gemm"


@click.command(
    "export",
    epilog=make_examples(
        "warplens tune export traces/h100/moe_wavetune.npz --format vllm --experts 8 --topk 2 --hidden 4096 "
        "--intermediate 7168",
        "warplens tune export traces/h100/moe_best.csv --format sglang --experts 128 --topk 8 --hidden 2048 "
        "--intermediate 768 -o -",
    ),
)
@click.argument("source", metavar="ARTIFACT|PROFILE.csv", type=INPUT_PATH)
@click.option("--format", "framework", type=click.Choice(["vllm", "sglang"]), required=True, help="Engine.")
@click.option("--experts", type=click.IntRange(1, 1_000_000), required=True, help="E.")
@click.option("--topk", type=click.IntRange(1, 1000), required=True, help="Experts of a token.")
@click.option("--hidden", type=click.IntRange(1, 1 << 24), required=True, help="Hidden size of the model.")
@click.option(
    "--intermediate", type=click.IntRange(1, 1 << 24), required=True, help="N: of an expert, on one GPU."
)
@click.option("--unseen", is_flag=True, help="A model that the profile does not have: smoothed waves choose.")
@click.option(
    "--near-best",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="With --unseen: the profile lists only what is within so many percent of the best.",
)
@click.option("--tokens", default=_TOKENS, show_default=True, help="Batch sizes.")
@click.option("--device-name", default="", help="As torch.cuda.get_device_name() says; else from the GPU.")
@click.option("--dtype", default="", help="fp8_w8a8, int8_w8a8, int8_w8a16, int4_w4a16; none for 16-bit.")
@click.option("--block-shape", default="", metavar="N,K", help="Of block-wise scales.")
@click.option("--output", "-o", type=OUTPUT_FILE_OR_FOLDER, help="Folder, or a file (-: standard output).")
def export(
    source: Path,
    *,
    framework: str,
    experts: int,
    topk: int,
    hidden: int,
    intermediate: int,
    unseen: bool,
    near_best: float | None,
    tokens: str,
    device_name: str,
    dtype: str,
    block_shape: str,
    output: Path | None,
) -> None:
    """Write the configurations of a mixture of experts as vLLM and SGLang read them.

    From an artifact of `tune fit` the choice for each batch size; from a profile the fastest measured one of
    those batch sizes that it has, or with --unseen what its other models suggest for this one. The file goes
    into the folder -o (the current one), named as the engine looks for it.
    """
    from analyzer.tuning.moe_config_files import MoeFileKey, MoeFramework, format_moe_config_file

    sizes = parse_sizes("--tokens", tokens)
    shape = (experts, topk, 2 * intermediate, hidden)
    if source.suffix != ".csv":
        gpu, choose = _load_artifact(source, shape)
    elif unseen:
        gpu, choose = _fit_profile(source, shape, near_best)
    else:
        gpu, choose = _load_profile(source, shape)
    key = MoeFileKey(
        experts=experts,
        intermediate=intermediate,
        device_name=_find_device_name(device_name, gpu),
        dtype=dtype or None,
        block_shape=_parse_block_shape(block_shape),
    )
    target = claim_named_file(output, key.make_file_name(MoeFramework(framework)))
    found = [(size, config) for size in sizes if (config := choose(size)) is not None]
    if not found:
        raise UsageError(
            f"{source} has no times of {experts} experts, top {topk}, {hidden} x {intermediate}",
            hint="name a model and batch sizes that were measured",
        )
    write_text(format_moe_config_file(found), target)
    if str(target) != "-":
        print_line(f"{target}: {len(found)} batch sizes, {gpu}")


def _load_artifact(path: Path, shape: tuple[int, ...]) -> "tuple[str, Callable[[int], MoeConfig | None]]":
    """Return the GPU of an artifact and its choice by batch size."""
    from analyzer.tuning.chooser import Chooser

    chooser = Chooser(path)
    if chooser.space.name != _KERNEL:
        raise UsageError(f"{path} is of {chooser.space.name}", hint=f"these files are for {_KERNEL}")
    return chooser.artifact.description.gpu, lambda size: _make_config(chooser.choose(size, *shape))


def _load_profile(path: Path, shape: tuple[int, ...]) -> "tuple[str, Callable[[int], MoeConfig | None]]":
    """Return the GPU of a profile and the fastest measured configuration by batch size."""
    import numpy as np

    from analyzer.tuning.measured_table import tabulate
    from analyzer.tuning.samples import read_samples

    table = tabulate(select_part(path, read_samples(path), _KERNEL, ""))
    names = (*table.space.macro_parameters, *table.space.micro_parameters)
    row_of = {tuple(each): row for row, each in enumerate(table.shapes.tolist())}

    def choose(size: int) -> "MoeConfig | None":
        row = row_of.get((size, *shape))
        if row is None or not np.isfinite(table.time_us[row]).any():
            return None
        best = int(np.where(np.isfinite(table.time_us[row]), table.time_us[row], np.inf).argmin())
        return _make_config(dict(zip(names, table.configs[best].tolist(), strict=True)))

    return table.gpu, choose


def _fit_profile(
    path: Path, shape: tuple[int, ...], near_best: float | None
) -> "tuple[str, Callable[[int], MoeConfig | None]]":
    """Return the GPU of a profile and the choice of smoothed waves that are fitted to it."""
    from analyzer.hardware.gpu_database import load_gpu
    from analyzer.tuning.measured_table import tabulate
    from analyzer.tuning.policies import find_list_cap
    from analyzer.tuning.samples import read_samples
    from analyzer.tuning.smoothed_waves import SmoothingOptions, fit_smoothed

    table = tabulate(select_part(path, read_samples(path), _KERNEL, "")).keep_known_configs()
    options = SmoothingOptions()
    if near_best is not None:
        options = SmoothingOptions(cap=find_list_cap(near_best))
        table = table.fill_unlisted(options.cap)
    choose = fit_smoothed(table, load_gpu(table.gpu).sm_count, options).make_chooser()
    return table.gpu, lambda size: _make_config(choose((size, *shape)))


def _make_config(values: "Mapping[str, int]") -> "MoeConfig":
    from analyzer.tuning.moe_config_files import MoeConfig

    return MoeConfig(
        block_size_m=values["BLOCK_SIZE_M"],
        block_size_n=values["BLOCK_SIZE_N"],
        block_size_k=values["BLOCK_SIZE_K"],
        group_size_m=values["GROUP_SIZE_M"],
        num_warps=values["num_warps"],
        num_stages=values["num_stages"],
    )


def _find_device_name(given: str, gpu: str) -> str:
    from analyzer.tuning.device_names import find_device_name

    return given or find_device_name(gpu)


def _parse_block_shape(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    sizes = text.split(",")
    if len(sizes) != 2 or not all(size.strip().isdecimal() and 0 < int(size) < 1 << 20 for size in sizes):
        raise UsageError(f"--block-shape {text}", hint="rows and columns of a block: --block-shape 128,128")
    return int(sizes[0]), int(sizes[1])
