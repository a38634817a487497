"""Resident CTAs against values of NVIDIA's occupancy calculator, worked out by hand from its rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.hardware.gpu_database import load_arch
from analyzer.hardware.occupancy import OccupancyLimiter, compute_occupancy

KB = 1024
# arch, threads, registers, shared bytes -> CTAs per SM, warps per SM, limiter
CALCULATED = [
    # sm_75: 32 warps, 16 CTAs, 64 KB
    ("sm_75", 256, 32, 0, 4, 32, OccupancyLimiter.WARPS),
    ("sm_75", 32, 16, 0, 16, 16, OccupancyLimiter.CTA_SLOTS),
    ("sm_75", 1024, 64, 0, 1, 32, OccupancyLimiter.WARPS),
    (
        "sm_75",
        512,
        65,
        0,
        1,
        16,
        OccupancyLimiter.REGISTERS,
    ),  # 65 -> 72 registers: 7 warps a sub-core, 28 in all
    ("sm_75", 128, 32, 32 * KB, 2, 8, OccupancyLimiter.SHARED_MEMORY),
    ("sm_75", 128, 32, 48 * KB, 1, 4, OccupancyLimiter.SHARED_MEMORY),
    # sm_80: 64 warps, 32 CTAs, 164 KB of which each CTA takes 1 KB more than it asks for
    ("sm_80", 256, 32, 0, 8, 64, OccupancyLimiter.WARPS),
    ("sm_80", 256, 64, 0, 4, 32, OccupancyLimiter.REGISTERS),
    ("sm_80", 128, 255, 0, 2, 8, OccupancyLimiter.REGISTERS),
    (
        "sm_80",
        1024,
        33,
        0,
        1,
        32,
        OccupancyLimiter.REGISTERS,
    ),  # 33 -> 40 registers: 12 warps a sub-core, 48 in all
    ("sm_80", 32, 16, 0, 32, 32, OccupancyLimiter.CTA_SLOTS),
    ("sm_80", 256, 32, 48 * KB, 3, 24, OccupancyLimiter.SHARED_MEMORY),
    ("sm_80", 256, 32, 40 * KB, 4, 32, OccupancyLimiter.SHARED_MEMORY),  # 4 x 41 KB is all there is
    ("sm_80", 256, 32, 40 * KB + 1, 3, 24, OccupancyLimiter.SHARED_MEMORY),
    ("sm_80", 256, 32, 163 * KB, 1, 8, OccupancyLimiter.SHARED_MEMORY),
    # sm_86: 48 warps, 16 CTAs, 100 KB
    ("sm_86", 256, 32, 0, 6, 48, OccupancyLimiter.WARPS),
    ("sm_86", 128, 40, 0, 12, 48, OccupancyLimiter.WARPS),
    ("sm_86", 768, 42, 0, 1, 24, OccupancyLimiter.REGISTERS),  # 42 -> 48 registers: 40 warps, one CTA of 24
    ("sm_86", 33, 16, 0, 16, 32, OccupancyLimiter.CTA_SLOTS),  # 33 threads are two warps
    ("sm_86", 128, 32, 48 * KB, 2, 8, OccupancyLimiter.SHARED_MEMORY),
    ("sm_86", 128, 32, 99 * KB, 1, 4, OccupancyLimiter.SHARED_MEMORY),
    # sm_90: 64 warps, 32 CTAs, 228 KB
    ("sm_90", 384, 168, 0, 1, 12, OccupancyLimiter.REGISTERS),  # three warpgroups, as Hopper's products run
    ("sm_90", 512, 64, 64 * KB, 2, 32, OccupancyLimiter.REGISTERS),
    ("sm_90", 128, 32, 227 * KB, 1, 4, OccupancyLimiter.SHARED_MEMORY),
    ("sm_90", 1024, 32, 0, 2, 64, OccupancyLimiter.WARPS),
    ("sm_90", 128, 96, 56 * KB, 4, 16, OccupancyLimiter.SHARED_MEMORY),
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "ctas", "warps", "limiter"), CALCULATED)
def test_equals_the_calculator(
    arch: str, threads: int, registers: int, shared: int, ctas: int, warps: int, limiter: OccupancyLimiter
) -> None:
    limits = load_arch(arch).limits
    found = compute_occupancy(limits, block_threads=threads, registers=registers, shared_bytes=shared)
    assert (found.ctas_per_sm, found.warps_per_sm, found.limiter) == (ctas, warps, limiter)
    assert found.theoretical_occupancy == warps / found.max_warps_per_sm


TOO_MUCH = [
    ("sm_75", 1024, 65, 0, OccupancyLimiter.REGISTERS),
    ("sm_75", 128, 32, 64 * KB + 1, OccupancyLimiter.SHARED_MEMORY),
    ("sm_80", 2048, 16, 0, OccupancyLimiter.WARPS),
    ("sm_80", 128, 256, 0, OccupancyLimiter.REGISTERS),
    ("sm_80", 128, 32, 163 * KB + 1, OccupancyLimiter.SHARED_MEMORY),
    ("sm_86", 128, 32, 99 * KB + 1, OccupancyLimiter.SHARED_MEMORY),
    ("sm_90", 128, 32, 227 * KB + 1, OccupancyLimiter.SHARED_MEMORY),
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "limiter"), TOO_MUCH)
def test_what_cannot_launch_has_no_residents(
    arch: str, threads: int, registers: int, shared: int, limiter: OccupancyLimiter
) -> None:
    limits = load_arch(arch).limits
    found = compute_occupancy(limits, block_threads=threads, registers=registers, shared_bytes=shared)
    assert (found.ctas_per_sm, found.limiter) == (0, limiter)


@given(
    st.sampled_from(["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]),
    st.integers(1, 1024),
    st.integers(1, 255),
    st.integers(0, 232448),
)
def test_asking_for_less_never_lowers_it(arch: str, threads: int, registers: int, shared: int) -> None:
    limits = load_arch(arch).limits
    found = compute_occupancy(limits, block_threads=threads, registers=registers, shared_bytes=shared)
    frugal = compute_occupancy(
        limits, block_threads=threads, registers=max(1, registers - 1), shared_bytes=shared // 2
    )
    smaller = compute_occupancy(
        limits, block_threads=max(1, threads - 32), registers=registers, shared_bytes=shared
    )
    assert frugal.ctas_per_sm >= found.ctas_per_sm
    assert smaller.ctas_per_sm >= found.ctas_per_sm
    assert found.warps_per_sm <= found.max_warps_per_sm
    assert found.ctas_per_sm * shared <= limits.shared_bytes_per_sm.value
    assert found.warps_per_sm * 32 * registers <= limits.registers_per_sm.value
