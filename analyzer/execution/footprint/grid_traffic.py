"""Global-memory traffic of a whole grid, from the footprints of its instructions."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from analyzer.execution.footprint.footprint import Footprint, count_union_bytes, count_union_sectors
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.profile.execution_profile import GlobalTraffic


class RequestedBytes(Struct, frozen=True, eq=False):
    """Bytes that all reads, or all writes, of a kernel request."""

    n_bytes: int  # with repetitions
    footprints: Sequence[Footprint] | None  # of each instruction; None if unknown
    lookup_sectors: Mapping[int, float] = {}  # address of a table indexed by unknown words -> sectors touched

    @property
    def unique_bytes(self) -> int | None:
        """Distinct bytes; None if unknown."""
        found = None if self.footprints is None else count_union_bytes(self.footprints)
        return None if found is None else found + self._n_lookup_sectors * SECTOR_BYTES

    @property
    def unique_sectors(self) -> int | None:
        """Distinct sectors; None if unknown."""
        found = None if self.footprints is None else count_union_sectors(self.footprints)
        return None if found is None else found + self._n_lookup_sectors

    @property
    def _n_lookup_sectors(self) -> int:
        return round(sum(self.lookup_sectors.values()))


def build_grid_traffic(read: RequestedBytes, written: RequestedBytes) -> GlobalTraffic:
    """Build the traffic of a grid from all its reads and writes."""
    union = None
    if read.footprints is not None and written.footprints is not None:
        union = (*read.footprints, *written.footprints)
    return GlobalTraffic(
        read_bytes=read.n_bytes,
        read_unique_bytes=read.unique_bytes,
        written_bytes=written.n_bytes,
        written_unique_bytes=written.unique_bytes,
        read_unique_sectors=read.unique_sectors,
        written_unique_sectors=written.unique_sectors,
        unique_sectors=RequestedBytes(
            0, union, _merge_maxima(read.lookup_sectors, written.lookup_sectors)
        ).unique_sectors,
    )


def _merge_maxima(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """Merge lookup sectors by address; of a table that is read and written, keep the larger number."""
    return {
        address: max(first.get(address, 0.0), second.get(address, 0.0)) for address in {**first, **second}
    }
