"""Intervals of the default model: how far it was off on measured suites that taught it nothing.

A row of `hwdb/residuals.toml` is a class of launches, with the 10th and the 90th percentile of measured over
predicted time. Each measured suite was predicted without the figures that its own rows had taught
(`bench/left_suite.py`), so these are the errors to expect of a kernel that nobody has seen. The classes:

    short             predicted under 20 us: launch, ramp and drain decide
    tensor            the tensor cores are busy for a third of the time or more
    memory            DRAM or L2 binds
    load/store path   the load/store path binds
    other             all else

A launch that predicted 100 us with `low = 0.94, high = 1.2` takes 94 to 120 us with a probability of 80 %.
Kernels whose stall stack resembles none of these suites have rows of their own, `unlike`.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from functools import cache

import msgspec
import numpy as np
import tomli

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, AddressSpace, OpKind
from analyzer.ir.scheduling import Pipe
from analyzer.models.bounds import DRAM_BOUND, L2_BOUND, LOAD_STORE_BOUND
from analyzer.models.interface import ModelInput, Stall
from analyzer.resources import find_data_folder

_RESIDUALS_FILE = "residuals.toml"
_SHORT_US = 20.0
_TENSOR_BUSY_SHARE = 1.0 / 3.0


class ErrorClass(StrEnum):
    """Launches that the model is off alike on."""

    SHORT = "short"
    TENSOR = "tensor"
    MEMORY = "memory"
    LOAD_STORE_PATH = "load/store path"
    OTHER = "other"


class LaunchTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What of a prediction decides how far it may be off."""

    time_us: float
    bound: str  # the resource that binds
    busy: Mapping[str, float]  # share of the cycles that each resource is busy
    stalls: Mapping[Stall, float]  # cycles by stall
    guessed_share: float  # of counts or addresses, see `measure_guessed_share`


class ClassResiduals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Percentiles of measured over predicted time of one class of kernels."""

    low: float  # 10th percentile
    high: float  # 90th percentile
    rows: int  # measured kernels of the class
    suites: int = 0  # that they come from; a suite on another GPU counts once more


class CalibrationStacks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPI stacks of the measured kernels, one for each group of similar stacks."""

    stalls: tuple[Stall, ...]
    hundredths: tuple[tuple[int, ...], ...]  # [group, stall], shares of the cycles in %
    unlike_distance: float  # share of cycles in other stalls beyond which a kernel is like no group

    def measure_distance(self, stack: Mapping[Stall, float]) -> float:
        """Return the share of a stack's cycles in other stalls than in the most similar group."""
        total = sum(stack.values()) or 1.0
        shares = np.array([stack.get(stall, 0.0) for stall in self.stalls]) / total
        other_stalls_share = 1.0 - float(shares.sum())
        apart = np.abs(np.array(self.hundredths) / 100.0 - shares).sum(axis=1) + other_stalls_share
        return float(apart.min()) / 2.0


class Residuals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table of residuals in `hwdb/residuals.toml`, written by `bench/left_suite.py`."""

    schema: str
    evidence: str
    gpus: tuple[str, ...]  # on which the kernels were measured
    untaught_factor: float  # widens the interval of a time transferred from or to another GPU
    # Widens an interval if all counts and addresses are guesses; raised to the guessed share if a part is.
    unexecuted_factor: float
    classes: Mapping[ErrorClass, ClassResiduals]
    unlike: ClassResiduals  # of kernels whose stack is like no measured one
    kinds: CalibrationStacks

    def find_class(self, traits: LaunchTraits) -> ClassResiduals:
        """Return the errors to expect of a launch: of its class, or of kernels like no measured one."""
        found = self.classes.get(find_error_class(traits), self.classes[ErrorClass.OTHER])
        if self.kinds.measure_distance(traits.stalls) <= self.kinds.unlike_distance:
            return found
        return ClassResiduals(
            low=min(found.low, self.unlike.low), high=max(found.high, self.unlike.high), rows=self.unlike.rows
        )

    def find_factors(self, traits: LaunchTraits) -> tuple[float, float]:
        """Return factors on the predicted time between which 80 % of such launches were measured."""
        found = self.find_class(traits)
        widening = self.unexecuted_factor**traits.guessed_share
        return min(1.0, found.low) / widening, max(1.0, found.high) * widening


def find_error_class(traits: LaunchTraits) -> ErrorClass:
    """Return the class of a launch."""
    if traits.time_us < _SHORT_US:
        return ErrorClass.SHORT
    if max(traits.busy.get(pipe.value, 0.0) for pipe in (Pipe.TENSOR, Pipe.TC)) >= _TENSOR_BUSY_SHARE:
        return ErrorClass.TENSOR
    if traits.bound in (DRAM_BOUND, L2_BOUND):
        return ErrorClass.MEMORY
    return ErrorClass.LOAD_STORE_PATH if traits.bound == LOAD_STORE_BOUND else ErrorClass.OTHER


@cache
def load_residuals() -> Residuals:
    """Read the table."""
    return msgspec.convert(tomli.loads((find_data_folder("hwdb") / _RESIDUALS_FILE).read_text()), Residuals)


def measure_guessed_share(model_input: ModelInput) -> float:
    """Return the guessed share of executed instructions, or of requests to one memory if that is larger."""
    profile = model_input.profile
    if profile is None or profile.provenance is Provenance.UNKNOWN:
        return 1.0
    if not profile.unknown_branches:
        return measure_scattered_atomic_share(model_input)
    if profile.block_provenance[0] not in _COUNTED_PROVENANCES:
        return _measure_speculative_share(model_input, profile)
    lengths = np.array([len(block) for block in model_input.cfg.blocks])
    sizes = profile.block_executions.astype(np.float64) * lengths
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
    """Return the guessed share of a sampled grid, where no count is exact: by its unknown branches."""
    speculative = sum(branch.instruction_share for branch in profile.unknown_branches)
    return min(1.0, max(speculative, measure_scattered_atomic_share(model_input)))


def measure_scattered_atomic_share(model_input: ModelInput) -> float:
    """Return the share of global requests that are atomics at addresses from data: collisions are unknown."""
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
