"""How far off the default model has been on measured kernels that taught it nothing, class by class."""

from collections import Counter
from collections.abc import Mapping
from functools import cache

import msgspec
import numpy as np
import tomli

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, AddressSpace, OpKind
from analyzer.models.interface import ModelInput, Stall
from analyzer.resources import find_data_folder

_RESIDUALS_FILE = "residuals.toml"


class ClassResiduals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured time over predicted time: the tenth and the ninetieth percentile of so many rows."""

    low: float
    high: float
    rows: int


class CalibrationStacks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPI stacks of rows that the intervals were learned from, one for each group of stacks that are alike.

    hundredths[kind, stall]: shares of the cycles, columns in order of `stalls`.
    unlike_distance: share of the cycles that would have to stand to other stalls, beyond which a kernel is
    unlike all of them.
    """

    stalls: tuple[Stall, ...]
    hundredths: tuple[tuple[int, ...], ...]
    unlike_distance: float

    def measure_distance(self, stack: Mapping[Stall, float]) -> float:
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
    kinds: CalibrationStacks


@cache
def load_residuals() -> Residuals:
    """The table in `hwdb`."""
    return msgspec.convert(tomli.loads((find_data_folder("hwdb") / _RESIDUALS_FILE).read_text()), Residuals)


def find_time_factors(
    model_input: ModelInput, bound: str, stack: Mapping[Stall, float]
) -> tuple[float, float]:
    """Factors on the predicted time between which four of five kernels of this class were measured."""
    table = load_residuals()
    found = table.bounds.get(bound, table.other)
    is_taught = model_input.gpu.key in table.gpus
    is_taught &= table.kinds.measure_distance(stack) <= table.kinds.unlike_distance
    wider = 1.0 if is_taught else table.untaught_factor
    wider *= table.unexecuted_factor ** _measure_guessed_share(model_input)
    return min(1.0, found.low) / wider, max(1.0, found.high) * wider


def _measure_guessed_share(model_input: ModelInput) -> float:
    """Part of the executed instructions that are guesses, or of requests to one memory if that is more."""
    profile = model_input.profile
    if profile is None or profile.provenance is Provenance.UNKNOWN:
        return 1.0
    if not profile.unknown_branches:
        return measure_scattered_atomic_share(model_input)
    if profile.block_provenance[0] not in _COUNTED_PROVENANCES:
        return _measure_speculative_share(model_input, profile)
    lengths = np.array([len(block) for block in model_input.cfg.blocks])
    sizes = np.asarray(profile.block_executions) * lengths
    is_guessed = np.array([provenance not in _COUNTED_PROVENANCES for provenance in profile.block_provenance])
    instructions = float(sizes[is_guessed].sum()) / max(1.0, float(sizes.sum()))
    n_requests: Counter[AddressSpace] = Counter()
    n_guessed_requests: Counter[AddressSpace] = Counter()
    for access in profile.accesses:
        is_copy = model_input.kernel.find_opcode(access.row).kind is OpKind.BULK_COPY
        if is_copy or access.space is AddressSpace.TENSOR:  # these have no addresses to know
            continue
        n_requests[access.space] += access.requests
        n_guessed_requests[access.space] += access.requests * (access.provenance not in _COUNTED_PROVENANCES)
    return max(
        instructions, *(n_guessed_requests[space] / max(1, n_requests[space]) for space in n_requests), 0.0
    )


def _measure_speculative_share(model_input: ModelInput, profile: ExecutionProfile) -> float:
    """The same of a grid that was looked at in parts, where no count is exact: what hangs on guesses."""
    speculative = sum(branch.instruction_share for branch in profile.unknown_branches)
    return min(1.0, max(speculative, measure_scattered_atomic_share(model_input)))


def measure_scattered_atomic_share(model_input: ModelInput) -> float:
    """Of requests to global memory, atomics at places that data name: nobody knows how many meet."""
    profile = model_input.profile
    if profile is None:
        return 0.0
    global_accesses = [access for access in profile.accesses if access.space in GLOBAL_SPACES]
    unknown = [
        access
        for access in global_accesses
        if (access.provenance is Provenance.UNKNOWN or access.is_indirect)
        and model_input.kernel.find_opcode(access.row).kind in ATOMIC_KINDS
    ]
    return sum(access.requests for access in unknown) / max(
        1, sum(access.requests for access in global_accesses)
    )


_COUNTED_PROVENANCES = frozenset({Provenance.EXACT, Provenance.TRACED})
