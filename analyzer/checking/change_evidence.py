"""Why a kernel changed, from what a baseline keeps of it: figures and CPI stacks, but no code.

long_scoreboard +.22 CPI
registers 40 -> 56: 4 -> 3 CTAs per SM
sectors of global memory +300 % (1,024 -> 4,096)
"""

from collections.abc import Iterator

from analyzer.comparison.kernel_metrics import METRICS
from analyzer.report.baseline_schema import BaselineKernel, BaselinePrediction

_MIN_STALL_CPI = 0.005
_MIN_STALL_SHARE = 0.01  # of the CPI
_MAX_STALLS = 2
_MIN_COUNT_CHANGE = 0.01
_MAX_COUNTS = 4
_COUNTS = (
    "executed_warp_instructions",
    "global_sectors",
    "shared_wavefronts",
    "local_sectors",
    "global_read_bytes",
    "global_written_bytes",
)
_SPILLS = ("spill_bytes", "spill_store_bytes", "spill_load_bytes", "stack_frame_bytes")


def list_evidence(old: BaselineKernel, new: BaselineKernel, gpu: str) -> tuple[str, ...]:
    """Return what changed beside the cycles on a GPU, the most telling first; nothing where all is equal."""
    return (
        *_list_stalls(old.gpus.get(gpu), new.gpus.get(gpu)),
        *_list_resources(old, new, gpu),
        *_list_counts(old, new),
    )


def _list_stalls(old: BaselinePrediction | None, new: BaselinePrediction | None) -> Iterator[str]:
    """Yield the stalls whose cycles per instruction moved most."""
    if old is None or new is None:
        return
    stalls = dict.fromkeys((*new.cpi_stack, *old.cpi_stack))
    least = max(_MIN_STALL_CPI, _MIN_STALL_SHARE * sum(old.cpi_stack.values()))
    changes = {stall: new.cpi_stack.get(stall, 0) - old.cpi_stack.get(stall, 0) for stall in stalls}
    largest = sorted(changes.items(), key=lambda each: (-abs(each[1]), each[0]))
    for stall, change in largest[:_MAX_STALLS]:
        if abs(change) >= least:
            yield f"{stall} {_format_cpi(change)} CPI"


def _format_cpi(change: float) -> str:
    """Return `+.22`, `-1.04`."""
    whole, point, digits = f"{abs(change):.2f}".partition(".")
    return f"{'-' if change < 0 else '+'}{'' if whole == '0' else whole}{point}{digits}"


def _list_resources(old: BaselineKernel, new: BaselineKernel, gpu: str) -> Iterator[str]:
    occupancy = ""
    before, after = (_find(side, "ctas_per_sm", gpu) for side in (old, new))
    if before is not None and after is not None and before != after:
        occupancy = f"{before:g} -> {after:g} CTAs per SM"
    causes = [text for name in ("registers", "shared_bytes") if (text := _format_change(old, new, name))]
    if occupancy:
        yield f"{', '.join(causes)}: {occupancy}" if causes else occupancy
    else:
        yield from causes
    spills = [text for name in _SPILLS if (text := _format_change(old, new, name))]
    if spills:
        yield ", ".join(spills)
    if old.launch != new.launch:
        yield f"launch {old.launch} -> {new.launch} (from metadata)"


def _find(kernel: BaselineKernel, metric: str, gpu: str) -> float | None:
    figures = kernel.gpus[gpu].metrics if gpu in kernel.gpus else {}
    return figures.get(metric, kernel.metrics.get(metric))


def _format_change(old: BaselineKernel, new: BaselineKernel, name: str) -> str:
    """Return `registers 40 -> 56`; "" where it is the same, or one is not known."""
    before, after = old.metrics.get(name), new.metrics.get(name)
    if before is None or after is None or before == after:
        return ""
    unit = f" {METRICS[name].unit}" if METRICS[name].unit else ""
    return f"{METRICS[name].label} {before:,g} -> {after:,g}{unit}"


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
        share = f"{(after - before) / before:+.1%}".replace("%", " %") if before else "from none"
        yield f"{METRICS[name].label} {share} ({before:,.0f} -> {after:,.0f})"
