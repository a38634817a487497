"""Where returns lead to, on dumps whose functions are traps that come back."""

import pytest
from paths import TRACES

import analyzer
from analyzer.execution.lowering.call_returns import find_blocks_after, find_interprocedural_successors
from analyzer.ir.opcode import OpKind


@pytest.mark.parametrize("dump", ["triton/sm_100/matmul", "triton/sm_100/matmul_tma_persistent"])
def test_a_return_leads_behind_the_calls_of_its_function_only(dump: str) -> None:
    (kernel,) = analyzer.load(str(TRACES / f"{dump}.sass")).kernels
    cfg, followers = kernel.cfg, find_interprocedural_successors(kernel.cfg)
    callees = {callee for _, callee in cfg.call_edges}
    assert len(callees) > 1
    for callee in callees:
        assert cfg.kernel.find_opcode(cfg.blocks[callee].stop - 1).kind is OpKind.RETURN
        assert set(followers[callee]) == {caller + 1 for caller, called in cfg.call_edges if called == callee}


def test_a_trap_at_the_end_puts_no_loop_in_doubt() -> None:
    (kernel,) = analyzer.load(str(TRACES / "triton" / "sm_100" / "matmul.sass")).kernels
    last = max(callee for _, callee in kernel.cfg.call_edges)
    assert kernel.loops.loops
    assert not find_blocks_after(kernel.cfg, last) & {loop.header for loop in kernel.loops.loops}
