"""Times of the operators of one step, and of the whole step, on one GPU of a tensor-parallel group.

Kernels of a step run one after the other; the framework's own time is added once per step.

    kernels:    as served, see `models.operators.served`; norms of heads as element-wise kernels
    transfers:  see `collective_times`

Example: a decode step of 16 requests with weights of 28 GB on a memory that streams 1600 GB/s takes at least
17.5 ms, because every weight is read once whatever the batch is.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, hypot, sqrt
from typing import NamedTuple

from msgspec import Struct

from analyzer.forecast.collective_times import time_transfer
from analyzer.forecast.operator_calls import (
    ActivationCall,
    AttentionCall,
    CollectiveCall,
    ElementwiseCall,
    LatentAttentionCall,
    MoeCall,
    NormCall,
    OperatorCall,
    Phase,
    ProductCall,
    Step,
)
from analyzer.forecast.operator_times import AnyAttentionCall, ModeledCall
from analyzer.forecast.serving_rates import ServingRates
from analyzer.ir.scheduling import Basis

_KEPT_CALLS = 1 << 14
_KEPT_TIMERS = 64
_INTERVAL_SIGMAS = 1.2816  # 80 % of a normal distribution lie within


class OperatorTime(NamedTuple):
    """Time of all launches of one operator in a step."""

    name: str
    us: float
    basis: Basis


class StepTime(Struct, frozen=True):
    """Time of a step; the operators, `host` among them, sum to the total.

    80 % of measured times are expected between total_us * exp(-width) and total_us * exp(width).
    """

    total_us: float
    by_operator: tuple[OperatorTime, ...]
    width: float = 0.0

    @property
    def interval_us(self) -> tuple[float, float]:
        """Ends of the 80 % interval."""
        return spread_interval(self.total_us, self.width)


class CallTime(NamedTuple):
    """Time of one launch, us, by what it rests on; the parts sum to the time."""

    tensor: float = 0.0
    weights: float = 0.0
    cache: float = 0.0
    rows: float = 0.0
    experts: float = 0.0
    transfer: float = 0.0


def time_step(step: Step, rates: ServingRates) -> StepTime:
    """Return the time of a step; pipeline stages follow each other, so their operators are all in `calls`."""
    return _find_timer(rates).time(step)


def time_steps(steps: Sequence[Step], rates: ServingRates) -> list[StepTime]:
    """Return the times of steps; many at once are faster than one after the other."""
    timer = _find_timer(rates)
    rates.operators.prepare_attention(
        call for step in steps for call in step.calls if isinstance(call, AnyAttentionCall)
    )
    return [timer.time(step) for step in steps]


class _KeptCall(NamedTuple):
    """All launches of a call that comes again in other steps."""

    name: str
    basis: Basis
    us: float
    parts: tuple[tuple[int, float], ...]  # place in a `CallTime` and us, where there are any
    doubt_us: float  # half the width of its interval where other frameworks' kernels taught


class _StepTimer:
    """Timer of the steps at one set of rates; keeps calls, because those of decode steps repeat."""

    __slots__ = ("_kept", "_rates")

    def __init__(self, rates: ServingRates) -> None:
        self._rates = rates
        self._kept: dict[OperatorCall, _KeptCall] = {}

    def time(self, step: Step) -> StepTime:
        times: dict[str, OperatorTime] = {}
        sums = [0.0] * len(CallTime._fields)
        kernels_us, doubt_us, launches = 0.0, 0.0, 0
        for call in step.calls:
            launches += call.count
            name, basis, us, parts, call_doubt_us = self._time_launches(call)
            kernels_us += us
            doubt_us += call_doubt_us
            for place, part_us in parts:
                sums[place] += part_us
            known = times.get(name)
            times[name] = OperatorTime(name, us if known is None else known.us + us, basis)
        host = _time_host(step.phase, kernels_us, launches, self._rates)
        total_us = kernels_us + host.us
        width = hypot(_compute_width(sums, host.us, total_us, self._rates), doubt_us / max(total_us, 1.0))
        return StepTime(total_us, (*times.values(), host), width)

    def _time_launches(self, call: OperatorCall) -> _KeptCall:
        if isinstance(call, AnyAttentionCall):  # its lengths differ in every step
            return self._sum_launches(call)
        kept = self._kept.get(call)
        if kept is None:
            if len(self._kept) >= _KEPT_CALLS:
                self._kept.clear()
            kept = self._kept[call] = self._sum_launches(call)
        return kept

    def _sum_launches(self, call: OperatorCall) -> _KeptCall:
        parts = time_call(call, self._rates)
        places = tuple((place, call.count * part) for place, part in enumerate(parts) if part)
        us = call.count * sum(parts)
        doubt = self._rates.operators.find_doubt(call) if isinstance(call, ModeledCall) else 0.0
        return _KeptCall(*_identify(call, self._rates), us, places, us * doubt)


@lru_cache(maxsize=_KEPT_TIMERS)
def _find_timer(rates: ServingRates) -> _StepTimer:
    return _StepTimer(rates)


def _compute_width(parts: Sequence[float], host_us: float, total_us: float, rates: ServingRates) -> float:
    """Return the width of the 80 % interval: the parts err independently, each by its spread."""
    if total_us <= 0:
        return 0.0
    *spreads, host = rates.spreads
    squares = sum((part * spread) ** 2 for part, spread in zip(parts, spreads, strict=True))
    return _INTERVAL_SIGMAS * sqrt(squares + (host_us * host) ** 2) / total_us


def describe_call(call: OperatorCall, parts: CallTime, rates: ServingRates) -> tuple[float, float, str]:
    """Return the ends of the 80 % interval of one launch, us, and what its time rests on.

    parts: the time of the call.
    """
    if isinstance(call, ModeledCall):
        found = rates.operators.predict(call, rates.sustained)
        return float(found.low_us[0]), float(found.high_us[0]), found.basis
    low, high = spread_interval(sum(parts), _compute_width(parts, 0.0, sum(parts), rates))
    return low, high, f"{_identify(call, rates)[1].value} figures"


def spread_interval(time: float, width: float) -> tuple[float, float]:
    """Return the ends of the interval of a time, in its unit."""
    return time * exp(-width), time * exp(width)


def combine_widths(times: Iterable[tuple[float, float]]) -> float:
    """Return the width of a sum of (time, width) that err together, as steps of one run do."""
    total = spread = 0.0
    for time, width in times:
        total += time
        spread += time * width
    return spread / total if total else 0.0


def _identify(call: OperatorCall, rates: ServingRates) -> tuple[str, Basis]:
    basis = Basis.CALIBRATED
    if isinstance(call, ProductCall):
        basis = rates.sustained.origin.basis
    elif isinstance(call, CollectiveCall):
        basis = time_transfer(call.kind, call.message_bytes, call.gpus, rates.link).basis
    return name_call(call), basis


def name_call(call: OperatorCall) -> str:
    """Return the name of a call's operator, as steps and reports have it."""
    if isinstance(call, ProductCall | NormCall | ElementwiseCall):
        return call.name
    if isinstance(call, CollectiveCall):
        return call.kind.value
    return _CLASS_NAMES[type(call)]


_CLASS_NAMES: Mapping[type, str] = {
    AttentionCall: "attention",
    LatentAttentionCall: "attention",
    ActivationCall: "silu_and_mul",
    MoeCall: "moe",
}


def _time_host(phase: Phase, kernels_us: float, launches: int, rates: ServingRates) -> OperatorTime:
    """Return the framework's own time: a constant in CUDA graphs, else launches that kernels do not hide."""
    if phase is Phase.DECODE:
        return OperatorTime("host", rates.decode_host_us, Basis.CALIBRATED)
    exposed_us = max(0.0, launches * rates.launch_us - kernels_us)
    return OperatorTime("host", rates.prefill_host_us + exposed_us, Basis.ASSUMED)


def time_call(call: OperatorCall, rates: ServingRates) -> CallTime:
    """Return the time of one launch of a call."""
    match call:
        case ProductCall():
            us, sm_share = rates.operators.time(call, rates.sustained)
            return CallTime(tensor=us * sm_share, weights=us * (1.0 - sm_share))
        case NormCall() | ActivationCall() | ElementwiseCall():
            return CallTime(rows=rates.operators.time(call, rates.sustained)[0])
        case MoeCall():
            return CallTime(experts=rates.operators.time(call, rates.sustained)[0])
        case AttentionCall() | LatentAttentionCall():
            us = rates.operators.time_attention(call, rates.sustained)
            return CallTime(cache=us) if call.is_decode else CallTime(tensor=us)
        case CollectiveCall():
            return CallTime(transfer=time_transfer(call.kind, call.message_bytes, call.gpus, rates.link).us)
