"""`warplens doctor`: the optional tools that were found, and what each enables."""

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line
from analyzer.text.optional_packages import find_missing


@click.command(epilog=make_examples("warplens doctor", "warplens doctor | grep cuobjdump"))
def doctor() -> None:
    """Show which optional tools and packages were found, and what each enables."""
    from analyzer.frontend.cuda_tools import find_all_tools, make_install_hint
    from analyzer.hardware import gpu_database as files
    from analyzer.render.console import make_console
    from analyzer.render.tables import Column, ColumnFit, make_table

    found = {tool.name: f"{tool.version or '?'} ({tool.found_in}: {tool.path})" for tool in find_all_tools()}
    rows = [(name, found.get(name, "no"), enables) for name, enables in _TOOLS]
    rows += [(module, "no" if find_missing([module]) else "yes", enables) for module, enables in _PACKAGES]
    columns = [
        Column("what", ColumnFit.NO_WRAP),
        Column("found", ColumnFit.WRAP, min_width=20),
        Column("enables", ColumnFit.WRAP, min_width=20),
    ]
    console = make_console()
    console.print(make_table(columns, rows))
    console.print(
        f"{len(files.find_gpu_paths())} GPUs, architectures {', '.join(files.list_known_archs())}",
        markup=False,
    )
    none = "none, as there is no home folder"
    console.print(f"your own GPU files: {files.find_user_folder() or none}")
    console.print(f"your own architectures: {files.find_user_arch_folder() or none}")
    console.print(_describe_cache(), markup=False)
    if "cuobjdump" not in found:
        print_line(f"binaries need cuobjdump and nvdisasm: {make_install_hint()}")


def _describe_cache() -> str:
    """Return where reports of kernels are kept, and how much there is."""
    from analyzer.pipeline.entry_store import MAX_FOLDER_BYTES, locate_kernel_folder, measure_folder

    folder = locate_kernel_folder()
    if folder is None:
        return "cache of kernels: none, as there is no home folder"
    use = measure_folder(folder)
    size, most = use.size_bytes / (1 << 20), MAX_FOLDER_BYTES >> 20
    return f"cache of kernels: {folder}, {use.n_entries:,} entries, {size:,.1f} of at most {most:,} MiB"


_TOOLS = (
    ("cuobjdump", "cubin, fatbin, object and library as input"),
    ("nvdisasm", "branch tables and source lines of cubins"),
    ("ptxas", "PTX as input, by the code that it makes"),
)
_PACKAGES = (
    ("triton", "brings the CUDA tools; `tune rank --compile`, `tune profile`"),
    ("plotly", "charts of `whatif`, `serving` and `validate`"),
    ("sklearn", "`learn`; policies of `tune evaluate`"),
    ("torch", "`learn` without --quick; `tune profile`"),
    ("dask", "--backend dask"),
)
