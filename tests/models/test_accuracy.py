"""Predictions of shipped kernels against times that others measured: no suite may get worse.

`accepted.csv` holds each launch with the prediction that was last accepted and its ratio to the measured time;
`ratchet.toml` the mean absolute percentage error of each suite then. Both are written by bench/ratchet.py, which
needs the measured times; this test does not.
"""

import csv
import tomllib
from collections import defaultdict
from pathlib import Path

from paths import TRACES

import analyzer

ACCEPTED = Path(__file__).with_name("accepted.csv")
RATCHET = Path(__file__).with_name("ratchet.toml")
SLACK = 0.002


def read_accepted() -> dict[str, dict[str, str]]:
    with ACCEPTED.open(newline="", encoding="utf-8") as file:
        return {row["case"]: row for row in csv.DictReader(file)}


def test_no_suite_is_further_off_than_it_was(tmp_path: Path) -> None:
    accepted = read_accepted()
    table = tmp_path / "cases.csv"
    columns = [name for name in next(iter(accepted.values())) if name not in ("predicted_us", "ratio")]
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns, "time_us"], extrasaction="ignore")
        writer.writeheader()
        for row in accepted.values():
            writer.writerow({**row, "dump": str(TRACES / row["dump"]), "time_us": "1"})
    report = analyzer.validate(table, models=("sm",), jobs=1, cache=False)
    errors: dict[str, list[float]] = defaultdict(list)
    for case in report.cases:
        row = accepted[case.case]
        moved = case.predictions[0].time_us / float(row["predicted_us"])
        errors[case.suite].append(abs(moved * float(row["ratio"]) - 1.0))
    assert sum(map(len, errors.values())) == len(accepted)
    mape = {suite: sum(values) / len(values) for suite, values in errors.items()}
    limits = tomllib.loads(RATCHET.read_text())
    assert mape.keys() == limits.keys()
    worse = {suite: round(value, 4) for suite, value in mape.items() if value > limits[suite] + SLACK}
    assert not worse, f"MAPE by suite {worse}, accepted {limits}; if it must be so: python bench/ratchet.py"
