"""What a grid asks of global memory as a whole, from the footprints of its instructions."""

from collections.abc import Sequence

from msgspec import Struct

from analyzer.execution.footprint import Footprint, union_bytes, union_sectors
from analyzer.execution.profile import Traffic


class Asked(Struct, frozen=True, eq=False):
    """Bytes that all instructions of a kind ask for, and what each of them touches; None where not known."""

    n_bytes: int
    footprints: Sequence[Footprint] | None

    @property
    def unique_bytes(self) -> int | None:
        return None if self.footprints is None else union_bytes(self.footprints)

    @property
    def unique_sectors(self) -> int | None:
        return None if self.footprints is None else union_sectors(self.footprints)


def traffic_of(read: Asked, written: Asked) -> Traffic:
    """Traffic of all that reads and all that writes."""
    both = None
    if read.footprints is not None and written.footprints is not None:
        both = (*read.footprints, *written.footprints)
    return Traffic(
        read_bytes=read.n_bytes,
        read_unique_bytes=read.unique_bytes,
        written_bytes=written.n_bytes,
        written_unique_bytes=written.unique_bytes,
        read_unique_sectors=read.unique_sectors,
        written_unique_sectors=written.unique_sectors,
        unique_sectors=Asked(0, both).unique_sectors,
    )
