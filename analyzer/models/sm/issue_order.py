"""Which warp of a sub-core issues next.

On Hopper a warp keeps the issue port until it has to wait, if only for the stall count of its last
instruction. Then that warp goes on which has issued longest ago. Stall samples of 15 FP32 products on an H100
show it: of 64 to 128 FFMA in a row the first one waits for other warps (`not selected`, 20 to 50 cycles), the
others hardly ever. And clocks do (traces/h100): warps with equal loops advance block by block, in turns.

So warps stay in step. Example: each warp loads from the L2, waits, and does 128 FFMA. A round takes one warp
521 cycles, two of a sub-core 663, four 906: the wait and all the FFMA. The first one to be done has some
instructions with stall counts before its next load; another warp holds the port meanwhile, until its own FFMA
are done. This is so whether warps begin together or 400 cycles apart, and for CTAs as for warps of one CTA.

While conflicts of registers hold an instruction back, no other warp issues: an instruction takes 1.06 to 1.3
cycles of its sub-core in these products, by the samples in which nothing was issued.

Code with products of warpgroups takes turns too, but step by step, see `sm_simulator`: what runs beside
products was measured so.
"""

from analyzer.ir.opcode import is_warpgroup_mma
from analyzer.models.interface import ModelInput


def issues_in_runs(model_input: ModelInput) -> bool:
    """Return whether a warp keeps the issue port until it waits."""
    if model_input.arch.issue.runs_in_turns is None:
        return False
    form_table = model_input.kernel.form_table
    return not form_table.make_opcode_mask(is_warpgroup_mma).any()
