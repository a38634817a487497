"""The choice of a configuration in microseconds: WaveTune's two stages (section 4.4), with numpy alone.

    chooser = Chooser("artifact.npz")
    chooser.choose(4096, 4096, 4096)     # inputs in the kernel's order: {"BLOCK_SIZE_M": 128, ...}

Stage I predicts the time of every macro configuration (9), stage II takes the micro configuration of the
nearest loop anchor in the winner's row (10). Waves beyond the profile use the extrapolation's row (11).

A choice makes about a dozen calls of numpy on vectors with one element per macro configuration, and their
number is what it costs. So whatever depends on one input alone is looked up: the tiles of each input under
all macro configurations, and the row of each grid size. alpha and gamma, beta and delta are the parts of
complex numbers, so that one multiplication by L and one addition give both coefficients of time = a · G + b.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import gcd
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.text.errors import UsageError
from analyzer.tuning.artifact import Artifact, load_artifact
from analyzer.tuning.kernel_space import Integers, KernelSpace, Tiling

Config = Mapping[str, int]
_Rows = NDArray[Any]

_TABLE_LENGTH = 4096  # units of an input whose tiles are counted beforehand; of 16 each up to 65,536
_MOST_KEPT_ROWS, _MOST_KEPT_CHOICES = 16_384, 4096
_MOST_UNITS = 1 << 40
_BLOCK_LENGTH = 2048  # inputs of a batch at a time: their columns stay in the cache


class BatchChoice(Struct, frozen=True):
    """Choices for many inputs."""

    macro_ids: Integers  # [n]: rows of the artifact's macro configurations
    micro_ids: Integers  # [n]
    time_us: NDArray[np.float64]  # [n]: predicted


class Chooser:
    """Configurations of one kernel on one GPU."""

    def __init__(self, artifact: Artifact | str | Path) -> None:
        """Prepare the tables. Raises InputError for a file that is no artifact."""
        self.artifact = artifact if isinstance(artifact, Artifact) else load_artifact(artifact)
        found = self.artifact.description
        self.space: KernelSpace = found.space
        self._macros = np.array(found.macros, dtype=np.int64)
        self._micros = np.array(found.micros, dtype=np.int64)
        self._coefficients = self.artifact.coefficients.astype(np.float64)
        self._anchors = self.artifact.micro_table[..., 0].astype(np.int64)
        self._micro_ids = self.artifact.micro_table[..., 1].astype(np.int64)
        table = self._coefficients.reshape(-1, 4)
        self._slopes, self._offsets = table[:, 0] + 1j * table[:, 2], table[:, 1] + 1j * table[:, 3]
        self.choose: Callable[..., Config] = self._compile()
        """Return the configuration for inputs, whole numbers in the order of `space.inputs`.

        The mapping is shared and cannot be changed. Raises UsageError for inputs of another number or size.
        """

    def choose_batch(self, shapes: Integers) -> BatchChoice:
        """Return the choices for many inputs [n, inputs], the same as `choose` makes one by one."""
        shapes = np.asarray(shapes, dtype=np.int64)
        if shapes.ndim != 2 or shapes.shape[1] != len(self.space.inputs):
            raise _make_shape_error(self.space, shapes.shape[1:])
        if len(shapes) and shapes.min() < 1:
            raise _make_shape_error(self.space, tuple(shapes[int(shapes.min(axis=1).argmin())].tolist()))
        parts = [
            self._choose_block(shapes[start : start + _BLOCK_LENGTH])
            for start in range(0, max(1, len(shapes)), _BLOCK_LENGTH)
        ]
        columns = zip(*((part.macro_ids, part.micro_ids, part.time_us) for part in parts), strict=True)
        return BatchChoice(*(np.concatenate(column) for column in columns))

    def fix(self, *, up_to: int = 16_384, **inputs: int) -> Callable[[int], Config]:
        """Return a function of the first input alone, the others held: a look-up for values to `up_to`.

        Of a product: `chooser.fix(n=4096, k=4096)` is a function of m, as a layer of a served model needs.
        Raises UsageError for an input that is missing or not the kernel's.
        """
        first, *others = self.space.inputs
        if sorted(inputs) != sorted(others):
            raise UsageError(f"fix takes {', '.join(others)}", hint=f"and the result takes {first}")
        held = tuple(inputs[name] for name in others)
        sizes = np.arange(1, up_to + 1)
        batch = self.choose_batch(np.column_stack([sizes, np.broadcast_to(held, (up_to, len(held)))]))
        made = {key: MappingProxyType(self.get_config(*key)) for key in set(_pair(batch))}
        table = [made[key] for key in _pair(batch)]
        choose = self.choose

        def choose_held(size: int) -> Config:
            return table[size - 1] if 0 < size <= up_to else choose(size, *held)

        return choose_held

    def list_configs(self, batch: BatchChoice) -> Integers:
        """Return the values of macro and micro parameters of choices [n, parameters]."""
        return np.concatenate([self._macros[batch.macro_ids], self._micros[batch.micro_ids]], axis=1)

    def get_config(self, macro_id: int, micro_id: int) -> dict[str, int]:
        """Return a configuration by its rows."""
        names = (*self.space.macro_parameters, *self.space.micro_parameters)
        values = (*self._macros[macro_id].tolist(), *self._micros[micro_id].tolist())
        return dict(zip(names, values, strict=True))

    def rank(self, shape: Sequence[int]) -> BatchChoice:
        """Return all macro configurations for one input, fastest first, each with its micro configuration."""
        grid, loops = self.space.map_inputs(np.array([shape], dtype=np.int64), self._macros)
        rows = self._find_rows(grid)
        times = self.predict_all(shape)
        order = np.argsort(times, kind="stable")
        nearest = np.abs(self._anchors[order, rows[order]] - loops[order, None]).argmin(axis=1)
        return BatchChoice(order, self._micro_ids[order, rows[order], nearest], times[order])

    def predict_all(self, shape: Sequence[int]) -> NDArray[np.float64]:
        """Return the predicted microseconds [C] of all macro configurations for one input (8), (11)."""
        grid, loops = self.space.map_inputs(np.array([shape], dtype=np.int64), self._macros)
        rows = self._find_rows(grid)
        alpha, beta, gamma, delta = self._coefficients[np.arange(len(rows)), rows].T
        times: NDArray[np.float64] = (alpha * loops + beta) * grid + (gamma * loops + delta)
        return times

    def _find_rows(self, grid: Integers) -> Integers:
        n_sms, last = self.artifact.description.n_sms, self._coefficients.shape[1] - 1
        rows: Integers = np.minimum((grid - 1) // n_sms, last)
        return rows

    def _choose_block(self, shapes: Integers) -> BatchChoice:
        """Return the choices for a block: one macro configuration after the other, over all its inputs."""
        n, n_rows = len(shapes), self._coefficients.shape[1]
        best, winner = np.full(n, np.inf), np.zeros(n, dtype=np.int64)
        tiles = _BlockTiles(self.space, shapes, self._macros, self._find_rows)
        terms, added = np.empty(n, np.complex128), np.empty(n, np.complex128)
        times, is_better = np.empty(n), np.empty(n, np.bool_)
        for number in range(len(self._macros)):
            grid, rows = tiles.count_grid(number)
            start = number * n_rows
            self._slopes[start : start + n_rows].take(rows, None, terms, "clip")
            self._offsets[start : start + n_rows].take(rows, None, added, "clip")
            np.multiply(terms, tiles.count_loops(number), terms)
            np.add(terms, added, terms)
            np.multiply(terms.real, grid, times)
            np.add(times, terms.imag, times)
            np.less(times, best, is_better)
            np.copyto(winner, number, where=is_better)
            np.minimum(best, times, out=best)
        blocks, loops = self.space.map_inputs(shapes, self._macros[winner])
        rows = self._find_rows(blocks)
        nearest = np.abs(self._anchors[winner, rows] - loops[:, None]).argmin(axis=1)
        return BatchChoice(winner, self._micro_ids[winner, rows, nearest], best)

    def _compile(self) -> Callable[..., Config]:
        """Return `choose`, with all that it reads in local variables."""
        grid = np.empty(len(self._macros), np.int64)
        loop_tiles = self._macros[:, self.space.macro_parameters.index(self.space.loop.parameter)]
        loop_unit, loop_rows = _make_tile_rows(loop_tiles, np.complex128)
        pick = self._compile_stages(grid)
        if _is_product(self.space):
            return _compile_product(self.space, self._macros, grid, loop_unit, loop_rows, pick)
        space, seen = self.space, dict[tuple[int, ...], Config]()
        n_inputs, loop_at = len(space.inputs), space.inputs.index(space.loop.input)
        fill_grid = _compile_grid(space, self._macros, grid)

        def choose(*shape: int) -> Config:
            found = seen.get(shape)
            if found is None:
                if len(shape) != n_inputs or min(shape) < 1:
                    raise _make_shape_error(space, shape)
                fill_grid(shape)
                size = shape[loop_at]
                found = pick(loop_rows.find(-(-size // loop_unit)), size)
                if len(seen) >= _MOST_KEPT_CHOICES:
                    seen.clear()
                seen[shape] = found
            return found

        return choose

    def _compile_stages(self, grid: Integers) -> Callable[[_Rows, int], Config]:
        """Return a function from L of all macro configurations and the loop's input to the choice.

        grid: their G, filled by the caller.
        """
        n_macros, n_rows = self._coefficients.shape[:2]
        row_of_grid = self._find_rows(np.arange((n_rows - 1) * self.artifact.description.n_sms + 2))
        row_of_grid[0] = 0
        first_row, rows = np.arange(n_macros) * n_rows, np.empty(n_macros, np.int64)
        terms, added = np.empty(n_macros, np.complex128), np.empty(n_macros, np.complex128)
        slope, offset, times = terms.real, terms.imag, np.empty(n_macros)
        find_row, take_slopes, take_offsets = row_of_grid.take, self._slopes.take, self._offsets.take
        add, multiply, find_least, get_row = np.add, np.multiply, times.argmin, rows.item
        choices = self._list_micro_choices()

        def pick(loops: _Rows, size: int) -> Config:
            find_row(grid, None, rows, "clip")
            add(rows, first_row, rows)
            take_slopes(rows, None, terms, "clip")
            take_offsets(rows, None, added, "clip")
            multiply(terms, loops, terms)
            add(terms, added, terms)
            multiply(slope, grid, times)
            add(times, offset, times)
            midpoints, configs, tile = choices[get_row(find_least())]
            return configs[bisect_left(midpoints, -(-size // tile))]

        return pick

    def _list_micro_choices(self) -> list[tuple[list[float], list[Config], int]]:
        """Return of each (macro, row) the midpoints between its loop anchors, their configurations, its tile.

        A loop count goes to the nearest anchor, at a midpoint to the lower one.
        """
        made: dict[tuple[int, int], Config] = {}
        choices = []
        n_rows, width = self._anchors.shape[1:]
        loop_tiles = self._macros[:, self.space.macro_parameters.index(self.space.loop.parameter)].tolist()
        ids = self._micro_ids.reshape(-1, width).tolist()
        for number, anchors in enumerate(self._anchors.reshape(-1, width).tolist()):
            places = [at for at in range(width) if at == 0 or anchors[at] > anchors[at - 1]]
            midpoints = [(anchors[a] + anchors[b]) / 2 for a, b in pairwise(places)]
            configs = []
            for at in places:
                key = number // n_rows, ids[number][at]
                if key not in made:
                    made[key] = MappingProxyType(self.get_config(*key))
                configs.append(made[key])
            choices.append((midpoints, configs, loop_tiles[number // n_rows]))
        return choices


def _pair(batch: BatchChoice) -> list[tuple[int, int]]:
    return list(zip(batch.macro_ids.tolist(), batch.micro_ids.tolist(), strict=True))


class _BlockTiles:
    """Tiles of a block of inputs, counted once per distinct tile size, and grids once per distinct pair."""

    def __init__(
        self,
        space: KernelSpace,
        shapes: Integers,
        macros: Integers,
        find_rows: Callable[[Integers], Integers],
    ) -> None:
        self._space, self._shapes, self._find_rows = space, shapes, find_rows
        places = [space.macro_parameters.index(each.parameter) for each in (*space.grid, space.loop)]
        self._tiles = macros[:, places].tolist()
        self._grids: dict[tuple[int, ...], tuple[NDArray[np.float64], Integers]] = {}
        self._loops: dict[int, NDArray[np.complex128]] = {}
        self._counts: dict[tuple[int, int], Integers] = {}
        self._factor = np.ones(len(shapes), dtype=np.int64)
        for name in space.multipliers:
            self._factor *= shapes[:, space.inputs.index(name)]

    def count_loops(self, number: int) -> NDArray[np.complex128]:
        """Return L [n] under a macro configuration."""
        tile = self._tiles[number][-1]
        if tile not in self._loops:
            loops = self._space.count_tiles(self._space.loop, self._shapes, tile)
            self._loops[tile] = loops.astype(np.complex128)
        return self._loops[tile]

    def count_grid(self, number: int) -> tuple[NDArray[np.float64], Integers]:
        """Return G [n] under a macro configuration, and the row of each."""
        tiles = tuple(self._tiles[number][:-1])
        if tiles not in self._grids:
            grid = self._factor
            for place, tile in enumerate(tiles):
                grid = grid * self._count(place, tile)
            self._grids[tiles] = grid.astype(np.float64), self._find_rows(grid)
        return self._grids[tiles]

    def _count(self, place: int, tile: int) -> Integers:
        if (place, tile) not in self._counts:
            tiling = self._space.grid[place]
            self._counts[place, tile] = self._space.count_tiles(tiling, self._shapes, tile)
        return self._counts[place, tile]


class _TileRows:
    """Tiles of an input under all macro configurations, by the input in units."""

    __slots__ = ("_dtype", "_tiles", "rows")

    def __init__(self, tiles: Integers, dtype: type) -> None:
        self._tiles, self._dtype = tiles, dtype
        counts = -(-np.arange(_TABLE_LENGTH)[:, None] // tiles)
        self.rows: list[_Rows] = list(counts.astype(dtype))
        """Rows of the first units, from 0."""

    def find(self, units: int) -> _Rows:
        """Return a row, one beyond the table too; units: not negative."""
        if units < _TABLE_LENGTH:
            return self.rows[units]
        _check_input(units)
        row: _Rows = (-(-units // self._tiles)).astype(self._dtype)
        return row


class _Multiples(dict[int, _Rows]):
    """Vectors of one repeated number; they are kept, since numpy converts a number in a microsecond."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length

    def __missing__(self, number: int) -> _Rows:
        _check_input(number)
        row = np.full(self._length, number, dtype=np.int64)
        if len(self) < _MOST_KEPT_ROWS:
            self[number] = row
        return row


def _check_input(value: int) -> None:
    """Raise UsageError for a number beyond what the arithmetic holds."""
    if value >= _MOST_UNITS:
        raise UsageError(f"an input is too large: {value}", hint=f"at most {_MOST_UNITS:,} tiles")


def _make_tile_rows(tiles: Integers, dtype: type) -> tuple[int, _TileRows]:
    """Return the unit, which divides all tile sizes, and the rows by ceil(input / unit)."""
    unit = gcd(*tiles.tolist())
    return unit, _TileRows(tiles // unit, dtype)


def _is_product(space: KernelSpace) -> bool:
    """Return whether G and L are the tiles of three inputs, as of a plain matrix product."""
    tilings = (*space.grid, space.loop)
    is_plain = not any(tiling.factor or tiling.groups for tiling in tilings)
    inputs = [tiling.input for tiling in tilings]
    return is_plain and not space.multipliers and len(space.grid) == 2 and inputs == list(space.inputs)


def _compile_product(
    space: KernelSpace,
    macros: Integers,
    grid: Integers,
    loop_unit: int,
    loop_rows: "_TileRows",
    pick: Callable[[_Rows, int], Config],
) -> Callable[..., Config]:
    """Return `choose` of a plain product: the general one with its calls written out.

    The inputs count in units of the tiles, so choices are kept for all inputs of the same units.
    """
    tiles = [macros[:, space.macro_parameters.index(tiling.parameter)] for tiling in space.grid]
    (m_unit, m_tiles), (n_unit, n_tiles) = (_make_tile_rows(each, np.int64) for each in tiles)
    m_rows, n_rows, k_rows = m_tiles.rows, n_tiles.rows, loop_rows.rows
    seen, multiply = dict[tuple[int, int, int], Config](), np.multiply
    get_seen = seen.get

    def choose_product(*shape: int) -> Config:
        try:
            m, n, k = shape
        except ValueError:
            raise _make_shape_error(space, shape) from None
        units = rows, columns, depth = -(-m // m_unit), -(-n // n_unit), -(-k // loop_unit)
        found = get_seen(units)
        if found is None:
            if rows < 1 or columns < 1 or depth < 1:
                raise _make_shape_error(space, shape)
            try:
                multiply(m_rows[rows], n_rows[columns], grid)
                loops = k_rows[depth]
            except IndexError:
                multiply(m_tiles.find(rows), n_tiles.find(columns), grid)
                loops = loop_rows.find(depth)
            found = pick(loops, k)
            if len(seen) >= _MOST_KEPT_CHOICES:
                seen.clear()
            seen[units] = found
        return found

    return choose_product


def _compile_grid(space: KernelSpace, macros: Integers, grid: Integers) -> Callable[[Sequence[int]], None]:
    """Return a function that writes G of all macro configurations for a shape into `grid`."""
    factors = [_compile_tiles(space, tiling, macros) for tiling in space.grid]
    places = [space.inputs.index(name) for name in space.multipliers]
    multiples, multiply = _Multiples(len(macros)), np.multiply

    def count_multiples(shape: Sequence[int]) -> _Rows:
        number = 1
        for place in places:
            number *= shape[place]
        return multiples[number]

    if places or len(factors) == 1:
        factors.append(count_multiples)
    first, second, *others = factors

    def fill(shape: Sequence[int]) -> None:
        multiply(first(shape), second(shape), grid)
        for factor in others:
            multiply(grid, factor(shape), grid)

    return fill


def _compile_tiles(space: KernelSpace, tiling: Tiling, macros: Integers) -> Callable[[Sequence[int]], _Rows]:
    """Return a function from a shape to the tiles of one input under all macro configurations."""
    place = space.inputs.index(tiling.input)
    unit, rows = _make_tile_rows(macros[:, space.macro_parameters.index(tiling.parameter)], np.int64)
    factor = space.inputs.index(tiling.factor) if tiling.factor else -1
    if tiling.groups:
        return _compile_groups(space, tiling, unit, rows)
    find = rows.find
    if factor < 0:
        return lambda shape: find(-(-shape[place] // unit))
    return lambda shape: find(-(-shape[place] * shape[factor] // unit))


def _compile_groups(
    space: KernelSpace, tiling: Tiling, unit: int, rows: _TileRows
) -> Callable[[Sequence[int]], _Rows]:
    """Return the same for an input that is dealt out evenly to groups: some have one row more than others."""
    place, groups = space.inputs.index(tiling.input), space.inputs.index(tiling.groups)
    factor = space.inputs.index(tiling.factor) if tiling.factor else -1
    find, multiples = rows.find, _Multiples(len(rows.rows[0]))

    def count(shape: Sequence[int]) -> _Rows:
        n_groups, n_rows = shape[groups], shape[place] * (shape[factor] if factor >= 0 else 1)
        each, larger = divmod(n_rows, n_groups)
        low, high = -(-each // unit), -(-(each + 1) // unit)
        if low == high or not larger:
            return find(low) * multiples[n_groups]
        counts: _Rows = find(low) * multiples[n_groups - larger] + find(high) * multiples[larger]
        return counts

    return count


def _make_shape_error(space: KernelSpace, shape: Sequence[int]) -> UsageError:
    return UsageError(
        f"kernel {space.name} takes {len(space.inputs)} positive whole numbers, not {tuple(shape)}",
        hint=f"in this order: {', '.join(space.inputs)}",
    )
