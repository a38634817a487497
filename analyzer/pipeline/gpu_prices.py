"""Prices of GPUs per hour, as users give them: h100=2.5, or a table with columns gpu and price_per_hour."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from analyzer.hardware.gpu_database import load_gpu
from analyzer.text.csv_table import read_csv_table
from analyzer.text.errors import HardwareError, InputError, UsageError

_COLUMNS = ("gpu", "price_per_hour")
_TABLE_HINT = "a price list has columns gpu and price_per_hour, a row for each kind of GPU"
_MAX_PRICE = 1e9


def parse_prices(texts: Iterable[str]) -> Mapping[str, float]:
    """Return prices by the name of a GPU's file, of texts such as `h100=2.5`.

    Raises UsageError for a text of another form, HardwareError for an unknown GPU.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        price = _parse_price(value)
        if not sign or not name or price is None:
            raise UsageError(
                f"--price {text[:60]}: no price", hint="give a GPU and its price per hour: --price h100=2.5"
            )
        found[load_gpu(name).key] = price
    return found


def read_prices(path: Path) -> Mapping[str, float]:
    """Return prices by the name of a GPU's file, from a CSV table; rows of unknown GPUs are left out.

    Raises InputError with line and caret of a price that is none.
    """
    table = read_csv_table(path, _TABLE_HINT)
    table.check_columns(_COLUMNS, _TABLE_HINT)
    places = [table.columns.index(column) for column in _COLUMNS]
    found: dict[str, float] = {}
    for line, fields in table.rows:
        name, value = (fields[place].strip() if place < len(fields) else "" for place in places)
        price = _parse_price(value)
        if price is None:
            raise InputError(
                f"column price_per_hour: {value[:60]!r} is no price",
                location=table.locate_field(line, places[1]),
                hint="give a number, 0 or more",
            )
        key = _find_key(name)
        if key is not None:
            found[key] = price
    return found


def _find_key(name: str) -> str | None:
    try:
        return load_gpu(name).key
    except HardwareError:
        return None


def _parse_price(text: str) -> float | None:
    try:
        price = float(text)
    except ValueError:
        return None
    return price if math.isfinite(price) and 0.0 <= price <= _MAX_PRICE else None
