"""Residuals of the default model on measured kernels that did not calibrate it, by class: its intervals."""

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
    """Percentiles of measured over predicted time of one class of kernels."""

    low: float  # 10th percentile
    high: float  # 90th percentile
    rows: int  # measured kernels of the class


class CalibrationStacks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPI stacks of the kernels that calibrated the intervals, one for each group of similar stacks."""

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
    """Table of residuals in `hwdb/residuals.toml`, written by `bench/accuracy.py`."""

    schema: str
    evidence: str
    gpus: tuple[str, ...]  # on which the calibrating kernels were measured
    untaught_factor: float  # widens the interval on other GPUs, and for kernels unlike the calibrating ones
    # Widens it if all counts and addresses are guesses; raised to the guessed share if a part of them is.
    unexecuted_factor: float
    bounds: Mapping[str, ClassResiduals]  # by what bounds a kernel
    other: ClassResiduals  # for bounds that are not listed
    kinds: CalibrationStacks


@cache
def load_residuals() -> Residuals:
    """Read the table."""
    return msgspec.convert(tomli.loads((find_data_folder("hwdb") / _RESIDUALS_FILE).read_text()), Residuals)


def find_time_factors(
    model_input: ModelInput, bound: str, stack: Mapping[Stall, float]
) -> tuple[float, float]:
    """Return factors on the predicted time between which 80 % of the kernels of this class were measured."""
    table = load_residuals()
    found = table.bounds.get(bound, table.other)
    is_calibrated = model_input.gpu.key in table.gpus
    is_calibrated &= table.kinds.measure_distance(stack) <= table.kinds.unlike_distance
    widening = 1.0 if is_calibrated else table.untaught_factor
    widening *= table.unexecuted_factor ** measure_guessed_share(model_input)
    return min(1.0, found.low) / widening, max(1.0, found.high) * widening


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
