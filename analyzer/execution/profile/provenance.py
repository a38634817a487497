"""What a count rests on."""

from collections.abc import Iterable
from enum import StrEnum


class Provenance(StrEnum):
    """What a count rests on, best first."""

    EXACT = "exact"
    TRACED = "traced"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


_PROVENANCE_ORDER = tuple(Provenance)


def find_worst_provenance(provenances: Iterable[Provenance]) -> Provenance:
    """The worst of several, which is what a sum over them carries; exact where there are none."""
    return max(provenances, key=_PROVENANCE_ORDER.index, default=Provenance.EXACT)
