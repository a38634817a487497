"""Predictions of shipped kernels against times that others measured: no suite may get worse.

`ratchet.toml` holds the mean absolute percentage error of each suite as it was last accepted.
"""

import csv
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import TRACES

import analyzer

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "data" / "measured" / "cases.csv"
SPLIT = Path(__file__).resolve().parents[2] / "bench" / "kernels" / "split.csv"
RATCHET = Path(__file__).with_name("ratchet.toml")
SHIPPED = TRACES / "measured" / "cases.csv"
SLACK = 0.002
_GPUS = {"RTX 2080 Ti": "rtx-2080-ti", "RTX 4070": "rtx-4070"}
_ARCHS = {"rtx-2080-ti": "sm_75", "rtx-4070": "sm_89"}


def measured() -> dict[str, dict[str, str]]:
    csv.field_size_limit(1 << 30)
    with MEASURED.open(newline="", encoding="utf-8") as file:
        return {row["case"]: row for row in csv.DictReader(file)}


def rows() -> Iterator[dict[str, str]]:
    """Rows of the judging half as `validate` reads them: those shipped, and half of the classical kernels'."""
    times = measured()
    with SPLIT.open(newline="", encoding="utf-8") as file:
        judging = {row["case"] for row in csv.DictReader(file) if row["split"] == "judge"}
    with SHIPPED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["case"] not in judging:
                continue
            yield {**row, "dump": str(SHIPPED.parent / row["dump"]), "time_us": times[row["case"]]["time_us"]}
    classical = [row for row in times.values() if row["suite"] == "report16" and row["case"] in judging]
    for row in classical[::2]:
        gpu = _GPUS[row["gpu"]]
        yield {
            "case": row["case"],
            "suite": row["suite"],
            "kernel": row["step"],
            "gpu": gpu,
            "dump": str(TRACES / "cuda" / _ARCHS[gpu] / "report16.sass"),
            "arguments": _zeroed(row["arguments"]),
            **{key: row[key] for key in ("grid", "block", "dynamic_shared_bytes", "time_us")},
        }


def _zeroed(arguments: str) -> str:
    """Buffers whose contents matter hold zeros."""
    for name in ("@counter", "@zeros_u32", "@zeros_i32", "@bins256"):
        arguments = arguments.replace(name, "zeros")
    return arguments


@pytest.mark.skipif(not MEASURED.exists(), reason=f"{MEASURED} is not there")
def test_no_suite_is_further_off_than_it_was(tmp_path: Path) -> None:
    table = tmp_path / "cases.csv"
    every = list(rows())
    names = sorted({name for row in every for name in row})
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(every)
    report = analyzer.validate(table, models=("sm",), jobs=1, cache=False)
    errors: dict[str, list[float]] = defaultdict(list)
    for case in report.cases:
        (found,) = case.predictions
        errors[case.suite].append(abs(found.time_us / case.time_us - 1.0))
    mape = {suite: sum(values) / len(values) for suite, values in errors.items()}
    accepted = tomllib.loads(RATCHET.read_text())
    worse = {suite: round(value, 4) for suite, value in mape.items() if value > accepted[suite] + SLACK}
    assert not worse, f"MAPE by suite {worse}, accepted {accepted}"
