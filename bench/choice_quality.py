"""How good choices are against what was measured: time of the choice over the best time, input by input."""

import numpy as np
from msgspec import Struct

from analyzer.tuning.chooser import Chooser
from analyzer.tuning.samples import Samples, Times, find_rows


class ChoiceQuality(Struct, frozen=True):
    """Results of choices on the inputs of measured samples."""

    best_us: Times  # [inputs]: the best measured time
    chosen_us: Times  # [inputs]: of the choice; NaN where its configuration was not measured
    predicted_us: Times  # [inputs]: what the model says of the choice

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

    Sweeps have gaps: of the configurations in the order of their predicted times, the first one that was
    measured on the input counts as the choice.
    """
    shapes, shape = samples.number_shapes()
    best = np.full(len(shapes), np.inf)
    np.fmin.at(best, shape, samples.time_us)
    chosen, predicted = np.full((2, len(shapes)), np.nan)
    table = np.column_stack([shape, samples.macros, samples.micros])
    for number, inputs in enumerate(shapes.tolist()):
        ranked = chooser.rank(inputs)
        configs = chooser.list_configs(ranked)
        rows = find_rows(table, np.column_stack([np.full(len(configs), number), configs]))
        measured = (rows >= 0) & ~np.isnan(samples.time_us[rows])
        if measured.any():
            first = int(measured.argmax())
            chosen[number], predicted[number] = samples.time_us[rows[first]], ranked.time_us[first]
    return ChoiceQuality(best, chosen, predicted)
