"""The last CTA of a grid, told by the number that an atomic hands out: the others stand for the grid."""

import pytest
from against_oracle import load_packed_dump

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program

MANY = 4096


@pytest.fixture(name="loaded", scope="module")
def loaded_fixture() -> Program:
    return load_packed_dump("tickets_80")


def run(loaded: Program, name: str, n_ctas: int) -> ExecutionProfile:
    arguments = tuple(Argument(place, Pointer()) for place in range(3))
    launch = Launch(grid=Dim3(n_ctas), block=Dim3(64), dynamic_shared_bytes=0, arguments=arguments)
    found = execute_kernel(loaded[name], launch)
    assert found is not None
    return found.profile


@pytest.mark.parametrize("name", ["last_block", "last_warp"])
def test_what_the_last_one_adds_up_is_left_out(loaded: Program, name: str) -> None:
    found = run(loaded, name, MANY)
    cfg = loaded[name].cfg
    (ticket,) = (row for row in range(len(cfg.kernel)) if "ATOMG" in cfg.kernel.decode_form(row).text)
    assert not found.unknown_branches
    assert found.block_executions[cfg.block_of[ticket]] >= MANY
    assert min(found.block_executions) == 0
    assert set(found.block_provenance) == {Provenance.EXACT}
    assert any(
        f"the atomic at {int(cfg.kernel.addresses[ticket]):#06x} counts" in note for note in found.assumptions
    )


@pytest.mark.parametrize(("name", "n_ctas"), [("last_block", 4), ("last_warp", 4), ("first_visit", MANY)])
def test_what_some_or_all_may_do_is_a_guess(loaded: Program, name: str, n_ctas: int) -> None:
    """One of four is a part that counts, and each first one may be the only one."""
    found = run(loaded, name, n_ctas)
    assert len(found.unknown_branches) == 1
    assert not any("counts" in note for note in found.assumptions)
