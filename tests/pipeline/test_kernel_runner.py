"""Kernels shared among processes: the same report, the same errors."""

import sys

import pytest
from paths import TRACES

import analyzer
from analyzer import worker_pool
from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options, kernel_runner
from analyzer.render.json import render_json
from analyzer.text.errors import InputError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forks, of Linux alone")
NAMES = ("matmul_one_stage", "matmul_tma_persistent", "matmul_unaligned", "rmsnorm", "softmax")
DUMPS = [str(TRACES / "triton" / "sm_90" / f"{name}.sass") for name in NAMES]
RULES = (TripCountRule(5, address=0x10), TripCountRule(40, address=0x10000), TripCountRule(7))


@pytest.fixture
def small_is_big(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Share small dumps too; the list gets the sizes of the batches that this process ran."""
    here: list[int] = []
    run_batch = kernel_runner.KernelRunner.run_batch

    def noted(self: kernel_runner.KernelRunner, batch: tuple[int, int]) -> kernel_runner.Results:
        here.append(batch[1] - batch[0])
        return run_batch(self, batch)

    monkeypatch.setattr(kernel_runner, "_MIN_PARALLEL_INSTRUCTIONS", 0)
    monkeypatch.setattr(worker_pool, "count_forkable_cores", lambda: 3)
    monkeypatch.setattr(kernel_runner.KernelRunner, "run_batch", noted)
    return here


@pytest.mark.parametrize(
    "launch", [Launch(), Launch(grid=Dim3(264), block=Dim3(128))], ids=["static", "launched"]
)
def test_shared_work_gives_the_same_report(small_is_big: list[int], launch: Launch) -> None:
    options = Options(launch=launch, trip_rules=RULES, listing=True)
    alone = analyzer.analyze(DUMPS, ["h100", "h200-sxm"], options=options)
    assert small_is_big == [len(alone.kernels)]
    assert len(alone.kernels) > 3
    small_is_big.clear()
    shared = analyzer.analyze(
        DUMPS, ["h100", "h200-sxm"], options=Options(launch=launch, trip_rules=RULES, listing=True, jobs=3)
    )
    assert not small_is_big, "all of it was done by workers"
    assert render_json(shared) == render_json(alone)


def test_what_fails_in_a_worker_fails_here(small_is_big: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InputError("no", hint="none")

    monkeypatch.setattr(kernel_runner, "make_kernel_report", refuse)
    with pytest.raises(InputError, match="no"):
        analyzer.analyze(DUMPS, "h100", options=Options(jobs=2))


def test_small_inputs_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_runner, "run_in_forks", lambda *_: pytest.fail("a process for a small dump"))
    assert analyzer.analyze(DUMPS, "h100", options=Options(jobs=8)).kernels
