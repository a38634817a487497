"""Resident CTAs of an SM and the resource that limits them.

CUDA's occupancy rules (CUDA C++ Programming Guide, compute capabilities): registers are allocated to warps in
units, warps are divided evenly among sub-cores, and shared memory is allocated to CTAs in units, with a
reserve for each CTA. Tensor memory holds as many CTAs as can allocate their columns (PTX ISA, tcgen05.alloc).
The scarcest resource decides.
"""

import math
from enum import StrEnum

from msgspec import Struct

from analyzer.hardware.schema import SmLimits
from analyzer.ir.scheduling import WARP_SIZE


class OccupancyLimiter(StrEnum):
    """Resource that prevents one more resident CTA."""

    WARPS = "warps"
    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    CTA_SLOTS = "CTA slots"
    TENSOR_MEMORY = "tensor memory"


class Occupancy(Struct, frozen=True):
    """CTAs and warps resident on one SM; zero CTAs mean that the kernel cannot launch."""

    ctas_per_sm: int
    warps_per_cta: int
    warps_per_sm: int
    max_warps_per_sm: int
    limiter: OccupancyLimiter

    @property
    def theoretical_occupancy(self) -> float:
        """Resident warps over the maximum of the SM."""
        return self.warps_per_sm / self.max_warps_per_sm

    def count_wave_ctas(self, sm_count: int) -> int:
        """Count the CTAs of a full wave, one per SM where none fits."""
        return sm_count * max(1, self.ctas_per_sm)


def compute_occupancy(
    limits: SmLimits, *, block_threads: int, registers: int, shared_bytes: int, tensor_columns: int = 0
) -> Occupancy:
    """Compute the occupancy of a kernel.

    registers: per thread.
    shared_bytes: static and dynamic together, per CTA.
    tensor_columns: columns of tensor memory that a CTA allocates; a CTA without free columns waits.
    """
    warps_per_cta = max(1, math.ceil(block_threads / WARP_SIZE))
    max_warps = int(limits.max_warps_per_sm.value)
    bounds = {
        OccupancyLimiter.CTA_SLOTS: int(limits.max_ctas_per_sm.value),
        OccupancyLimiter.WARPS: max_warps // warps_per_cta,
        OccupancyLimiter.REGISTERS: _bound_ctas_by_registers(limits, warps_per_cta, registers),
        OccupancyLimiter.SHARED_MEMORY: _bound_ctas_by_shared_memory(limits, shared_bytes),
        OccupancyLimiter.TENSOR_MEMORY: _bound_ctas_by_tensor_memory(limits, tensor_columns),
    }
    if block_threads > limits.max_threads_per_cta.value:
        bounds[OccupancyLimiter.WARPS] = 0
    limiter = min(bounds, key=lambda which: bounds[which])
    ctas = bounds[limiter]
    return Occupancy(
        ctas_per_sm=ctas,
        warps_per_cta=warps_per_cta,
        warps_per_sm=ctas * warps_per_cta,
        max_warps_per_sm=max_warps,
        limiter=limiter,
    )


def _bound_ctas_by_registers(limits: SmLimits, warps_per_cta: int, registers: int) -> int:
    if registers > limits.max_registers_per_thread.value:
        return 0
    unit = int(limits.register_allocation_unit.value)
    per_warp = max(unit, math.ceil(registers * WARP_SIZE / unit) * unit)
    subcores = int(limits.subcores_per_sm.value)
    warps = int(limits.registers_per_sm.value) // subcores // per_warp * subcores
    return warps // warps_per_cta


def _bound_ctas_by_shared_memory(limits: SmLimits, shared_bytes: int) -> int:
    if shared_bytes > limits.shared_bytes_per_cta.value:
        return 0
    allocated = compute_allocated_shared_bytes(limits, shared_bytes)
    return int(limits.shared_bytes_per_sm.value) // allocated if allocated else _UNBOUNDED_CTAS


def compute_allocated_shared_bytes(limits: SmLimits, shared_bytes: int) -> int:
    """Return the shared memory allocated to a CTA that asks for `shared_bytes`."""
    unit = int(limits.shared_allocation_unit_bytes.value)
    wanted = shared_bytes + int(limits.shared_reserved_bytes_per_cta.value)
    return math.ceil(wanted / unit) * unit


def _bound_ctas_by_tensor_memory(limits: SmLimits, columns: int) -> int:
    if not columns or limits.tensor_columns_per_sm is None:
        return _UNBOUNDED_CTAS
    return int(limits.tensor_columns_per_sm.value) // columns


_UNBOUNDED_CTAS = 10_000
