"""Thresholds and budgets at their edges: a baseline is doctored around what the inputs have."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import TRACES

import analyzer
from analyzer.checking.checking import CheckRequest, run_check
from analyzer.checking.configuration import CheckConfig, read_limits
from analyzer.checking.limits import DEFAULT_LIMITS, LimitTable, Threshold
from analyzer.report.check_schema import CheckedKernel, CheckReport, Level, Outcome
from analyzer.report.diff_schema import KernelStatus

SOFTMAX = str(TRACES / "triton" / "sm_90" / "softmax.sass")
GPU = "h100-sxm"
Doctor = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The baseline of a kernel as it is."""
    path = tmp_path_factory.mktemp("baseline") / "b.json"
    analyzer.check(
        SOFTMAX, gpu="h100", baseline=path, update=True, config=CheckConfig(model="steady"), cache=False
    )
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def check(original: dict[str, Any], tmp_path: Path) -> Callable[..., CheckReport]:
    """Check the kernel against a baseline that a function changed, under other limits."""

    def run(doctor: Doctor, **limits: object) -> CheckReport:
        content = json.loads(json.dumps(original))
        doctor(content["kernels"][0])
        path = tmp_path / "b.json"
        path.write_text(json.dumps(content))
        table = LimitTable(DEFAULT_LIMITS.override(read_limits(limits)))
        config = CheckConfig(model="steady", gpus=("h100",), baseline=path, limits=table)
        return run_check(CheckRequest(config=config, inputs=(SOFTMAX,), cache_folder=tmp_path / "cache"))

    return run


def other_code(kernel: dict[str, Any]) -> None:
    kernel["code"] = "0" * 32


def scale_cycles(factor: float, *, code: str = "0" * 32) -> Doctor:
    def doctor(kernel: dict[str, Any]) -> None:
        kernel["code"] = code or kernel["code"]
        kernel["gpus"][GPU]["metrics"]["cycles"] *= factor

    return doctor


def outcome_of(report: CheckReport) -> Outcome:
    (kernel,) = report.kernels
    return kernel.outcome


@pytest.mark.parametrize(
    ("factor", "outcome"),
    [
        (1.0, Outcome.PASSED),
        (1 / 1.4999, Outcome.PASSED),
        (1 / 1.5001, Outcome.REGRESSED),
        (1 / 0.5001, Outcome.PASSED),
        (1 / 0.4999, Outcome.IMPROVED),
    ],
)
def test_a_share_of_the_cycles_either_way(
    factor: float, outcome: Outcome, check: Callable[..., CheckReport]
) -> None:
    report = check(scale_cycles(factor), cycles="50%")
    assert outcome_of(report) is outcome
    assert report.is_clean == (outcome is not Outcome.REGRESSED)
    assert bool(report.accept) == (outcome is not Outcome.PASSED)
    assert [violation.rule for violation in report.violations] == (
        ["cycles-regression"] if outcome is Outcome.REGRESSED else []
    )


def test_a_few_cycles_are_noise_unless_they_are_the_threshold(check: Callable[..., CheckReport]) -> None:
    def doctor(kernel: dict[str, Any]) -> None:
        other_code(kernel)
        kernel["gpus"][GPU]["metrics"]["cycles"] -= 400

    assert outcome_of(check(doctor, cycles="0.001%")) is Outcome.PASSED
    assert outcome_of(check(doctor, cycles=399)) is Outcome.REGRESSED


def test_the_same_code_passes_whatever_the_baseline_says(check: Callable[..., CheckReport]) -> None:
    report = check(scale_cycles(0.5, code=""))
    assert (outcome_of(report), report.kernels[0].status) == (Outcome.PASSED, KernelStatus.SAME)


def test_fewer_resident_ctas_are_worse_and_evidence_names_its_cause(
    check: Callable[..., CheckReport],
) -> None:
    def doctor(kernel: dict[str, Any]) -> None:
        other_code(kernel)
        metrics = kernel["gpus"][GPU]["metrics"]
        metrics["ctas_per_sm"] *= 2
        metrics["cycles"] *= 0.9
        kernel["metrics"]["registers"] = 8
        kernel["gpus"][GPU]["cpi_stack"]["long_scoreboard"] = 0

    report = check(doctor, ctas_per_sm="10%", registers=2)
    (kernel,) = report.kernels
    rules = [violation.rule for violation in report.violations]
    by_name = {each.metric: each for each in kernel.metrics}
    assert "ctas-per-sm-regression" in rules
    assert by_name["ctas_per_sm"].limit == "-10 %"
    assert "registers-regression" in rules
    assert by_name["registers"].limit == "+2"
    evidence = "\n".join(kernel.evidence)
    assert "long_scoreboard +" in evidence
    assert "registers 8 -> " in evidence
    assert "CTAs per SM" in evidence


def test_a_spill_trips_at_once_and_a_lost_spill_is_an_improvement(check: Callable[..., CheckReport]) -> None:
    def doctor(kernel: dict[str, Any]) -> None:
        other_code(kernel)
        kernel["metrics"]["spill_bytes"] = 4

    report = check(doctor)
    assert outcome_of(report) is Outcome.IMPROVED
    assert report.kernels[0].evidence[0] == "spills 4 -> 0 B"


@pytest.mark.parametrize("slack", [0, 1])
def test_budgets_allow_the_amount_itself(slack: int, check: Callable[..., CheckReport]) -> None:
    (kernel,) = check(other_code, instructions=0).kernels
    registers = read_value(kernel, "registers")
    instructions = read_value(kernel, "instructions")
    limits = {"max_registers": registers - slack, "min_instructions": instructions + slack}
    report = check(other_code, **limits)
    rules = {violation.rule for violation in report.violations}
    assert rules == ({"max-registers", "min-instructions"} if slack else set())
    assert outcome_of(report) is (Outcome.OVER_BUDGET if slack else Outcome.PASSED)
    assert all(violation.level is Level.ERROR for violation in report.violations)


def read_value(kernel: CheckedKernel, metric: str) -> float:
    value = next(each.value for each in kernel.metrics if each.metric == metric)
    assert value is not None
    return value


@given(st.floats(0, 1e12), st.floats(-1e12, 1e12), st.floats(0, 10), st.booleans())
def test_a_larger_threshold_never_trips_more(
    old: float, worsening: float, amount: float, is_share: bool
) -> None:
    small, large = Threshold(amount, is_share), Threshold(2 * amount, is_share)
    assert small.is_exceeded(old, worsening) or not large.is_exceeded(old, worsening)
    assert not small.is_exceeded(old, 0.0)
    assert not (small.is_exceeded(old, worsening) and small.is_exceeded(old, -worsening))


def test_times_of_another_assumed_launch_do_not_compare(check: Callable[..., CheckReport]) -> None:
    def doctor(kernel: dict[str, Any]) -> None:
        other_code(kernel)
        kernel["assumed_launch"] = "16/16"
        kernel["gpus"][GPU]["metrics"]["cycles"] /= 2

    report = check(doctor)
    assert report.is_clean
    assert [(each.rule, each.level) for each in report.violations] == [
        ("assumed-launch-changed", Level.WARNING)
    ]
    assert "16/16" in report.violations[0].message
