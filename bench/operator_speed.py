"""Print how long predictions of operators take: a table of 100,000 rows, and one row at a time.

    python bench/operator_speed.py [--rows 100000]

Seconds depend on the machine, so each is also given as a ratio of what the same run took to read the table
with Python's csv module alone.
"""

import argparse
import csv
import io
import random
from collections.abc import Sequence
from time import perf_counter

from tabulate import tabulate

from analyzer.pipeline.operator_prediction import predict_rows

_GPUS = ("h100", "a100", "b200", "l40s", "h20", "h800", "rtx-6000-ada", "a40", "l20", "gb200")
_COLUMNS = (
    *("operator", "gpu", "dtype", "m", "n", "k", "experts", "topk", "hidden", "intermediate", "which"),
    *("kind", "q_lengths", "kv_lengths", "heads", "kv_heads", "rows", "columns"),
)
_N_SINGLE = 300


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    n_rows = parser.parse_args().rows
    random.seed(0)
    rows = [_draw_row() for _ in range(n_rows)]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    begin = perf_counter()
    read = list(csv.reader(io.StringIO(text.getvalue())))
    csv_seconds = perf_counter() - begin
    predict_rows(_COLUMNS, read[:200])  # loads the weights
    begin = perf_counter()
    answers = predict_rows(_COLUMNS, read)
    table_seconds = perf_counter() - begin
    begin = perf_counter()
    for row in read[:_N_SINGLE]:
        predict_rows(_COLUMNS, [row])
    single_ms = 1e3 * (perf_counter() - begin) / _N_SINGLE
    n_answered = sum(not reason for reason in answers.reasons)
    print(
        tabulate(
            [
                (
                    f"{n_rows:,} rows, {n_answered:,} answered",
                    f"{table_seconds:.2f} s",
                    table_seconds / csv_seconds,
                ),
                ("one row", f"{single_ms:.2f} ms", single_ms / 1e3 / csv_seconds),
                ("the same table read by csv", f"{csv_seconds:.2f} s", 1.0),
            ],
            headers=("", "time", "over csv"),
            floatfmt=".3g",
        )
    )


def _draw_row() -> Sequence[str]:
    fields: dict[str, object] = {"gpu": random.choice(_GPUS), "dtype": "bf16"}
    operator = random.choice(
        ("gemm", "gemm", "scaled_mm", "fused_add_rmsnorm", "silu_mul", "moe", "attention")
    )
    fields["operator"] = operator
    match operator:
        case "gemm" | "scaled_mm":
            fields |= {"m": random.randint(1, 8192), "n": 64 * random.randint(1, 256)}
            fields |= {
                "k": 64 * random.randint(1, 256),
                "dtype": "fp8" if operator == "scaled_mm" else "bf16",
            }
        case "moe":
            fields |= {"m": random.randint(1, 8192), "experts": 64, "topk": 6, "hidden": 2048}
            fields |= {"intermediate": 1408, "which": "w13"}
        case "attention":
            n_requests = random.randint(1, 16)
            lengths = [random.randint(1, 20_000) for _ in range(n_requests)]
            fields |= {"kind": "fa2_paged", "q_lengths": [1] * n_requests, "kv_lengths": lengths}
            fields |= {"heads": 32, "kv_heads": 8}
        case _:
            fields |= {"rows": random.randint(1, 100_000), "columns": 128 * random.randint(1, 128)}
    return [str(fields.get(name, "")) for name in _COLUMNS]


if __name__ == "__main__":
    main()
