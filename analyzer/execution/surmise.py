"""What requests come to whose addresses hang on words that nobody knows: a few CTAs run on random ones.

See `StandIns`. They tell how many sectors and passes a request takes, and how large the table is that
requests come back to. So many random places among T sectors find S different ones, S = T (1 - exp(-n / T)).
Where they do not come back often, or come to new places till the end, no bound of the table can be told, and
none is taken to be there: CTAs of other rows may have other ones.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.bank_words import Windows
from analyzer.execution.budget import Budget, StopExecution
from analyzer.execution.entries import AccessTotals
from analyzer.execution.measuring import add_requests
from analyzer.execution.mixing import distinct
from analyzer.execution.program import Access
from analyzer.execution.record import Addresses, Lanes, Warps
from analyzer.execution.recording import RecordedMachine
from analyzer.execution.request_tables import Requests
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.stand_ins import StandIns, Table
from analyzer.execution.task import Task
from analyzer.execution.warps import Batch, within_memory
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind, Space

_STEPS = 4000  # about as long as a tenth of a second
_MOST_CTAS = 256
_LEAST_CTAS = 2
_SOME_WARPS = 1024
_ENOUGH = 4096  # requests of an instruction
_LEAST_TURNS = 3  # times that each place of a table is come to before it counts as one
_OWN_SHARE = 0.5  # of as many tables as CTAs: where all are so large together, each has its own
_EARLY_SHARE = 0.75  # of a table's places that half of the requests come to: who walks on finds half of them
_APART_SHARE = 0.9  # of lanes: where as many sectors are asked for, each goes its own way
_OWNER_BIT = 48  # above the sectors of allocations
_ROUNDS = 60


class Surmise(Struct, frozen=True):
    """Of an instruction: sectors and passes of a request, and sectors of the table that the grid's requests
    lead into, None where nothing bounds it.

    is_scattered: each lane has a sector of its own.
    """

    sectors: float
    wavefronts: float
    table_sectors: float | None
    is_scattered: bool = False


class Lookups(Struct):
    """Of a grid's requests at random places of the same memory: sectors, and bytes read and written.

    Where lanes go their own ways and nothing bounds the table, it has as many elements as lanes ask for: each
    is taken once on average, as by a permutation. Of rows that are looked up nobody knows how many meet.
    """

    n_sectors: float = 0.0
    n_read: float = 0.0
    n_written: float = 0.0

    def table_bytes(self, surmise: Surmise) -> float | None:
        """Of the table; None where not known."""
        if surmise.table_sectors is not None:
            return surmise.table_sectors * SECTOR_BYTES
        return max(self.n_read, self.n_written) if surmise.is_scattered else None


Key = tuple[int, Space]


def surmise(task: Task, wanted: Collection[Key], tables: Mapping[int, Table]) -> dict[Key, Surmise]:
    """What instructions come to, as far as a few CTAs reach them; tables: of a known size, by row."""
    recorder = _Counter(task, wanted)
    kernel, shape = task.kernel, task.shape
    n_ctas = min(shape.grid.count, max(_LEAST_CTAS, min(_MOST_CTAS, _SOME_WARPS // shape.warps_per_cta)))
    n_ctas = within_memory(kernel, shape, n_ctas)
    numbers = np.unique(np.linspace(0, shape.grid.count - 1, n_ctas).astype(np.int64))
    batch = Batch(kernel, task.image, shape, numbers, np.ones(len(numbers)))
    words = StandIns(kernel, batch.unknown_words, tables, has_pitches=True)
    machine = RecordedMachine(kernel, batch, task.options.guesser, recorder, Budget(_STEPS), stand_ins=words)
    machine.start()
    with suppress(StopExecution):  # what was seen till then tells enough
        machine.run()
    return recorder.found(len(numbers), tables)


class _Counter:
    """A `Recorder` that measures the wanted instructions."""

    def __init__(self, task: Task, wanted: Collection[Key]) -> None:
        self.task = task
        actions = [action for segment in task.kernel.segments for action in segment.actions]
        self.accesses = {
            access.row: access
            for action in actions
            for access in action.accesses
            if (access.row, access.space) in wanted and not _is_shared_side(task, access)
        }
        self.totals = {row: AccessTotals(access) for row, access in self.accesses.items()}
        self.places: dict[int, list[NDArray[np.uint64]]] = {row: [] for row in self.accesses}
        self.owners: dict[int, list[NDArray[np.int64]]] = {row: [] for row in self.accesses}

    def run(self, start: int, stop: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`."""

    def guard(self, row: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`."""

    def lost(self, row: int, warps: Warps, active: Lanes) -> None:
        """See `Recorder`."""

    def access(self, row: int, warps: Warps, active: Lanes, addresses: Addresses) -> None:
        """See `Recorder`. Raises StopExecution where enough is known of all."""
        access = self.accesses.get(row)
        if access is None or self.totals[row].requests >= _ENOUGH:
            return
        if access.space is Space.GENERIC:
            windows = Windows()
            active = active & ~(windows.shared_lanes(addresses) | windows.local_lanes(addresses))
        requests = Requests(
            weights=np.ones(len(warps)),
            counts=np.ones(1, dtype=np.int64),
            active=active.copy(),
            addresses=addresses.copy(),
            steps=None,
        )
        add_requests(self.totals[row], requests)
        if access.space in GLOBAL_SPACES:
            self._place(row, warps, active, addresses)
        if all(totals.requests >= _ENOUGH for totals in self.totals.values()):
            raise StopExecution("enough is known")

    def _place(self, row: int, warps: Warps, active: Lanes, addresses: Addresses) -> None:
        """Sectors that each request touches, each once; a lane's first one stands for its others."""
        sectors = np.sort(np.where(active, addresses // np.uint64(SECTOR_BYTES), np.uint64(0)), axis=1)
        is_new = np.ones(sectors.shape, np.bool_)
        is_new[:, 1:] = sectors[:, 1:] != sectors[:, :-1]
        is_new &= sectors > 0
        self.places[row].append(sectors[is_new])
        ctas = warps // self.task.shape.warps_per_cta
        self.owners[row].append(np.broadcast_to(ctas[:, None], sectors.shape)[is_new])

    def found(self, n_ctas: int, tables: Mapping[int, Table]) -> dict[Key, Surmise]:
        """What is known of each instruction that ran."""
        found: dict[Key, Surmise] = {}
        for row, totals in self.totals.items():
            if totals.requests:
                found[row, totals.access.space] = Surmise(
                    sectors=totals.sectors / totals.requests,
                    wavefronts=totals.wavefronts / totals.requests,
                    table_sectors=self._table(row, n_ctas, tables.get(row)),
                    is_scattered=totals.sectors >= _APART_SHARE * totals.lanes,
                )
        return found

    def _table(self, row: int, n_ctas: int, known: Table | None) -> float | None:
        """Sectors that requests of the whole grid come back to."""
        if not self.places[row]:
            return None
        if known is not None:
            return max(1.0, known.size_bytes / SECTOR_BYTES)
        places, owners = np.concatenate(self.places[row]), np.concatenate(self.owners[row])
        n_places, n_grid = len(places), self.task.shape.grid.count
        own = places ^ owners.view(np.uint64) << np.uint64(_OWNER_BIT)
        together, alone = _bounded(places, n_places), _bounded(own, n_places / n_ctas, n_ctas)
        if alone is not None and (together is None or together >= _OWN_SHARE * n_ctas * alone) and n_ctas > 1:
            return alone * n_grid
        return together


def _is_shared_side(task: Task, access: Access) -> bool:
    """The side of a copy to shared memory that recorders are not told of."""
    opcode = task.kernel.cfg.kernel.opcode(access.row)
    return opcode.kind is OpKind.ASYNC_COPY and access.kind is OpKind.STORE


def _bounded(places: NDArray[np.uint64], n_places: float, n_parts: int = 1) -> float | None:
    """The table of so many parts that are alike, each with its places; None where ever more are new."""
    seen = len(distinct(places))
    table = table_size(n_places, seen / n_parts)
    is_all = table is not None and len(distinct(places[: len(places) // 2])) >= _EARLY_SHARE * seen
    return table if is_all else None


def distinct_sectors(table_bytes: float, n_sectors: float) -> float:
    """Different ones among so many at random places of a table."""
    table = max(1.0, table_bytes / SECTOR_BYTES)
    return table * -math.expm1(-n_sectors / table)


def table_size(n_places: float, n_distinct: float) -> float | None:
    """The table of which so many random places find so many different ones; None for one without an end."""
    if n_distinct * _LEAST_TURNS > n_places:
        return None
    low, high = n_distinct, n_distinct * n_places
    for _ in range(_ROUNDS):  # what is found grows with the table
        middle = math.sqrt(low * high)
        seen = -middle * math.expm1(-n_places / middle)
        low, high = (middle, high) if seen < n_distinct else (low, middle)
    return low
