"""What the shell completes behind options: files, names of GPUs and models (docs/command-line.md)."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_files(incomplete: str) -> "list[CompletionItem]":
    """Leave files to the shell."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_gpus(incomplete: str) -> "list[CompletionItem]":
    """Return the GPUs whose names begin so; none where the value is a file."""
    from click.shell_completion import CompletionItem

    from analyzer.hardware.gpu_database import find_gpu_paths

    names = ("all", *sorted(find_gpu_paths()))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the models whose names begin so, behind those that stand before a comma."""
    from analyzer.models.registry import list_models

    before, comma, last = incomplete.rpartition(",")
    names = [name for name in (*list_models(), "all") if name.startswith(last)]
    return [f"{before}{comma}{name}" for name in names]
