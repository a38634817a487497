"""Points and ceilings of all kernels for the roofline that the page's script draws."""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.report.analyze_schema import KernelReport, PredictionEntry

_NO_PIPES = frozenset({"latency", "recurrence", "issue"})


class Roof(Struct, frozen=True, kw_only=True):
    """A peak: operations or bytes per second."""

    name: str
    per_second: float


class RooflinePoint(Struct, frozen=True, kw_only=True):
    """A prediction as a point, and the ceilings over it."""

    kernel: int
    view: int
    time_us: float
    flops: float  # of the grid, integer operations of tensor cores included
    instructions: float  # warp instructions of the grid
    bytes: Mapping[str, float]  # by memory level
    compute: tuple[Roof, ...]  # peaks of the data types that it uses
    memory: tuple[Roof, ...]
    issue_per_second: float  # warp instructions that all issue slots hold
    pipes: Mapping[str, float]  # share of the time that each pipe is busy
    bound: str


def make_roofline_point(
    index: int, view: int, kernel: KernelReport, entry: PredictionEntry
) -> RooflinePoint | None:
    """Return the point of a prediction; None for a model that does not say what is achieved."""
    found = entry.speed_of_light
    if found is None or entry.time_us <= 0:
        return None
    levels = [*([found.l1] if found.l1 is not None else []), *found.memory]
    executed = kernel.counts.executed_warp_instructions
    per_second = float(executed or 0) / entry.time_us * 1e6
    return RooflinePoint(
        kernel=index,
        view=view,
        time_us=entry.time_us,
        flops=sum(one.operations for one in found.compute),
        instructions=float(executed or 0),
        bytes={level.level: level.bytes for level in levels},
        compute=tuple(
            Roof(name=f"{one.data_type} {one.unit}", per_second=one.peak_per_second)
            for one in found.compute
            if one.peak_per_second
        ),
        memory=tuple(Roof(name=level.level, per_second=level.peak_gbps * 1e9) for level in levels),
        issue_per_second=per_second / found.issue_share if found.issue_share else 0.0,
        pipes={
            name: cycles / entry.cycles
            for name, cycles in entry.bounds.items()
            if entry.cycles and name not in _NO_PIPES and name not in {level.level for level in levels}
        },
        bound=entry.bound,
    )
