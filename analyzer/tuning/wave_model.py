"""WaveTune's model of a kernel: time bilinear in grid and loop, wave by wave (sections 4.3, 4.5).

A sample lies in the bucket of its macro configuration and its wave w = ceil(G / SMs). In a bucket, all
samples of one loop count share the micro configuration that is fastest on the average over the bucket's
grids; with these times the bucket is fitted by least squares (8):

    time = alpha · G · L + beta · G + gamma · L + delta

The last p waves of a macro configuration, merged, make one more bucket, for waves beyond the profile (11).

All buckets are fitted at once: a sample adds to its bucket's sums, then one batch of 4 x 4 systems is solved.
In each bucket G and L are centred and scaled first, which keeps the systems well conditioned.

Squares are of relative errors, since a choice compares times: on machines whose times are known it is then
closer to the oracle (docs/wavetune.md has both).

A profile that is no plan (a sweep over some shapes) leaves buckets with too few samples. Such a bucket has
the fit of the whole macro configuration, with no negative coefficient, times one factor that follows the
samples of its and near waves. Where the samples decide some terms (one grid: those in L), these are the
bucket's own. `ranks` says how many.
"""

from enum import StrEnum
from itertools import product

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
_MIN_SAMPLES_PER_TERM = 2  # else a bucket's own fit would follow the noise
_RIDGE = 1e-10  # of the trace: makes sets of collinear terms solvable
_ROBUST_ROUNDS, _ROBUST_ERROR = 4, 0.1  # relative errors beyond this one lose weight
_MOST_DEVIATION = 0.4  # of a logarithm, that a sample's level may differ from the pooled model's
_LEVEL_WIDTH = 0.7  # octaves of waves
_LEVEL_PRIOR = 0.3  # samples
_FEW_INPUTS = 3
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
    is_relative: bool | None = None  # squares of relative errors; None: of the whole model, not of a variant


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
    wave: Integers
    is_repeat: NDArray[np.bool_]  # in the extrapolation's bucket, beside its wave's
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
            self.wave[chosen],
            self.is_repeat[chosen],
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
        waves[rows],
        (np.arange(len(rows)) >= len(local)) & (waves[rows] <= max_wave),
        len(macros) * n_rows,
    )
    micro_ids, data = _choose_micros(data, n_rows, anchors.shape[1], len(micros))
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


def _choose_micros(data: _Buckets, n_rows: int, n_anchors: int, n_micros: int) -> tuple[Integers, _Buckets]:
    """Return the shared micro configuration of each (bucket, anchor) and the samples that use it.

    The one of the least mean time over the group's inputs. Where not all were measured on all inputs, the
    mean is taken relative to the best times of the inputs that were, and the configuration must cover half as
    many inputs as any other; on a complete group this is the same choice. A group of one or two inputs, which
    no plan has, also heeds the same mean over all inputs of the macro configuration.
    """
    group = data.bucket * n_anchors + data.anchor
    inputs = number_rows(np.column_stack([group, data.point]))[1]
    best = np.full(int(inputs.max()) + 1, np.inf)
    np.minimum.at(best, inputs, data.time_us)
    keys, number = np.unique(group * n_micros + data.micro, return_inverse=True)
    coverage = np.bincount(number)
    groups = keys // n_micros
    score = np.log(np.bincount(number, weights=data.time_us) / np.bincount(number, weights=best[inputs]))
    most = np.zeros(data.n_buckets * n_anchors)
    np.maximum.at(most, groups, coverage)
    wide = np.unique(data.bucket // n_rows * n_micros + data.micro, return_inverse=True)[1]
    loss = np.bincount(wide, weights=np.log(data.time_us / best[inputs])) / np.bincount(wide)
    wide_loss = np.zeros(len(keys))
    wide_loss[number] = loss[wide]
    score += np.where(most[groups] < _FEW_INPUTS, wide_loss, 0.0)
    score[coverage < _MIN_COVERAGE * most[groups]] = np.inf
    order = np.lexsort((keys, score, groups))
    first = order[np.searchsorted(groups[order], np.unique(groups))]
    micro_ids = np.zeros(data.n_buckets * n_anchors, dtype=np.int64)
    micro_ids[groups[first]] = keys[first] % n_micros
    chosen = data.select(data.micro == micro_ids[group])
    return micro_ids.reshape(data.n_buckets, n_anchors), chosen


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
    is_whole = options.variant is FitVariant.WAVETUNE
    is_relative = is_whole if options.is_relative is None else options.is_relative
    weights = 1.0 / data.time_us**2 if is_relative else np.ones(len(data.time_us))
    first = data.select(~data.is_repeat)
    pooled = np.repeat(_fit_pooled(first, n_rows, pooled_terms), n_rows, axis=0)
    pooled *= _find_levels(first, pooled, n_rows)[:, None]
    # A wave of one grid is taken to be a step: its slope is not that from wave to wave.
    has_start = is_whole & (_measure_range(data.grid, data.bucket, data.n_buckets)[2] > 0.0)
    start = np.where(has_start[:, None], pooled, 0.0)
    local, ranks = _fit_local(data, start, weights, local_terms)
    counts = np.bincount(data.bucket, minlength=data.n_buckets)
    is_own = (ranks > 0) & (counts >= _MIN_SAMPLES_PER_TERM * np.maximum(ranks, 2))
    return np.where(is_own[:, None], local, pooled), np.where(is_own, ranks, 0)


# Of (GL, G, L, 1) those that a bucket is fitted with, and those of the whole macro configuration.
_VARIANT_TERMS = {
    FitVariant.WAVETUNE: (np.array([1.0, 1, 1, 1]), np.array([1.0, 1, 1, 1])),
    FitVariant.LINEAR: (np.array([1.0, 1, 1, 1]), np.array([1.0, 1, 1, 1])),
    FitVariant.STEP: (np.array([0.0, 0, 0, 1]), np.array([0.0, 1, 0, 1])),
    FitVariant.STEP_LOOPS: (np.array([0.0, 0, 1, 1]), np.array([1.0, 0, 1, 0])),
}


def _fit_pooled(data: _Buckets, n_rows: int, terms: Floats) -> Floats:
    """Return the fit [C, 4] to all samples of each macro configuration, by relative errors.

    Times of a whole configuration differ by orders of magnitude, and the small ones matter as much. An input
    that runs other code (rows that are not aligned) can be off by a factor; its weight falls with its error.
    """
    n_configs = data.n_buckets // n_rows
    config = data.bucket // n_rows
    grid_scale, loop_scale = data.grid.max(), data.loops.max()
    x, y = data.grid / grid_scale, data.loops / loop_scale
    features = np.stack([x * y, x, y, np.ones_like(x)]) / data.time_us
    found, root = np.zeros((n_configs, _N_TERMS)), np.ones_like(x)
    for _ in range(_ROBUST_ROUNDS):
        found = _solve_non_negative(*_sum_products(features * root, root, config, n_configs), terms)
        error = np.abs((found[config] * features.T).sum(axis=1) - 1.0)
        root = np.sqrt(_ROBUST_ERROR / np.maximum(error, _ROBUST_ERROR))
    scaled: Floats = found / np.array([grid_scale * loop_scale, grid_scale, loop_scale, 1.0])
    return scaled


def _solve_non_negative(normal: Floats, moment: Floats, terms: Floats) -> Floats:
    """Return the least squares [parts, 4] without negative coefficients: more work never takes less time.

    Of four terms all sets of positive ones can be tried.
    """
    best, least = np.zeros_like(moment), np.full(len(moment), np.inf)
    ridge = _RIDGE * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(_N_TERMS)
    for chosen in product((0.0, 1.0), repeat=_N_TERMS):
        kept = np.array(chosen) * terms
        if not kept.any():
            continue
        system = normal * np.outer(kept, kept) + np.diag(1.0 - kept) + ridge
        found = np.linalg.solve(system, (moment * kept)[..., None])[..., 0]
        # The squares without the constant part, which is the same for all sets.
        squares = np.einsum("ci,cij,cj->c", found, normal, found) - 2.0 * (found * moment).sum(axis=1)
        is_better = (found >= 0.0).all(axis=1) & (squares < least)
        best[is_better], least[is_better] = found[is_better], squares[is_better]
    return best


def _sum_products(features: Floats, target: Floats, part: Integers, n_parts: int) -> tuple[Floats, Floats]:
    """Return the sums over each part of features x features [parts, 4, 4], and x target [parts, 4]."""
    normal, moment = np.zeros((n_parts, _N_TERMS, _N_TERMS)), np.zeros((n_parts, _N_TERMS))
    for i in range(_N_TERMS):
        moment[:, i] = np.bincount(part, weights=features[i] * target, minlength=n_parts)
        for j in range(i, _N_TERMS):
            normal[:, i, j] = np.bincount(part, weights=features[i] * features[j], minlength=n_parts)
            normal[:, j, i] = normal[:, i, j]
    return normal, moment


def _find_levels(data: _Buckets, pooled: Floats, n_rows: int) -> Floats:
    """Return for each bucket the factor between the samples of its and near waves and the pooled model.

    The mean of the logarithm, weighted by the distance on the axis of log2(w): a wave counts for its
    neighbours, the more so the higher it is. Some weight lies on 1, for waves far from all samples.
    """
    n_configs = data.n_buckets // n_rows
    config = data.bucket // n_rows
    place = np.log2(data.wave)
    deviation = np.log(data.time_us / _predict(pooled[data.bucket], data.grid, data.loops))
    deviation = np.clip(deviation, -_MOST_DEVIATION, _MOST_DEVIATION)
    is_beyond = data.bucket % n_rows == n_rows - 1
    beyond = place[is_beyond].mean() if is_beyond.any() else np.log2(n_rows)
    levels = np.empty((n_configs, n_rows))
    for row in range(n_rows):
        at = beyond if row == n_rows - 1 else np.log2(row + 1.0)
        near = np.exp(-0.5 * ((place - at) / _LEVEL_WIDTH) ** 2)
        total = np.bincount(config, weights=near * deviation, minlength=n_configs)
        levels[:, row] = total / (np.bincount(config, weights=near, minlength=n_configs) + _LEVEL_PRIOR)
    return np.exp(levels).ravel()


def _predict(coefficients: Floats, grid: Floats, loops: Floats) -> Times:
    alpha, beta, gamma, delta = coefficients.T
    result: Times = (alpha * loops + beta) * grid + (gamma * loops + delta)
    return result


def _fit_local(data: _Buckets, start: Floats, weights: Floats, terms: Floats) -> tuple[Floats, Integers]:
    """Return the least squares [buckets, 4] of each bucket's own samples (8), and the terms that they decide.

    Directions that the samples leave open are those of `start`: the pseudo-inverse, of the difference to it.
    """
    n, bucket = data.n_buckets, data.bucket
    grid_center, grid_scale, _ = _measure_range(data.grid, bucket, n)
    loop_center, loop_scale, _ = _measure_range(data.loops, bucket, n)
    x = (data.grid - grid_center[bucket]) / grid_scale[bucket]
    y = (data.loops - loop_center[bucket]) / loop_scale[bucket]
    root = np.sqrt(weights)
    features = np.stack([x * y, x, y, np.ones_like(x)]) * terms[:, None] * root
    residual = data.time_us - _predict(start[bucket], data.grid, data.loops)
    normal, moment = _sum_products(features, residual * root, bucket, n)
    values, vectors = np.linalg.eigh(normal)
    decided = values > np.maximum(_RANK_SHARE * values[:, -1:], 1e-300)
    inverse = np.where(decided, 1.0 / np.where(decided, values, 1.0), 0.0)
    local = np.einsum("pij,pj,pkj,pk->pi", vectors, inverse, vectors, moment)
    found = _expand(local, grid_center, grid_scale, loop_center, loop_scale)
    return start + found, decided.sum(axis=1)


def _measure_range(values: Floats, part: Integers, n_parts: int) -> tuple[Floats, Floats, Floats]:
    """Return middle, scale and half the width of the values in each part; the scale of one value is 1."""
    low, high = np.full(n_parts, np.inf), np.full(n_parts, -np.inf)
    np.minimum.at(low, part, values)
    np.maximum.at(high, part, values)
    is_empty = low > high
    low[is_empty] = high[is_empty] = 0.0
    width = (high - low) / 2
    return (low + high) / 2, np.where(width > 0.0, width, 1.0), width


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
