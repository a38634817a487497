"""Distinct bytes that a launch of a Triton kernel touches, estimated from the ranges that its accesses reach.

Each access to global memory goes to the memory of one argument. The accesses of an argument together touch at
most what they ask for, and at most the range from their first to their last byte; the lesser of the two is
taken.
Ranges are those of some hundred programs, spread over the grid from the first to the last.

    A of a product, 4096 x 4096 halves: asked for 32 times, 1 GiB; the range is 32 MiB: so many are distinct
"""

import numpy as np
from msgspec import Struct

from analyzer.ir.launch import Argument, Dim3
from analyzer.ir.tile_operations import TritonModule
from analyzer.tiles.decomposition import TaskDecomposition, find_kernel
from analyzer.tiles.evaluator import LaunchFacts, TileEvaluator
from analyzer.tiles.launch_binding import bind_launch
from analyzer.tiles.tile_program import TileProgram, build_tile_program
from analyzer.tiles.values import TileTooLarge
from analyzer.tiles.work import Quantity

_N_PROGRAMS = 128


class DistinctBytes(Struct, frozen=True):
    """Distinct bytes of global memory."""

    loaded: int
    stored: int
    n_unknown: int  # accesses whose addresses are not known: all they ask for counts as distinct


def estimate_distinct_bytes(
    module: TritonModule, tasks: TaskDecomposition, arguments: tuple[Argument, ...]
) -> DistinctBytes:
    """Return the distinct bytes of a launch that was decomposed."""
    function = find_kernel(module, tasks.kernel)
    program = build_tile_program(module, function, tasks.threads, tracks_addresses=True)
    facts = bind_launch(function, tasks.grid.sizes, arguments)
    reaches = _find_reaches(program, facts, tasks.grid)
    requested: dict[tuple[object, Quantity], int] = {}
    ranges: dict[tuple[object, Quantity], tuple[int, int]] = {}
    n_unknown = 0
    for site, total in zip(program.sites, tasks.operations, strict=True):
        for quantity in (Quantity.BYTES_LOADED, Quantity.BYTES_STORED):
            amount = total.amounts.values[quantity] - total.amounts.repeated[quantity]
            reach = reaches.get(site.index)
            if not amount:
                continue
            n_unknown += reach is None
            owner: object = site.index if reach is None else ("argument", reach[0])
            key = (owner, quantity)
            requested[key] = requested.get(key, 0) + amount
            if reach is not None:
                last = reach[2] + dict(site.work.per_element)[quantity] - 1
                low, high = ranges.get(key, (reach[1], last))
                ranges[key] = (min(low, reach[1]), max(high, last))
    sums = {Quantity.BYTES_LOADED: 0, Quantity.BYTES_STORED: 0}
    for key, amount in requested.items():
        low, high = ranges.get(key, (0, amount - 1))
        sums[key[1]] += min(amount, high - low + 1)
    return DistinctBytes(sums[Quantity.BYTES_LOADED], sums[Quantity.BYTES_STORED], n_unknown)


def _find_reaches(
    program: TileProgram, facts: LaunchFacts, grid: Dim3
) -> dict[int, tuple[int | None, int, int] | None]:
    """Return the range of each access over programs that are spread over the grid."""
    count = min(_N_PROGRAMS, grid.count)
    while True:
        numbers = np.unique(np.linspace(0, grid.count - 1, count).astype(np.int64))
        facts.select_programs(numbers)
        evaluator = TileEvaluator(program, facts, len(numbers))
        try:
            evaluator.run()
        except TileTooLarge:
            if count == 1:
                return {}
            count = max(1, count // 4)
        else:
            return evaluator.reaches
