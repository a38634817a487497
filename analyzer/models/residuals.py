"""How far off the default model has been on measured kernels that taught it nothing, class by class."""

from collections import Counter
from collections.abc import Mapping
from functools import cache

import msgspec
import numpy as np
import tomli

from analyzer.execution.profile import ExecutionProfile
from analyzer.execution.provenance import Provenance
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, OpKind, Space
from analyzer.models.base import Situation, Stall
from analyzer.resources import data_root

_FILE = "residuals.toml"


class ClassResiduals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured time over predicted time: the tenth and the ninetieth percentile of so many rows."""

    low: float
    high: float
    rows: int


class Kinds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPI stacks of rows that the intervals were learned from, one for each group of stacks that are alike.

    hundredths[kind, stall]: shares of the cycles, columns in order of `stalls`.
    unlike_distance: share of the cycles that would have to stand to other stalls, beyond which a kernel is
    unlike all of them.
    """

    stalls: tuple[Stall, ...]
    hundredths: tuple[tuple[int, ...], ...]
    unlike_distance: float

    def distance_of(self, stack: Mapping[Stall, float]) -> float:
        """Share of a stack's cycles that stand to other stalls than in the kind which is most like it."""
        total = sum(stack.values()) or 1.0
        shares = np.array([stack.get(stall, 0.0) for stall in self.stalls]) / total
        elsewhere = 1.0 - float(shares.sum())
        apart = np.abs(np.array(self.hundredths) / 100.0 - shares).sum(axis=1) + elsewhere
        return float(apart.min()) / 2.0


class Residuals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By what bounds a kernel; `other` for what no row was bounded by. Written by `bench/accuracy.py`.

    gpus: whose rows taught the constants; kinds: of what kernels;
    untaught_factor: by which the interval is wider on any other GPU, and for a kernel of another kind;
    unexecuted_factor: the same for a kernel whose counts and addresses are guesses, all of
    them; where a part of its instructions is counted, by so much less.
    """

    schema: str
    evidence: str
    gpus: tuple[str, ...]
    untaught_factor: float
    unexecuted_factor: float
    bounds: dict[str, ClassResiduals]
    other: ClassResiduals
    kinds: Kinds


@cache
def residuals() -> Residuals:
    """The table in `hwdb`."""
    return msgspec.convert(tomli.loads((data_root("hwdb") / _FILE).read_text()), Residuals)


def interval_of(situation: Situation, bound: str, stack: Mapping[Stall, float]) -> tuple[float, float]:
    """Factors on the predicted time between which four of five kernels of this class were measured."""
    table = residuals()
    found = table.bounds.get(bound, table.other)
    is_taught = situation.gpu.key in table.gpus
    is_taught &= table.kinds.distance_of(stack) <= table.kinds.unlike_distance
    wider = 1.0 if is_taught else table.untaught_factor
    wider *= table.unexecuted_factor ** _guessed_share(situation)
    return min(1.0, found.low) / wider, max(1.0, found.high) * wider


def _guessed_share(situation: Situation) -> float:
    """Part of the executed instructions that are guesses, or of requests to one memory if that is more."""
    profile = situation.profile
    if profile is None or profile.provenance is Provenance.UNKNOWN:
        return 1.0
    if not profile.unknown_branches:
        return scattered_atomics_share(situation)
    if profile.block_provenance[0] not in _COUNTED:
        return _hanging_share(situation, profile)
    lengths = np.array([len(block) for block in situation.cfg.blocks])
    sizes = np.asarray(profile.block_warps) * lengths
    is_guessed = np.array([provenance not in _COUNTED for provenance in profile.block_provenance])
    instructions = float(sizes[is_guessed].sum()) / max(1.0, float(sizes.sum()))
    asked: Counter[Space] = Counter()
    guessed: Counter[Space] = Counter()
    for access in profile.accesses:
        is_copy = situation.kernel.opcode(access.row).kind is OpKind.BULK_COPY
        if is_copy or access.space is Space.TENSOR:  # these have no addresses to know
            continue
        asked[access.space] += access.requests
        guessed[access.space] += access.requests * (access.provenance not in _COUNTED)
    return max(instructions, *(guessed[space] / max(1, asked[space]) for space in asked), 0.0)


def _hanging_share(situation: Situation, profile: ExecutionProfile) -> float:
    """The same of a grid that was looked at in parts, where no count is exact: what hangs on guesses."""
    hanging = sum(branch.share for branch in profile.unknown_branches)
    return min(1.0, max(hanging, scattered_atomics_share(situation)))


def scattered_atomics_share(situation: Situation) -> float:
    """Of requests to global memory, atomics at places that data name: nobody knows how many meet."""
    profile = situation.profile
    if profile is None:
        return 0.0
    asked = [access for access in profile.accesses if access.space in GLOBAL_SPACES]
    unknown = [
        access
        for access in asked
        if (access.provenance is Provenance.UNKNOWN or access.is_looked_up)
        and situation.kernel.opcode(access.row).kind in ATOMIC_KINDS
    ]
    return sum(access.requests for access in unknown) / max(1, sum(access.requests for access in asked))


_COUNTED = frozenset({Provenance.EXACT, Provenance.TRACED})
