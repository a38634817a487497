"""Machines whose kernel times are known, to judge tuners by: waves, slopes within them, micro effects, noise.

The time of a launch with G blocks of L iterations is

    time = launch + (start + L · iteration) · (w - 1 + step + (1 - step) · fill)

with w waves, of which the last one is filled to `fill`. `step` falls from 1 in the first wave to 0 as waves
accumulate, as blocks drift apart (`discrete_events`), so each wave is bilinear in G and L, and no single
bilinear function fits all. An iteration takes the time of its arithmetic or of its bytes, whichever is
longer; larger tiles use both better. Micro parameters act as they do on a GPU: a further stage hides part of
the latency of each iteration and costs its own prologue, so short loops want few; the best number of warps
follows from the tile's area. Each machine draws its own figures from its seed.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.tuning.kernel_space import Integers, KernelSpace
from analyzer.tuning.samples import Samples, Times

Floats = NDArray[np.float64]

_LANE_AREA = 1024.0  # elements of a tile that keep one warp busy


class SyntheticMachine(Struct, frozen=True):
    """One machine; times in microseconds."""

    n_sms: int
    launch_us: float
    start_us: float  # of a block, before its first iteration
    elements_per_us: float  # products of one SM, at full efficiency
    bytes_per_us: float  # of one SM
    half_area: float  # tile area at which arithmetic has half its full efficiency
    latency_us: float  # of an iteration's loads, which stages hide
    smooth_waves: float  # waves until a staircase is a line
    warp_penalty: float  # per doubling from the best number of warps
    seed: int

    def compute_times(
        self, space: KernelSpace, shapes: Integers, macros: Integers, micros: Integers
    ) -> Times:
        """Return the exact time of each launch [n]: rows of inputs, macro and micro parameters."""
        grid, loops = space.map_inputs(shapes, macros)
        waves = np.ceil(grid / self.n_sms)
        fill = grid / self.n_sms - (waves - 1)
        step = np.maximum(0.0, 1.0 - (waves - 1) / self.smooth_waves)
        rows, columns = _find_tile(macros)
        depth = macros[:, -1].astype(np.float64)
        iteration = self._time_iteration(rows, columns, depth)
        stages, warps = _find_column(space, micros, "num_stages"), _find_column(space, micros, "num_warps")
        exposed = self.latency_us / np.maximum(stages, 1) ** 1.5
        wanted = np.clip(rows * columns / _LANE_AREA, 1.0, 8.0)
        slowdown = 1.0 + self.warp_penalty * np.abs(np.log2(np.maximum(warps, 1) / wanted))
        block = self.start_us + 0.6 * stages * iteration + loops * (iteration * slowdown + exposed)
        times: Times = self.launch_us + block * (waves - 1 + step + (1 - step) * fill) * self._draw(macros)
        return times

    def _time_iteration(self, rows: Floats, columns: Floats, depth: Floats) -> Floats:
        area = rows * columns
        efficiency = area / (area + self.half_area)
        arithmetic = area * depth / (self.elements_per_us * efficiency)
        loads = 2.0 * (rows + columns) * depth / self.bytes_per_us
        return np.maximum(arithmetic, loads)

    def _draw(self, macros: Integers) -> Floats:
        """Return what is particular to each macro configuration: within 15 % of one, the same for all."""
        mixed = (macros * np.array([73_856_093, 19_349_663, 83_492_791])[: macros.shape[1]]).sum(axis=1)
        phase = (mixed ^ (self.seed * 2_654_435_761)) % 1009 / 1009.0
        factor: Floats = 0.85 + 0.3 * phase
        return factor

    def measure(self, samples: Samples, *, noise: float, seed: int) -> Samples:
        """Return samples with times, each off by a log-normal factor of relative deviation `noise`."""
        exact = self.compute_times(samples.space, samples.shapes, samples.macros, samples.micros)
        factors = np.exp(np.random.default_rng(seed).normal(0.0, noise, len(exact)))
        return Samples(
            samples.space, samples.gpu, samples.shapes, samples.macros, samples.micros, exact * factors
        )


def draw_machine(seed: int) -> SyntheticMachine:
    """Return a machine of the order of a data-center GPU; the same for equal seeds."""
    draw = np.random.default_rng(seed)
    return SyntheticMachine(
        n_sms=int(draw.integers(78, 161)),
        launch_us=float(draw.uniform(1.5, 3.0)),
        start_us=float(draw.uniform(0.8, 2.0)),
        elements_per_us=float(draw.uniform(1.0e6, 3.5e6)),
        bytes_per_us=float(draw.uniform(2.0e4, 6.0e4)),
        half_area=float(draw.uniform(1000.0, 6000.0)),
        latency_us=float(draw.uniform(0.3, 0.9)),
        smooth_waves=float(draw.uniform(4.0, 12.0)),
        warp_penalty=float(draw.uniform(0.05, 0.2)),
        seed=seed,
    )


def _find_tile(macros: Integers) -> tuple[Floats, Floats]:
    """Return rows and columns of the tile in registers: M x N of products, queries x 128 of attention."""
    rows = macros[:, 0].astype(np.float64)
    columns = macros[:, 1].astype(np.float64) if macros.shape[1] > 2 else np.full(len(macros), 128.0)
    return rows, columns


def _find_column(space: KernelSpace, micros: Integers, name: str) -> Floats:
    return micros[:, space.micro_parameters.index(name)].astype(np.float64)
