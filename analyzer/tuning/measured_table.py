"""Measured times as a table of shapes and configurations, and its division into two parts.

An entry is a time in us, NaN for what was not measured, infinity for a configuration that could not run. Of
sweeps that are published as lists of the configurations near the best, what is not listed is NaN too, but
known to be slower than the list's limit: `fill_unlisted` puts in a time just beyond it, for policies to
learn from; nothing is ever judged by such a time.
"""

import hashlib

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.text.errors import InputError
from analyzer.tuning.kernel_space import Integers, KernelSpace
from analyzer.tuning.samples import Samples, number_rows

Floats = NDArray[np.float64]

_BATCH_INPUT = "m"  # tokens: what differs between launches with the same weights
_MOST_ENTRIES = 50_000_000


class MeasuredTable(Struct, frozen=True):
    """Times of one kernel on one GPU."""

    space: KernelSpace
    gpu: str
    shapes: Integers  # [S, inputs], sorted
    configs: Integers  # [C, macro and micro parameters], sorted
    time_us: Floats  # [S, C]

    def find_best_us(self) -> Floats:
        """Return the least time of each shape [S]; NaN where none was measured."""
        finite = np.where(np.isfinite(self.time_us), self.time_us, np.inf)
        best = finite.min(axis=1)
        return np.where(np.isfinite(best), best, np.nan)

    def select_shapes(self, chosen: NDArray[np.bool_]) -> "MeasuredTable":
        """Return the rows of some shapes; all configurations stay."""
        return MeasuredTable(self.space, self.gpu, self.shapes[chosen], self.configs, self.time_us[chosen])

    def keep_known_configs(self) -> "MeasuredTable":
        """Return the columns of configurations that have a time for some shape."""
        known = np.isfinite(self.time_us).any(axis=0)
        return MeasuredTable(self.space, self.gpu, self.shapes, self.configs[known], self.time_us[:, known])

    def fill_unlisted(self, ratio: float) -> "MeasuredTable":
        """Return the table with no entry above `ratio` times its shape's best, and that where none is."""
        filled = self.find_best_us()[:, None] * ratio
        known = np.where(np.isfinite(self.time_us), self.time_us, np.inf)
        return MeasuredTable(self.space, self.gpu, self.shapes, self.configs, np.minimum(known, filled))

    def list_samples(self) -> Samples:
        """Return the entries that are times, as rows."""
        row, column = np.nonzero(np.isfinite(self.time_us))
        n_macro = len(self.space.macro_parameters)
        configs = self.configs[column]
        return Samples(
            self.space,
            self.gpu,
            self.shapes[row],
            configs[:, :n_macro],
            configs[:, n_macro:],
            self.time_us[row, column],
        )

    def find_configs(self, configs: Integers) -> Integers:
        """Return the column of each configuration [n, parameters]; -1 for one that is not in the table."""
        known = {tuple(config): column for column, config in enumerate(self.configs.tolist())}
        return np.array([known.get(tuple(config), -1) for config in configs.tolist()], dtype=np.int64)


def tabulate(samples: Samples) -> MeasuredTable:
    """Return rows as a table; of an entry that was measured more than once the least time."""
    shapes, row = number_rows(samples.shapes)
    configs, column = number_rows(np.concatenate([samples.macros, samples.micros], axis=1))
    if len(shapes) * len(configs) > _MOST_ENTRIES:
        raise InputError(f"{len(shapes):,} shapes x {len(configs):,} configurations are too many to compare")
    time_us = np.full((len(shapes), len(configs)), np.nan)
    failed = np.isnan(samples.time_us)
    time_us[row[failed], column[failed]] = np.inf
    least = np.full(time_us.shape, np.inf)
    np.minimum.at(least, (row[~failed], column[~failed]), samples.time_us[~failed])
    return MeasuredTable(
        samples.space, samples.gpu, shapes, configs, np.where(np.isfinite(least), least, time_us)
    )


def split_shapes(
    table: MeasuredTable, share: float, seed: int, *, by_group: bool = True
) -> NDArray[np.bool_]:
    """Return which shapes [S] are to learn from: those of a share of the groups.

    A group are shapes that differ in the number of tokens alone, so that no model is on both sides; a kernel
    without that input is divided by shape. Groups are ordered by a hash of their inputs and the seed, which
    is the same whatever else the table holds. Raises InputError where one side would be empty.
    """
    kept = [place for place, name in enumerate(table.space.inputs) if not (by_group and name == _BATCH_INPUT)]
    groups, number = number_rows(table.shapes[:, kept])
    names = [f"{seed}:{','.join(map(str, group))}" for group in groups.tolist()]
    digests = [hashlib.blake2b(name.encode(), digest_size=8).hexdigest() for name in names]
    order = sorted(range(len(groups)), key=lambda place: digests[place])
    count = round(share * len(groups))
    if not 0 < count < len(groups):
        raise InputError(
            f"{len(groups)} groups of shapes cannot be divided at {share:g}",
            hint="measure shapes of more than one model, or give another table with --test",
        )
    learns = np.zeros(len(groups), dtype=np.bool_)
    learns[order[:count]] = True
    result: NDArray[np.bool_] = learns[number]
    return result
