"""Codes that measured sweeps found within 1 % of the best: hwdb/tuning/fused_moe-chosen.csv.

A sweep measures all configurations of a shape. What was never among the best of any shape with as many rows
of an expert, on any of the GPUs, is seldom so on another. Example: of 263 shapes with at most 16 rows of an
expert none had a tile of 256 columns among the best; 61 codes were.

Made by `python bench/moe_ranking.py --fit` from the half of the shapes that teaches.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np

from analyzer.resources import find_data_folder
from analyzer.text.csv_table import read_csv_table
from analyzer.tuning.fused_moe_space import CODE_COLUMNS, CONFIG_COLUMNS, KERNEL, Integers

ROWS_COLUMN = "rows"  # the tallest tile that is not mostly padding: `find_most_rows`
CHOSEN_COLUMNS = (ROWS_COLUMN, *(CONFIG_COLUMNS[column] for column in CODE_COLUMNS))

ChosenCodes = Mapping[int, frozenset[tuple[int, ...]]]  # by `find_most_rows` of the shape


@cache
def load_chosen_codes() -> ChosenCodes:
    """Return the shipped codes by the rows of the tallest tile of a shape."""
    path = find_data_folder("hwdb") / "tuning" / f"{KERNEL}-chosen.csv"
    table = read_csv_table(path, "")
    found: dict[int, set[tuple[int, ...]]] = {}
    for row in range(len(table.rows)):
        most_rows, *code = (int(table.read_positive(row, name, "")) for name in CHOSEN_COLUMNS)
        found.setdefault(most_rows, set()).add(tuple(code))
    return {most_rows: frozenset(codes) for most_rows, codes in found.items()}


def find_chosen(
    codes: Integers, most_rows: int, chosen: ChosenCodes
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return which codes, [n, 5], a sweep found among the best of shapes with tiles of so many rows."""
    known = chosen.get(most_rows, frozenset())
    return np.array([tuple(code) in known for code in codes.tolist()], dtype=np.bool_)
