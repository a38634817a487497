"""What a count rests on."""

from collections.abc import Iterable
from enum import StrEnum


class Provenance(StrEnum):
    """What a count rests on, best first."""

    EXACT = "exact"
    TRACED = "traced"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


_ORDER = tuple(Provenance)


def worst(provenances: Iterable[Provenance]) -> Provenance:
    """The worst of several, which is what a sum over them carries; exact where there are none."""
    return max(provenances, key=_ORDER.index, default=Provenance.EXACT)
