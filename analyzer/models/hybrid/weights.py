"""The weights of the hybrid model: a correction of `sm`, and the launches that taught it.

A correction is used only near what taught it. Two launches are as far apart as the share of cycles that their
CPI stacks have in different stalls (0 to 1). In order of what taught nearby:

    known    several launches on this GPU, and more around them: their correction, which sees hardware figures
    unseen   the same on at least two other GPUs: a correction by dimensionless numbers, shrunk towards `sm`
    none     too few: no correction

Invariant: the intervals come from launches that were left out in just that way, by problem or by GPU.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.models.hybrid.features import FEATURE_NAMES, STALLS, Row
from analyzer.models.learned.correction import Correction, ResidualInterval, Situation
from analyzer.models.learned.weights import (
    Arrays,
    CorrectionHeader,
    load_arrays,
    read_correction,
    save_arrays,
    write_correction,
)
from analyzer.resources import find_data_folder
from analyzer.text.errors import UsageError

SCHEMA = "warplens/hybrid/1"
SHIPPED_NAME = "hybrid-kernels"
_HEADER = "warplens"  # key of the metadata that holds the JSON


class TaughtLaunches(Struct, frozen=True):
    """The launches that taught; n of them."""

    stacks: NDArray[np.float32]  # [n, stall], shares of the cycles
    gpu: NDArray[np.int16]  # [n], position in `gpus`
    gpus: tuple[str, ...]
    reach: float  # distance up to which a launch teaches another one
    n_needed: int  # launches within reach from which there is a correction
    n_around: int  # launches within twice the reach that it needs, too

    def find_situation(self, features: Row, gpu: str) -> Situation | None:
        """Return what taught near a launch on a GPU; None: too little."""
        distance = np.abs(self.stacks - features[: len(STALLS)]).sum(axis=1) / 2.0
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
    arrays, metadata = load_arrays(path)
    hint = "bench/learn_hybrid.py writes it"
    try:
        header = msgspec.json.decode(metadata.get(_HEADER, ""), type=_Header)
        if header.schema != SCHEMA or header.feature_names != FEATURE_NAMES:
            raise UsageError(f"{path}: weights of another version of the features", hint=hint)
        return HybridWeights(
            dataset=header.dataset,
            known=read_correction(header.known, "known", arrays),
            unseen=read_correction(header.unseen, "unseen", arrays),
            intervals=header.intervals,
            taught=TaughtLaunches(
                arrays["stacks"], arrays["gpu"], header.gpus, header.reach, header.n_needed, header.n_around
            ),
        )
    except (msgspec.DecodeError, KeyError) as error:
        raise UsageError(f"{path}: no weights of the hybrid model: {error}", hint=hint) from None


def save_hybrid_weights(weights: HybridWeights, path: Path) -> None:
    """Write weights to a file."""
    taught = weights.taught
    arrays: Arrays = {"stacks": taught.stacks, "gpu": taught.gpu}
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
    save_arrays(arrays, {_HEADER: msgspec.json.encode(header).decode()}, path)
