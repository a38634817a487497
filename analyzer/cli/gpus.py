"""`warplens gpus`: the hardware database with the source of each figure."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line, write_text
from analyzer.cli.path_types import GPU_TEXT, OUTPUT_PATH
from analyzer.text.errors import UsageError


class _DefaultShowGroup(click.Group):
    """A group that reads `gpus h100` as `gpus show h100`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_DefaultShowGroup,
    invoke_without_command=True,
    epilog=make_examples("warplens gpus", "warplens gpus h100 --explain"),
)
@click.pass_context
def gpus(context: click.Context) -> None:
    """The known GPUs: all of them, or one with its figures: gpus NAME [--explain]."""
    if context.invoked_subcommand is not None:
        return
    from analyzer.hardware.gpu_database import load_all_gpus
    from analyzer.render.console import make_console
    from analyzer.render.gpus import make_gpu_table

    make_console().print(make_gpu_table(load_all_gpus()))


@gpus.command(epilog=make_examples("warplens gpus show h100", "warplens gpus show 'rtx 4090' --explain"))
@click.argument("name", type=GPU_TEXT)
@click.option("--explain", is_flag=True, help="Add basis, source and note, and the architecture's figures.")
def show(name: str, *, explain: bool) -> None:
    """Show the figures of one GPU: a name, an alias or a TOML file."""
    from analyzer.hardware.gpu_database import load_gpu
    from analyzer.render.console import make_console
    from analyzer.render.gpus import print_gpu

    print_gpu(load_gpu(name), make_console(), explain=explain)


@gpus.command(
    epilog=make_examples(
        "warplens gpus new --from h100 -o mine.toml",
        "warplens gpus new --from 'rtx 5090' -o faster-5090.toml",
    )
)
@click.option("--from", "parent", required=True, type=GPU_TEXT, help="GPU that the new one inherits from.")
@click.option(
    "--output",
    "-o",
    type=OUTPUT_PATH,
    default=Path("my-gpu.toml"),
    show_default=True,
    help="File to write; its stem becomes the name.",
)
def new(parent: str, output: Path) -> None:
    """Write a file of your own that inherits from a known GPU, ready to edit."""
    from analyzer.hardware.gpu_database import load_gpu
    from analyzer.render.gpus import make_gpu_file

    gpu = load_gpu(parent)
    if output.is_file():
        raise UsageError(f"{output} exists already", hint="choose another name with -o")
    write_text(make_gpu_file(gpu, output.stem), output)
    print_line(f"wrote {output}: edit it, then use --gpu {output}", to_errors=str(output) == "-")
