"""Intervals that cover what is unknown: the model is asked once more for the least and for the most work.

1. Branches and trips that nothing decides: the launch is executed again, with less and with more work behind
   each of them (`WorkAssumption`). Where the most work is too much to execute, all of it counts as often.
2. Unknown addresses: fewest and most sectors, all hits and all misses (`models.unknown_extremes`).
3. The interval goes from the low end of the least to the high end of the most, and covers that of the report.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.execution.profile.work_assumption import (
    MAX_UNKNOWN_TRIPS,
    MIN_UNKNOWN_TRIPS,
    WorkAssumption,
)
from analyzer.execution.static_counts.block_counts import ASSUMED_TRIP_COUNT
from analyzer.hardware.gpu import Gpu
from analyzer.models.held_clock import hold_clock
from analyzer.models.interface import Prediction
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import find_model
from analyzer.models.unknown_extremes import (
    list_unknown_accesses,
    with_extreme_accesses,
    with_extreme_caches,
)
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu

_MIN_BRANCH_SHARE = 0.01  # of instructions: what less depends on decides no time
_EXTREMES = (WorkAssumption.LEAST, WorkAssumption.MOST)
CountWork = Callable[[WorkAssumption], CountedLaunch | None]


class UnknownRange(Struct, frozen=True, eq=False):
    """A launch with the least and the most work that its unknown inputs allow."""

    extremes: Mapping[WorkAssumption, CountedLaunch | None]  # None: too much to execute
    unknown_accesses: tuple[MemoryAccess, ...]
    has_unknown_work: bool

    def widen(
        self, result: ModelResult, gpu: Gpu, costs: OpcodeCosts | None, assumed_ctas: int | None = None
    ) -> ModelResult:
        """Return a result whose interval covers what the model says of the least and of the most work."""
        prediction = result.prediction
        low, high = prediction.time_us_low, prediction.time_us_high
        for assumption in _EXTREMES:
            found = self._predict(assumption, result, gpu, costs, assumed_ctas)
            if found is not None:
                low, high = min(low, found.time_us_low), max(high, found.time_us_high)
            elif assumption is WorkAssumption.MOST:
                high *= MAX_UNKNOWN_TRIPS / ASSUMED_TRIP_COUNT
            else:
                low *= MIN_UNKNOWN_TRIPS / ASSUMED_TRIP_COUNT
        prediction = replace(
            prediction,
            time_us_low=low,
            time_us_high=high,
            assumptions=(*prediction.assumptions, self._describe()),
        )
        return replace(result, prediction=prediction)

    def _predict(
        self,
        assumption: WorkAssumption,
        result: ModelResult,
        gpu: Gpu,
        costs: OpcodeCosts | None,
        assumed_ctas: int | None,
    ) -> Prediction | None:
        counted = self.extremes[assumption]
        if counted is None or counted.profile is None:
            return None
        profile = with_extreme_accesses(
            counted.profile, counted.loaded.kernel, self.unknown_accesses, assumption
        )
        bound = bind_to_gpu(
            replace(counted, profile=profile), gpu, costs, assumed_ctas=assumed_ctas, simulates_caches=False
        )
        if isinstance(bound, Refusal):
            return None
        predict = find_model(result.prediction.model)
        return predict(with_extreme_caches(hold_clock(bound, result), assumption)).prediction

    def _describe(self) -> str:
        ranges = []
        if self.has_unknown_work:
            ranges.append(f"{MIN_UNKNOWN_TRIPS} to {MAX_UNKNOWN_TRIPS:,} trips and either way of branches")
        if self.unknown_accesses:
            ranges.append("one sector for all lanes to one for each")
        ranges.append("all hits to all misses")
        return f"the interval covers what is unknown: {'; '.join(ranges)}"


def find_unknown_range(counted: CountedLaunch, count_work: CountWork) -> UnknownRange | None:
    """Return the range of an executed launch; None where nothing that decides its time is unknown.

    count_work: executes the launch with the least or the most work; None where that is too much.
    """
    profile = counted.profile
    if profile is None:
        return None
    unknown = list_unknown_accesses(profile, counted.loaded.kernel)
    has_work = any(
        branch.is_open and branch.instruction_share >= _MIN_BRANCH_SHARE
        for branch in profile.unknown_branches
    )
    if not unknown and not has_work:
        return None
    extremes = {assumption: count_work(assumption) if has_work else counted for assumption in _EXTREMES}
    return UnknownRange(extremes, unknown, has_work)
