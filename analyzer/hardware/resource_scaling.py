"""Figures that follow an edit: by how much each moves, from the table of resources.

    l2.bandwidth_gbps x2      l2.requests_per_us x2, memory.atomic_line_cycles x0.5: the same slices
    sm.count x2               memory.l2_bytes_per_cycle_per_sm x0.5: an SM's share of the same L2
    peak.fp64_tflops x4, sm.count x2      sched.fp64.issue_cycles x0.5: what the SMs leave over

What is set itself does not move.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct

from analyzer.hardware.resources import (
    FigureRow,
    Scaling,
    find_resource,
    find_row,
    iterate_rows,
    parse_resource_key,
)

# Datasheets round: where SMs or clock are edited too, a rest of a peak as small as this is no other rate.
_PEAK_ROUNDING = 0.03


class ScaledFigure(Struct, frozen=True):
    """A figure that followed an edit."""

    key: str
    factor: float
    leader: str  # key of the edit

    def __str__(self) -> str:
        return f"{self.key} scaled by {self.factor:.4g} with {self.leader}"


class _Movement(Struct, frozen=True):
    factor: float
    leader: str = ""


_UNMOVED = _Movement(1.0)


def describe_scaled_figures(figures: Iterable[ScaledFigure]) -> tuple[str, ...]:
    """Return one line for all figures that one edit has scaled by the same factor."""
    groups: dict[tuple[str, float], list[str]] = {}
    for one in figures:
        groups.setdefault((one.leader, one.factor), []).append(one.key)
    return tuple(
        f"{join_figure_keys(keys)} scaled by {factor:.4g} with {leader}"
        for (leader, factor), keys in groups.items()
    )


def join_figure_keys(keys: Iterable[str]) -> str:
    """Return keys as text; printed peaks, which move with nearly everything, as `peak.*`."""
    return ", ".join(dict.fromkeys("peak.*" if key.startswith("peak.") else key for key in keys))


def find_scaled_figures(factors: Mapping[str, float], keys: Iterable[str]) -> tuple[ScaledFigure, ...]:
    """Return those of some figures that follow edits.

    factors: by key of a figure the new value over the old one, 0 where there was no old one; by resource and
    role (`l2.rate`, `l2.size`) the factor of all figures of that role.
    """
    search = _FollowerSearch({key: factor for key, factor in factors.items() if factor})
    moved = ((key, search.find_movement(key)) for key in keys if key not in factors)
    return tuple(ScaledFigure(key, one.factor, one.leader) for key, one in moved if one.factor != 1.0)


@cache
def find_coupled_keys(key: str) -> tuple[str, ...]:
    """Return the figures of the same thing, which an edit of this figure moves unless they are set too.

    Left out are those of other resources that are a product of it, such as peaks for the count of SMs.
    """
    search, own = _FollowerSearch({key: 2.0}), find_row(key)
    resource = "" if own is None else own.resource
    others = (row for row in iterate_rows() if row.key != key)
    near = (row for row in others if row.resource == resource or key in row.follows)
    return tuple(row.key for row in near if search.find_own_movement(row).factor != 1.0)


class _FollowerSearch:
    """Search for what follows given edits."""

    def __init__(self, factors: Mapping[str, float]) -> None:
        self.factors = factors
        self.part_rates: dict[tuple[str, str], _Movement] = {}

    def find_movement(self, key: str) -> _Movement:
        """Return the factor of a figure, with the edit that it follows first."""
        if key in self.factors:
            return _Movement(self.factors[key], key)
        row = find_row(key)
        if row is None:
            return _UNMOVED
        own, outside = self.find_own_movement(row), self._find_outside_factor(row)
        return _Movement(own.factor * outside.factor, own.leader if own.factor != 1.0 else outside.leader)

    def find_own_movement(self, row: FigureRow) -> _Movement:
        """Return the factor of a figure by its resource and by what it is derived from."""
        rate, bases = self._find_part_rate(row), find_resource(row.resource).bases.values()
        if row.key in bases and rate.leader in bases:
            return _UNMOVED
        factor, leader = rate.factor**row.exponent, rate.leader if row.exponent else ""
        if row.scaling in {Scaling.LATENCY, Scaling.SIZE}:
            role = f"{row.resource}.{row.scaling.value}"
            factor, leader = self.factors.get(role, 1.0), role if role in self.factors else ""
        nearest = next((key for key in reversed(row.follows) if key in self.factors), None)
        if nearest is None:
            return _Movement(factor, leader)
        return _Movement(factor * self.factors[nearest], leader or nearest)

    def _find_part_rate(self, row: FigureRow) -> _Movement:
        place = (row.resource, row.part)
        if place not in self.part_rates:
            self.part_rates[place] = self._compute_part_rate(row.resource, row.part)
        return self.part_rates[place]

    def _compute_part_rate(self, resource_name: str, part: str) -> _Movement:
        """Return the factor of a part's rate: that of its last edited figure, else of resource and bases."""
        resource = find_resource(resource_name)
        edited = [
            row
            for row in resource.rows
            if part and row.part == part and row.moves_part and row.key in self.factors
        ]
        if edited:
            return _Movement(self._compute_rate_factor(edited[-1]), edited[-1].key)
        of_rate = f"{resource_name}.rate"
        bases = resource.bases.values() if part == "rate" else ()
        named = [key for key in (of_rate, *bases) if key in self.factors]
        factor = 1.0
        for key in named:
            factor *= self.factors[key]
        return _Movement(factor, named[0] if named else "")

    def _compute_rate_factor(self, row: FigureRow) -> float:
        """Return the factor of the rate that the new value of a figure leaves to its own resource."""
        outside = self._find_outside_factor(row).factor
        rest = self.factors[row.key] / outside
        if outside != 1.0 and abs(rest - 1.0) <= _PEAK_ROUNDING:
            return 1.0
        return float(rest**row.exponent)

    def _find_outside_factor(self, row: FigureRow) -> _Movement:
        """Return the product of the figures of other resources by which one is multiplied."""
        factor, leader = 1.0, ""
        for one in row.per:
            movement = self._find_nearest_movement(one.keys)
            factor *= movement.factor**one.exponent
            leader = leader or movement.leader
        return _Movement(factor, leader)

    def _find_nearest_movement(self, keys: Sequence[str]) -> _Movement:
        edited = [key for key in keys if key in self.factors]
        return self.find_movement(edited[-1] if edited else keys[0])


def normalize_resource_key(key: str) -> str | None:
    """Return the figure of a base (`l2.units`) or a resource with its role (`l1` is `l1.rate`), else None."""
    named = parse_resource_key(key)
    if named is None:
        return None
    resource, role = named
    return resource.bases.get(role, f"{resource.name}.{role}")
