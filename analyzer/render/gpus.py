"""GPUs and their figures as tables, and the text of a GPU file to edit."""

import json
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from rich.console import Console
from rich.text import Text

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_paths import collect_parameters, collect_struct_parameters
from analyzer.hardware.resource_scaling import find_coupled_keys
from analyzer.hardware.resources import RESOURCES, FigureRow
from analyzer.hardware.schema import Arch, GpuFile, HardwareParameter, SchedClassTiming
from analyzer.ir.scheduling import TensorRate
from analyzer.render.tables import Column, ColumnFit, FittedTable, make_number_columns, make_table
from analyzer.text.escaping import escape_controls


def make_gpu_table(gpus: tuple[Gpu, ...]) -> FittedTable:
    """Return a table with one row per GPU; tensor FMA is dense FP16 per cycle and SM, `-` for none.

    A GPU is verified if no figure that decides times is assumed.
    """
    rows = []
    for gpu in gpus:
        rate = gpu.find_tensor_fma_per_cycle(TensorRate.F16)
        rows.append(
            (
                gpu.key,
                gpu.file.arch,
                gpu.name,
                str(gpu.sm_count),
                f"{gpu.find_clock_mhz(tensor=None).value:,.0f}",
                f"{gpu.file.memory.bandwidth_gbps.value:,.0f}",
                f"{gpu.file.l2.size_bytes.value / 2**20:,.1f}",
                f"{rate.value:,.0f}" if rate else "-",
                "yes" if gpu.is_verified else "no",
            )
        )
    columns = [
        Column("name", ColumnFit.WRAP, min_width=16),
        Column("arch", ColumnFit.NO_WRAP),
        Column("product", ColumnFit.WRAP, min_width=13, drop_rank=1),
        *make_number_columns("SMs", "MHz", "DRAM GB/s"),
        *make_number_columns("L2 MiB", "tensor FMA", drop_rank=2),
        Column("verified", ColumnFit.NO_WRAP, drop_rank=3),
    ]
    return make_table(columns, rows)


def print_gpu(gpu: Gpu, console: Console, *, explain: bool) -> None:
    """Print the figures of one GPU; with `explain` by resource, with how they scale and their sources."""
    title = f"{gpu.name}   {gpu.file.vendor} {gpu.file.chip}   {gpu.file.arch}"
    for line in (title, gpu.file.note and f"  {gpu.file.note}", f"  {_make_verification_text(gpu)}"):
        if line:
            console.print(Text(escape_controls(line)))
    if not explain:
        console.print(_make_figure_table(dict(list_figures(gpu.file))))
        return
    known = collect_parameters(gpu)
    for resource in RESOURCES:
        rows = [row for row in resource.rows if row.key in known and not row.key.startswith(_CLASS_PREFIX)]
        if rows:
            console.print(f"{resource.name}: {resource.title}", markup=False)
            console.print(_make_resource_table(gpu, rows))
    if gpu.arch is not None:
        console.print(f"scheduling classes of {gpu.arch.name}, {gpu.arch.family}", markup=False)
        console.print(_make_class_table(gpu.arch))


def _make_verification_text(gpu: Gpu) -> str:
    if gpu.is_verified:
        return "verified: all figures that decide times are measured, calibrated or the vendor's"
    return f"unverified: figures that decide times are assumed: {', '.join(gpu.assumed_deciding_keys)}"


def list_figures(row: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, HardwareParameter]]:
    """Yield all figures under a row with their dotted keys, except those of scheduling classes."""
    for name in row.__struct_fields__:
        value = getattr(row, name)
        key = f"{prefix}{name}"
        match value:
            case HardwareParameter():
                yield key, value
            case msgspec.Struct():
                yield from list_figures(value, f"{key}.")
            case dict() if name == "tensor":
                for rate, figures in value.items():
                    yield from list_figures(figures, f"{key}.{rate}.")
            case _:
                continue


def _make_figure_table(figures: dict[str, HardwareParameter]) -> FittedTable:
    rows = [(key, _format_value(figure), figure.basis.value) for key, figure in figures.items()]
    return make_table(_FIGURE_COLUMNS, rows)


def _make_resource_table(gpu: Gpu, rows: Iterable[FigureRow]) -> FittedTable:
    """Return a table of figures of a resource; a figure that both files have is the GPU's."""
    own = collect_struct_parameters(gpu.file)
    known = collect_parameters(gpu)
    cells = []
    for row in rows:
        figure = known[row.key]
        listed = gpu.file.sources if row.key in own or gpu.arch is None else gpu.arch.sources
        source = listed.get(figure.source, figure.source)
        told = "; ".join(filter(None, (row.relation, source, figure.note)))
        cells.append((row.key, _format_value(figure), figure.basis.value, row.scaling.value, told))
    columns = [
        *_FIGURE_COLUMNS,
        Column("scales as", ColumnFit.NO_WRAP, drop_rank=1),
        Column("relation, source or rule, note", ColumnFit.WRAP, min_width=20),
    ]
    return make_table(columns, cells)


def _format_value(figure: HardwareParameter) -> str:
    return f"{figure.value:,g}" if figure.value < 1e6 else f"{figure.value:,.0f}"


_CLASS_PREFIX = "sched."
_FIGURE_COLUMNS = (
    Column("figure", ColumnFit.WRAP, min_width=20),
    *make_number_columns("value"),
    Column("basis", ColumnFit.NO_WRAP),
)


def _make_class_table(arch: Arch) -> FittedTable:
    rows = [
        (sched.value, _format_pipes(figures), *_make_class_cells(figures, arch.sources))
        for sched, figures in arch.sched.items()
    ]
    rows += [(sched.value, "unsupported", "", "", "", "") for sched in arch.unsupported]
    columns = [
        Column("scheduling class", ColumnFit.WRAP, min_width=16),
        Column("pipe", ColumnFit.WRAP, min_width=8),
        Column("issue cycles", ColumnFit.WRAP),
        Column("latency cycles", ColumnFit.WRAP),
        Column("completion", ColumnFit.WRAP, min_width=10, drop_rank=1),
        Column("sources", ColumnFit.WRAP, min_width=16),
    ]
    return make_table(columns, rows)


def _format_pipes(figures: SchedClassTiming) -> str:
    other = f" or {figures.alternate_pipe.value}" if figures.alternate_pipe else ""
    return figures.pipe.value + other


def _make_class_cells(figures: SchedClassTiming, sources: Mapping[str, str]) -> tuple[str, str, str, str]:
    issue, latency = figures.issue_cycles, figures.latency_cycles
    names = dict.fromkeys(
        (sources.get(issue.source, issue.source), sources.get(latency.source, latency.source))
    )
    return (
        f"{issue.value:g} ({issue.basis.value})",
        f"{latency.value:g} ({latency.basis.value})",
        figures.completion.value,
        escape_controls("; ".join(names)),
    )


def _quote(text: str) -> str:
    """Return a text as a string of TOML, which has JSON's escapes."""
    return json.dumps(escape_controls(text))


def make_gpu_file(parent: Gpu, name: str) -> str:
    """Return the text of a GPU file that inherits all figures, with the most edited ones as comments.

    What follows an edited figure unless it stands in the file too is named behind it.
    """
    file: GpuFile = parent.file
    figures = dict(list_figures(file))

    def line(key: str, figure: HardwareParameter | None) -> str:
        value = 0 if figure is None else figure.value
        name = key.rpartition(".")[2]
        found = f'# {name} = {{ value = {value:.12g}, basis = "assumed", source = "my estimate" }}\n'
        followers = [follower for follower in find_coupled_keys(key) if follower in figures]
        return found + (f"#   scales {', '.join(followers)}\n" if followers else "")

    rates = "\n".join(
        f"[tensor.{rate.value}]\n"
        + line(f"tensor.{rate.value}.fma_per_cycle_per_sm", file.tensor[rate].fma_per_cycle_per_sm)
        for rate in file.tensor
    )
    return (
        f"# {escape_controls(name)}: as {escape_controls(file.name)} but for what stands here. "
        f"Figures: warplens gpus {escape_controls(parent.key)} --explain\n"
        "# An edited figure scales those that were derived from it, unless they stand here too.\n"
        f'schema = "warplens/gpu/1"\nname = {_quote(name)}\ninherits = {_quote(parent.key)}\n\n'
        f"[sm]\n{line('sm.count', file.sm.count)}\n"
        f"[clock]\n{line('clock.boost_mhz', file.clock.boost_mhz)}\n"
        f"[memory]\n{line('memory.bandwidth_gbps', file.memory.bandwidth_gbps)}\n"
        f"[l2]\n{line('l2.size_bytes', file.l2.size_bytes)}"
        f"{line('l2.bandwidth_gbps', file.l2.bandwidth_gbps) if file.l2.bandwidth_gbps else ''}\n"
        f"{rates}"
    )
