"""Which tile a framework's kernel takes for a product: the dispatch tables of `hwdb/tiles`.

A product takes the first row of its framework's table whose bounds hold. An architecture without a table
takes that of the next older one that has one, as code built for it would run there:

    vLLM, sm_90, m 100:  64 x 128 x 128 in clusters of two along m
    vLLM, sm_103:        as sm_100
"""

from functools import cache

import msgspec
import numpy as np
import tomli
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.names import Backend, DataType
from analyzer.resources import find_data_folder


class DispatchedTiles(Struct, frozen=True):
    """What each product of a batch takes; one element per row."""

    rows: Column  # of a CTA's tile, along m
    columns: Column  # along n
    depth: Column  # of a step along k
    warps: Column  # that multiply
    resident: Column  # CTAs on an SM
    cluster_rows: Column  # CTAs of a cluster along m
    cluster_columns: Column


class _TileRow(Struct, frozen=True, forbid_unknown_fields=True):
    tile: tuple[int, int, int]
    least_m: float = 0.0
    most_m: float = np.inf
    most_n: float = np.inf
    least_k: float = 0.0
    most_k: float = np.inf
    warps: int = 4
    resident: int = 1
    cluster: tuple[int, int] = (1, 1)


class _TileTable(Struct, frozen=True, forbid_unknown_fields=True):
    backend: Backend
    dtype: DataType
    architecture: str
    basis: str
    source: str
    tiles: tuple[_TileRow, ...]
    n_to_power_of_two: bool = False

    @property
    def order(self) -> int:
        """The architecture's number."""
        return _find_number(self.architecture)


class _TileFile(Struct, frozen=True, forbid_unknown_fields=True):
    table: tuple[_TileTable, ...]


def list_dispatched_types() -> frozenset[tuple[Backend, DataType]]:
    """Return the frameworks and data types whose tiles are known."""
    return frozenset((table.backend, table.dtype) for table in _read_tables())


def find_dispatched_tiles(batch: ProductBatch, architecture: str) -> DispatchedTiles:
    """Return the tiles of products of a framework and data type that has a table, on an architecture."""
    table = _find_table(batch, architecture)
    n = np.exp2(np.ceil(np.log2(batch.n))) if table.n_to_power_of_two else batch.n
    bounds = np.array([(r.least_m, r.most_m, r.most_n, r.least_k, r.most_k) for r in table.tiles]).T[
        :, :, None
    ]
    fits = (
        (batch.m >= bounds[0])
        & (batch.m <= bounds[1])
        & (n <= bounds[2])
        & (batch.k >= bounds[3])
        & (batch.k <= bounds[4])
    )
    figures = np.array([(*r.tile, r.warps, r.resident, *r.cluster) for r in table.tiles], float)
    found: NDArray[np.float64] = figures[fits.argmax(axis=0)].T
    return DispatchedTiles(*found)


def _find_table(batch: ProductBatch, architecture: str) -> _TileTable:
    tables = [t for t in _read_tables() if t.backend is batch.backend and t.dtype is batch.dtype]
    number = _find_number(architecture)
    older = [table for table in tables if table.order <= number]
    return max(older, key=lambda table: table.order) if older else min(tables, key=lambda table: table.order)


def _find_number(architecture: str) -> int:
    digits = "".join(filter(str.isdigit, architecture))
    return int(digits or 0)


@cache
def _read_tables() -> tuple[_TileTable, ...]:
    text = (find_data_folder("hwdb") / "tiles" / "fp8-products.toml").read_text()
    return msgspec.convert(tomli.loads(text), _TileFile).table
