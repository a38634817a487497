"""`warplens doctor`: the optional tools that were found, and what each enables."""

from importlib.util import find_spec

import click


@click.command()
def doctor() -> None:
    """Show which optional tools and packages were found, and what each enables."""
    from rich import box
    from rich.table import Table

    from analyzer.frontend.cuda_tools import find_all_tools, make_install_hint
    from analyzer.hardware.gpu_database import find_gpu_paths, find_user_folder, list_known_archs
    from analyzer.render.terminal import make_console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "found", "enables"):
        table.add_column(name)
    found = {tool.name: f"{tool.version or '?'} ({tool.found_in}: {tool.path})" for tool in find_all_tools()}
    for name, enables in _TOOLS:
        table.add_row(name, found.get(name, "no"), enables)
    for module, enables in _PACKAGES:
        table.add_row(module, "yes" if find_spec(module) else "no", enables)
    console = make_console()
    console.print(table)
    console.print(
        f"{len(find_gpu_paths())} GPUs, architectures {', '.join(list_known_archs())}", markup=False
    )
    folder = find_user_folder()
    console.print(f"your own GPU files: {'none, as there is no home folder' if folder is None else folder}")
    if "cuobjdump" not in found:
        click.echo(f"binaries need cuobjdump and nvdisasm: {make_install_hint()}")


_TOOLS = (
    ("cuobjdump", "cubin, fatbin, object and library as input"),
    ("nvdisasm", "branch tables and source lines of cubins"),
)
_PACKAGES = (
    ("triton", "brings both CUDA tools"),
    ("torch", "learned predictors (not in this version)"),
    ("sklearn", "learned predictors (not in this version)"),
)
