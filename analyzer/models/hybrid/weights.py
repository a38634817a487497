"""The weights of the hybrid model: a correction of `sm`, and the launches that taught it.

A correction is used only near what taught it. Two launches are as far apart as the share of cycles that
their CPI stacks have in different stalls (0 to 1), and as far as can be where a warp of one executes more
than twice the instructions of the other's. In order of what taught nearby:

    known    several launches on this GPU, and more around them: their correction, which sees hardware figures
    unseen   the same on at least two other GPUs: a correction by dimensionless numbers, shrunk towards `sm`
    none     too few: no correction

Invariant: the intervals come from launches that were left out in just that way, by problem or by GPU.
"""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.models.hybrid.features import FEATURE_NAMES, INSTRUCTIONS_COLUMN, STALLS, Row
from analyzer.models.learned.correction import Correction, ResidualInterval, Situation
from analyzer.models.learned.weights import CorrectionHeader, read_correction, write_correction
from analyzer.models.learned.weights_file import Arrays, read_weights_file, write_weights_file
from analyzer.resources import find_data_folder
from analyzer.text.errors import UsageError

SCHEMA = "warplens/hybrid/1"
SHIPPED_NAME = "hybrid-kernels"
_HINT = "bench/learn_hybrid.py writes it"


class TaughtLaunches(Struct, frozen=True):
    """The launches that taught; n of them."""

    stacks: NDArray[np.float32]  # [n, stall], shares of the cycles
    log2_instructions: NDArray[np.float32]  # [n], of the mean warp
    gpu: NDArray[np.int16]  # [n], position in `gpus`
    gpus: tuple[str, ...]
    reach: float  # distance up to which a launch teaches another one
    n_needed: int  # launches within reach from which there is a correction
    n_around: int  # launches within twice the reach that it needs, too

    def find_situation(self, features: Row, gpu: str) -> Situation | None:
        """Return what taught near a launch on a GPU; None: too little."""
        distance = np.abs(self.stacks - features[: len(STALLS)]).sum(axis=1) / 2.0
        distance[np.abs(self.log2_instructions - features[INSTRUCTIONS_COLUMN]) > 1.0] = 1.0
        if gpu in self.gpus and self._is_enough(distance[self.gpu == self.gpus.index(gpu)]):
            return Situation.KNOWN
        n_gpus = len(np.unique(self.gpu[distance <= self.reach]))
        return Situation.UNSEEN if n_gpus > 1 and self._is_enough(distance) else None

    def _is_enough(self, distance: NDArray[np.float64]) -> bool:
        near, around = (distance <= self.reach).sum(), (distance <= 2.0 * self.reach).sum()
        return bool(near >= self.n_needed and around >= self.n_around)


class HybridWeights(Struct, frozen=True):
    """All that the hybrid model reads beside `sm`'s result."""

    dataset: str
    known: Correction
    unseen: Correction
    intervals: Mapping[Situation, ResidualInterval]
    taught: TaughtLaunches


class _Header(Struct, frozen=True):
    schema: str
    dataset: str
    feature_names: tuple[str, ...]
    known: CorrectionHeader
    unseen: CorrectionHeader
    intervals: dict[Situation, ResidualInterval]
    gpus: tuple[str, ...]
    reach: float
    n_needed: int
    n_around: int


@cache
def load_hybrid_weights(path: Path | None = None) -> HybridWeights:
    """Return the weights of a file, the shipped ones where None. Raises UsageError if it has none."""
    path = path or find_data_folder("hwdb") / "weights" / f"{SHIPPED_NAME}.safetensors"
    what = "no weights of the hybrid model"
    return read_weights_file(path, _Header, partial(_build_weights, path), what=what, hint=_HINT)


def _build_weights(path: Path, header: _Header, arrays: Arrays) -> HybridWeights:
    if header.schema != SCHEMA or header.feature_names != FEATURE_NAMES:
        raise UsageError(f"{path}: weights of another version of the features", hint=_HINT)
    return HybridWeights(
        dataset=header.dataset,
        known=read_correction(header.known, "known", arrays),
        unseen=read_correction(header.unseen, "unseen", arrays),
        intervals=header.intervals,
        taught=TaughtLaunches(
            arrays["stacks"],
            arrays["log2_instructions"],
            arrays["gpu"],
            header.gpus,
            header.reach,
            header.n_needed,
            header.n_around,
        ),
    )


def save_hybrid_weights(weights: HybridWeights, path: Path) -> None:
    """Write weights to a file."""
    taught = weights.taught
    arrays: Arrays = {name: getattr(taught, name) for name in ("stacks", "log2_instructions", "gpu")}
    header = _Header(
        schema=SCHEMA,
        dataset=weights.dataset,
        feature_names=FEATURE_NAMES,
        known=write_correction(weights.known, "known", arrays),
        unseen=write_correction(weights.unseen, "unseen", arrays),
        intervals=dict(weights.intervals),
        gpus=taught.gpus,
        reach=taught.reach,
        n_needed=taught.n_needed,
        n_around=taught.n_around,
    )
    write_weights_file(path, header, arrays)
