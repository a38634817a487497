"""Limits that the configuration sets for a kernel: thresholds on changes, budgets without a baseline, rules.

Limits are given for all kernels and again by globs of names. Those for all come first, then every glob that
fits, in the order of the file: a later one overrides an earlier one, limit by limit. With

    cycles = "5%"                       # all kernels
    [[tool.warplens.check.kernels]]
    match = "fmha*"
    cycles = "2%"

`fmha_fwd` is held to 2 % and everything else to 5 %.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct

from analyzer.text.demangling import strip_signature

_ABSOLUTE_SLACK = 1e-9  # of figures that went through a text with six digits


class BudgetSide(StrEnum):
    """Which side of a budget is allowed."""

    MAX = "max"
    MIN = "min"


class Threshold(Struct, frozen=True):
    """How far a figure may move to the worse: by a share of its old value, or by an amount in its unit."""

    amount: float
    is_share: bool

    def is_exceeded(self, old: float, worsening: float, noise: float = 0.0) -> bool:
        """Return whether a figure worsened by more.

        worsening: in its unit, negative for the better.
        noise: least change that counts where the threshold is a share.
        """
        allowed = max(noise, self.amount * abs(old)) if self.is_share else self.amount
        return worsening > allowed + _ABSOLUTE_SLACK * max(1.0, abs(old))

    def format(self, *, more_is_worse: bool) -> str:
        """Return `+5 %` or `+8`, for a figure of which less is worse `-5 %`; `0` where nothing is allowed."""
        if not self.amount:
            return "0"
        sign = "+" if more_is_worse else "-"
        return f"{sign}{self.amount * 100:g} %" if self.is_share else f"{sign}{self.amount:,g}"


class Budget(Struct, frozen=True):
    """A limit on a figure itself."""

    metric: str
    side: BudgetSide
    amount: float

    @property
    def rule(self) -> str:
        """Name of the rule that a violation breaks: `max-registers`."""
        return f"{self.side.value}-{self.metric.replace('_', '-')}"

    def is_broken(self, value: float) -> bool:
        """Return whether a figure is beyond it."""
        over = value - self.amount if self.side is BudgetSide.MAX else self.amount - value
        return over > _ABSOLUTE_SLACK * max(1.0, abs(self.amount))

    def format(self) -> str:
        """Return `<= 168` or `>= 0.5`."""
        return f"{'<=' if self.side is BudgetSide.MAX else '>='} {self.amount:,g}"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a kernel, or those that one table of the configuration adds."""

    thresholds: Mapping[str, Threshold | None] = {}  # by metric; None: a change of it never trips the gate
    budgets: Mapping[tuple[str, BudgetSide], Budget | None] = {}
    forbidden: tuple[str, ...] | None = None  # rules of advice; None: as before

    def override(self, other: "Limits") -> "Limits":
        """Return these limits with those of another table over them."""
        return Limits(
            thresholds={**self.thresholds, **other.thresholds},
            budgets={**self.budgets, **other.budgets},
            forbidden=self.forbidden if other.forbidden is None else other.forbidden,
        )


# A metric that is not named here is reported and never trips the gate. Registers alone are not held to
# anything: those that cost time show in the cycles, and others are no loss. Sectors are, since a short kernel
# hides them from the cycles, and the launch does not change beside the code.
DEFAULT_LIMITS = Limits(
    thresholds={
        "cycles": Threshold(0.05, True),
        "spill_bytes": Threshold(0.0, False),
        "global_sectors": Threshold(0.10, True),
    }
)


class LimitEntry(Struct, frozen=True):
    """Limits for the kernels that a glob fits."""

    glob: str
    limits: Limits

    def fits(self, name: str, demangled: str) -> bool:
        """Return whether the glob fits a kernel's name as compiled, demangled, or without its signature."""
        bare = strip_signature(demangled)
        return any(fnmatchcase(each, self.glob) for each in (name, demangled, bare))


class LimitTable(Struct, frozen=True):
    """The limits of all kernels."""

    common: Limits
    entries: tuple[LimitEntry, ...] = ()

    def find_limits(self, name: str, demangled: str) -> Limits:
        """Return the limits of a kernel."""
        found = self.common
        for entry in self.entries:
            if entry.fits(name, demangled):
                found = found.override(entry.limits)
        return found

    def find_unused_globs(self, kernels: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Return the globs that fit none of the kernels, each given by its name and its demangled name."""
        return tuple(
            entry.glob
            for entry in self.entries
            if not any(entry.fits(name, demangled) for name, demangled in kernels)
        )

    @property
    def all_forbidden(self) -> tuple[str, ...]:
        """Rules of advice that are forbidden to some kernel, sorted."""
        tables = (self.common, *(entry.limits for entry in self.entries))
        return tuple(sorted({rule for limits in tables for rule in limits.forbidden or ()}))

    @property
    def has_budgets(self) -> bool:
        """True if some kernel has a budget or a forbidden rule."""
        tables = (self.common, *(entry.limits for entry in self.entries))
        return any(limits.forbidden or any(limits.budgets.values()) for limits in tables)
