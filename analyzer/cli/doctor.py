"""`warplens doctor`: which optional tools were found, and what each enables."""

from importlib.util import find_spec

import click


@click.command()
def doctor() -> None:
    """Show which optional tools and packages were found, and what each enables."""
    from rich import box
    from rich.table import Table

    from analyzer.frontend.tools import find_tool, with_version
    from analyzer.hardware.load import gpu_paths, known_archs, user_folder
    from analyzer.render.text import make_console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "found", "enables"):
        table.add_column(name)
    for name, enables in _TOOLS:
        tool = find_tool(name)
        tool = with_version(tool) if tool else None
        found = f"{tool.version or 'version unknown'} ({tool.origin}: {tool.path})" if tool else "no"
        table.add_row(name, found, enables)
    for module, enables in _PACKAGES:
        table.add_row(module, "yes" if find_spec(module) else "no", enables)
    console = make_console()
    console.print(table)
    console.print(f"{len(gpu_paths())} GPUs, architectures {', '.join(known_archs())}", markup=False)
    console.print(f"your own GPU files: {user_folder()}", markup=False)
    if not find_tool("cuobjdump"):
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
