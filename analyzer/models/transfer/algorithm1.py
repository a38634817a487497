"""Algorithm 1 of the cross-GPU report: efficiency and occupancy carry over, the roof changes.

Srivastava, Naha, Gupta, Rao: Cross-GPU Performance Prediction Using Analytical Models and Machine Learning,
sections 4.1, 5.2 and 5.3. With O the occupancy and Roof = min(C, AI x BW) (for kernels without floating-point
operations: BW alone),

    eta = P_measured / (O_source Roof_source)      T_target = Work / (eta O_target Roof_target)
        = T_source (O_source Roof_source) / (O_target Roof_target)

C and BW are the datasheet's; the sustained variant (section 5.4) takes those that kernels reach. Occupancy is
the report's: registers and shared memory are divided without the units in which hardware allocates them.

Example: 100 us of an addition on an RTX 2080 Ti (616 GB/s), full occupancy on both GPUs, are
100 x 616 / 504 = 122 us on an RTX 4070.
"""

from math import inf

from analyzer.hardware.schema import SmLimits
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.transfer.gpu_figures import TransferFigures
from analyzer.models.transfer.measured_launch import MeasuredLaunch


def predict_algorithm1(
    launch: MeasuredLaunch, source: TransferFigures, target: TransferFigures, *, sustained: bool = False
) -> float | None:
    """Return the time on the target in us; None where operations or bytes are not known, or no CTA fits.

    sustained: roofs that kernels reach in place of the datasheet's.
    """
    if launch.flops is None or launch.moved_bytes is None:
        return None
    reached_source = compute_report_occupancy(launch, source.limits) * _compute_roof(
        launch.flops, launch.moved_bytes, source, sustained=sustained
    )
    reached_target = compute_report_occupancy(launch, target.limits) * _compute_roof(
        launch.flops, launch.moved_bytes, target, sustained=sustained
    )
    if not (reached_source and reached_target):
        return None
    return launch.time_us * reached_source / reached_target


def compute_report_occupancy(launch: MeasuredLaunch, limits: SmLimits) -> float:
    """Return active over possible warps of an SM (section 4.1.2); 0 where no CTA fits."""
    threads = launch.block_threads
    max_warps = int(limits.max_warps_per_sm.value)
    bounds = [int(limits.max_ctas_per_sm.value), max_warps * WARP_SIZE // threads]
    if launch.registers:
        bounds.append(int(limits.registers_per_sm.value) // (launch.registers * threads))
    if launch.shared_bytes:
        bounds.append(int(limits.shared_bytes_per_sm.value) // launch.shared_bytes)
    warps_per_cta = -(-threads // WARP_SIZE)
    return min(1.0, min(bounds) * warps_per_cta / max_warps)


def _compute_roof(flops: float, moved_bytes: float, figures: TransferFigures, *, sustained: bool) -> float:
    """Return the roof in GFLOP/s, in GB/s for work without floating-point operations."""
    gbps = figures.sustained_gbps if sustained else figures.peak_gbps
    if not flops:
        return gbps
    gflops = figures.sustained_gflops if sustained else figures.peak_gflops
    return min(gflops, flops / moved_bytes * gbps if moved_bytes else inf)
