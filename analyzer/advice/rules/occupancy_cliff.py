"""Registers or shared memory a little above what would let one more CTA run on each SM."""

from msgspec import Struct

from analyzer.advice.edited_input import compute_edited_occupancy, edit_occupancy
from analyzer.advice.interface import Edit, Site
from analyzer.hardware.occupancy import Occupancy, OccupancyLimiter
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "occupancy-cliff"
ACTION = (
    "save these few registers (__launch_bounds__ with a minimum of CTAs) or bytes of shared memory, so that "
    "one more CTA fits on an SM"
)
_MAX_SAVED_REGISTERS = 8
_MAX_SAVED_SHARED_SHARE = 0.1


class _Step(Struct, frozen=True):
    """The next step of the occupancy, and what is to be saved for it."""

    occupancy: Occupancy
    saving: str
    limit: str


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the launch if it has more CTAs than fit, and a small saving lets more of them fit."""
    step = _find_step(result.model_input)
    if step is None:
        return ()
    now = result.model_input.occupancy
    message = (
        f"theoretical occupancy {now.theoretical_occupancy:.0%} is limited by {step.limit}: "
        f"{step.saving} less and {step.occupancy.ctas_per_sm} CTAs instead of {now.ctas_per_sm} fit on an SM"
    )
    return (Site(None, message),)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch at the next step of the occupancy."""
    step = _find_step(result.model_input)
    if step is None:
        return None
    return edit_occupancy(result.model_input, step.occupancy, f"{step.occupancy.ctas_per_sm} CTAs per SM")


def _find_step(model_input: ModelInput) -> _Step | None:
    now = model_input.occupancy
    if model_input.grid is not None and model_input.grid_ctas <= now.ctas_per_sm * model_input.gpu.sm_count:
        return None
    if now.limiter is OccupancyLimiter.REGISTERS:
        return _find_register_step(model_input)
    if now.limiter is OccupancyLimiter.SHARED_MEMORY:
        return _find_shared_memory_step(model_input)
    return None


def _find_register_step(model_input: ModelInput) -> _Step | None:
    """Return the step that at most eight registers less lead to."""
    registers = model_input.kernel.resources.registers or 0
    for saved in range(1, min(_MAX_SAVED_REGISTERS, registers - 1) + 1):
        occupancy = compute_edited_occupancy(model_input, registers=registers - saved)
        if occupancy.ctas_per_sm > model_input.occupancy.ctas_per_sm:
            plural = "s" if saved > 1 else ""
            return _Step(
                occupancy, f"{saved} register{plural} per thread", f"{registers} registers per thread"
            )
    return None


def _find_shared_memory_step(model_input: ModelInput) -> _Step | None:
    """Return the step that a tenth less of shared memory leads to."""
    limits, used = model_input.arch.limits, model_input.shared_bytes_per_cta
    unit = int(limits.shared_allocation_unit_bytes.value)
    places = model_input.occupancy.ctas_per_sm + 1
    allocated = int(limits.shared_bytes_per_sm.value) // places // unit * unit
    wanted = allocated - int(limits.shared_reserved_bytes_per_cta.value)
    if not 0 < used - wanted <= _MAX_SAVED_SHARED_SHARE * used:
        return None
    occupancy = compute_edited_occupancy(model_input, shared_bytes=wanted)
    if occupancy.ctas_per_sm <= model_input.occupancy.ctas_per_sm:
        return None
    return _Step(occupancy, f"{used - wanted:,} bytes", f"{used:,} bytes of shared memory")
