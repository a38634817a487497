"""`warplens tune import`: read a file of fused-MoE configurations of vLLM or SGLang."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line, write_text
from analyzer.cli.path_types import INPUT_PATH, OUTPUT_FILE_OR_FOLDER, claim_named_file
from analyzer.text.errors import UsageError
from analyzer.text.escaping import escape_controls, format_json

if TYPE_CHECKING:
    from analyzer.tuning.moe_config_files import MoeConfigFile


@click.command(
    "import",
    epilog=make_examples(
        "warplens tune import traces/h100/E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json",
        "warplens tune import traces/h100/E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json --m 100 "
        "--format json",
    ),
)
@click.argument("file", metavar="FILE.json", type=INPUT_PATH)
@click.option(
    "--m", "tokens", type=click.IntRange(min=1), help="Show what the engines take for so many tokens."
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "vllm", "sglang"]),
    default="text",
    show_default=True,
    help="Show the file, or write it under an engine's name for it.",
)
@click.option("--output", "-o", type=OUTPUT_FILE_OR_FOLDER, help="File, or folder for an engine's file.")
def import_file(file: Path, *, tokens: int | None, output_format: str, output: Path | None) -> None:
    """Check and show the configurations in a file of vLLM's or SGLang's, or carry it to the other engine.

    The engines take the batch size nearest to the tokens at hand; of two equally near the first in the file.
    """
    from analyzer.tuning.moe_config_files import read_moe_config_file

    found = read_moe_config_file(file)
    if output_format in ("vllm", "sglang"):
        _carry(file, found, output_format, output)
        return
    write_text(
        _format_json(found, tokens) if output_format == "json" else _format_text(found, tokens), output
    )


def _carry(file: Path, found: "MoeConfigFile", engine: str, output: Path | None) -> None:
    """Write a file under the name that an engine looks for."""
    from analyzer.tuning.moe_config_files import MoeFramework, format_moe_config_file

    if found.key is None:
        raise UsageError(
            f"{file.name} does not say what it was tuned for",
            hint="its name is E=...,N=...,device_name=....json",
        )
    name = found.key.make_file_name(MoeFramework(engine))
    target = claim_named_file(output, name)
    write_text(format_moe_config_file(found.by_tokens), target)
    print_line(f"{target}: {len(found.by_tokens)} batch sizes")


def _format_json(found: "MoeConfigFile", tokens: int | None) -> str:
    from analyzer.tuning.device_names import find_gpu_of_device

    entries = found.by_tokens if tokens is None else (found.choose(tokens),)
    key = found.key
    answer = {
        "schema": "warplens/tune-import/1",
        "experts": key and key.experts,
        "intermediate": key and key.intermediate,
        "device_name": key and key.device_name,
        "gpu": key and find_gpu_of_device(key.device_name),
        "dtype": key and key.dtype,
        "block_shape": key and key.block_shape,
        "configurations": [{"m": size, "config": config.as_fields()} for size, config in entries],
        "fields_not_interpreted": found.extra_fields,
    }
    return format_json(answer)


def _format_text(found: "MoeConfigFile", tokens: int | None) -> str:
    """Return a line for each batch size, or the one for so many tokens."""
    lines = []
    if (key := found.key) is not None:
        kind = key.dtype or "16-bit floats"
        lines.append(f"{key.experts} experts of {key.intermediate}, {kind}, on {key.device_name}")
    entries = found.by_tokens if tokens is None else (found.choose(tokens),)
    for size, config in entries:
        fields = " ".join(f"{name}={value}" for name, value in config.as_fields().items())
        lines.append(f"{size:>6}  {fields}")
    for name, count in found.extra_fields.items():
        lines.append(f"{name}: kept, not interpreted ({count} times)")
    return "\n".join(escape_controls(line) for line in lines) + "\n"
