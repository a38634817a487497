"""Split the rows: constants are fitted on one half ("learn"), models are judged on the other ("judge").

The split is committed as split.csv. In tunable suites and report16, configurations are ordered by a hash of
suite, step and configuration, and taken alternately, so half of them are on each side, and a configuration
is on the same side on every GPU. In suites of a few optimization steps, the steps alternate in their order.
"""

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence

from kernels.recipes import HERE, MeasuredRow, TableError

SPLIT = HERE / "split.csv"
STEP_SUITES = ("sgemm_cuda", "mma_matmul", "learn_cuda_sm80", "fast_cu_article")
SIDES = ("learn", "judge")


def split_cases(rows: Sequence[MeasuredRow]) -> dict[str, str]:
    """Return "learn" or "judge" by case."""
    found: dict[str, str] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        members = [row for row in rows if row.suite == suite]
        keys = list(dict.fromkeys(_make_configuration_key(row) for row in members))
        if suite not in STEP_SUITES:
            keys.sort(key=_hash_key)
        side = {key: SIDES[place % 2] for place, key in enumerate(keys)}
        found |= {row.case: side[_make_configuration_key(row)] for row in members}
    return found


def _make_configuration_key(row: MeasuredRow) -> str:
    return json.dumps([row.suite, row.step, row.config], sort_keys=True)


def _hash_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def write_split(rows: Sequence[MeasuredRow]) -> None:
    """Write split.csv, if it is missing or differs."""
    lines = ["case,split", *(f"{case},{side}" for case, side in split_cases(rows).items())]
    text = "\n".join(lines) + "\n"
    if not SPLIT.exists() or SPLIT.read_text() != text:
        SPLIT.write_text(text)


def read_split() -> Mapping[str, str]:
    """Read "learn" or "judge" by case from split.csv. Raises TableError."""
    try:
        with SPLIT.open(newline="") as file:
            return {line["case"]: line["split"] for line in csv.DictReader(file)}
    except (OSError, KeyError) as error:
        raise TableError(f"{SPLIT}: {error}") from None
