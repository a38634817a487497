"""Why a kernel changed, from what a baseline keeps of it: figures and CPI stacks, but no code.

spills 0 -> 88 B
long_scoreboard +.22 CPI
registers 40 -> 56: 4 -> 3 CTAs per SM
sectors of global memory +300.0 % (1.02k -> 4.10k)
"""

from collections.abc import Iterator

from analyzer.comparison.kernel_metrics import METRICS
from analyzer.render.number_format import format_count
from analyzer.report.baseline_schema import BaselineKernel, BaselinePrediction

_MIN_STALL_CPI = 0.005
_MIN_STALL_SHARE = 0.01  # of the CPI
_MAX_STALLS = 2
_MIN_COUNT_CHANGE = 0.01
_MAX_COUNTS = 3
_LAUNCH_STALL = "launch"  # what a launch costs beside its instructions, the floor of short kernels included
_COUNTS = (
    "executed_warp_instructions",
    "global_sectors",
    "shared_wavefronts",
    "local_sectors",
    "global_read_bytes",
    "global_written_bytes",
)
_SPILLS = {
    "spill_bytes": "spills",
    "spill_load_bytes": "spill loads",
    "spill_store_bytes": "spill stores",
    "stack_frame_bytes": "stack frame",
}


def list_evidence(old: BaselineKernel, new: BaselineKernel, gpu: str) -> tuple[str, ...]:
    """Return what changed beside the cycles on a GPU, the most telling first; nothing where all is equal."""
    return (
        *_list_spills(old, new),
        *_list_stalls(old.gpus.get(gpu), new.gpus.get(gpu)),
        *_list_resources(old, new, gpu),
        *_list_counts(old, new),
    )


def _list_spills(old: BaselineKernel, new: BaselineKernel) -> Iterator[str]:
    """Yield the first of the figures on spilled registers that changed; the others follow from it."""
    changes = (_format_change(old, new, name, label) for name, label in _SPILLS.items())
    if found := next((change for change in changes if change), ""):
        yield found


def _list_stalls(old: BaselinePrediction | None, new: BaselinePrediction | None) -> Iterator[str]:
    """Yield the stalls that moved most, those that moved with the cycles."""
    if old is None or new is None:
        return
    before, after = (side.metrics.get("cycles", 0) for side in (old, new))
    direction = (after > before) - (after < before)
    least = max(_MIN_STALL_CPI, _MIN_STALL_SHARE * sum(old.cpi_stack.values()))
    stalls = sorted({*old.cpi_stack, *new.cpi_stack} - {_LAUNCH_STALL})
    changes = [(new.cpi_stack.get(stall, 0) - old.cpi_stack.get(stall, 0), stall) for stall in stalls]
    moved = [(change, stall) for change, stall in changes if change * direction > 0 or not direction]
    for change, stall in sorted(moved, key=lambda each: (-abs(each[0]), each[1]))[:_MAX_STALLS]:
        if abs(change) >= least:
            yield f"{stall} {_format_cpi(change)} CPI"


def _format_cpi(change: float) -> str:
    """Return `+.22`, `-1.04`."""
    whole, point, digits = f"{abs(change):.2f}".partition(".")
    return f"{'-' if change < 0 else '+'}{'' if whole == '0' else whole}{point}{digits}"


def _list_resources(old: BaselineKernel, new: BaselineKernel, gpu: str) -> Iterator[str]:
    """Yield what an SM holds, with the resources that moved."""
    causes = [text for name in ("registers", "shared_bytes") if (text := _format_change(old, new, name))]
    before, after = (_find_resident_ctas(side, gpu) for side in (old, new))
    if before != after and None not in (before, after):
        occupancy = f"{before:g} -> {after:g} CTAs per SM"
        yield f"{', '.join(causes)}: {occupancy}" if causes else occupancy
    else:
        yield from causes
    if old.launch != new.launch:
        yield f"launch {old.launch} -> {new.launch}, by its metadata"


def _find_resident_ctas(kernel: BaselineKernel, gpu: str) -> float | None:
    return kernel.gpus[gpu].metrics.get("ctas_per_sm") if gpu in kernel.gpus else None


def _format_change(old: BaselineKernel, new: BaselineKernel, name: str, label: str = "") -> str:
    """Return `registers 40 -> 56`; "" where it is the same, or one is not known."""
    before, after = old.metrics.get(name), new.metrics.get(name)
    if before is None or after is None or before == after:
        return ""
    unit = f" {METRICS[name].unit}" if METRICS[name].unit else ""
    return f"{label or METRICS[name].label} {before:,g} -> {after:,g}{unit}"


def _list_counts(old: BaselineKernel, new: BaselineKernel) -> Iterator[str]:
    """Yield the counts of the launch that moved most."""
    changes = []
    for name in _COUNTS:
        before, after = old.metrics.get(name), new.metrics.get(name)
        if before is None or after is None or before == after:
            continue
        change = abs(after - before) / before if before else float("inf")
        if change >= _MIN_COUNT_CHANGE:
            changes.append((-change, name, before, after))
    for _, name, before, after in sorted(changes)[:_MAX_COUNTS]:
        share = f"{(after - before) / before * 100:+.1f} %" if before else "from none"
        yield f"{METRICS[name].label} {share} ({format_count(before)} -> {format_count(after)})"
