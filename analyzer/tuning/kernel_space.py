"""Tiled kernels as WaveTune sees them: how inputs map to a grid and a loop, and what can be configured.

WaveTune (Zhang et al. 2026, table 2) reduces every tiled kernel to two numbers: G, the thread blocks (or
tasks of a persistent kernel), and L, the iterations of each block's main loop. The macro parameters of a
configuration decide both; the micro parameters (warps, stages, order of the blocks) decide neither.

    product of 1,000 x 512 x 2,048 with tiles of 128 x 128 x 64: G = 8 · 4 = 32, L = 32

A kernel is one file of `analyzer/tuning/kernels`, which defines `KERNEL`.
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.scheduling import SchedClass
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.hardware.schema import Arch

Integers = NDArray[np.int64]

_KERNELS_PACKAGE = "analyzer.tuning.kernels"
_WARP_SIZE = 32
_ASYNC_ROWS = 64  # of one warpgroup product


class Tiling(Struct, frozen=True):
    """An input that is cut into tiles: ceil(input · factor / parameter) of them.

    With `groups` the rows are dealt out evenly to as many groups as that input says, each of which is tiled
    by itself: the sum over groups of table 2, with counts that differ by one row at most.
    """

    input: str
    parameter: str  # the macro parameter that is the tile's size
    factor: str = ""  # an input that multiplies: experts per token
    groups: str = ""


class KernelSpace(Struct, frozen=True):
    """Inputs and parameters of a kernel, and its map to (G, L)."""

    name: str
    inputs: tuple[str, ...]
    macro_parameters: tuple[str, ...]
    micro_parameters: tuple[str, ...]
    grid: tuple[Tiling, ...]  # G is the product of their tiles and of the multipliers
    loop: Tiling  # L is its tiles
    multipliers: tuple[str, ...] = ()  # inputs that multiply G as they are: batch, heads

    def map_inputs(self, shapes: Integers, macros: Integers) -> tuple[Integers, Integers]:
        """Return G and L of many inputs (table 2).

        shapes: [n, inputs]; macros: [n, macro parameters]; either may have one row for all of the other.
        """
        grid = np.ones(max(len(shapes), len(macros)), dtype=np.int64)
        for name in self.multipliers:
            grid *= shapes[:, self.inputs.index(name)]
        for tiling in self.grid:
            tile = macros[:, self.macro_parameters.index(tiling.parameter)]
            grid = grid * self.count_tiles(tiling, shapes, tile)
        loop_tile = macros[:, self.macro_parameters.index(self.loop.parameter)]
        return grid, np.broadcast_to(self.count_tiles(self.loop, shapes, loop_tile), grid.shape)

    def count_tiles(self, tiling: Tiling, shapes: Integers, tile: Integers | int) -> Integers:
        """Return the tiles of one input: of each shape, under its tile size or under one of all."""
        rows = shapes[:, self.inputs.index(tiling.input)]
        if tiling.factor:
            rows = rows * shapes[:, self.inputs.index(tiling.factor)]
        if not tiling.groups:
            return _divide_up(rows, tile)
        groups = shapes[:, self.inputs.index(tiling.groups)]
        each, larger = np.divmod(rows, groups)
        counts: Integers = larger * _divide_up(each + 1, tile) + (groups - larger) * _divide_up(each, tile)
        return counts

    def order_inputs(self, shape: Mapping[str, int]) -> tuple[int, ...]:
        """Return the inputs in order. Raises UsageError for one that is missing or not positive."""
        missing = [name for name in self.inputs if name not in shape]
        if missing:
            raise UsageError(
                f"kernel {self.name}: no {', '.join(missing)}", hint=f"it takes {', '.join(self.inputs)}"
            )
        values = tuple(int(shape[name]) for name in self.inputs)
        if min(values) < 1:
            name = self.inputs[values.index(min(values))]
            raise UsageError(f"kernel {self.name}: {name} is {min(values)}", hint="all inputs are positive")
        return values


def _divide_up(rows: Integers, tile: Integers | int) -> Integers:
    """Return ceil(rows / tile)."""
    result: Integers = -(-rows // tile)
    return result


class ConfigResources(Struct, frozen=True):
    """What a configuration needs at least, as its tiles say; the compiled kernel needs more."""

    shared_bytes: int
    accumulator_registers: int  # per thread, of 32 bits
    threads: int


class TunableKernel(Struct, frozen=True):
    """A kernel with the values that its parameters may take."""

    space: KernelSpace
    macro_values: tuple[tuple[int, ...], ...]  # by macro parameter
    micro_values: tuple[tuple[int, ...], ...]
    count_resources: Callable[[Sequence[int], Sequence[int], "ProductUnit"], ConfigResources]
    defaults: Mapping[str, int] = {}  # inputs of a plan that the grid and the loop do not decide

    def find_obstacle(
        self, macro: Sequence[int], micro: Sequence[int], element_bytes: int, arch: "Arch"
    ) -> str:
        """Return why a configuration cannot run, or cannot be the best, on a GPU; "" where it may be.

        Rows are taken to be aligned, so that copies are staged. An accumulator of more registers than a
        thread can have is spilled: it runs, but took 2.6 to 18 times the best time in all 59 sweeps of
        traces/h100.
        """
        limits = arch.limits
        needed = self.count_resources(macro, micro, ProductUnit(element_bytes, has_async_products(arch)))
        if needed.threads > limits.max_threads_per_cta.value:
            return "threads"
        if needed.shared_bytes > limits.shared_bytes_per_cta.value:
            return "shared memory"
        if needed.accumulator_registers > limits.max_registers_per_thread.value:
            return "registers"
        if needed.accumulator_registers * needed.threads > limits.registers_per_sm.value:
            return "registers"
        return ""


class ProductUnit(Struct, frozen=True):
    """How a GPU multiplies tiles."""

    element_bytes: int
    is_async: bool  # reads tiles of 64 rows or more from shared memory while the warps go on


def has_async_products(arch: "Arch") -> bool:
    """Return whether an architecture has warpgroup or tcgen05 products."""
    kinds = {SchedClass.MMA_WARPGROUP, SchedClass.MMA_TENSOR_CORE}
    return not kinds <= set(arch.unsupported)


def count_product_resources(
    tiles: tuple[int, int, int], warps: int, stages: int, unit: ProductUnit
) -> ConfigResources:
    """Return what a tile of a matrix product needs at least.

    tiles: (M, N, K). Triton keeps `stages` copies of both operands' tiles in shared memory where asynchronous
    products read them there, else stages - 1 (the last is in registers). The accumulator is FP32, spread over
    all threads. Checked against all 24,494 launches of traces/h100/sweep.jsonl.xz.
    """
    rows, columns, depth = tiles
    n_copies = stages if unit.is_async and rows >= _ASYNC_ROWS else stages - 1
    return ConfigResources(
        n_copies * (rows + columns) * depth * unit.element_bytes,
        -(-rows * columns // (warps * _WARP_SIZE)),
        warps * _WARP_SIZE,
    )


@cache
def list_kernels() -> tuple[str, ...]:
    """Return the names of all described kernels."""
    folder = Path(__file__).parent / "kernels"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


def find_kernel(name: str) -> TunableKernel:
    """Return a kernel by name. Raises UsageError for an unknown one."""
    if name not in list_kernels():
        raise UsageError(f"--kernel {name}: no such kernel", hint=f"one of: {', '.join(list_kernels())}")
    kernel: TunableKernel = import_module(f"{_KERNELS_PACKAGE}.{name}").KERNEL
    return kernel
