"""Errors of transferred times by what limits them: the intervals of new ones."""

from collections.abc import Mapping
from functools import cache

import msgspec
import tomli

from analyzer.models.residuals import ClassResiduals, load_residuals
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


def find_interval_us(estimate: TransferEstimate) -> tuple[float, float]:
    """Return the times between which 80 % of such launches were measured (conformal, by limit)."""
    table = load_transfer_residuals()
    return _spread(estimate.time_us, table.limits.get(estimate.limit, table.other))


def find_code_interval_us(estimate: TransferEstimate, *gpus: str) -> tuple[float, float]:
    """Return the same for a transfer by the ratio of the static model.

    gpus: keys of source and target; one that taught the static model nothing widens the interval.
    """
    low_us, high_us = _spread(estimate.time_us, load_transfer_residuals().code)
    static = load_residuals()
    widening = static.untaught_factor ** sum(gpu not in static.gpus for gpu in gpus)
    return low_us / widening, high_us * widening


def _spread(time_us: float, found: ClassResiduals) -> tuple[float, float]:
    return time_us * min(1.0, found.low), time_us * max(1.0, found.high)
