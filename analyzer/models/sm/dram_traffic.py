"""Compute what the DRAM loses by short pieces, and by turning from reads to writes and back.

The L2 fetches what it misses line by line. Where a request asks for a part of each line only, and another one
asks for the rest later, the lines that it can fetch at a time limit the rate. Example: 41 lines in a
nanosecond bring 2.6 TB/s by pieces of 64 bytes, 1.3 TB/s by lone sectors, and do not limit whole lines. The
same limit explains what rows of 64 bytes of a matrix cost on three GPUs whose L2 have 80 slices: next to
nothing on an A100, 15 to 20 % on an H100, 40 % on an H200. Where it is not known, a piece takes what its
bytes do.

A DRAM that serves reads and writes by turns loses time at each turn. So a copy takes longer than reading as
many bytes: each written byte that stands against a read one counts `dram_turnaround_factor` times. Example:
with a factor of 1.2, reading 2 bytes and writing 1 takes as long as reading 3.2, and so does writing 2 and
reading 1; writing 3 takes as long as reading 3.

A launch that finds a cold, clean L2 is left out: it leaves a part of what it writes there (on an H100 some 20
MB), so what it turns is not known.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import OpKind
from analyzer.models.interface import ModelInput
from analyzer.models.sm.global_accesses import iterate_global_accesses

_NS_PER_US = 1000.0
_SECTORS_FETCHED = 2.0  # by a miss of one sector


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


def compute_piece_factors(model_input: ModelInput) -> FloatArray:
    """Compute the factor on the DRAM time of each load for pieces of lines, [n]; 1 for all else.

    Of copies to shared memory, whose next step asks for the rest, and of gathers. What other loads leave of a
    line, their neighbours ask for at about the same time.
    """
    factors = np.ones(len(model_input.kernel))
    missed_lines = model_input.gpu.file.l2.missed_lines_per_us
    if missed_lines is None:
        return factors
    line_bytes = model_input.gpu.dram_read_gbps.value * _NS_PER_US / missed_lines.value
    recorded = {} if model_input.cache_rates is None else model_input.cache_rates.by_row
    for access, _ in iterate_global_accesses(model_input):
        is_copy = model_input.kernel.find_opcode(access.row).kind is OpKind.ASYNC_COPY
        if access.is_store or not access.requests or not access.sectors:
            continue
        if not access.is_indirect and not is_copy:
            continue
        lines = (access.lines or 0.0) / access.requests
        if access.row in recorded:
            lines = recorded[access.row].lines_per_request
        in_line = access.sectors / access.requests / max(1.0, lines)
        if not access.is_indirect:
            in_line = max(in_line, _SECTORS_FETCHED)
        factors[access.row] = max(1.0, line_bytes / (in_line * SECTOR_BYTES))
    return factors
