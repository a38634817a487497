"""Accept today's predictions of shipped kernels, to which tests/models/test_accuracy.py holds later ones.

    python bench/ratchet.py            # writes tests/models/accepted.csv and tests/models/ratchet.toml

The measured times are not shipped. A row keeps what a launch needs, the time that `sm` predicts now, and the
ratio of that prediction to the measured time: these two give the measured time, and so the error of a later
prediction. Rows are the judging half of bench/kernels/split.csv whose dumps are
shipped, and every second one of the classical kernels.
"""

import csv
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import analyzer

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT.parent / "shared" / "data" / "measured" / "cases.csv"
SPLIT = ROOT / "bench" / "kernels" / "split.csv"
SHIPPED = ROOT / "traces" / "measured" / "cases.csv"
ACCEPTED = ROOT / "tests" / "models" / "accepted.csv"
RATCHET = ROOT / "tests" / "models" / "ratchet.toml"
GPU_KEYS = {"RTX 2080 Ti": "rtx-2080-ti", "RTX 4070": "rtx-4070"}
GPU_ARCHS = {"rtx-2080-ti": "sm_75", "rtx-4070": "sm_89"}
LAUNCH_COLUMNS = (
    *("case", "suite", "kernel", "gpu", "grid", "block", "dynamic_shared_bytes", "arguments"),
    *("l2", "clock_mhz", "dump"),
)


def read_measured() -> dict[str, dict[str, str]]:
    """Return the rows of the table of measured launches, by case."""
    csv.field_size_limit(1 << 30)
    with MEASURED.open(newline="", encoding="utf-8") as file:
        return {row["case"]: row for row in csv.DictReader(file)}


def make_rows(measured: dict[str, dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the launches to accept; `dump` is relative to `traces/`."""
    with SPLIT.open(newline="", encoding="utf-8") as file:
        judging = {row["case"] for row in csv.DictReader(file) if row["split"] == "judge"}
    with SHIPPED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["case"] in judging:
                yield {**row, "dump": f"measured/{row['dump']}"}
    classical = [row for row in measured.values() if row["suite"] == "report16" and row["case"] in judging]
    for row in classical[::2]:
        gpu = GPU_KEYS[row["gpu"]]
        yield {
            "case": row["case"],
            "suite": row["suite"],
            "kernel": row["step"],
            "gpu": gpu,
            "dump": f"cuda/{GPU_ARCHS[gpu]}/report16.sass",
            "arguments": zero_buffers(row["arguments"]),
            **{key: row[key] for key in ("grid", "block", "dynamic_shared_bytes")},
        }


def zero_buffers(arguments: str) -> str:
    """Return arguments in which buffers whose contents matter hold zeros."""
    for name in ("@counter", "@zeros_u32", "@zeros_i32", "@bins256"):
        arguments = arguments.replace(name, "zeros")
    return arguments


def predict(rows: list[dict[str, str]]) -> dict[str, float]:
    """Return the time that `sm` predicts for each launch, us."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "cases.csv"
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*LAUNCH_COLUMNS, "time_us"], extrasaction="ignore")
            writer.writeheader()
            for row in rows:
                writer.writerow({**row, "dump": str(ROOT / "traces" / row["dump"]), "time_us": "1"})
        report = analyzer.validate(table, models=("sm",), jobs=1, cache=False)
    return {case.case: case.predictions[0].time_us for case in report.cases}


def main() -> None:
    """Write both files."""
    measured = read_measured()
    rows = list(make_rows(measured))
    times_us = predict(rows)
    errors: dict[str, list[float]] = defaultdict(list)
    with ACCEPTED.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, [*LAUNCH_COLUMNS, "predicted_us", "ratio"], extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        for row in rows:
            time_us = times_us[row["case"]]
            ratio = time_us / float(measured[row["case"]]["time_us"])
            errors[row["suite"]].append(abs(ratio - 1.0))
            writer.writerow({**row, "predicted_us": f"{time_us:.6g}", "ratio": f"{ratio:.4g}"})
    lines = [f"{suite} = {sum(off) / len(off):.4f}" for suite, off in sorted(errors.items())]
    head = "# Mean absolute percentage error of the rows of accepted.csv, as last accepted (bench/ratchet.py)"
    RATCHET.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
