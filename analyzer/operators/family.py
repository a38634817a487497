"""What an operator family gives: an analytic reference time, and features of what the reference leaves out.

A learned model predicts time_us = reference.total_us · exp(correction(features)). The reference has a few
fitted parameters (a share of the peak that is sustained, a launch floor); the features are dimensionless
(logarithms of ratios between the reference's terms, waves, padding), so that they mean the same on a GPU
that taught nothing.
"""

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, OperatorBatch
from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import Backend, DataType, Operator
from analyzer.text.errors import UsageError


class ReferenceTerms(Struct, frozen=True):
    """The analytic time of each row of a batch, and what it was made of."""

    names: tuple[str, ...]  # of the terms: ("tensor", "dram", "l2", "launch")
    terms_us: NDArray[np.float64]  # rows x terms; `--explain` prints them
    total_us: Column
    flops: Column
    dram_bytes: Column  # that have to move at least once
    # Of the kernels alone where total_us is an interval with the host's launch in it; None: total_us itself.
    gpu_us: Column | None = None
    # Share of the time that the SMs decide: d log(total_us) / d log(their time). None: not told apart.
    sm_share: Column | None = None

    def find_term(self, name: str) -> Column:
        """Return one term in microseconds."""
        return self.terms_us[:, self.names.index(name)]


class FittedParameter(Struct, frozen=True):
    """A number of the reference that is fitted on training GPUs and stored with the weights."""

    name: str
    initial: float
    low: float
    high: float


Parameters = Mapping[str, float]


def _keep(batch: OperatorBatch, hardware: OperatorHardware) -> OperatorBatch:
    return batch


def _find_none(batch: OperatorBatch) -> Backend | None:
    return None


class OperatorFamily(Struct, frozen=True):
    """Operators that share one reference, one set of features and one set of weights.

    `compute_terms(batch, hardware, parameters)` and `compute_features(batch, hardware, terms)` take a batch
    of one operator and data type on one GPU; features are rows x feature_names, float64, finite.
    `choose_weights(batch)` names the set of weights: by default the family's name and the data type, so
    that `gemm-bf16` and `gemm-fp8` are learned apart; a family may pool data types or split kinds.
    `resolve(batch, hardware)` says which kernel a framework takes on a GPU, before all else.
    `find_backend(batch)` says whose kernels a batch means that names none; None: frameworks have no own ones.
    """

    name: str
    operators: frozenset[Operator]
    parameters: tuple[FittedParameter, ...]
    feature_names: tuple[str, ...]
    compute_terms: Callable[[Any, OperatorHardware, Parameters], ReferenceTerms]
    compute_features: Callable[[Any, OperatorHardware, Any], NDArray[np.float64]]
    choose_weights: Callable[[OperatorBatch], str]
    data_types: frozenset[DataType] | None = None  # None: all
    kernels: frozenset[tuple[Backend, DataType]] | None = None  # whose alone, where frameworks have own ones
    resolve: Callable[[Any, OperatorHardware], OperatorBatch] = _keep
    find_backend: Callable[[Any], Backend | None] = _find_none

    def serves(self, batch: OperatorBatch) -> bool:
        """Return whether the family answers for a batch's operator, data type and framework."""
        return (
            batch.operator in self.operators
            and (self.data_types is None or batch.dtype in self.data_types)
            and (self.kernels is None or (getattr(batch, "backend", None), batch.dtype) in self.kernels)
        )

    @property
    def initial_parameters(self) -> dict[str, float]:
        """Parameters before any fit."""
        return {parameter.name: parameter.initial for parameter in self.parameters}


def find_family(batch: OperatorBatch) -> OperatorFamily:
    """Return the family that serves a batch. Raises UsageError if there is none."""
    for family in load_families():
        if family.serves(batch):
            return family
    raise UsageError(
        f"{batch.operator} in {batch.dtype}: no model knows it",
        hint="warplens predict --help lists operators",
    )


@cache
def load_families() -> tuple[OperatorFamily, ...]:
    """Return all families, one of each module in `families/`; those of some kernels or data types first."""
    folder = Path(__file__).parent / "families"
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
    found = [import_module(f"analyzer.operators.families.{name}").FAMILY for name in names]
    return tuple(sorted(found, key=lambda family: (family.kernels is None, family.data_types is None)))
