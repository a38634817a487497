"""Registers that the compiler keeps in local memory, since it may use too few of them."""

from analyzer.advice.edited_input import compute_edited_occupancy, edit_occupancy
from analyzer.advice.edited_rows import without_rows
from analyzer.advice.frame_accesses import FrameAccesses, count_live_words, find_frame_accesses
from analyzer.advice.interface import Edit, Site
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "register-spill"
ACTION = (
    "let the compiler use more registers (a smaller minimum of CTAs in __launch_bounds__, no "
    "--maxrregcount), or keep fewer values alive at a time"
)


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the accesses to spilled registers, those that are executed most first."""
    accesses = find_frame_accesses(result.model_input)
    counts = result.model_input.execution_counts
    rows = sorted(accesses.spill_rows, key=lambda row: (-float(counts[row]), row))
    requests = sum(float(counts[row]) for row in rows)
    message = (
        f"register spilling: {4 * accesses.count_words(rows):,} bytes per thread, "
        f"{requests:,.0f} accesses to local memory by each warp"
    )
    return tuple(Site(row, message) for row in rows)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch without spill code, at the occupancy that more registers leave."""
    model_input = result.model_input
    accesses = find_frame_accesses(model_input)
    registers = _count_needed_registers(model_input, accesses)
    edited = without_rows(model_input, accesses.spill_rows)
    occupancy = compute_edited_occupancy(model_input, registers=registers)
    return edit_occupancy(
        edited,
        occupancy,
        f"no loads and stores of spilled registers, {registers} registers per thread, "
        f"{occupancy.ctas_per_sm} CTAs per SM",
    )


def _count_needed_registers(model_input: ModelInput, accesses: FrameAccesses) -> int:
    """Count the registers that hold what is in registers and the spilled words that are alive at a time."""
    most = int(model_input.arch.limits.max_registers_per_thread.value)
    return min(most, (model_input.kernel.resources.registers or 0) + count_live_words(model_input, accesses))
