"""Values of a rule of advice: where it found its cause, the input without the cause, and the finding.

A rule is a module of `analyzer/advice/rules` with

- `NAME`, the rule's identifier: the name of the file with hyphens;
- `ACTION`, one sentence that says what to do;
- `find_sites(result) -> tuple[Site, ...]`: the places that show the cause, the worst one first. It only reads
  what the model knows already, since it runs for every kernel;
- `remove_cause(result, sites) -> Edit | None`: the model's input with the cause removed, None where that
  cannot be done. It is called only where there are sites.

The gain of a rule is the difference between the cycles that the model predicts for the two inputs. It counts
all sites of the rule together, and what limits the kernel then: to remove a cause that another one hides
gains nothing. A rule that knows an upper limit of its gain says so (`Site.max_gain_share`), which saves a
run of the model where the limit is small.
"""

from typing import Protocol

from msgspec import Struct

from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult


class Site(Struct, frozen=True):
    """A place that shows the cause of a rule."""

    row: int | None  # the instruction; None for the kernel as a whole
    message: str  # what is wrong there, with its figures, in the words of Nsight Compute
    # Of the cycles, at most what removing the cause at all sites gains; 1 where the rule cannot say. Only the
    # value of the worst site counts.
    max_gain_share: float = 1.0


class Edit(Struct, frozen=True, eq=False):
    """The input of a model with the cause of a rule removed."""

    model_input: ModelInput
    # Work of the launch over that of the edited input. Of the edited prediction all but the launch counts so
    # often: 1.5 where two of three waves are left.
    work_scale: float = 1.0
    # What the launch without the cause still waits for, but the edited input does not show; nothing where the
    # interval between launches is longer than the kernel.
    remaining_cycles: float = 0.0
    note: str = ""  # what else the edit takes for granted


class Rule(Struct, frozen=True, kw_only=True):
    """A rule of advice, see the module docstring."""

    name: str
    action: str
    find_sites: "SiteFinder"
    remove_cause: "CauseRemover"


class Finding(Struct, frozen=True, kw_only=True):
    """A rule that applies to a launch, with what following it gains."""

    rule: str
    message: str  # of the worst site
    action: str
    row: int | None  # of the worst site
    other_rows: tuple[int, ...]  # of the other sites, the worst ones first
    gain_cycles: float  # at least 0; the upper limit where the model was not asked
    gain_share: float  # of the predicted cycles
    gain_is_limit: bool  # the model was not asked: the gain is at most this
    is_guess: bool  # the addresses at its sites are unknown, so random ones show the cause
    gain_basis: str  # how the gain was found, and what it takes for granted


class SiteFinder(Protocol):
    """The function `find_sites` of a rule."""

    def __call__(self, result: ModelResult) -> tuple[Site, ...]:
        """Return the places that show the cause."""
        ...


class CauseRemover(Protocol):
    """The function `remove_cause` of a rule."""

    def __call__(self, result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
        """Return the input without the cause."""
        ...


def list_rows(sites: tuple[Site, ...]) -> tuple[int, ...]:
    """Return the instructions of some sites."""
    return tuple(site.row for site in sites if site.row is not None)
