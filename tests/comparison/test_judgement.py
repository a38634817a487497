"""The verdict follows from times, counters and doubts as docs/diff.md says."""

import pytest

from analyzer.comparison.judgement import judge_change
from analyzer.report.diff_schema import GpuChange, MetricChange, Verdict

EXECUTED = 1_000_000.0


def make_gpu_change(change: float, ctas: int = 4) -> GpuChange:
    return GpuChange(
        gpu="h100-sxm",
        gpu_name="H100 SXM",
        model="sm",
        old_cycles=10_000.0,
        new_cycles=10_000.0 * (1 + change),
        cycles_change=change,
        old_time_us=6.0,
        new_time_us=6.0 * (1 + change),
        old_bound="L2",
        new_bound="L2",
        old_cpi_stack={},
        new_cpi_stack={},
        old_ctas_per_sm=4,
        new_ctas_per_sm=ctas,
        old_occupancy_limiter="registers",
        new_occupancy_limiter="registers",
    )


def make_change(metric: str, old: float, new: float) -> MetricChange:
    return MetricChange(metric=metric, old=old, new=new, change=None if not old else (new - old) / old)


def judge(
    change: float,
    *changes: MetricChange,
    second: float = 0.0,
    doubts: tuple[str, ...] = (),
    ctas: int = 4,
    assumed: bool = True,
    **figures: tuple[float, float],
) -> Verdict:
    known = {"executed_warp_instructions": (EXECUTED, EXECUTED), **figures}
    return judge_change(
        (make_gpu_change(change, ctas),),
        {"h100-sxm": second},
        changes,
        known,
        doubts,
        is_launch_assumed=assumed,
    ).verdict


SECTORS = make_change("global_sectors", 400_000, 440_000)
EIGHTFOLD = make_change("global_sectors", 400_000, 3_200_000)
SPILLS = make_change("local_sectors", 0, 40_000)
DOUBTS = ("trips of the new side not known",)


@pytest.mark.parametrize("sign", [1, -1])
def test_times_alone(sign: int) -> None:
    assert judge(0.0) is Verdict.BENIGN
    assert judge(0.02 * sign) is Verdict.BENIGN
    assert judge(0.06 * sign) is Verdict.BENIGN  # noise of a schedule: nothing explains it
    assert judge(0.12 * sign) is Verdict.SIGNIFICANT


@pytest.mark.parametrize("sign", [1, -1])
def test_times_with_a_cause(sign: int) -> None:
    assert judge(0.06 * sign, SECTORS) is Verdict.SIGNIFICANT
    assert judge(0.06 * sign, ctas=3) is Verdict.SIGNIFICANT
    assert judge(0.06 * sign, second=0.05 * sign) is Verdict.SIGNIFICANT
    assert judge(0.06 * sign, second=-0.05 * sign) is Verdict.BENIGN
    assert judge(0.02 * sign, SECTORS) is Verdict.BENIGN


@pytest.mark.parametrize("assumed", [True, False])
def test_memory_work_is_never_hidden(assumed: bool) -> None:
    assert judge(0.0, EIGHTFOLD, assumed=assumed) is Verdict.SIGNIFICANT
    back = make_change("global_sectors", 3_200_000, 400_000)
    assert judge(0.0, back, assumed=assumed) is Verdict.SIGNIFICANT
    assert judge(0.0, SPILLS, local_requests=(0.0, 10_000.0), assumed=assumed) is Verdict.SIGNIFICANT
    rare = judge(0.0, SPILLS, local_requests=(0.0, 100.0), assumed=assumed)  # of a path that hardly runs
    assert rare is Verdict.BENIGN


def test_a_conflict_shows_per_request_however_rare_it_is() -> None:
    few = make_change("shared_wavefronts", 1000, 32_000)
    assert judge(0.0, few, shared_requests=(1000.0, 1000.0)) is Verdict.SIGNIFICANT
    more = make_change("shared_wavefronts", 1000, 1500)
    assert judge(0.0, more, shared_requests=(1000.0, 1500.0)) is Verdict.BENIGN


def test_other_work_that_the_time_does_not_follow() -> None:
    double = make_change("executed_warp_instructions", EXECUTED, 2 * EXECUTED)
    assert judge(0.0, double) is Verdict.UNCLEAR
    assert judge(0.0, double, assumed=False) is Verdict.BENIGN
    assert judge(0.0, ctas=2) is Verdict.UNCLEAR


def test_doubts() -> None:
    assert judge(0.3, doubts=DOUBTS) is Verdict.UNCLEAR
    assert judge(0.0, EIGHTFOLD, doubts=DOUBTS) is Verdict.SIGNIFICANT
    assert judge(0.3, EIGHTFOLD, doubts=("another architecture: sm_80 -> sm_90",)) is Verdict.UNCLEAR
    nothing = judge_change((), {}, (), {}, (), is_launch_assumed=False)
    assert nothing.verdict is Verdict.UNCLEAR
