"""Errors of transferred times by what limits them: the intervals of new ones."""

from collections.abc import Mapping
from functools import cache

import msgspec
import tomli

from analyzer.models.residuals import ClassResiduals
from analyzer.models.transfer.analytic import Limit, TransferEstimate
from analyzer.resources import find_data_folder

_RESIDUALS_FILE = "transfer.toml"


class TransferResiduals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table in `hwdb/transfer.toml`, written by `bench/transfer.py learn`: measured over transferred time."""

    schema: str
    evidence: str
    limits: Mapping[Limit, ClassResiduals]  # of transfers without code
    other: ClassResiduals  # limits that are not listed: all rows, widened
    code: ClassResiduals  # of transfers by the ratio of the static model


@cache
def load_transfer_residuals() -> TransferResiduals:
    """Read the table."""
    text = (find_data_folder("hwdb") / _RESIDUALS_FILE).read_text(encoding="utf-8")
    return msgspec.convert(tomli.loads(text), TransferResiduals)


def find_interval_us(estimate: TransferEstimate, *, from_code: bool) -> tuple[float, float]:
    """Return the times between which 80 % of such launches were measured (split conformal, by limit)."""
    table = load_transfer_residuals()
    found = table.code if from_code else table.limits.get(estimate.limit, table.other)
    return estimate.time_us * min(1.0, found.low), estimate.time_us * max(1.0, found.high)
