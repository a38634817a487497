"""Provenance of counts: how each was found, and so how far it can be trusted."""

from collections.abc import Iterable
from enum import StrEnum


class Provenance(StrEnum):
    """Evidence behind a count, best first."""

    EXACT = "exact"  # follows from the code and the launch
    TRACED = "traced"  # counted in a recorded trace
    ASSUMED = "assumed"  # rests on an assumption, which the report names
    UNKNOWN = "unknown"


INEXACT_PROVENANCES = frozenset({Provenance.ASSUMED, Provenance.UNKNOWN})
_PROVENANCE_ORDER = tuple(Provenance)


def find_worst_provenance(provenances: Iterable[Provenance]) -> Provenance:
    """Return the worst provenance, which a sum over all of them has; EXACT if there are none."""
    return max(provenances, key=_PROVENANCE_ORDER.index, default=Provenance.EXACT)
