"""What an analysis of a launch costs, held by counts and not by seconds.

tests/pipeline/costs.csv has of each launch what was counted when it was last accepted; a fifth more fails.
`pytest tests/pipeline/test_costs.py --bless` accepts today's; the commit says why there are more.
"""

import csv
from collections import Counter
from pathlib import Path

import pytest
from laws import LawCase, read_cases

import analyzer
from analyzer.execution.machine.budget import Budget
from analyzer.models.sm import launch_simulation, launch_tail
from analyzer.models.sm.simulation_state import SimulationResult
from analyzer.pipeline import Options

ACCEPTED = Path(__file__).with_name("costs.csv")
SLACK = 1.2
COLUMNS = ("launch", "simulated_steps", "executed_actions", "executed_words", "models")
CASES = {case.name: case for case in read_cases()[:30]}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is simulated and executed."""
    found = Counter[str]()
    simulate, spend = launch_tail.simulate_ctas, Budget.spend

    def simulate_counted(*arguments: object, **options: object) -> SimulationResult:
        result: SimulationResult = simulate(*arguments, **options)  # type: ignore[arg-type]
        found["simulated_steps"] += result.n_steps
        return result

    def spend_counted(budget: Budget, n_actions: int, n_accesses: int, n_words: int) -> None:
        found["executed_actions"] += n_actions
        found["executed_words"] += n_words
        spend(budget, n_actions, n_accesses, n_words)

    for module in (launch_simulation, launch_tail):
        monkeypatch.setattr(module, "simulate_ctas", simulate_counted)
    monkeypatch.setattr(Budget, "spend", spend_counted)
    return found


def read_accepted() -> dict[str, dict[str, str]]:
    """Return the accepted counts by launch."""
    if not ACCEPTED.exists():
        return {}
    with ACCEPTED.open(encoding="utf-8") as file:
        return {row["launch"]: row for row in csv.DictReader(file)}


def write_accepted(rows: dict[str, dict[str, str]]) -> None:
    """Write the accepted counts in the order of the launches."""
    with ACCEPTED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in CASES if name in rows)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_launch_costs_no_more_than_it_did(
    case: LawCase, counts: Counter[str], asking_modules: list[str], request: pytest.FixtureRequest
) -> None:
    options = Options(launch=case.launch, kernels=(case.kernel,))
    assert analyzer.analyze(str(case.dump), case.gpu, options=options).kernels
    counts["models"] = len(asking_modules)
    now = {"launch": case.name, **{name: str(counts[name]) for name in COLUMNS[1:]}}
    accepted = read_accepted()
    if request.config.getoption("--bless"):
        write_accepted(accepted | {case.name: now})
    more = [name for name in COLUMNS[1:] if counts[name] > SLACK * int(accepted.get(case.name, now)[name])]
    assert not more, (
        f"{', '.join(more)}: {now}; if it must be so: pytest tests/pipeline/test_costs.py --bless"
    )
    assert case.name in accepted or request.config.getoption("--bless"), "no accepted counts: --bless"
