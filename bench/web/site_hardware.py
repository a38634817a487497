"""The hardware database as pages: a table of the GPUs, and for each GPU its figures with basis and source."""

from collections import Counter
from collections.abc import Iterator, Mapping

from site_markdown import make_cell

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_all_gpus
from analyzer.hardware.schema import HardwareParameter
from analyzer.ir.scheduling import TensorRate
from analyzer.render.gpus import list_figures

_HEAD = """\
# Hardware database

All figures that decide a time stand in `hwdb/`, never in code: {n_gpus} GPUs with {n_figures:,} figures.
Each has a *basis* and a source: **measured** by a published or own micro-benchmark, **vendor** where
NVIDIA or AMD says so, **calibrated** so that models fit measured times, **assumed** where nothing better
is known. A GPU is *verified* where no figure that decides times (SMs, boost clock, DRAM rate, L2 size,
tensor rates) is assumed.

`warplens gpus` prints this table, `warplens gpus h100 --explain` one GPU with its architecture. A GPU of
your own inherits from one of these: `warplens gpus new --from h100 -o mine.toml`, then `--gpu
mine.toml`.

| basis | figures |
|---|---:|
{bases}

*Tensor FMA*: dense FP16 multiply-adds per cycle and SM. GPUs without an architecture of ours are for models
of operators alone.

| GPU | architecture | SMs | boost MHz | DRAM GB/s | L2 MiB | tensor FMA | verified |
|---|---|---:|---:|---:|---:|---:|---|
{rows}
"""


def make_hardware_pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of the table of GPUs and of the page of each."""
    gpus = load_all_gpus()
    bases: Counter[str] = Counter()
    for gpu in gpus:
        figures = dict(list_figures(gpu.file))
        bases.update(figure.basis.value for figure in figures.values())
        yield f"hardware/{gpu.key}.md", _make_gpu_page(gpu, figures)
    yield (
        "hardware/index.md",
        _HEAD.format(
            n_gpus=len(gpus),
            n_figures=bases.total(),
            bases="\n".join(f"| {basis} | {count:,} |" for basis, count in bases.most_common()),
            rows="\n".join(_make_row(gpu) for gpu in gpus),
        ),
    )


def _make_row(gpu: Gpu) -> str:
    rate = gpu.find_tensor_fma_per_cycle(TensorRate.F16)
    cells = (
        f"[{gpu.name}]({gpu.key}.md)",
        gpu.file.arch,
        str(gpu.sm_count),
        f"{gpu.find_clock_mhz(tensor=None).value:,.0f}",
        f"{gpu.file.memory.bandwidth_gbps.value:,.0f}",
        f"{gpu.file.l2.size_bytes.value / 2**20:,.1f}",
        f"{rate.value:,.0f}" if rate else "",
        "yes" if gpu.is_verified else "no",
    )
    return f"| {' | '.join(cells)} |"


def _make_gpu_page(gpu: Gpu, figures: Mapping[str, HardwareParameter]) -> str:
    rows = "\n".join(
        f"| `{key}` | {_format_value(figure.value)} | {figure.basis.value} | {_name_source(gpu, figure)} |"
        for key, figure in figures.items()
    )
    assumed = ", ".join(f"`{key}`" for key in gpu.assumed_deciding_keys)
    verified = "Verified." if gpu.is_verified else f"Not verified: {assumed} assumed."
    return (
        f"# {gpu.name}\n\n{gpu.file.vendor} {gpu.file.chip}, {gpu.file.arch}; `--gpu {gpu.key}`. {verified} "
        f"{make_cell(gpu.file.note or '')}\n\nAll GPUs: docs/hardware/index.md.\n\n"
        f"| figure | value | basis | source and note |\n|---|---:|---|---|\n{rows}\n"
    )


def _format_value(value: float) -> str:
    return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def _name_source(gpu: Gpu, figure: HardwareParameter) -> str:
    source = gpu.file.sources.get(figure.source, figure.source)
    return make_cell(f"{source}; {figure.note}" if figure.note else source)
