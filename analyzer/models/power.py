"""Power that a launch draws, and the SM clock that the card's power limit leaves it.

Power is what the card takes without work, plus what its SMs take by being awake, plus work by its energy:

    P(f) = idle(f) + SMs awake x cycle energy x f x v2(f) + (core energy x v2(f) + DRAM energy) / time(f)
    idle(f) = standby + clock power x f x v2(f)

Core energy is the sum over instructions, multiply-adds of matrix products, and bytes that shared memory and
the L2 move; v2 is the square of the voltage over the lowest one, which is flat up to a knee and grows
linearly above (`WorkEnergy` in hardware/schema.py). The card lowers its clock until the power meets its
limit, so the clock is the highest f with P(f) <= limit, at most the clock without a limit. Hopper and
Blackwell of data centers moreover skip a tenth of the cycles while their tensor cores work, at any power.

Invariant: P grows with f where the time does not grow, so that one clock answers, and bisection finds it.

Example: an A100 at 400 W. A multiply-add of dense BF16 products of random data takes 0.6 pJ at the lowest
voltage, and nearly as much again for operands, caches and instructions: 1,410 MHz would draw some 500 W, and
about 1,250 MHz remain. Products that take twice the time leave the clock where it is.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from analyzer.demand.tcgen05_tiles import is_tcgen05_mma
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.schema import HardwareParameter, Power, WorkEnergy
from analyzer.ir.launch import Timing
from analyzer.ir.opcode import OpKind
from analyzer.ir.scheduling import WARP_SIZE, Basis, TensorRate
from analyzer.models.bounds import compute_gpu_bounds, compute_sm_bounds, count_elected_warps
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import estimate_miss_rates

# Part of its limit that a card takes without work, where it is not known: H100 and H200 take .16 and .17,
# A10 and T4 some .3 (recalled).
_IDLE_SHARE = 0.18
_LOWEST_CLOCK_SHARE = 0.25  # of the clock without a limit: cards do not go below
_BISECTIONS = 24
_CLOCK_SOURCE = "power model (docs/power.md)"
_BUSY_SHARE = 0.93  # of the time, of the unit that binds: cuBLAS' large products on H100, by their clock
_LEAST_SECONDS = 1e-9
_PICO, _MICRO, _MEGA, _GIGA = 1e-12, 1e-6, 1e6, 1e9

# Energy of a multiply-add where the architecture's file does not have it: in proportion to the bits of an
# input, which is what operands and adders grow with.
_INPUT_BITS: Mapping[TensorRate, float] = {
    TensorRate.F16: 16,
    TensorRate.F16_ACC16: 16,
    TensorRate.BF16: 16,
    TensorRate.TF32: 32,
    TensorRate.F64: 128,
    TensorRate.INT8: 8,
    TensorRate.FP8: 8,
    TensorRate.FP8_ACC16: 8,
    TensorRate.FP8_SCALED: 8,
    TensorRate.FP6: 8,
    TensorRate.INT4: 4,
    TensorRate.FP4: 4,
    TensorRate.BINARY: 1,
}


class LaunchWork(Struct, frozen=True):
    """Energy of all of a launch's work, the SMs that it keeps awake, and the cycles that it has them skip."""

    core_pj: float  # at the lowest voltage
    dram_pj: float
    n_sms: int
    clock_share: float = 1.0  # part of the cycles that are not skipped, see `WorkEnergy`


class PowerState(Struct, frozen=True):
    """Clock and power of a card under lasting work."""

    clock_mhz: float
    watts: float  # at that clock
    limit_w: float


def has_power_figures(model_input: ModelInput) -> bool:
    """Return whether the GPU's power limit and the energy of work are known, so that they decide a clock."""
    return model_input.gpu.file.power is not None and model_input.arch.energy is not None


def measure_launch_work(model_input: ModelInput, energy: WorkEnergy) -> LaunchWork:
    """Return the energy of a launch's work: executed instructions, products and bytes by their energies."""
    n_warps = model_input.grid_ctas * model_input.occupancy.warps_per_cta
    miss_rates, demand = estimate_miss_rates(model_input), model_input.demand
    requested_bytes = demand.global_bytes * n_warps
    l2_bytes = requested_bytes * miss_rates.l1_miss_rate
    near_bytes = (demand.shared_bytes + demand.local_bytes) * n_warps + requested_bytes
    return LaunchWork(
        core_pj=_sum_instruction_energy(model_input, energy) * n_warps
        + near_bytes * energy.shared_byte_pj.value
        + l2_bytes * energy.l2_byte_pj.value,
        dram_pj=_count_dram_bytes(model_input, requested_bytes * miss_rates.dram_share)
        * energy.dram_byte_pj.value,
        n_sms=min(model_input.grid_ctas, model_input.gpu.sm_count),
        clock_share=find_clock_share(model_input.gpu, model_input.dominant_tensor_rate),
    )


def find_clock_share(gpu: Gpu, tensor: TensorRate | None) -> float:
    """Return the part of the SMs' cycles that is left for work with matrix products, or without."""
    energy = None if gpu.arch is None else gpu.arch.energy
    share = gpu.file.clock.tensor_share or (None if energy is None else energy.tensor_clock_share)
    return 1.0 if tensor is None or share is None else share.value


def _count_dram_bytes(model_input: ModelInput, estimated_bytes: float) -> float:
    if model_input.dram_read_sectors is None:
        return estimated_bytes
    return (model_input.dram_read_sectors + (model_input.dram_written_sectors or 0.0)) * SECTOR_BYTES


def _sum_instruction_energy(model_input: ModelInput, energy: WorkEnergy) -> float:
    """Return the energy of the mean warp's instructions in picojoules, all lanes taken to be active."""
    opcodes, ids = model_input.kernel.form_table.opcodes, model_input.kernel.opcode_ids
    executed = np.bincount(ids, weights=model_input.execution_counts, minlength=len(opcodes))
    total = 0.0
    for number in np.flatnonzero(executed).tolist():
        opcode = opcodes[number]
        lane = energy.double_lane_pj if opcode.kind is OpKind.DOUBLE else energy.lane_pj
        total += executed[number] * WARP_SIZE * lane.value
        if opcode.mma_shape is not None:
            products = executed[number] * float(model_input.costs.tensor_fma[number])
            products *= 0.5 if opcode.mma_shape.is_sparse else 1.0
            if is_tcgen05_mma(opcode) and model_input.profile is None:
                products /= model_input.occupancy.warps_per_cta  # one warp issues them
            total += products * find_tensor_energy_pj(energy, opcode.mma_shape.tensor_rate)
    return float(total)


def find_tensor_energy_pj(energy: WorkEnergy, rate: TensorRate) -> float:
    """Return the energy of a multiply-add of a matrix product at the lowest voltage, in picojoules."""
    if (found := energy.tensor_pj.get(rate)) is not None:
        return found.value
    nearest = min(energy.tensor_pj, key=lambda known: abs(_INPUT_BITS[known] - _INPUT_BITS[rate]))
    return energy.tensor_pj[nearest].value * _INPUT_BITS[rate] / _INPUT_BITS[nearest]


def find_power_limit_w(power: Power, *, lasts: bool) -> float:
    """Return the power that lowers a card's clock, of lasting work or of a launch on its own."""
    sustained = power.limit_w or power.tdp_w
    return (sustained if lasts else power.burst_w or sustained).value


def compute_watts(gpu: Gpu, energy: WorkEnergy, work: LaunchWork, clock_mhz: float, seconds: float) -> float:
    """Return the power of work that takes so long at this clock."""
    unskipped_mhz = clock_mhz / work.clock_share
    squared = _square_voltage(energy, unskipped_mhz)
    idle = _compute_idle_watts(gpu, energy, unskipped_mhz)
    awake = work.n_sms * energy.sm_cycle_pj.value * _PICO * clock_mhz * _MEGA
    return idle + awake * squared + (work.core_pj * squared + work.dram_pj) * _PICO / seconds


def _square_voltage(energy: WorkEnergy, clock_mhz: float) -> float:
    """Return the square of the voltage at a clock that skips no cycles, over that of the lowest voltage."""
    excess_ghz = max(0.0, clock_mhz - energy.voltage_floor_mhz.value) * 1e-3
    return (1.0 + energy.voltage_per_ghz.value * excess_ghz) ** 2


def _compute_idle_watts(gpu: Gpu, energy: WorkEnergy, clock_mhz: float) -> float:
    """Return what a card takes without work at a clock."""
    power = gpu.file.power
    if power is None:
        return 0.0
    idle = power.idle_w.value if power.idle_w is not None else _IDLE_SHARE * power.tdp_w.value
    if power.standby_w is None:
        return idle
    here, most = (
        mhz * _square_voltage(energy, mhz) for mhz in (clock_mhz, gpu.find_clock_mhz(tensor=None).value)
    )
    share = here / most
    return power.standby_w.value + (idle - power.standby_w.value) * share


def find_limited_clock(
    gpu: Gpu,
    energy: WorkEnergy,
    work: LaunchWork,
    most_mhz: float,
    limit_w: float,
    compute_seconds: Callable[[float], float],
) -> PowerState:
    """Return the highest clock up to `most_mhz` at which work draws no more than the limit.

    compute_seconds: the time of the work at a clock in MHz.
    """

    def draw(clock_mhz: float) -> float:
        return compute_watts(gpu, energy, work, clock_mhz, compute_seconds(clock_mhz))

    if (watts := draw(most_mhz)) <= limit_w:
        return PowerState(most_mhz, watts, limit_w)
    low, high = _LOWEST_CLOCK_SHARE * most_mhz, most_mhz
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if draw(middle) <= limit_w else (low, middle)
    return PowerState(low, draw(low), limit_w)


def find_launch_clock(model_input: ModelInput, cycles: float, clock_mhz: float) -> PowerState | None:
    """Return the clock and power of a launch that takes so many cycles at a clock.

    Launches whose time is the interval from one to the next are taken to follow each other for long,
    others (`--timing kernel`, `ncu`) to run on their own. What the DRAM takes does not grow with the clock.
    None where the GPU's power limit or the energy of work is not known.
    """
    power, energy, gpu = model_input.gpu.file.power, model_input.arch.energy, model_input.gpu
    if power is None or energy is None:
        return None
    work = measure_launch_work(model_input, energy)
    dram_seconds = work.dram_pj / energy.dram_byte_pj.value / (gpu.sustained_dram_gbps.value * _GIGA)
    seconds = max(cycles / clock_mhz * _MICRO, _LEAST_SECONDS)

    def compute_seconds(at_mhz: float) -> float:
        return max(seconds * clock_mhz / at_mhz, dram_seconds)

    most_mhz = gpu.find_clock_mhz(tensor=None).value * work.clock_share
    limit_w = find_power_limit_w(power, lasts=model_input.timing is Timing.INTERVAL)
    return find_limited_clock(gpu, energy, work, most_mhz, limit_w, compute_seconds)


def estimate_launch_clock(model_input: ModelInput) -> PowerState | None:
    """Return the clock and power of a launch before a model has said its time, from what binds it.

    It is taken to keep its most used unit busy all the time but for a part. None as `find_launch_clock`.
    """
    gpu, energy = model_input.gpu, model_input.arch.energy
    if gpu.file.power is None or energy is None:
        return None
    most_mhz = gpu.find_clock_mhz(tensor=None).value
    most_mhz *= find_clock_share(gpu, model_input.dominant_tensor_rate)
    miss_rates, demand = estimate_miss_rates(model_input), model_input.demand
    ctas = math.ceil(model_input.grid_ctas / gpu.sm_count)
    bounds = compute_sm_bounds(model_input, ctas, miss_rates, demand, count_elected_warps(model_input))
    bounds |= compute_gpu_bounds(model_input, model_input.grid_ctas, miss_rates, most_mhz, demand)
    cycles = max(bounds.values(), default=0.0) / _BUSY_SHARE
    launch_cycles = gpu.file.launch.overhead_us.value * most_mhz
    return find_launch_clock(model_input, cycles + launch_cycles, most_mhz)


def make_clock_figure(clock_mhz: float) -> HardwareParameter:
    """Return a clock that a power limit leaves as a parameter, with what it rests on."""
    return HardwareParameter(value=clock_mhz, basis=Basis.ASSUMED, source=_CLOCK_SOURCE)


def describe_power_clock(model_input: ModelInput, clock: HardwareParameter) -> tuple[str, ...]:
    """Return a note on a clock that follows from power, none where it does not."""
    power = model_input.gpu.file.power
    if clock.source != _CLOCK_SOURCE or power is None:
        return ()
    lasts = model_input.timing is Timing.INTERVAL
    kind = "launches that follow each other" if lasts else "a launch on its own"
    limit_w = find_power_limit_w(power, lasts=lasts)
    return (f"{clock.value:,.0f} MHz by the power of {kind}, limit {limit_w:,.0f} W (--clock sets another)",)
