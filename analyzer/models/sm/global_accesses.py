"""Walk the accesses to global memory that an execution found."""

from collections.abc import Iterator

from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.opcode import GLOBAL_SPACES
from analyzer.models.interface import ModelInput


def iterate_global_accesses(model_input: ModelInput) -> Iterator[tuple[MemoryAccess, float]]:
    """Yield accesses to global memory, with the executions of their instruction by a warp."""
    if model_input.profile is None:
        return
    for access in model_input.profile.accesses:
        runs = float(model_input.profile.block_executions[model_input.cfg.block_of[access.row]])
        if access.space in GLOBAL_SPACES and runs:
            yield access, runs
