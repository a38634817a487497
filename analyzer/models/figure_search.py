"""Search for the figures that the time of one launch follows, in few runs of its model.

Most figures have no effect. Groups of them are made worse together; where that does not cost time, none of
the group does (a worse figure never saves time), else the group is halved, the one that costs most first. And
a better figure gains nothing where a worse one costs nothing: a time is a sum of maxima. A search has a
number of runs. What these do not tell apart stays a group, of which only the cost of all together is known.

A simulation has noise: its warps come to a resource in another order where any figure moves a little, and the
time jumps. Two kinds of change can only be noise, and the largest of them is the model's resolution:

1. the time moves although figures move by a thousandth (`measure_jitter`);
2. a better figure costs time, or a worse one saves time.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import (
    ParameterSetting,
    PerformanceDirection,
    find_direction,
    with_settings,
)
from analyzer.hardware.resources import find_row
from analyzer.ir.scheduling import Pipe, TensorRate
from analyzer.models.bounds import DRAM_BOUND, L2_BOUND
from analyzer.models.interface import sort_largest_first
from analyzer.models.model_result import ModelResult
from analyzer.text.errors import WarplensError

Group = tuple[str, ...]
# Returns the change of log time where figures are better by a factor; endless where the kernel does not run.
Measure = Callable[[Group, float], float]

SM_COUNT_KEY, CLOCK_KEY, DRAM_KEY = "sm.count", "clock.boost_mhz", "memory.bandwidth_gbps"
_MIN_BUSY_SHARE = 0.5  # at half the rate, all of the time
_JITTER_RATIO = 1.001
_BINDING_STEPS = 20_000  # of a simulation, which take as long as all of a run but the simulation


class FigureSearch:
    """Search for the figures that the time of one launch follows."""

    def __init__(self, measure: Measure, step: float, n_runs: int, least: float) -> None:
        """Search by so many runs of a model at most.

        step: by which figures are better or worse. least: change of log time that counts.
        """
        self.step, self.n_runs, self.least = step, n_runs, least
        self.noise = 0.0  # of log time
        self.effects: dict[str, float] = {}  # change of log time from a worse to a better figure
        self._measure = measure
        self._open: list[tuple[float, Group]] = []  # by what it costs to make them worse, most first

    def measure_jitter(self, keys: Sequence[str], n_runs: int) -> None:
        """Move every second figure by a thousandth, in the next run the others: what changes is noise."""
        for number in range(n_runs):
            self.noise = max(self.noise, abs(self._ask(tuple(keys[number % 2 :: 2]), _JITTER_RATIO)))

    def run(self, groups: Iterable[Sequence[str]]) -> None:
        """Measure the effects of figures that cost time where they are worse, as far as the runs go."""
        for group in filter(None, groups):
            self._weigh(tuple(group))
        while self._open and self._costs_time(-self._open[0][0]):
            cost, group = self._open[0]
            if self.n_runs < min(2, len(group)):
                return
            heapq.heappop(self._open)
            if len(group) == 1:
                gain = self._ask(group, self.step)
                self.noise = max(self.noise, gain)
                self.effects[group[0]] = cost + gain
                continue
            first, second = _halve_group(group)
            if self._weigh(first) or len(second) == 1:
                self._weigh(second)
            else:  # it has to be the others that cost time
                heapq.heappush(self._open, (cost, second))

    @property
    def unresolved(self) -> list[tuple[float, Group]]:
        """Groups that cost time where all of them are worse, and what, most first."""
        return [(-cost, group) for cost, group in sorted(self._open) if self._costs_time(-cost)]

    def _costs_time(self, loss: float) -> bool:
        return loss > max(self.noise, self.least)

    def _weigh(self, group: Group) -> bool:
        """Keep what it costs to make a group worse, and return whether it costs time."""
        loss = self._ask(group, 1 / self.step)
        self.noise = max(self.noise, -loss)
        heapq.heappush(self._open, (-loss, group))
        return self._costs_time(loss)

    def _ask(self, group: Group, factor: float) -> float:
        self.n_runs -= 1
        return self._measure(group, factor)


def _halve_group(group: Group) -> tuple[Group, Group]:
    """Return the halves of a group, whole resources where it has several."""
    resources = [row and row.resource for row in map(find_row, group)]
    ends = [place for place in range(1, len(group)) if resources[place - 1] != resources[place]]
    middle = min(ends or [len(group) // 2], key=lambda place: abs(2 * place - len(group)))
    return group[:middle], group[middle:]


def improve_figures(gpu: Gpu, keys: Sequence[str], factor: float) -> Gpu:
    """Return a GPU with figures better by a factor, or worse by one below 1; more capacity is better.

    A figure that cannot be that large, such as a share of 1, stays as it is.
    """
    settings = [
        ParameterSetting(
            key,
            1 / factor if find_direction(key) is PerformanceDirection.LESS_IS_FASTER else factor,
            is_factor=True,
        )
        for key in keys
    ]
    try:
        return with_settings(gpu, settings)
    except WarplensError:
        if len(settings) <= 1:
            return gpu
    for key in keys:
        gpu = improve_figures(gpu, [key], factor)
    return gpu


def list_expected_keys(result: ModelResult) -> tuple[str, ...]:
    """Return the figures that a time is likely to follow: of the busiest unit, SMs, clock, of others."""
    prediction, rate = result.prediction, result.model_input.dominant_tensor_rate
    keys = {DRAM_BOUND: DRAM_KEY, L2_BOUND: find_l2_key(result.model_input.gpu)}
    if rate is not None:
        keys |= dict.fromkeys((Pipe.TENSOR.value, Pipe.TC.value), make_tensor_key(rate))
    sorted_cycles = sort_largest_first(prediction.bounds_cycles)
    least = _MIN_BUSY_SHARE * prediction.cycles
    busy = [keys[name] for name, cycles in sorted_cycles.items() if name in keys and cycles >= least]
    return (*busy[:1], SM_COUNT_KEY, CLOCK_KEY, *busy[1:])


def count_affordable_runs(result: ModelResult, n_steps: int) -> int:
    """Return how many runs of a result's model take about as long as so many steps of a simulation."""
    return n_steps // (result.n_simulated_steps + _BINDING_STEPS)


def find_l2_key(gpu: Gpu) -> str:
    """Return the figure of the L2's rate: its own, else that of an SM's port."""
    is_known = gpu.file.l2.bandwidth_gbps is not None
    return "l2.bandwidth_gbps" if is_known else "memory.l2_bytes_per_cycle_per_sm"


def make_tensor_key(rate: TensorRate) -> str:
    """Return the figure of a tensor rate."""
    return f"tensor.{rate.value}.fma_per_cycle_per_sm"
