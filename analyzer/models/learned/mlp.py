"""Ensembles of small multilayer perceptrons (ReLU), evaluated in numpy."""

from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

LEAST_SCALE = np.float32(1e-6)  # of a feature that was the same in all rows: what it means was not learned
_LARGEST_INPUT = 4.0  # in standard deviations: further out a line would be extended beyond all that taught


class MlpEnsemble(Struct, frozen=True):
    """Mean of perceptrons of one shape. Inputs are standardized and clipped before the first layer."""

    mean: NDArray[np.float32]  # of each feature
    scale: NDArray[np.float32]  # standard deviation of each feature
    weights: tuple[NDArray[np.float32], ...]  # per layer: members x inputs x outputs
    biases: tuple[NDArray[np.float32], ...]  # per layer: members x 1 x outputs

    def __post_init__(self) -> None:
        """Raise ValueError for arrays that do not fit each other."""
        sizes = [len(self.mean), *(weight.shape[-1] for weight in self.weights)]
        members = len(self.weights[0])
        wanted = [(members, *pair) for pair in pairwise(sizes)]
        are_weights = [weight.shape for weight in self.weights] == wanted
        are_biases = [bias.shape for bias in self.biases] == [(members, 1, size) for size in sizes[1:]]
        if self.scale.shape != self.mean.shape or not (are_weights and are_biases and members and sizes[-1]):
            raise ValueError("the arrays of its perceptrons do not fit each other")

    def takes(self, n_features: int) -> bool:
        """Return whether rows may have so many features."""
        return self.mean.shape == (n_features,)

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the members' mean for rows x features."""
        mean: NDArray[np.float64] = self.predict_members(rows).mean(axis=0)
        return mean

    def predict_members(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return members x rows; their spread says where members disagree."""
        spread = np.where(self.scale > LEAST_SCALE, self.scale, np.inf)
        scaled = np.clip((rows - self.mean) / spread, -_LARGEST_INPUT, _LARGEST_INPUT)
        hidden = np.broadcast_to(scaled.astype(np.float32), (len(self.weights[0]), *rows.shape))
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = hidden @ weight + bias
            if layer != last:
                hidden = np.maximum(hidden, 0.0)
        return hidden[:, :, 0].astype(np.float64)
