"""Predictions of shipped kernels against times that others measured: no suite may get worse.

`accepted.csv` holds each launch with the prediction that was last accepted and its ratio to the measured time;
`ratchet.toml` the mean absolute percentage error of each suite then. Both are written by bench/ratchet.py, which
needs the measured times; this test does not.
"""

import csv
import tomllib
from pathlib import Path

import pytest
from paths import TRACES

import analyzer

ACCEPTED = Path(__file__).with_name("accepted.csv")
RATCHET = Path(__file__).with_name("ratchet.toml")
SLACK = 0.002


def read_accepted() -> dict[str, dict[str, str]]:
    with ACCEPTED.open(newline="", encoding="utf-8") as file:
        return {row["case"]: row for row in csv.DictReader(file)}


ROWS = read_accepted()
LIMITS = tomllib.loads(RATCHET.read_text(encoding="utf-8"))


def test_every_suite_has_a_limit() -> None:
    assert {row["suite"] for row in ROWS.values()} == LIMITS.keys()


@pytest.mark.parametrize("suite", LIMITS)
def test_no_suite_is_further_off_than_it_was(suite: str, tmp_path: Path) -> None:
    accepted = {case: row for case, row in ROWS.items() if row["suite"] == suite}
    table = tmp_path / "cases.csv"
    columns = [name for name in next(iter(ROWS.values())) if name not in ("predicted_us", "ratio")]
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns, "time_us"], extrasaction="ignore")
        writer.writeheader()
        for row in accepted.values():
            writer.writerow({**row, "dump": str(TRACES / row["dump"]), "time_us": "1"})
    report = analyzer.validate(table, models=("sm",), jobs=1, cache=False)
    errors = []
    for case in report.cases:
        row = accepted[case.case]
        moved = case.predictions[0].time_us / float(row["predicted_us"])
        errors.append(abs(moved * float(row["ratio"]) - 1.0))
    assert len(errors) == len(accepted)
    mape = sum(errors) / len(errors)
    assert mape <= LIMITS[suite] + SLACK, f"MAPE {mape:.4f}; if it must be so: python bench/ratchet.py"
