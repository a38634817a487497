"""What to measure: WaveTune's sparse plan, a few grids per wave and a few loop counts per grid (section 4.2).

The axis of grid sizes is cut into waves of as many blocks as the GPU has SMs (3), each wave into
sub-intervals, and each sub-interval is represented by one grid (4): of kernels with a two-dimensional grid
the largest g = m · n with m <= n <= max_aspect · m, of attention the largest multiple of the number of heads.
A sub-interval without such a grid has its most nearly square one, or, of attention, none.

    132 SMs, wave 1 in 4 sub-intervals: [1, 33] -> 25 = 5 · 5, [34, 66] -> 64, [67, 99] -> 90 = 9 · 10, ...

A grid and a loop count become an input by (5) and (6), so every sample fills its tiles.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.text.errors import UsageError
from analyzer.tuning.kernel_space import Integers, TunableKernel
from analyzer.tuning.samples import Samples

DEFAULT_WAVES, DEFAULT_INTERVALS, DEFAULT_MAX_ASPECT = 40, 4, 1.1
DEFAULT_ANCHORS = (1024.0, 2048.0, 3072.0, 4096.0, 5120.0)  # of k; section 5.1
DEFAULT_MULTIPLES = (1.0, 1.5, 2.0, 2.5, 3.0)  # of the query length; section 5.1
DEFAULT_HEADS = (16,)
_MOST_ROWS = 5_000_000
_MOST_WAVES, _MOST_INTERVALS = 1000, 64


class PlanOptions(Struct, frozen=True):
    """How densely to sample."""

    waves: int = DEFAULT_WAVES
    intervals: int = DEFAULT_INTERVALS
    max_aspect: float = DEFAULT_MAX_ASPECT
    anchors: tuple[float, ...] = ()  # sizes of the loop's input; () with heads: multiples, else the defaults
    heads: tuple[int, ...] = DEFAULT_HEADS  # of attention
    values: Mapping[str, tuple[int, ...]] = {}  # parameters held to fewer values than the kernel allows
    element_bytes: int = 2


class GridPoint(Struct, frozen=True):
    """A representative grid size, as rows x columns of blocks; of attention, tiles x heads."""

    wave: int
    interval: int
    rows: int
    columns: int

    @property
    def blocks(self) -> int:
        """G."""
        return self.rows * self.columns


class SamplingPlan(Struct, frozen=True):
    """Rows to measure, with the wave and the sub-interval of each."""

    samples: Samples
    waves: Integers
    intervals: Integers
    n_grids: int
    n_elongated: int  # grids beyond the aspect, since no better one is in the sub-interval
    n_configs: int  # macro x micro before any is left out
    obstacles: Mapping[str, int]  # configurations left out, by what they exceed
    n_profile: int  # equation (7), before configurations are left out


def list_intervals(n_sms: int, waves: int, intervals: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (wave, interval, first, last) in order; they cover [1, waves · n_sms] without overlap (3), (4).

    Where a wave has fewer blocks than sub-intervals, some of these are empty and left out.
    """
    for wave in range(1, waves + 1):
        start = (wave - 1) * n_sms
        for interval in range(1, intervals + 1):
            first = start + (interval - 1) * n_sms // intervals + 1
            last = start + interval * n_sms // intervals
            if first <= last:
                yield wave, interval, first, last


def list_product_grids(n_sms: int, waves: int, intervals: int, max_aspect: float) -> Iterator[GridPoint]:
    """Yield the largest grid of each sub-interval that is nearly square (4).

    Where no grid of a sub-interval is within `max_aspect`, the one nearest to a square stands for it: with
    132 SMs and an aspect of 1.1 this is so in 30 of 160, and the paper has all 160.
    """
    for wave, interval, first, last in list_intervals(n_sms, waves, intervals):
        rows_by_blocks = {blocks: _find_rows(blocks) for blocks in range(last, first - 1, -1)}
        blocks = next(
            (blocks for blocks, rows in rows_by_blocks.items() if blocks <= max_aspect * rows * rows),
            min(rows_by_blocks, key=lambda blocks: blocks / rows_by_blocks[blocks] ** 2),
        )
        yield GridPoint(wave, interval, rows_by_blocks[blocks], blocks // rows_by_blocks[blocks])


def _find_rows(blocks: int) -> int:
    """Return the rows m of the grid m · n = blocks, m <= n, that is nearest to a square."""
    return next(rows for rows in range(math.isqrt(blocks), 0, -1) if blocks % rows == 0)


def list_head_grids(n_sms: int, waves: int, intervals: int, heads: int) -> Iterator[GridPoint]:
    """Yield the largest multiple of `heads` in each sub-interval that holds one (section 4.2)."""
    for wave, interval, first, last in list_intervals(n_sms, waves, intervals):
        tiles = last // heads
        if tiles * heads >= first:
            yield GridPoint(wave, interval, tiles, heads)


def make_plan(kernel: TunableKernel, gpu: Gpu, options: PlanOptions) -> SamplingPlan:
    """Return the plan of a kernel on a GPU. Raises UsageError for options that make no plan."""
    _check_options(options)
    macros = _list_values(kernel, options, kernel.space.macro_parameters, kernel.macro_values)
    micros = _list_values(kernel, options, kernel.space.micro_parameters, kernel.micro_values)
    anchors = options.anchors or (DEFAULT_MULTIPLES if kernel.space.multipliers else DEFAULT_ANCHORS)
    most_grids = options.waves * options.intervals * (len(options.heads) if kernel.space.multipliers else 1)
    if most_grids * len(anchors) * len(macros) * len(micros) > _MOST_ROWS:
        raise UsageError(
            f"the plan would have more than {_MOST_ROWS:,} rows",
            hint="fewer --waves or --intervals, or hold parameters with --set BLOCK_SIZE_M=64,128",
        )
    configs, obstacles = _leave_out(kernel, gpu, options, macros, micros)
    grids = _list_grids(kernel, gpu.sm_count, options)
    points = [_make_inputs(kernel, macro, grids, anchors, options) for macro in macros]
    rows = [
        (points[number], np.broadcast_to(macros[number], (len(points[number]), len(macros[number]))), micro)
        for number, micro in configs
    ]
    if not rows:
        raise UsageError("no configuration is left", hint="allow more values with --set")
    noted = np.concatenate([point for point, _, _ in rows])
    samples = Samples(
        kernel.space,
        gpu.key,
        noted[:, 2:],
        np.concatenate([macro for _, macro, _ in rows]),
        np.concatenate([np.broadcast_to(micro, (len(point), len(micro))) for point, _, micro in rows]),
        np.full(len(noted), np.nan),
    )
    is_long = [not kernel.space.multipliers and g.columns > options.max_aspect * g.rows for g in grids]
    return SamplingPlan(
        samples,
        noted[:, 0],
        noted[:, 1],
        len(grids),
        sum(is_long),
        len(macros) * len(micros),
        obstacles,
        len(grids) * len(anchors) * len(macros) * len(micros),
    )


def _list_grids(kernel: TunableKernel, n_sms: int, options: PlanOptions) -> list[GridPoint]:
    if kernel.space.multipliers:
        return [
            grid
            for heads in options.heads
            for grid in list_head_grids(n_sms, options.waves, options.intervals, heads)
        ]
    return list(list_product_grids(n_sms, options.waves, options.intervals, options.max_aspect))


def _make_inputs(
    kernel: TunableKernel,
    macro: Sequence[int],
    grids: Sequence[GridPoint],
    anchors: Sequence[float],
    options: PlanOptions,
) -> Integers:
    """Return [wave, interval, inputs...] of each grid and anchor under a macro configuration: (5), (6).

    An anchor is rounded up to whole tiles. Without anchors of the user's, those of attention are multiples of
    the query length.
    """
    space = kernel.space
    tile = macro[space.macro_parameters.index(space.loop.parameter)]
    is_multiple = bool(space.multipliers) and not options.anchors
    rows = []
    for grid in grids:
        inputs = dict(kernel.defaults)
        sizes = (grid.rows, grid.columns)
        for tiling, count in zip(space.grid, sizes, strict=False):
            inputs[tiling.input] = count * macro[space.macro_parameters.index(tiling.parameter)]
        if space.multipliers:
            inputs[space.multipliers[-1]] = grid.columns
        length = inputs[space.grid[0].input]
        for anchor in anchors:
            size = anchor * length if is_multiple else anchor
            inputs[space.loop.input] = max(1, -(-int(size) // tile)) * tile
            rows.append((grid.wave, grid.interval, *(inputs[name] for name in space.inputs)))
    return np.array(rows, dtype=np.int64).reshape(len(rows), 2 + len(space.inputs))


def _list_values(
    kernel: TunableKernel,
    options: PlanOptions,
    names: Sequence[str],
    allowed: Sequence[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """Return all combinations of values: those that the user holds, else the kernel's."""
    known = (*kernel.space.macro_parameters, *kernel.space.micro_parameters)
    unknown = [name for name in options.values if name not in known]
    if unknown:
        raise UsageError(
            f"--set {unknown[0]}: kernel {kernel.space.name} has no such parameter",
            hint=f"one of: {', '.join(known)}",
        )
    grids = np.meshgrid(
        *(options.values.get(name, own) for name, own in zip(names, allowed, strict=True)), indexing="ij"
    )
    return [tuple(row) for row in np.stack([grid.ravel() for grid in grids], axis=1).tolist()]


def _leave_out(
    kernel: TunableKernel,
    gpu: Gpu,
    options: PlanOptions,
    macros: Sequence[tuple[int, ...]],
    micros: Sequence[tuple[int, ...]],
) -> tuple[list[tuple[int, tuple[int, ...]]], dict[str, int]]:
    """Return (number of the macro configuration, micro) of those that may run, and why others cannot."""
    kept, obstacles = [], dict[str, int]()
    for number, macro in enumerate(macros):
        for micro in micros:
            obstacle = kernel.find_obstacle(macro, micro, options.element_bytes, gpu.arch) if gpu.arch else ""
            if obstacle:
                obstacles[obstacle] = obstacles.get(obstacle, 0) + 1
            else:
                kept.append((number, micro))
    return kept, obstacles


def _check_options(options: PlanOptions) -> None:
    """Raise UsageError for an option out of range."""
    if not 1 <= options.waves <= _MOST_WAVES:
        raise UsageError(f"--waves {options.waves}", hint=f"from 1 to {_MOST_WAVES}")
    if not 1 <= options.intervals <= _MOST_INTERVALS:
        raise UsageError(f"--intervals {options.intervals}", hint=f"from 1 to {_MOST_INTERVALS}")
    if not options.max_aspect >= 1.0:
        raise UsageError(f"--tau {options.max_aspect:g}", hint="columns over rows, 1 or more")
    if any(not 0 < anchor <= _MOST_ANCHOR for anchor in options.anchors):
        raise UsageError("--anchors: sizes of the loop's input, positive numbers")
    if any(not 0 < heads <= _MOST_HEADS for heads in options.heads):
        raise UsageError(f"--heads: from 1 to {_MOST_HEADS}")


_MOST_ANCHOR, _MOST_HEADS = 1e9, 4096
