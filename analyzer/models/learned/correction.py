"""Learned corrections of analytic times, with the intervals that held when rows were left out.

A model predicts time_us = reference_us · exp(correction). Which correction, and how wide the interval,
depends on what is known of the GPU:

    known    rows of this GPU taught: the correction sees its hardware figures too
    sibling  a GPU of the same architecture, or of its family, taught: the nearest one's correction, the
             transferred one, or their mean
    unseen   nothing of this architecture taught: dimensionless features alone, shrunk towards the reference

Invariant: the interval of each situation comes from residuals of rows that were left out in just that way
(held-out shapes; the GPU; the architecture), so that it covers what it promises where nothing taught.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.hardware.gpu_database import load_arch
from analyzer.models.learned.mlp import MlpEnsemble
from analyzer.models.learned.trees import TreeEnsemble
from analyzer.operators.batches import Column
from analyzer.text.errors import HardwareError

Rows = NDArray[np.float64]


class Situation(StrEnum):
    """What taught of the GPU that a prediction is for."""

    KNOWN = "known"
    SIBLING = "sibling"
    UNSEEN = "unseen"


@cache
def find_architecture_family(architecture: str) -> str:
    """Return the architecture whose corrections hold for another one, as its file says; else itself."""
    try:
        found = load_arch(architecture)
    except HardwareError:  # that of a GPU which only operator models support
        return architecture
    return found.corrections or found.code[0]


def are_siblings(architecture: str, other: str) -> bool:
    """Return whether libraries run the same kernels on both architectures."""
    return find_architecture_family(architecture) == find_architecture_family(other)


def is_nearly_the_same(figures: Column, other: Column | tuple[float, ...]) -> bool:
    """Return whether two GPUs' figures (in log2) differ by less than a factor of two, all together.

    An H100 is to an H800 what another H800 would be, and an H200 differs in memory alone; an H20 has a
    seventh of their tensor rate, and says little of them.
    """
    return float(np.abs(figures - np.array(other)).sum()) < 1.0


class Correction(Struct, frozen=True):
    """The mean of its learners, times a share: 0 leaves the reference as it is."""

    trees: TreeEnsemble | None
    mlp: MlpEnsemble | None
    share: float
    sees_hardware: bool  # its rows end with the hardware features

    def predict(self, rows: Rows) -> Column:
        """Return the correction of the logarithm of the time."""
        parts = [learner.predict(rows) for learner in (self.trees, self.mlp) if learner is not None]
        if not parts or self.share == 0.0:
            return np.zeros(len(rows))
        mean: Column = self.share * np.mean(parts, axis=0)
        return mean


class ResidualInterval(Struct, frozen=True):
    """80 % interval of log(measured / predicted), by predicted time."""

    edges_us: tuple[float, ...]  # ascending; bin i ends at edges_us[i], the last one is open
    low: tuple[float, ...]  # per bin
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise ValueError where bins and edges do not fit each other."""
        if not len(self.edges_us) + 1 == len(self.low) == len(self.high):
            n_edges, n_low, n_high = map(len, (self.edges_us, self.low, self.high))
            raise ValueError(f"{n_edges} edges of intervals, {n_low} and {n_high} bins")

    def find(self, time_us: Column) -> tuple[Column, Column]:
        """Return the logarithms of low / time and high / time for each time."""
        bins = np.searchsorted(np.array(self.edges_us), time_us, side="right")
        return np.array(self.low)[bins], np.array(self.high)[bins]


class TaughtGpu(Struct, frozen=True):
    """A GPU whose rows taught, with the hardware features that its rows had."""

    gpu: str
    architecture: str
    n_rows: int
    hardware: tuple[float, ...]  # as `compute_hardware_features` gives them


class LearnedWeights(Struct, frozen=True):
    """All that a learned operator model reads of one set of weights."""

    name: str  # "gemm-bf16"
    dataset: str
    timing: str  # of the rows that taught
    parameters: Mapping[str, float]  # of the family's reference
    feature_names: tuple[str, ...]
    feature_low: tuple[float, ...]  # range of each feature over the rows that taught
    feature_high: tuple[float, ...]
    known: Correction
    unseen: Correction
    # of siblings with other figures: the nearest one's, else the transferred one; see `find_known_share`
    takes_siblings_correction: bool
    intervals: Mapping[Situation, ResidualInterval]
    # of residuals from which the level of their GPU (the median) is taken: what remains after a calibration
    leveled: ResidualInterval
    taught: tuple[TaughtGpu, ...]
    taught_kinds: tuple[str, ...] = ()  # operator and data type of the rows that taught: "gemm bf16"

    def __post_init__(self) -> None:
        """Raise ValueError for parts that do not fit each other."""
        n_features = len(self.feature_names)
        n_hardware = {len(taught.hardware) for taught in self.taught}
        if len(n_hardware) != 1 or {len(self.feature_low), len(self.feature_high)} != {n_features}:
            raise ValueError("its features and GPUs do not fit each other")
        for each in (self.known, self.unseen):
            n_columns = n_features + (max(n_hardware) if each.sees_hardware else 0)
            if not all(learner.takes(n_columns) for learner in (each.trees, each.mlp) if learner is not None):
                raise ValueError(f"a correction does not take rows of {n_columns} features")
        if missing := set(Situation) - set(self.intervals):
            raise ValueError(f"no interval of situation {min(missing)}")

    def find_situation(self, gpu: str, architecture: str) -> Situation:
        """Return what taught of a GPU."""
        if any(taught.gpu == gpu for taught in self.taught):
            return Situation.KNOWN
        if any(are_siblings(taught.architecture, architecture) for taught in self.taught):
            return Situation.SIBLING
        return Situation.UNSEEN

    def find_nearest(self, gpu: str, architecture: str, hardware: tuple[float, ...]) -> TaughtGpu:
        """Return the GPU that taught, or of the same architecture if any the one with the nearest figures."""
        candidates = [t for t in self.taught if t.gpu == gpu]
        candidates = candidates or [t for t in self.taught if are_siblings(t.architecture, architecture)]
        target = np.array(hardware)
        return min(
            candidates or self.taught, key=lambda t: float(np.abs(np.array(t.hardware) - target).sum())
        )

    def find_known_share(self, gpu: str, architecture: str, hardware: tuple[float, ...]) -> float:
        """Return how much of a GPU's correction is the nearest known one's; the rest is the transferred one.

        All of it for a GPU that taught and for one that is nearly the same. Of other siblings, what was best
        where such a one was left out, else half: nothing says which of the two is better.
        """
        situation = self.find_situation(gpu, architecture)
        if situation is not Situation.SIBLING:
            return float(situation is Situation.KNOWN)
        nearest = self.find_nearest(gpu, architecture, hardware)
        if is_nearly_the_same(np.array(nearest.hardware), hardware):
            return 1.0
        return float(self.takes_siblings_correction) if self._has_left_out_siblings else 0.5

    @property
    def _has_left_out_siblings(self) -> bool:
        """Whether siblings with other figures taught, so that one was left out and the other judged."""
        return any(
            are_siblings(one.architecture, other.architecture)
            and not is_nearly_the_same(np.array(one.hardware), other.hardware)
            for one, other in combinations(self.taught, 2)
        )

    def is_in_range(self, features: Rows) -> NDArray[np.bool_]:
        """Return for each row whether no feature lies beyond those that taught by a tenth of their range."""
        low, high = np.array(self.feature_low), np.array(self.feature_high)
        margin = 0.1 * (high - low) + 1e-6
        inside: NDArray[np.bool_] = np.all((features >= low - margin) & (features <= high + margin), axis=1)
        return inside
