"""Compute what the DRAM loses by turning from reads to writes and back.

A DRAM that serves reads and writes by turns loses time at each turn. So a copy takes longer than reading as
many bytes: each written byte that stands against a read one counts `dram_turnaround_factor` times. Example:
with a factor of 1.2, reading 2 bytes and writing 1 takes as long as reading 3.2, and so does writing 2 and
reading 1; writing 3 takes as long as reading 3.

A launch that finds a cold, clean L2 is left out: it leaves a part of what it writes there (on an H100 some 20
MB), so what it turns is not known.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.ir.arrays import FloatArray
from analyzer.models.interface import ModelInput


def compute_turnaround_factors(
    model_input: ModelInput, dram_bytes: FloatArray, is_store: NDArray[np.bool_]
) -> FloatArray:
    """Compute the factor on the DRAM time of each instruction, [n]; 1 for loads.

    dram_bytes: what one execution by a warp reads from the DRAM or, where is_store, writes to it, [n].
    """
    moved = dram_bytes * model_input.execution_counts
    read, written = float(moved[~is_store].sum()), float(moved[is_store].sum())
    if not written or model_input.l2_is_cold:
        return np.ones(len(moved))
    factor = model_input.gpu.file.memory.turnaround_factor or model_input.arch.memory.dram_turnaround_factor
    return np.where(is_store, 1.0 + (factor.value - 1.0) * min(1.0, read / written), 1.0)
