"""GPUs and their figures as tables, and the text of a GPU file to edit."""

from collections.abc import Iterator, Mapping

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_couplings import find_coupled_keys
from analyzer.hardware.schema import Arch, GpuFile, HardwareParameter, SchedClassTiming
from analyzer.ir.scheduling import TensorRate
from analyzer.text.escaping import escape_controls


def make_gpu_table(gpus: tuple[Gpu, ...]) -> Table:
    """Return a table with one row per GPU; tensor FMA is dense FP16 per cycle and SM, `-` for none.

    A GPU is verified if no figure that decides times is assumed.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("arch", no_wrap=True)
    table.add_column("product")
    for name in ("SMs", "MHz", "DRAM GB/s", "L2 MiB", "tensor FMA"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verified", no_wrap=True)
    for gpu in gpus:
        rate = gpu.find_tensor_fma_per_cycle(TensorRate.F16)
        table.add_row(
            escape_controls(gpu.key),
            gpu.file.arch,
            escape_controls(gpu.name),
            str(gpu.sm_count),
            f"{gpu.find_clock_mhz(tensor=None).value:,.0f}",
            f"{gpu.file.memory.bandwidth_gbps.value:,.0f}",
            f"{gpu.file.l2.size_bytes.value / 2**20:,.1f}",
            f"{rate.value:,.0f}" if rate else "-",
            "yes" if gpu.is_verified else "no",
        )
    return table


def print_gpu(gpu: Gpu, console: Console, *, explain: bool) -> None:
    """Print the figures of one GPU; with `explain` also their sources, and those of its architecture."""
    title = f"{gpu.name}   {gpu.file.vendor} {gpu.file.chip}   {gpu.file.arch}"
    for line in (title, gpu.file.note and f"  {gpu.file.note}", f"  {_make_verification_text(gpu)}"):
        if line:
            console.print(Text(escape_controls(line)))
    console.print(_make_figure_table(dict(list_figures(gpu.file)), gpu.file.sources, explain=explain))
    if explain and gpu.arch is not None:
        console.print(f"architecture {gpu.arch.name}, {gpu.arch.family}", markup=False)
        console.print(_make_figure_table(dict(list_figures(gpu.arch)), gpu.arch.sources, explain=True))
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


def _make_figure_table(
    figures: dict[str, HardwareParameter], sources: Mapping[str, str], *, explain: bool
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("basis", no_wrap=True)
    if explain:
        table.add_column("source and note")
    for key, figure in figures.items():
        row = [
            key,
            f"{figure.value:,g}" if figure.value < 1e6 else f"{figure.value:,.0f}",
            figure.basis.value,
        ]
        if explain:
            source = sources.get(figure.source, figure.source)
            row.append(f"{source}; {figure.note}" if figure.note else source)
        table.add_row(*map(escape_controls, row))
    return table


def _make_class_table(arch: Arch) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("scheduling class", "pipe"):
        table.add_column(name, no_wrap=True)
    for name in ("issue cycles", "latency cycles"):
        table.add_column(name, justify="right")
    table.add_column("completion", no_wrap=True)
    table.add_column("sources")
    for sched, figures in arch.sched.items():
        table.add_row(sched.value, _format_pipes(figures), *_make_class_cells(figures, arch.sources))
    for sched in arch.unsupported:
        table.add_row(sched.value, "unsupported", "", "", "", "")
    return table


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
        f"# {name}: as {file.name} but for what stands here. Figures: warplens gpus {parent.key} --explain\n"
        "# An edited figure scales those that were derived from it, unless they stand here too.\n"
        f'schema = "warplens/gpu/1"\nname = "{name}"\ninherits = "{parent.key}"\n\n'
        f"[sm]\n{line('sm.count', file.sm.count)}\n"
        f"[clock]\n{line('clock.boost_mhz', file.clock.boost_mhz)}\n"
        f"[memory]\n{line('memory.bandwidth_gbps', file.memory.bandwidth_gbps)}\n"
        f"[l2]\n{line('l2.size_bytes', file.l2.size_bytes)}"
        f"{line('l2.bandwidth_gbps', file.l2.bandwidth_gbps) if file.l2.bandwidth_gbps else ''}\n"
        f"{rates}"
    )
