"""How good choices are against what was measured: time of the choice over the best time, input by input."""

import numpy as np
from msgspec import Struct

from analyzer.tuning.chooser import Chooser
from analyzer.tuning.kernel_space import Integers
from analyzer.tuning.samples import Samples, Times, find_rows


class ChoiceQuality(Struct, frozen=True):
    """Results of choices on the inputs of measured samples."""

    best_us: Times  # [inputs]: the best measured time
    chosen_us: Times  # [inputs]: of the choice; NaN where its configuration was not measured
    predicted_us: Times  # [inputs]: what the model says of the choice

    @property
    def n_judged(self) -> int:
        """Inputs whose choice was measured."""
        return int((~np.isnan(self.chosen_us)).sum())

    @property
    def share_of_best(self) -> float:
        """Geometric mean of the best time over the chosen one; 1 is the oracle."""
        ratio = self.best_us / self.chosen_us
        return float(np.exp(np.nanmean(np.log(ratio))))

    @property
    def prediction_error(self) -> float:
        """Mean relative error of the predicted times of the choices."""
        return float(np.nanmean(np.abs(self.predicted_us / self.chosen_us - 1)))


def judge_choices(chooser: Chooser, samples: Samples) -> ChoiceQuality:
    """Return how the choices do on the inputs of samples of the same kernel.

    Where the chosen micro configuration was not measured on an input, the mean loss of the others of its
    macro configuration there is not known: the input is not judged.
    """
    shapes, shape = samples.number_shapes()
    batch = chooser.choose_batch(shapes)
    best = np.full(len(shapes), np.inf)
    np.fmin.at(best, shape, samples.time_us)
    wanted = np.array(
        [list(chooser.get_config(*pair).values()) for pair in _pairs(batch.macro_ids, batch.micro_ids)]
    )
    rows = find_rows(
        np.column_stack([shape, samples.macros, samples.micros]),
        np.column_stack([np.arange(len(shapes)), wanted]),
    )
    chosen = np.where(rows >= 0, samples.time_us[rows], np.nan)
    return ChoiceQuality(best, chosen, batch.time_us)


def _pairs(first: Integers, second: Integers) -> list[tuple[int, int]]:
    return list(zip(first.tolist(), second.tolist(), strict=True))
