"""WaveTune from few shapes: its bilinear model with neighbouring waves borrowed, in units of the best time.

WaveTune's plan puts several samples into every wave of every macro configuration. A sweep over the shapes of
real models does not: 144 shapes of a mixture of experts leave one or two samples in a wave, and of published
sweeps only the configurations near the best are known. Three changes make that enough:

1. What is modelled is time over the best time of the shape, which the choice between configurations needs and
   in which the large differences between shapes cancel. Times are capped at `cap` times the best; of a list
   of the best, what is not listed is taken to be at the cap.
2. A wave borrows from others: each (macro, wave) is fitted by weighted least squares over all samples, the
   weight falling with the distance of log2 of the waves. A ridge holds the slopes to zero, the more the
   fewer samples there are in effect, so that few samples give a mean. The result is a table of alpha, beta,
   gamma, delta as in (8), at powers of two of the wave.
3. Of grouped products a second coordinate joins the wave: rows per group (tokens per expert). The paper
   reduces grouped products to one group and names that as the reason of its largest distance from the oracle
   (5.2); G and L alone cannot tell 64 experts of 16 rows from 32 experts of 32, which need other tiles.

Both stages of the choice stay: the least predicted time over macro configurations (9), then the micro
configuration that the winner's entry holds (10). Macro configurations that win for none of the samples are
left out.
"""

import io
from collections.abc import Callable, Sequence
from math import inf, log2, prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.tuning.kernel_space import Integers, KernelSpace, Tiling
from analyzer.tuning.measured_table import Floats, MeasuredTable
from analyzer.tuning.samples import number_rows

_FLOOR_WEIGHT = 1e-6  # of all samples everywhere: an entry without neighbours has the overall mean
_TINY = 1e-12


class SmoothingOptions(Struct, frozen=True):
    """How far an entry borrows; widths and steps in log2."""

    cap: float = 2.0  # times above this multiple of the best count as this
    wave_width: float = 1.0
    wave_step: float = 1.0
    rows_width: float = 0.5
    rows_step: float = 0.5
    ridge: float = 10.0  # of two equal samples, against features of unit variance
    prunes: bool = True


class SmoothedTables(Struct, frozen=True):
    """The fitted model: C macro configurations, J waves, K rows per group."""

    space: KernelSpace
    gpu: str
    n_sms: int
    macros: Integers  # [C, macro parameters]
    micros: Integers  # [micro configurations, micro parameters]
    coefficients: NDArray[np.float32]  # [C, J, K, 4]: alpha, beta, gamma, delta
    micro_ids: NDArray[np.uint16]  # [C, J, K]
    wave_step: float
    rows_step: float

    def predict(self, shapes: Integers) -> Floats:
        """Return predicted time over the best time [n, C] of inputs [n, inputs]."""
        entries = self.coefficients[self._find_entries(shapes)].astype(np.float64)
        alpha, beta, gamma, delta = np.moveaxis(entries, -1, 0)
        grid, loops = _map_all(self.space, shapes, self.macros)
        result: Floats = (alpha * loops + beta) * grid + (gamma * loops + delta)
        return result

    def rank(self, shapes: Integers, count: int) -> Integers:
        """Return the configurations [n, count, parameters] of inputs, best first; -1 where there are no more.

        One for each macro configuration: the micro configuration that its entry holds.
        """
        order = self.predict(shapes).argsort(axis=1, kind="stable")[:, :count]
        micro = np.take_along_axis(self.micro_ids[self._find_entries(shapes)], order, axis=1)
        ranked = np.concatenate([self.macros[order], self.micros[micro]], axis=2)
        missing = ((0, 0), (0, count - order.shape[1]), (0, 0))
        return np.pad(ranked, missing, constant_values=-1)

    def make_chooser(self) -> Callable[[Sequence[int]], dict[str, int]]:
        """Return a function from one input to its configuration, the same as the first of `rank`.

        Plain Python over the few macro configurations that are left, which for one input is quicker than
        numpy.
        """
        space, n_sms = self.space, self.n_sms
        names = (*space.macro_parameters, *space.micro_parameters)
        tiles = [_Tiles(space, macro) for macro in self.macros.tolist()]
        entries = self.coefficients.astype(np.float64).tolist()
        micro_ids, micros = self.micro_ids.tolist(), self.micros.tolist()
        n_waves, n_rows = self.micro_ids.shape[1:]

        def choose(shape: Sequence[int]) -> dict[str, int]:
            rows = _clip_node(log2(_count_rows(space, shape)), self.rows_step, n_rows)
            least, found = inf, (0, 0)
            for number, tile in enumerate(tiles):
                grid, loops = tile.count(shape)
                wave = _clip_node(log2(-(-grid // n_sms)), self.wave_step, n_waves)
                alpha, beta, gamma, delta = entries[number][wave][rows]
                ratio = (alpha * loops + beta) * grid + (gamma * loops + delta)
                if ratio < least:
                    least, found = ratio, (number, wave)
            number, wave = found
            values = (*tiles[number].macro, *micros[micro_ids[number][wave][rows]])
            return dict(zip(names, values, strict=True))

        return choose

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays, compressed as `numpy.savez_compressed` does."""
        packed = io.BytesIO()
        np.savez_compressed(
            packed,
            macros=self.macros.astype(np.uint16),
            micros=self.micros.astype(np.uint16),
            coefficients=self.coefficients,
            micro_ids=self.micro_ids,
        )
        return len(packed.getvalue())

    def _find_entries(self, shapes: Integers) -> tuple[Integers, Integers, Integers]:
        """Return the indices [n, C] of the entries of inputs: macro configuration, wave, rows per group."""
        grid, _ = _map_all(self.space, shapes, self.macros)
        n_waves, n_rows = self.micro_ids.shape[1:]
        wave = _find_node(np.log2(-(-grid // self.n_sms)), self.wave_step, n_waves)
        rows = _find_node(np.log2(_count_rows_per_group(self.space, shapes)), self.rows_step, n_rows)
        macro = np.broadcast_to(np.arange(len(self.macros)), wave.shape)
        return macro, wave, np.broadcast_to(rows[:, None], wave.shape)


def fit_smoothed(table: MeasuredTable, n_sms: int, options: SmoothingOptions | None = None) -> SmoothedTables:
    """Fit the model to a table of measured times; `n_sms` SMs make a wave.

    Entries that are NaN teach nothing; infinite ones (cannot run) count as the cap.
    """
    options = options or SmoothingOptions()
    space = table.space
    table = table.select_shapes(np.isfinite(table.find_best_us())).keep_known_configs()
    n_macro = len(space.macro_parameters)
    macros, macro = number_rows(table.configs[:, :n_macro])
    micros, micro = number_rows(table.configs[:, n_macro:])
    ratio = np.minimum(table.time_us / table.find_best_us()[:, None], options.cap)
    grid, loops = _map_all(space, table.shapes, macros)
    waves, rows = np.log2(-(-grid // n_sms)), np.log2(_count_rows_per_group(space, table.shapes))
    wave_nodes = _list_nodes(float(waves.max()), options.wave_step)
    row_nodes = _list_nodes(float(rows.max()), options.rows_step)
    shape = (len(macros), len(wave_nodes), len(row_nodes))
    coefficients, micro_ids = np.zeros((*shape, 4)), np.zeros(shape, dtype=np.int64)
    rows_apart = _measure_distances(row_nodes, rows, options.rows_width)  # [K, S]
    for number in range(len(macros)):
        own = np.flatnonzero(macro == number)
        apart = _measure_distances(wave_nodes, waves[:, number], options.wave_width)
        weights = np.exp(-0.5 * (apart[:, None] + rows_apart)).reshape(-1, len(table.shapes)) + _FLOOR_WEIGHT
        place = grid[:, number], loops[:, number]
        best, fitted = _fit_entries(weights, ratio[:, own], *place, options.ridge)
        coefficients[number] = fitted.reshape(*shape[1:], 4)
        micro_ids[number] = micro[own[best]].reshape(shape[1:])
    made = SmoothedTables(
        space,
        table.gpu,
        n_sms,
        macros,
        micros,
        coefficients.astype(np.float32),
        micro_ids.astype(np.uint16),
        options.wave_step,
        options.rows_step,
    )
    return _prune(made, table.shapes) if options.prunes else made


def _fit_entries(
    weights: Floats, ratio: Floats, grid: Integers, loops: Integers, ridge: float
) -> tuple[Integers, Floats]:
    """Return the micro configuration [entries] of each entry of a macro configuration, and its coefficients.

    weights: [entries, S] of the samples; ratio: [S, micro configurations], NaN where not measured.
    """
    known = np.isfinite(ratio)
    times = np.where(known, ratio, 0.0)
    covered = weights @ known
    mean = (weights @ times) / np.maximum(covered, _TINY)
    # A configuration must have been measured on half as much of the neighbourhood as the best covered one.
    mean[covered < 0.5 * covered.max(axis=1, keepdims=True)] = np.inf
    best = mean.argmin(axis=1)
    times, used = times.T[best], weights * known.T[best]  # [entries, S]
    used = used / used.sum(axis=1, keepdims=True)
    features = np.stack([grid * loops, grid, loops], axis=1).astype(np.float64)  # [S, 3]
    center = used @ features
    spread = np.sqrt(np.maximum(used @ features**2 - center**2, 0.0)) + _TINY
    scaled = (features[None] - center[:, None]) / spread[:, None]  # [entries, S, 3]
    level = (used * times).sum(axis=1)
    # One sample has no slope: the ridge grows beyond bounds as the samples, in effect, come down to one.
    held = (ridge / np.maximum(_count_effective(used) - 1.0, _TINY))[:, None, None]
    weighted = scaled * used[:, :, None]
    normal = np.einsum("esi,esj->eij", weighted, scaled) + held * np.eye(3)
    moment = np.einsum("esi,es->ei", weighted, times - level[:, None])
    slopes = np.linalg.solve(normal, moment[:, :, None])[:, :, 0] / spread
    slopes[spread < _FLOOR_WEIGHT] = 0.0  # a feature that does not vary
    constant = level - (slopes * center).sum(axis=1)
    return best, np.concatenate([slopes, constant[:, None]], axis=1)


def _prune(tables: SmoothedTables, shapes: Integers) -> SmoothedTables:
    """Return the tables without the macro configurations that win for none of the shapes."""
    kept = np.unique(tables.predict(shapes).argmin(axis=1))
    return SmoothedTables(
        tables.space,
        tables.gpu,
        tables.n_sms,
        tables.macros[kept],
        tables.micros,
        tables.coefficients[kept],
        tables.micro_ids[kept],
        tables.wave_step,
        tables.rows_step,
    )


def _map_all(space: KernelSpace, shapes: Integers, macros: Integers) -> tuple[Integers, Integers]:
    """Return G and L [n, C] of all inputs under all macro configurations."""
    n, count = len(shapes), len(macros)
    grid, loops = space.map_inputs(np.repeat(shapes, count, axis=0), np.tile(macros, (n, 1)))
    return grid.reshape(n, count), loops.reshape(n, count)


def _count_rows_per_group(space: KernelSpace, shapes: Integers) -> Floats:
    """Return the rows that the first axis of the grid tiles, of each group that has any."""
    tiling = space.grid[0]
    rows = shapes[:, space.inputs.index(tiling.input)].astype(np.float64)
    if tiling.factor:
        rows = rows * shapes[:, space.inputs.index(tiling.factor)]
    if tiling.groups:
        rows = rows / np.minimum(rows, shapes[:, space.inputs.index(tiling.groups)])
    return rows


class _Tiles:
    """G and L of one input under one macro configuration, as `KernelSpace.map_inputs` has them."""

    def __init__(self, space: KernelSpace, macro: list[int]) -> None:
        self.macro = macro
        self._places = [self._find_places(space, tiling) for tiling in (*space.grid, space.loop)]
        self._multipliers = [space.inputs.index(name) for name in space.multipliers]

    def _find_places(self, space: KernelSpace, tiling: Tiling) -> tuple[int, int, int, int]:
        """Return the tile's size and the places of input, factor and groups, -1 for none."""
        factor, groups = (space.inputs.index(name) if name else -1 for name in (tiling.factor, tiling.groups))
        tile = self.macro[space.macro_parameters.index(tiling.parameter)]
        return tile, space.inputs.index(tiling.input), factor, groups

    def count(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return (G, L)."""
        counts = [_count_tiles(shape, *places) for places in self._places]
        return prod(counts[:-1]) * prod(shape[place] for place in self._multipliers), counts[-1]


def _count_tiles(shape: Sequence[int], tile: int, place: int, factor: int, groups: int) -> int:
    rows = shape[place] if factor < 0 else shape[place] * shape[factor]
    if groups < 0:
        return -(-rows // tile)
    each, larger = divmod(rows, shape[groups])
    return larger * -(-(each + 1) // tile) + (shape[groups] - larger) * -(-each // tile)


def _count_rows(space: KernelSpace, shape: Sequence[int]) -> float:
    """Return what `_count_rows_per_group` does, of one input."""
    tiling = space.grid[0]
    rows = float(shape[space.inputs.index(tiling.input)])
    if tiling.factor:
        rows *= shape[space.inputs.index(tiling.factor)]
    return rows / min(rows, shape[space.inputs.index(tiling.groups)]) if tiling.groups else rows


def _clip_node(value: float, step: float, count: int) -> int:
    return min(count - 1, round(value / step))


def _list_nodes(largest: float, step: float) -> Floats:
    """Return 0, step, 2 step, ... up to the first that is not below the largest."""
    return step * np.arange(int(np.ceil(largest / step)) + 1, dtype=np.float64)


def _find_node(values: Floats, step: float, count: int) -> Integers:
    """Return the nearest node of each value; values beyond the last node have the last."""
    nodes: Integers = np.clip(np.rint(values / step), 0, count - 1).astype(np.int64)
    return nodes


def _measure_distances(nodes: Floats, values: Floats, width: float) -> Floats:
    """Return the squared distance [nodes, n] of each value from each node, in widths."""
    result: Floats = ((nodes[:, None] - values) / width) ** 2
    return result


def _count_effective(weights: Floats) -> Floats:
    """Return how many equal samples [entries] would weigh as evenly: (sum of weights)² / sum of squares."""
    result: Floats = weights.sum(axis=1) ** 2 / (weights**2).sum(axis=1)
    return result
