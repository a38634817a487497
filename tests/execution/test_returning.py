"""Where returns lead to, on dumps whose functions are traps that come back."""

import pytest
from paths import TRACES

import analyzer
from analyzer.execution.returning import blocks_after, followers_of
from analyzer.ir.opcode import OpKind


@pytest.mark.parametrize("dump", ["triton/sm_100/matmul", "triton/sm_100/matmul_tma_persistent"])
def test_a_return_leads_behind_the_calls_of_its_function_only(dump: str) -> None:
    (kernel,) = analyzer.load(str(TRACES / f"{dump}.sass")).kernels
    cfg, followers = kernel.cfg, followers_of(kernel.cfg)
    callees = {callee for _, callee in cfg.calls}
    assert len(callees) > 1
    for callee in callees:
        assert cfg.kernel.opcode(cfg.blocks[callee].stop - 1).kind is OpKind.RETURN
        assert set(followers[callee]) == {caller + 1 for caller, called in cfg.calls if called == callee}


def test_a_trap_at_the_end_puts_no_loop_in_doubt() -> None:
    (kernel,) = analyzer.load(str(TRACES / "triton" / "sm_100" / "matmul.sass")).kernels
    last = max(callee for _, callee in kernel.cfg.calls)
    assert kernel.loops.loops
    assert not blocks_after(kernel.cfg, last) & {loop.header for loop in kernel.loops.loops}
