"""WaveTune's model of a kernel: time bilinear in grid and loop, wave by wave (sections 4.3, 4.5).

A sample lies in the bucket of its macro configuration and its wave w = ceil(G / SMs). In a bucket, all
samples of one loop count share the micro configuration that is fastest on the average over the bucket's
grids; with these times the bucket is fitted by least squares (8):

    time = alpha · G · L + beta · G + gamma · L + delta

The last p waves of a macro configuration, merged, make one more bucket, for waves beyond the profile (11).

All buckets are fitted at once: a sample adds to its bucket's sums, then one batch of 4 x 4 systems is solved.
In each bucket G and L are centred and scaled first, which keeps the systems well conditioned.

A bucket whose samples do not decide all four terms (one grid, one loop count, none at all) keeps what is
missing from the fit of the whole macro configuration, brought to the bucket's level by one factor; `ranks`
says how many terms each bucket's own samples decided.
"""

from enum import StrEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.text.errors import InputError
from analyzer.tuning.artifact import Artifact, make_artifact
from analyzer.tuning.kernel_space import Integers, KernelSpace
from analyzer.tuning.samples import Samples, Times, find_rows, number_rows

Floats = NDArray[np.float64]

DEFAULT_MAX_WAVE, DEFAULT_EXTRAPOLATION_WAVES = 40, 10
MAX_ANCHORS = 16  # loop counts of a bucket with a micro configuration of their own
_N_TERMS = 4  # GL, G, L, 1
# Eigenvalues of a bucket's normal matrix below this share of the largest are directions without data: G and L
# are scaled to [-1, 1], so distinct values give 1e-4 and more.
_RANK_SHARE = 1e-7
_MIN_COVERAGE = 0.5  # of the samples of the best covered micro configuration of a group
_MOST_CONFIGS = 65_535


class FitVariant(StrEnum):
    """The model, and what remains of it without one of its two ideas (section 5.5.1)."""

    WAVETUNE = "wavetune"
    LINEAR = "linear"  # one bilinear model for all waves
    STEP = "step"  # the mean time of a wave
    STEP_LOOPS = "step-loops"  # linear in L within a wave, constant in G: kinder than the paper's step

    @property
    def n_terms(self) -> int:
        """Terms of a bucket."""
        return int(_VARIANT_TERMS[self][0].sum())


class FitOptions(Struct, frozen=True):
    """How to fit."""

    variant: FitVariant = FitVariant.WAVETUNE
    max_wave: int = DEFAULT_MAX_WAVE  # W; waves beyond are extrapolated
    extrapolation_waves: int = DEFAULT_EXTRAPOLATION_WAVES  # p
    is_relative: bool = False  # squares of relative, not of absolute errors


class WaveTables(Struct, frozen=True):
    """A fitted model: the coefficient table and the micro table, and what their rows mean.

    C macro configurations; W + 1 rows each, of waves 1 to W and of extrapolation; up to A loop anchors.
    """

    space: KernelSpace
    gpu: str
    n_sms: int
    macros: Integers  # [C, macro parameters]
    micros: Integers  # [micro configurations, micro parameters]
    coefficients: Floats  # [C, W + 1, 4]: alpha, beta, gamma, delta in microseconds
    anchors: Integers  # [C, W + 1, A]: loop counts, increasing, the last one repeated
    micro_ids: Integers  # [C, W + 1, A]: rows of `micros`
    ranks: Integers  # [C, W + 1]: terms that the bucket's own samples decided, 0 to 4
    variant: FitVariant
    n_samples: int

    @property
    def max_wave(self) -> int:
        """W."""
        return int(self.coefficients.shape[1]) - 1

    def pack(self) -> Artifact:
        """Return the artifact, with coefficients in single precision."""
        return make_artifact(
            self.space,
            self.coefficients,
            self.anchors,
            self.micro_ids,
            macros=self.macros,
            micros=self.micros,
            gpu=self.gpu,
            n_sms=self.n_sms,
            variant=self.variant,
            n_samples=self.n_samples,
            ranks=self.ranks,
        )

    def find_rows(self, grid: Integers) -> Integers:
        """Return the row of each grid size: its wave, or the extrapolation beyond W (11)."""
        rows: Integers = np.minimum(-(-grid // self.n_sms) - 1, self.max_wave)
        return rows

    def predict(self, configs: Integers, grid: Integers, loops: Integers) -> Times:
        """Return predicted microseconds (8); configs: rows of `macros`."""
        alpha, beta, gamma, delta = np.moveaxis(self.coefficients[configs, self.find_rows(grid)], -1, 0)
        result: Times = (alpha * loops + beta) * grid + (gamma * loops + delta)
        return result


class _Buckets(Struct, frozen=True):
    """Samples by bucket; one of the last waves appears twice, in its wave's and in the extrapolation's."""

    bucket: Integers  # [n]: macro · (W + 1) + row
    anchor: Integers  # [n]: which of the bucket's loop anchors
    point: Integers  # [n]: macro configuration and shape
    micro: Integers  # [n]
    grid: Floats
    loops: Floats
    time_us: Times
    n_buckets: int

    def select(self, chosen: NDArray[np.bool_]) -> "_Buckets":
        """Return some of the samples."""
        return _Buckets(
            self.bucket[chosen],
            self.anchor[chosen],
            self.point[chosen],
            self.micro[chosen],
            self.grid[chosen],
            self.loops[chosen],
            self.time_us[chosen],
            self.n_buckets,
        )


def fit(samples: Samples, n_sms: int, options: FitOptions | None = None) -> WaveTables:
    """Fit the model to the samples of one kernel on one GPU of `n_sms` SMs.

    Raises InputError where no sample has a time.
    """
    options = options or FitOptions()
    samples = _drop_failed(samples)
    macros, macro = number_rows(samples.macros)
    micros, micro = number_rows(samples.micros)
    grid, loops = samples.map_inputs()
    waves = -(-grid // n_sms)
    max_wave = 0 if options.variant is FitVariant.LINEAR else min(options.max_wave, int(waves.max()))
    first_merged = max_wave - options.extrapolation_waves + 1 if max_wave else 1
    n_rows = max_wave + 1
    local, merged = np.flatnonzero(waves <= max_wave), np.flatnonzero(waves >= first_merged)
    rows = np.concatenate([local, merged])
    row_of = np.concatenate([waves[local] - 1, np.full(len(merged), max_wave)])
    bucket = macro[rows] * n_rows + row_of
    points = number_rows(np.column_stack([macro, samples.number_shapes()[1]]))[1]
    anchors, anchor = _choose_anchors(bucket, loops[rows], len(macros) * n_rows)
    data = _Buckets(
        bucket,
        anchor,
        points[rows],
        micro[rows],
        grid[rows].astype(np.float64),
        loops[rows].astype(np.float64),
        samples.time_us[rows],
        len(macros) * n_rows,
    )
    micro_ids, data = _choose_micros(data, anchors.shape[1], len(micros))
    coefficients, ranks = _fit_buckets(data, n_rows, options)
    anchors, micro_ids = _fill_empty_rows(anchors, micro_ids, n_rows)
    shape = (len(macros), n_rows)
    return WaveTables(
        samples.space,
        samples.gpu,
        n_sms,
        macros,
        micros,
        coefficients.reshape(*shape, _N_TERMS),
        anchors.reshape(*shape, -1),
        micro_ids.reshape(*shape, -1),
        ranks.reshape(shape),
        options.variant,
        len(samples),
    )


def _drop_failed(samples: Samples) -> Samples:
    """Return the samples that have a time. Raises InputError for none, or more configurations than ids."""
    measured = ~np.isnan(samples.time_us)
    if not measured.any():
        raise InputError(
            f"no launch of {samples.space.name} on {samples.gpu} has a time",
            hint="measure the plan first: the column time_us is empty",
        )
    kept = samples if measured.all() else samples.select(measured)
    if max(len(np.unique(rows, axis=0)) for rows in (kept.macros, kept.micros)) > _MOST_CONFIGS:
        raise InputError(f"more than {_MOST_CONFIGS:,} macro or micro configurations")
    return kept


def _choose_anchors(bucket: Integers, loops: Integers, n_buckets: int) -> tuple[Integers, Integers]:
    """Return the loop anchors [buckets, A] and the anchor of each sample.

    The distinct loop counts of a bucket; where these are more than MAX_ANCHORS, neighbours are merged and
    stand at their middle one. Rows of empty buckets are 0.
    """
    pairs, number = number_rows(np.column_stack([bucket, loops]))
    start = np.searchsorted(pairs[:, 0], np.arange(n_buckets))
    count = np.bincount(pairs[:, 0], minlength=n_buckets)
    order = np.arange(len(pairs)) - start[pairs[:, 0]]
    n_anchors = np.minimum(count, MAX_ANCHORS)
    merged = order * n_anchors[pairs[:, 0]] // count[pairs[:, 0]]
    # The middle one of those that were merged: pair numbers are sorted, so their median is the mean of ends.
    key = pairs[:, 0] * MAX_ANCHORS + merged
    first = np.searchsorted(key, key)
    last = np.searchsorted(key, key, side="right") - 1
    width = max(1, int(n_anchors.max()))
    anchors = np.zeros((n_buckets, width), dtype=np.int64)
    anchors[pairs[:, 0], merged] = pairs[(first + last) // 2, 1]
    beyond = np.arange(width) >= n_anchors[:, None]
    final = anchors[np.arange(n_buckets), np.maximum(n_anchors, 1) - 1]
    return np.where(beyond, final[:, None], anchors), merged[number]


def _choose_micros(data: _Buckets, n_anchors: int, n_micros: int) -> tuple[Integers, _Buckets]:
    """Return the shared micro configuration of each (bucket, anchor) and the samples that use it.

    The one of the least mean time over the group's inputs. Where not all were measured on all inputs, the
    mean is taken relative to the best times of the inputs that were, and the configuration must cover half as
    many inputs as any other; on a complete group this is the same choice.
    """
    group = data.bucket * n_anchors + data.anchor
    n_groups = data.n_buckets * n_anchors
    inputs = number_rows(np.column_stack([group, data.point]))[1]
    best = np.full(int(inputs.max()) + 1, np.inf)
    np.minimum.at(best, inputs, data.time_us)
    key = group * n_micros + data.micro
    keys, number = np.unique(key, return_inverse=True)
    taken = np.bincount(number, weights=data.time_us)
    ratio = taken / np.bincount(number, weights=best[inputs])
    coverage = np.bincount(number)
    groups = keys // n_micros
    most = np.zeros(n_groups)
    np.maximum.at(most, groups, coverage)
    ratio[coverage < _MIN_COVERAGE * most[groups]] = np.inf
    order = np.lexsort((keys, ratio, groups))
    first = order[np.searchsorted(groups[order], np.unique(groups))]
    micro_ids = np.zeros(n_groups, dtype=np.int64)
    micro_ids[groups[first]] = keys[first] % n_micros
    table = micro_ids.reshape(data.n_buckets, n_anchors)
    chosen = data.select(data.micro == micro_ids[group])
    return table, chosen


def _fill_empty_rows(anchors: Integers, micro_ids: Integers, n_rows: int) -> tuple[Integers, Integers]:
    """Give buckets without samples the nearest wave's row, and unused anchors the last one's micro."""
    n_configs = len(anchors) // n_rows
    filled = anchors[:, 0] > 0
    rows = np.arange(n_rows)
    source = np.empty((n_configs, n_rows), dtype=np.int64)
    for config, has in enumerate(filled.reshape(n_configs, n_rows)):
        own = np.flatnonzero(has)
        source[config] = config * n_rows + own[np.abs(rows[:, None] - own).argmin(axis=1)]
    anchors, micro_ids = anchors[source.ravel()], micro_ids[source.ravel()]
    used = np.concatenate([np.ones((len(anchors), 1), bool), np.diff(anchors, axis=1) > 0], axis=1)
    last = np.maximum.accumulate(np.where(used, np.arange(anchors.shape[1]), 0), axis=1)
    return anchors, np.take_along_axis(micro_ids, last, axis=1)


def _fit_buckets(data: _Buckets, n_rows: int, options: FitOptions) -> tuple[Floats, Integers]:
    """Return the coefficients [buckets, 4] and the terms that each bucket's samples decided."""
    local_terms, pooled_terms = _VARIANT_TERMS[options.variant]
    weights = 1.0 / data.time_us**2 if options.is_relative else np.ones(len(data.time_us))
    pooled = _fit_pooled(data, n_rows, pooled_terms)
    prior = np.repeat(pooled, n_rows, axis=0)
    prior *= _scale_to_level(data, prior, n_rows)[:, None]
    is_empty = np.bincount(data.bucket, minlength=data.n_buckets) == 0
    start = prior if local_terms.all() else np.where(is_empty[:, None], prior, 0.0)
    return _correct(data, data.bucket, start, weights, local_terms)


# Of (GL, G, L, 1) those that a bucket is fitted with, and those of the whole macro configuration.
_VARIANT_TERMS = {
    FitVariant.WAVETUNE: (np.array([1.0, 1, 1, 1]), np.array([1.0, 1, 1, 1])),
    FitVariant.LINEAR: (np.array([1.0, 1, 1, 1]), np.array([1.0, 1, 1, 1])),
    FitVariant.STEP: (np.array([0.0, 0, 0, 1]), np.array([0.0, 1, 0, 1])),
    FitVariant.STEP_LOOPS: (np.array([0.0, 0, 1, 1]), np.array([1.0, 0, 1, 0])),
}


def _fit_pooled(data: _Buckets, n_rows: int, terms: Floats) -> Floats:
    """Return the least relative squares [C, 4] of all samples of each macro configuration.

    Times of a whole configuration differ by orders of magnitude, and the small ones matter as much.
    """
    config = data.bucket // n_rows
    start = np.zeros((data.n_buckets // n_rows, _N_TERMS))
    return _correct(data, config, start, 1.0 / data.time_us**2, terms)[0]


def _scale_to_level(data: _Buckets, prior: Floats, n_rows: int) -> Floats:
    """Return the factor of each bucket that brings the pooled model to its samples; 1 where it has none."""
    predicted = _predict(prior[data.bucket], data.grid, data.loops)
    ratio = predicted / data.time_us  # least relative squares of one factor
    above = np.bincount(data.bucket, weights=ratio, minlength=data.n_buckets)
    below = np.bincount(data.bucket, weights=ratio**2, minlength=data.n_buckets)
    factor = np.ones(data.n_buckets)
    np.divide(above, below, out=factor, where=(below > 0.0) & (above > 0.0))
    return factor


def _predict(coefficients: Floats, grid: Floats, loops: Floats) -> Times:
    alpha, beta, gamma, delta = coefficients.T
    result: Times = (alpha * loops + beta) * grid + (gamma * loops + delta)
    return result


def _correct(
    data: _Buckets, part: Integers, start: Floats, weights: Floats, terms: Floats
) -> tuple[Floats, Integers]:
    """Return `start` [parts, 4] plus the least-squares correction of the terms, and the rank of each part.

    part: of each sample. Where the samples of a part leave a direction open, its correction is zero there:
    the pseudo-inverse. Where they decide all, the result does not depend on `start`.
    """
    n_parts = len(start)
    grid_center, grid_scale = _measure_range(data.grid, part, n_parts)
    loop_center, loop_scale = _measure_range(data.loops, part, n_parts)
    x = (data.grid - grid_center[part]) / grid_scale[part]
    y = (data.loops - loop_center[part]) / loop_scale[part]
    features = np.stack([x * y, x, y, np.ones_like(x)]) * terms[:, None]
    residual = data.time_us - _predict(start[part], data.grid, data.loops)
    normal = np.zeros((n_parts, _N_TERMS, _N_TERMS))
    moment = np.zeros((n_parts, _N_TERMS))
    # One common scale per part, so that absolute and relative weights meet the same threshold of the rank.
    total = np.bincount(part, weights=weights, minlength=n_parts)
    scaled = weights / np.where(total > 0.0, total, 1.0)[part]
    for i in range(_N_TERMS):
        moment[:, i] = np.bincount(part, weights=scaled * features[i] * residual, minlength=n_parts)
        for j in range(i, _N_TERMS):
            normal[:, i, j] = np.bincount(part, weights=scaled * features[i] * features[j], minlength=n_parts)
            normal[:, j, i] = normal[:, i, j]
    values, vectors = np.linalg.eigh(normal)
    decided = values > np.maximum(_RANK_SHARE * values[:, -1:], 1e-300)
    inverse = np.where(decided, 1.0 / np.where(decided, values, 1.0), 0.0)
    local = np.einsum("pij,pj,pkj,pk->pi", vectors, inverse, vectors, moment)
    return start + _expand(local, grid_center, grid_scale, loop_center, loop_scale), decided.sum(axis=1)


def _measure_range(values: Floats, part: Integers, n_parts: int) -> tuple[Floats, Floats]:
    """Return the middle and half the width of the values in each part; a width of none is 1."""
    low, high = np.full(n_parts, np.inf), np.full(n_parts, -np.inf)
    np.minimum.at(low, part, values)
    np.maximum.at(high, part, values)
    is_empty = low > high
    low[is_empty] = high[is_empty] = 0.0
    center, width = (low + high) / 2, (high - low) / 2
    return center, np.where(width > 0.0, width, 1.0)


def _expand(
    local: Floats, grid_center: Floats, grid_scale: Floats, loop_center: Floats, loop_scale: Floats
) -> Floats:
    """Return alpha, beta, gamma, delta of a polynomial in (G - center) / scale and (L - center) / scale."""
    xy, x, y, one = local.T
    alpha = xy / (grid_scale * loop_scale)
    beta = x / grid_scale - alpha * loop_center
    gamma = y / loop_scale - alpha * grid_center
    delta = one - x * grid_center / grid_scale - y * loop_center / loop_scale
    return np.stack([alpha, beta, gamma, delta + alpha * grid_center * loop_center], axis=1)


def measure_fit_error(tables: WaveTables, samples: Samples) -> float:
    """Return the mean relative error of the samples whose micro configuration is the one of their anchor.

    samples: those that were fitted, or others of the same configurations.
    """
    samples = _drop_failed(samples)
    config = find_rows(tables.macros, samples.macros)
    known = config >= 0
    samples, config = samples.select(known), config[known]
    grid, loops = samples.map_inputs()
    rows = tables.find_rows(grid)
    nearest = np.abs(tables.anchors[config, rows] - loops[:, None]).argmin(axis=1)
    chosen = (tables.micros[tables.micro_ids[config, rows, nearest]] == samples.micros).all(axis=1)
    errors = np.abs(tables.predict(config, grid, loops) / samples.time_us - 1)[chosen]
    return float(errors.mean()) if len(errors) else float("nan")
