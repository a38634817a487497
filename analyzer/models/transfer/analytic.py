"""Transfer without code: launch floors apart, three explanations of the measured time, mixed by evidence.

A launch takes its GPU's overhead and a body; launches that follow each other take the launch interval at
least. The body is what transfers. Its measured length says how likely each of three explanations is:

    memory   the level that holds the data (L2 or device memory) is the limit: the part of its rate that was
             reached carries over. Where the data move from one level to the other, they take the new level's
             time; what the old level hid behind itself comes to light.
    compute  FP32 arithmetic is the limit: its efficiency carries over.
    SM       anything else in the SMs (issue, loads and stores, shared memory, latency): time goes
             with SMs, clock, lanes and load paths, with whole CTAs per SM, and a little with resident warps.

The weight of an explanation is the share of its roof that was reached, to the power _SHARPNESS; the SM's is
_TYPICAL_SHARE to that power. The estimates are averaged in log space, each no less than the target's roofs.
A name that speaks of atomics or histograms is believed: these queue for words of memory, so their time goes
with the clock alone.

Invariant: transfer to the same GPU returns the measured time, unless that is at the launch floor, where the
roofs decide.

Example: an addition of 200 MB took 374 us on an RTX 2080 Ti, 97 % of what 554 GB/s allow. Memory weighs 0.93:
on an RTX 4070 (454 GB/s) it is expected at about 445 us.
"""

import math
from enum import StrEnum

from msgspec import Struct

from analyzer.hardware.occupancy import Occupancy, compute_occupancy
from analyzer.ir.launch import Timing
from analyzer.models.transfer.gpu_figures import TransferFigures
from analyzer.models.transfer.measured_launch import MeasuredLaunch

# A kernel that reaches less than this share of a roof is more likely bound by something else. Between 0.4 and
# 0.7, and from 3 to 5, errors on `bench/transfer.py others` change by less than a tenth.
_SHARPNESS, _TYPICAL_SHARE = 4.0, 0.6
# Twice the FP32 lanes made code of the SMs 2^0.4 (CLBlast's GEMM) and 2^0.35 (convolutions) times as fast
# from an RTX 2080 Ti to an RTX 3060 Laptop, per SM and clock, whatever share of the peak it reached
# (AutoTuningAssociation/benchmark_hub @8eeb99e, medians over 10,000 and 5,220 configurations).
_LANE_EXPONENT = 0.37
# Likewise the bytes that an SM's path to its L1 and shared memory moves in a cycle, twice as many on Volta
# and data-centre GPUs. They matter where much goes that way: a CTA has shared memory, or operands of 4 bytes
# for each operation would take more than a fifth of the body. NeuSight's products and the dedispersion of
# the tuning sweeps want 0.2 to 0.5 there, its softmax and layer norms 0 to 0.2 elsewhere.
_LOADING_PATH_EXPONENT, _PATH_EXPONENT = 0.35, 0.1
_OPERAND_BYTES, _LOADING_SHARE = 4.0, 0.2
# Resident warps that give half of an SM's rate. Few are enough, so occupancy matters little: Algorithm 1
# takes the rate as proportional to it.
_HALF_RATE_WARPS = 4.0
# What was bound by device memory and then fits the L2 is not as fast as the L2: this part of its time is
# taken for work of the SMs that memory hid.
_HIDDEN_SM_SHARE = 0.4
# Times of launches vary by about this factor near the least interval: one within it says no more than that
# the body is short.
_FLOOR_FACTOR = 1.15
_MIN_BODY_SHARE = 0.05  # of a measured time
_UNKNOWN_TRAFFIC_WEIGHT = 0.5  # of memory against SM where nobody counted bytes
_SAME_LEVEL_DISTANCE = 0.5  # of resident shares


class Limit(StrEnum):
    """The explanation of a transferred time that weighs most; intervals are by it."""

    MEMORY = "memory"
    LEVEL = "cache level"  # memory, and the data are in the L2 of one of the GPUs only
    COMPUTE = "compute"
    SM = "SM"
    ATOMICS = "atomics"  # said by the name
    LAUNCH = "launch"  # the launch floor of one of the GPUs hides the body
    UNKNOWN = "unknown"  # nobody counted bytes
    CODE = "code"  # what the static model says


class TransferEstimate(Struct, frozen=True):
    """A time on the target GPU."""

    time_us: float
    limit: Limit


class _Side(Struct, frozen=True):
    """The launch on one of the two GPUs: its roofs, and the rate of its SMs."""

    figures: TransferFigures
    memory_us: float
    resident_share: float  # of the data, in the L2
    flops_us: float
    operand_us: float  # of the operands of all operations, from the L1
    sm_rate: float  # relative; lanes apart
    waves: float


def find_occupancy(launch: MeasuredLaunch, figures: TransferFigures) -> Occupancy:
    """Return the occupancy of a launch with the units in which hardware allocates."""
    return compute_occupancy(
        figures.limits,
        block_threads=launch.block_threads,
        registers=launch.registers or 0,
        shared_bytes=launch.shared_bytes,
    )


def predict_transfer(
    launch: MeasuredLaunch, source: TransferFigures, target: TransferFigures
) -> TransferEstimate:
    """Return the time of a launch on the target GPU; a CTA fits on both (see `find_occupancy`)."""
    at_source, at_target = _place(launch, source), _place(launch, target)
    body_us, is_floor = _find_body_us(launch, at_source)
    found_us, limit = _transfer_body(launch, body_us, at_source, at_target)
    time_us = add_launch_floor(launch, found_us, source, target)
    if is_floor or (launch.timing is Timing.INTERVAL and time_us <= _FLOOR_FACTOR * target.interval_us):
        limit = Limit.LAUNCH
    return TransferEstimate(time_us, limit)


def find_overhead_us(launch: MeasuredLaunch, figures: TransferFigures) -> float:
    """Return the launch's part of the measured time; less than the source's figure where that cannot be."""
    return min(figures.find_empty_us(launch.timing), (1.0 - _MIN_BODY_SHARE) * launch.time_us)


def add_launch_floor(
    launch: MeasuredLaunch, body_us: float, source: TransferFigures, target: TransferFigures
) -> float:
    """Return the time of a body on the target under the timing of the measurement."""
    lowered = find_overhead_us(launch, source) / source.find_empty_us(launch.timing)
    time_us = target.find_empty_us(launch.timing) * lowered + body_us
    return max(target.interval_us, time_us) if launch.timing is Timing.INTERVAL else time_us


def is_at_floor(launch: MeasuredLaunch, figures: TransferFigures) -> bool:
    """Return whether the source's launch floor hides the length of the body."""
    return launch.timing is Timing.INTERVAL and launch.time_us <= _FLOOR_FACTOR * figures.interval_us


def _place(launch: MeasuredLaunch, figures: TransferFigures) -> _Side:
    moved_bytes, flops = _drop_fractions(launch.moved_bytes), _drop_fractions(launch.flops)
    lost_share = 1.0 if launch.l2_is_cold else figures.l2_retention.compute_lost_share(moved_bytes)
    resident_share = 1.0 - lost_share
    memory_us = figures.compute_memory_us(moved_bytes, resident_share)
    flops_us = flops / figures.sustained_gflops * 1e-3
    occupancy = find_occupancy(launch, figures)
    ctas_per_sm = launch.grid_ctas / figures.sm_count
    # Whole CTAs: the SM with most of them decides, while the others wait.
    balance = ctas_per_sm / math.ceil(ctas_per_sm)
    resident_warps = min(occupancy.ctas_per_sm, math.ceil(ctas_per_sm)) * occupancy.warps_per_cta
    clock_mhz = figures.float_clock_mhz if flops_us > memory_us else figures.clock_mhz
    hiding = resident_warps / (resident_warps + _HALF_RATE_WARPS)
    return _Side(
        figures=figures,
        memory_us=memory_us,
        resident_share=resident_share,
        flops_us=flops_us,
        operand_us=_OPERAND_BYTES
        * flops
        / (figures.l1_bytes_per_cycle_per_sm * figures.sm_count * figures.clock_mhz),
        sm_rate=figures.sm_count * clock_mhz * balance * hiding,
        waves=max(1.0, ctas_per_sm / max(1, occupancy.ctas_per_sm)),
    )


def _drop_fractions(amount: float | None) -> float:
    """Return an amount of bytes or operations; 0 for less than one, and where it is not known."""
    return 0.0 if amount is None or amount < 1.0 else amount


def _find_body_us(launch: MeasuredLaunch, side: _Side) -> tuple[float, bool]:
    """Return the measured time without the launch, and whether that is hidden by the launch floor.

    There the body is no longer than the floor leaves, and no shorter than roofs and one load per wave.
    """
    least_us = _MIN_BODY_SHARE * launch.time_us
    if not is_at_floor(launch, side.figures):
        return max(launch.time_us - find_overhead_us(launch, side.figures), least_us), False
    floor_us = max(launch.time_us, side.figures.interval_us)
    longest_us = max(floor_us - side.figures.find_empty_us(launch.timing), least_us)
    shortest_us = max(side.memory_us, side.flops_us, side.waves * side.figures.dram_latency_us)
    return min(longest_us, shortest_us), True


def _transfer_body(
    launch: MeasuredLaunch, body_us: float, source: _Side, target: _Side
) -> tuple[float, Limit]:
    """Return the body's time on the target and the explanation that weighs most."""
    lanes = source.figures.fp32_lanes_per_sm / target.figures.fp32_lanes_per_sm
    paths = source.figures.l1_bytes_per_cycle_per_sm / target.figures.l1_bytes_per_cycle_per_sm
    loading = 1.0 if launch.shared_bytes else _compare(source.operand_us, _LOADING_SHARE * body_us)
    path_exponent = _PATH_EXPONENT + loading * (_LOADING_PATH_EXPONENT - _PATH_EXPONENT)
    sm_us = body_us * source.sm_rate / target.sm_rate * lanes**_LANE_EXPONENT * paths**path_exponent
    distance = abs(source.resident_share - target.resident_share)
    memory = Limit.MEMORY if distance < _SAME_LEVEL_DISTANCE else Limit.LEVEL
    compute_us = sm_us
    if source.flops_us:
        by_peak = target.flops_us / source.flops_us
        compute_us = body_us * by_peak * lanes ** (_LANE_EXPONENT - 1.0)
    estimates = {
        memory: max(_transfer_traffic(launch, body_us, source, target), _HIDDEN_SM_SHARE * sm_us),
        Limit.COMPUTE: compute_us,
        Limit.SM: sm_us,
    }
    weights = {
        memory: min(1.0, source.memory_us / body_us) ** _SHARPNESS,
        Limit.COMPUTE: min(1.0, source.flops_us / body_us) ** _SHARPNESS,
        Limit.SM: _TYPICAL_SHARE**_SHARPNESS,
    }
    if launch.is_of_atomics:
        estimates = {Limit.ATOMICS: body_us * source.figures.clock_mhz / target.figures.clock_mhz}
        weights = {Limit.ATOMICS: 1.0}
    elif launch.moved_bytes is None:
        weights = {memory: _UNKNOWN_TRAFFIC_WEIGHT, Limit.COMPUTE: 0.0, Limit.SM: 1 - _UNKNOWN_TRAFFIC_WEIGHT}
    roof_us = max(target.memory_us, target.flops_us)
    total = sum(weights.values())
    mean_log = sum(w * math.log(max(roof_us, estimates[which])) for which, w in weights.items()) / total
    limit = max(weights, key=lambda which: weights[which])
    is_unknown = launch.moved_bytes is None and limit is not Limit.ATOMICS
    return math.exp(mean_log), Limit.UNKNOWN if is_unknown else limit


def _compare(time_us: float, other_us: float) -> float:
    """Return 0 to 1: whether a time is small or large beside another, without a step between."""
    return time_us / (time_us + other_us)


def _transfer_traffic(launch: MeasuredLaunch, body_us: float, source: _Side, target: _Side) -> float:
    """Return the time of the traffic; the share of a level's rate carries over as far as the level does."""
    if not source.memory_us:
        return body_us * source.figures.sustained_gbps / target.figures.sustained_gbps
    distance = abs(source.resident_share - target.resident_share)
    reached = max(1.0, body_us / source.memory_us)
    return target.memory_us * math.pow(reached, 1.0 - distance)
