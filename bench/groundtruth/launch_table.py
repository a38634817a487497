"""Write measured launches as a table of `warplens validate` (docs/validate.md)."""

import json
from collections.abc import Iterable
from pathlib import Path

from predictions import write_table

from groundtruth.records import GPU, H200, MeasuredLaunch, read_event_times

_DISTURBED_RATIO = 1.2  # a warm launch that takes so much longer than a cold one was disturbed
# So was one that the other GPU ran so much faster: SMs and clocks are the same, memory 1.43 times as fast.
_DISTURBED_GPU_RATIO, _EVENT_SCATTER_US = 1.5, 0.5
_EVENTS_US = 2.2  # what two events add, on either GPU
COLD_SUFFIX = " (cold)"


def write_launches(table: Path, launches: Iterable[MeasuredLaunch], overhead_us: tuple[float, float]) -> None:
    """Write a row for each launch with a warm L2, and one for each with a cold L2 where that was timed.

    overhead_us: what events add to a kernel's own time, warm and cold; it is taken off.
    """
    rows = []
    for launch in launches:
        rows.append(_make_row(launch, "warm", launch.warm_us - overhead_us[0]))
        if launch.cold_us is not None:
            rows.append(_make_row(launch, "cold", launch.cold_us - overhead_us[1]))
    write_table(table, rows)


def is_disturbed(launch: MeasuredLaunch) -> bool:
    """Return whether the warm time cannot be the kernel's: it is far above the cold or the other GPU's."""
    other = read_event_times(H200 if launch.gpu == GPU else GPU).get(launch.case)
    return (launch.cold_us is not None and launch.warm_us > _DISTURBED_RATIO * launch.cold_us) or (
        other is not None
        and launch.warm_us - _EVENTS_US - _EVENT_SCATTER_US
        > _DISTURBED_GPU_RATIO * (other.warm_us - _EVENTS_US)
    )


def _make_row(launch: MeasuredLaunch, l2: str, time_us: float) -> dict[str, object]:
    return {
        "case": launch.case + (COLD_SUFFIX if l2 == "cold" else ""),
        "suite": _find_suite(launch),
        "dump": str(launch.cubin),
        "kernel": launch.kernel,
        "gpu": launch.gpu,
        "grid": ";".join(map(str, launch.grid)),
        "block": ";".join(map(str, launch.block)),
        "dynamic_shared_bytes": launch.dynamic_shared_bytes,
        "arguments": json.dumps([value for _, value in launch.arguments]),
        "l2": l2,
        "timing": "kernel",
        "time_us": time_us,
        "counted": "no" if is_disturbed(launch) and l2 == "warm" else "yes",
        "group": launch.shape,
        "note": launch.kernel,
    }


def _find_suite(launch: MeasuredLaunch) -> str:
    return f"triton {launch.kernel.removeprefix('t_')}" if launch.family == "triton" else launch.family
