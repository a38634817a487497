"""One line on what a launch achieves.

Example: `L2-bound: 408 TFLOP/s, 41 % of FP16 peak; DRAM 23 %, 771 GB/s; L2 97 %, 9,651 GB/s`.
"""

from rich.text import Text

from analyzer.execution.profile.provenance import INEXACT_PROVENANCES, Provenance
from analyzer.render.number_format import format_provenance, format_rate
from analyzer.report.analyze_schema import (
    ComputeThroughputEntry,
    KernelReport,
    MemoryThroughputEntry,
    PredictionEntry,
    SpeedOfLightEntry,
)

MAX_LINES = 4
_VECTOR_MARKS = {"FP16": "FP16 vector", "FP32": "FP32", "FP64": "FP64"}
_TENSOR_MARKS = {"FP64": "FP64 tensor"}


def make_speed_of_light_lines(kernel: KernelReport) -> list[Text]:
    """Return a line for each prediction, named where there are several; of many only the first ones."""
    entries = [entry for entry in kernel.predictions if entry.speed_of_light is not None]
    several_gpus = len({entry.gpu for entry in entries}) > 1
    several_models = len({entry.model for entry in entries}) > 1
    lines = []
    for entry in entries[:MAX_LINES]:
        names = [entry.gpu_name] * several_gpus + [entry.model] * several_models
        named = f"{', '.join(names)}: " if names else ""
        lines.append(Text.assemble(named, (format_speed_of_light(entry), "bold")))
    if len(entries) > MAX_LINES:
        lines.append(Text(f"the same of {len(entries) - MAX_LINES} more: --format json", style="dim"))
    return lines


def format_speed_of_light(entry: PredictionEntry) -> str:
    """Return the bound, the operations of the busiest data type, and the bytes of DRAM and L2, with shares.

    `~` marks what rests on assumed counts, bytes on assumed or unknown addresses too, `?` on unknown counts;
    see `format_bound` for the bound.
    """
    found, bound = entry.speed_of_light, format_bound(entry)
    if found is None:
        return f"{bound}-bound"
    mark = format_provenance(found.provenance)
    parts = [_format_compute(found, mark)]
    if any(level.bytes for level in found.memory):
        guessed = found.address_provenance in INEXACT_PROVENANCES
        memory_mark = mark or (format_provenance("assumed") if guessed else "")
        parts += [_format_memory(level, memory_mark) for level in found.memory]
    else:
        parts.append("no global memory traffic")
    if found.assumes_one_wave:
        parts.append("if one full wave of CTAs runs")
    return f"{bound}-bound: {'; '.join(parts)}"


def format_bound(entry: PredictionEntry) -> str:
    """Return the bound, marked `~` where a launch has unknown addresses, so that another one may hold."""
    found = entry.speed_of_light
    if found is None or found.assumes_one_wave or found.address_provenance != Provenance.UNKNOWN:
        return entry.bound
    return f"{format_provenance(Provenance.ASSUMED)}{entry.bound}"


def _format_compute(found: SpeedOfLightEntry, mark: str) -> str:
    if not found.compute:
        return f"no FLOP, {mark}{_format_share(found.issue_share)} of issue slots"
    first = found.compute[0]
    text = f"{mark}{format_rate(first.operations_per_second)}{_find_unit(first)}/s"
    if first.peak_share is None:
        return f"{text} {_name_type(first)}"
    return f"{text}, {_format_share(first.peak_share)} of {_name_type(first)} peak"


def _find_unit(entry: ComputeThroughputEntry) -> str:
    return "OP" if entry.data_type.startswith("INT") else "FLOP"


def _name_type(entry: ComputeThroughputEntry) -> str:
    marks = _TENSOR_MARKS if entry.unit == "tensor" else _VECTOR_MARKS
    return marks.get(entry.data_type, entry.data_type)


def _format_memory(entry: MemoryThroughputEntry, mark: str) -> str:
    return f"{entry.level} {mark}{_format_share(entry.peak_share)}, {_format_gbps(entry.gbps)} GB/s"


def _format_gbps(gbps: float) -> str:
    return f"{gbps:,.0f}" if gbps >= 10 else f"{gbps:.2g}"


def _format_share(share: float) -> str:
    return "<1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"
