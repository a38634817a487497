"""CTAs that take others from the launch, where nobody knows which: each is run by itself."""

from against_oracle import load_packed_dump

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.pipeline.launch_execution import execute_kernel

N_CTAS, WARPS_PER_CTA = 1 << 16, 8


def run(name: str) -> ExecutionProfile:
    launch = Launch(
        grid=Dim3(N_CTAS),
        block=Dim3(32 * WARPS_PER_CTA),
        dynamic_shared_bytes=0,
        arguments=(Argument(0, Pointer()),),
    )
    found = execute_kernel(load_packed_dump("taken_100")[name], launch)
    assert found is not None
    return found.profile


def test_all_ctas_together_do_the_work_of_the_launch() -> None:
    plain, taking = (run(name).traffic for name in ("plain", "scaled"))
    assert plain is not None
    assert taking is not None
    assert taking.read_bytes == plain.read_bytes == N_CTAS * WARPS_PER_CTA * 128
    (branch,) = run("scaled").unknown_branches
    assert "take from the launch" in branch.rule
