"""Compute what loads take of the L2 by their number of requests rather than by their bytes.

A slice of the L2 looks up a line at a time, and then hands out up to 64 bytes in a cycle. So a load whose
lanes ask for sectors of many lines takes a look-up for each, though it moves few bytes. Example: an H200
looks up 153 lines in a nanosecond, nearly one in each of its 80 slices and each cycle. So it serves words at
random places in the L2 at 4.9 TB/s of sectors, whole lines at 8.2 and more.
"""

import numpy as np

from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import GLOBAL_SPACES, Opcode, OpKind
from analyzer.models.interface import ModelInput

_LOADING_KINDS = frozenset({OpKind.LOAD, OpKind.ASYNC_COPY})


def compute_request_cycles(
    model_input: ModelInput, missed_lines: FloatArray, clock_mhz: float, busy_sms: int
) -> FloatArray:
    """Compute the SM cycles for which a load occupies its SM's part of the look-ups, [n]; 0 where not known.

    missed_lines: lines of a request that the L1 passes on, [n].
    """
    rate = model_input.gpu.file.l2.requests_per_us
    if rate is None:
        return np.zeros(len(missed_lines))
    is_load = model_input.kernel.form_table.make_opcode_mask(_is_load)[model_input.kernel.opcode_ids]
    return np.where(is_load, missed_lines * busy_sms * clock_mhz / rate.value, 0.0)


def _is_load(opcode: Opcode) -> bool:
    return opcode.kind in _LOADING_KINDS and opcode.space in GLOBAL_SPACES
