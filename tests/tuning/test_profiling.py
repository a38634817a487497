"""Plans measured with a device that is a function: resuming, budgets, failures, other GPUs."""

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest

from analyzer.text.errors import InputError, ToolError, UsageError
from analyzer.tuning.profiling import (
    ConfigurationFailed,
    DeviceLost,
    ProfilingLimits,
    measure_plan,
)
from analyzer.tuning.samples import read_samples

PLAN = """kernel,gpu,wave,m,n,k,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,time_us
gemm,h100-sxm,1,128,128,1024,64,64,64,4,3,
gemm,h100-sxm,1,128,128,2048,64,64,64,4,3,
gemm,h100-sxm,1,256,128,1024,128,64,64,8,4,
gemm,h100-sxm,2,512,128,1024,256,256,128,8,5,
"""


class Device:
    """Takes m · n · k / 1000 us, has no room for tiles of 256, and is lost at some call."""

    def __init__(self, gpu: str = "h100-sxm", lost_at: int | None = None) -> None:
        self.gpu, self.lost_at, self.calls = gpu, lost_at, 0

    def measure_us(self, kernel: str, shape: Mapping[str, int], config: Mapping[str, int]) -> float:
        if self.calls == self.lost_at:
            raise DeviceLost("an illegal memory access was encountered")
        self.calls += 1
        if config["BLOCK_SIZE_M"] == 256:
            raise ConfigurationFailed("shared memory")
        return shape["m"] * shape["n"] * shape["k"] / 1000


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.csv"
    path.write_text(PLAN)
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_plan_becomes_a_profile(plan: Path, tmp_path: Path) -> None:
    output = tmp_path / "profile.csv"
    result = measure_plan(plan, output, Device())
    assert (result.planned, result.found, result.measured, result.failed, result.left) == (4, 0, 3, 1, 0)
    rows = rows_of(output)
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "shared memory"]
    assert [row["time_us"] for row in rows] == ["16777.2", "33554.4", "33554.4", ""]
    assert [row["wave"] for row in rows] == ["1", "1", "1", "2"]
    (samples,) = read_samples(output)
    assert len(samples) == 4


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4])
def test_a_run_goes_on_where_it_stopped(plan: Path, tmp_path: Path, first: int) -> None:
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    measure_plan(plan, whole, Device())
    measure_plan(plan, parts, Device(), ProfilingLimits(rows=first))
    device = Device()
    result = measure_plan(plan, parts, device)
    assert (result.found, device.calls) == (first, 4 - first)
    assert parts.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("cut", [1, 5, 30, 80])
def test_a_line_that_was_cut_off_is_measured_again(plan: Path, tmp_path: Path, cut: int) -> None:
    whole, cut_off = tmp_path / "whole.csv", tmp_path / "cut.csv"
    measure_plan(plan, whole, Device())
    cut_off.write_bytes(whole.read_bytes()[:-cut])
    measure_plan(plan, cut_off, Device())
    assert cut_off.read_bytes() == whole.read_bytes()


def test_a_lost_device_leaves_what_is_measured(plan: Path, tmp_path: Path) -> None:
    output = tmp_path / "profile.csv"
    with pytest.raises(ToolError, match="answers no more"):
        measure_plan(plan, output, Device(lost_at=2))
    assert len(rows_of(output)) == 2
    assert measure_plan(plan, output, Device()).found == 2


def test_the_time_budget_is_kept(plan: Path, tmp_path: Path) -> None:
    ticks = iter(range(100))
    result = measure_plan(
        plan, tmp_path / "p.csv", Device(), ProfilingLimits(seconds=2.5), clock=lambda: float(next(ticks))
    )
    assert (result.measured, result.left) == (2, 2)


def test_progress_counts_what_was_there(plan: Path, tmp_path: Path) -> None:
    measure_plan(plan, tmp_path / "p.csv", Device(), ProfilingLimits(rows=2))
    seen: list[tuple[int, int]] = []
    measure_plan(plan, tmp_path / "p.csv", Device(), report=lambda done, of: seen.append((done, of)))
    assert seen == [(3, 4), (4, 4)]


def test_times_of_another_gpu_are_not_mixed_in(plan: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the plan is for h100-sxm, and this machine has a40"):
        measure_plan(plan, tmp_path / "p.csv", Device("a40"))
    assert not (tmp_path / "p.csv").exists()


def test_an_output_of_another_plan_is_refused(plan: Path, tmp_path: Path) -> None:
    output = tmp_path / "p.csv"
    output.write_text("kernel,gpu,time_us\n")
    with pytest.raises(InputError, match="no profile of this plan"):
        measure_plan(plan, output, Device())
    assert output.read_text() == "kernel,gpu,time_us\n"


def test_a_damaged_line_in_the_middle_is_shown(plan: Path, tmp_path: Path) -> None:
    output = tmp_path / "p.csv"
    measure_plan(plan, output, Device())
    lines = output.read_text().splitlines()
    lines[2] = "gemm,h100-sxm"
    output.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="2 fields") as caught:
        measure_plan(plan, output, Device())
    assert caught.value.diagnostic.location is not None
    assert caught.value.diagnostic.location.line == 3


def test_a_wrong_plan_or_output_is_one_error(plan: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        measure_plan(plan, tmp_path / "no" / "p.csv", Device())
    plan.write_text(PLAN.replace("64,64,64", "64,-1,64", 1))
    with pytest.raises(InputError, match="BLOCK_SIZE_N"):
        measure_plan(plan, tmp_path / "p.csv", Device())


def test_a_time_that_is_none_is_no_success(plan: Path, tmp_path: Path) -> None:
    class Broken(Device):
        def measure_us(self, kernel: str, shape: Mapping[str, int], config: Mapping[str, int]) -> float:
            return float("nan")

    assert measure_plan(plan, tmp_path / "p.csv", Broken()).failed == 4
