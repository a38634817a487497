"""`warplens doctor`: which optional tools were found, and what each enables."""

from importlib.util import find_spec

import click


@click.command()
def doctor() -> None:
    """Show which optional tools and packages were found, and what each enables."""
    from rich import box
    from rich.table import Table

    from analyzer.frontend.tools import tools
    from analyzer.hardware.load import gpu_paths, known_archs, user_folder
    from analyzer.render.text import make_console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "found", "enables"):
        table.add_column(name)
    found = {tool.name: f"{tool.version or '?'} ({tool.origin}: {tool.path})" for tool in tools()}
    for name, enables in _TOOLS:
        table.add_row(name, found.get(name, "no"), enables)
    for module, enables in _PACKAGES:
        table.add_row(module, "yes" if find_spec(module) else "no", enables)
    console = make_console()
    console.print(table)
    console.print(f"{len(gpu_paths())} GPUs, architectures {', '.join(known_archs())}", markup=False)
    console.print(f"your own GPU files: {user_folder()}", markup=False)
    if "cuobjdump" not in found:
        click.echo(
            "binaries need cuobjdump and nvdisasm: put CUDA's bin folder on PATH, or install warplens[tools]"
        )


_TOOLS = (
    ("cuobjdump", "cubin, fatbin, object and library as input"),
    ("nvdisasm", "branch tables and source lines of cubins"),
)
_PACKAGES = (
    ("triton", "brings both CUDA tools"),
    ("torch", "learned predictors (not in this version)"),
    ("sklearn", "learned predictors (not in this version)"),
)
