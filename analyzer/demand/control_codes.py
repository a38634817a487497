"""Control codes of a kernel: as the dump gives them, else as a compiler would set them.

Plain `nvdisasm -c`, stripped dumps and traces lack the upper instruction words. What those say follows from
the code and the latencies of the GPU: a stall count covers results of fixed latency (`stall_counts`), a
scoreboard those of variable latency (`scoreboards`). Every model reads the columns that are found here, so
that code waits for the same with and without its control words.
"""

import numpy as np

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.demand.scoreboards import assign_scoreboards
from analyzer.demand.stall_counts import compute_stall_counts
from analyzer.flow.cfg import Cfg
from analyzer.hardware.schema import Arch
from analyzer.isa.control_encoding import ControlCodeColumns, decode_control_code_columns


def find_control_codes(cfg: Cfg, costs: OpcodeCosts, arch: Arch) -> ControlCodeColumns:
    """Return the control codes of a kernel; where it has no control words, assumed ones.

    Assumed ones have no yield and no reuse bits, which no model reads.
    """
    words = cfg.kernel.control_words
    if words is not None:
        return decode_control_code_columns(words)
    boards = assign_scoreboards(cfg, costs)
    n = len(cfg.kernel)
    return ControlCodeColumns(
        stall_cycles=compute_stall_counts(cfg, costs, arch, boards),
        has_yield=np.zeros(n, dtype=np.bool_),
        write_barrier=boards.write,
        read_barrier=boards.read,
        wait_mask=boards.wait_mask,
        reuse_mask=np.zeros(n, dtype=np.uint8),
    )
