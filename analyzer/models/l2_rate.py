"""The L2's rate for what a launch loads: one peak for bounds, contention and the speed of light.

The L2 has its bandwidth for loads to registers. Copies to shared memory (LDGSTS, bulk copies) get what its
slices hand out, and more where SMs ask for the same lines (`l2_sharing.py`). The rate of a launch is the
mean by bytes, so that its bytes over this rate are the time for which the L2 is busy.

Example: an H100 loads at 9,300 GB/s. A product whose CTAs share their tiles copies at 10,600.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.profile.mbarrier_pipelines import find_mbarrier_uses
from analyzer.ir.opcode import Opcode, OpKind, Semantics
from analyzer.models.interface import ModelInput
from analyzer.models.l2_sharing import compute_copy_factors
from analyzer.models.miss_rates import MissRates


def compute_launch_l2_gbps(model_input: ModelInput, miss_rates: MissRates, clock_mhz: float) -> float:
    """Return the GB/s that the L2 has for a launch's loads, at this SM clock."""
    whole = model_input.gpu.compute_l2_gbps(clock_mhz)
    moved = model_input.access_bytes.global_bytes * model_input.execution_counts
    copied, total = float(moved[mask_shared_memory_copies(model_input)].sum()), float(moved.sum())
    if not copied:
        return whole
    factors = compute_copy_factors(model_input)
    copy_factor = factors.requested + factors.missed * miss_rates.dram_share
    return whole * total / (total - copied + copied * copy_factor)


def mask_shared_memory_copies(model_input: ModelInput) -> NDArray[np.bool_]:
    """Mark LDGSTS and the copies of the copy engine to shared memory, [n]."""
    found = mask_ldgsts(model_input)
    found[list_bulk_copy_rows(model_input)] = True
    return found


def mask_ldgsts(model_input: ModelInput) -> NDArray[np.bool_]:
    """Mark LDGSTS, [n]."""
    kernel = model_input.kernel
    found: NDArray[np.bool_] = kernel.form_table.make_opcode_mask(is_async_copy)
    return found[kernel.opcode_ids]


def is_async_copy(opcode: Opcode) -> bool:
    """Return whether an opcode is that of LDGSTS."""
    return opcode.kind is OpKind.ASYNC_COPY


def list_bulk_copy_rows(model_input: ModelInput) -> list[int]:
    """List the rows of copies of the copy engine to shared memory."""
    uses = find_mbarrier_uses(model_input.mbarrier_pipelines)
    return [row for row, use in uses.items() if use.semantics is Semantics.MBARRIER_COPY]
