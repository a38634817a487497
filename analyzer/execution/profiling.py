"""From the sums of a launch to its profile: what is exact, assumed or unknown, and why."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.asking import Asked, traffic_of
from analyzer.execution.constant_image import ALLOCATION_SPACING
from analyzer.execution.entries import READ_KINDS, WRITE_KINDS, AccessTotals
from analyzer.execution.footprint import union_bytes, union_sectors
from analyzer.execution.profile import (
    BlockPart,
    ExecutionProfile,
    MemoryAccess,
    Traffic,
    UnknownBranch,
    WarpClass,
)
from analyzer.execution.provenance import Provenance, worst
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.sampling import Sample
from analyzer.execution.sums import LaunchSums
from analyzer.execution.surmise import Key, Lookups, Surmise, distinct_sectors
from analyzer.execution.task import Task
from analyzer.execution.unknown_words import Trust
from analyzer.ir.launch import Launch
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind, Space

IntArray = NDArray[np.int64]


class ProfileBuilder(Struct, frozen=True, eq=False, dict=True):
    """Puts a profile together.

    surmised: what addresses come to that hang on words that nobody knows; row_shares: distinct part of the
    bytes of rows that such words name, where only neighbours among the CTAs could tell.
    """

    task: Task
    launch: Launch
    sample: Sample
    sums: LaunchSums
    surmised: Mapping[Key, Surmise] = {}
    row_shares: Mapping[Key, float] = {}

    def shares_of_rows(self) -> Mapping[Key, float]:
        """Distinct part of what is read of rows that words name; without those of which it is not known."""
        found: dict[Key, float] = {}
        for sizes in self._by_instruction():
            n_bytes, n_distinct = sum(map(_asked_bytes, sizes)), self._row_bytes(sizes)
            if n_bytes and n_distinct is not None:
                found[_key(sizes)] = n_distinct / n_bytes
        return found

    def build(self) -> ExecutionProfile:
        """The profile."""
        blocks = self._block_provenance()
        entries = list(self.task.kernel.entry_of)
        accesses = tuple(self._access(sizes, blocks) for sizes in self._by_instruction())
        return ExecutionProfile(
            launch=self.launch,
            n_warps=self.task.shape.grid.count * self.task.shape.warps_per_cta,
            looked_at_ctas=len(self.sample.numbers),
            classes=_joined_classes(self.sums.classes),
            block_warps=_whole(self.sums.segments)[entries],
            block_lanes=_whole(self.sums.lanes)[entries],
            parts=self._parts(),
            boxes=self.sample.boxes if self.sample.has_even_accesses else (),
            block_provenance=blocks,
            loop_entries=self.sums.entries,
            accesses=accesses,
            traffic=self._traffic(),
            unknown_branches=self._unknown(),
            provenance=worst(blocks),
            assumptions=self._assumptions(),
        )

    def _ordered(self) -> list[AccessTotals]:
        return [
            self.sums.accesses[key]
            for key in sorted(self.sums.accesses, key=lambda k: (k[0], k[1].value, k[2]))
        ]

    def _by_instruction(self) -> list[list[AccessTotals]]:
        """Totals of each instruction in each memory: several where copies are of several sizes."""
        found: dict[Key, list[AccessTotals]] = {}
        for totals in self._ordered():
            found.setdefault((totals.access.row, totals.access.space), []).append(totals)
        return list(found.values())

    def _parts(self) -> tuple[BlockPart, ...]:
        """Segments of blocks in which lanes of a warp meet, so that its parts run unequally often."""
        segments, warps, lanes = (
            self.task.kernel.segments,
            _whole(self.sums.segments),
            _whole(self.sums.lanes),
        )
        first = self.task.kernel.entry_of
        cut = {s.block for s in segments if warps[s.index] != warps[first[s.block]]}
        return tuple(
            BlockPart(s.block, s.start, s.stop, int(warps[s.index]), int(lanes[s.index]))
            for s in segments
            if s.block in cut and s.stop > s.start
        )

    def _block_provenance(self) -> tuple[Provenance, ...]:
        if self.sums.stopped:
            return (Provenance.UNKNOWN,) * len(self.task.kernel.cfg.blocks)
        base = Provenance.EXACT if self.sample.is_proven else Provenance.ASSUMED
        return tuple(
            Provenance.ASSUMED if block.index in self.sums.doubted else base
            for block in self.task.kernel.cfg.blocks
        )

    def _access(self, sizes: Sequence[AccessTotals], blocks: tuple[Provenance, ...]) -> MemoryAccess:
        access = sizes[0].access
        in_global = access.space in GLOBAL_SPACES
        has_sectors = (in_global or access.space is Space.LOCAL) and all(map(_knows_sectors, sizes))
        has_place = in_global and all(self._knows_place(totals) for totals in sizes)
        found = MemoryAccess(
            row=access.row,
            space=access.space,
            is_store=access.kind in (OpKind.STORE, OpKind.REDUCTION),
            requests=round(sum(totals.requests for totals in sizes)),
            lanes=round(sum(totals.lanes for totals in sizes)),
            bytes=sum(map(_asked_bytes, sizes)),
            sectors=round(sum(totals.sectors for totals in sizes)) if has_sectors else None,
            wavefronts=round(sum(totals.wavefronts for totals in sizes))
            if all(map(_knows_addresses, sizes))
            else None,
            unique_bytes=union_bytes([totals.footprint for totals in sizes]) if has_place else None,
            provenance=worst(self._provenance(totals, blocks) for totals in sizes),
            is_looked_up=any(totals.trust is Trust.ROW for totals in sizes),
            row_bytes=self._row_bytes(sizes),
            unique_sectors=union_sectors([totals.footprint for totals in sizes])
            if has_place and access.bulk is not None
            else None,
            base=next((totals.base for totals in sizes if totals.base is not None), None),
        )
        surmise = self.surmised.get((access.row, access.space))
        return found if surmise is None else self._surmised(found, surmise)

    def _provenance(self, totals: AccessTotals, blocks: tuple[Provenance, ...]) -> Provenance:
        own = blocks[self.task.kernel.cfg.block_of[totals.access.row]]
        if totals.is_doubtful or totals.trust is not Trust.ALL:
            own = worst((own, Provenance.ASSUMED))
        if not _knows_addresses(totals) and totals.access.kind is not OpKind.BULK_COPY:
            return Provenance.UNKNOWN
        if not totals.is_even or not self.sample.has_even_accesses:
            return worst((own, Provenance.ASSUMED))
        return own

    def _knows_place(self, totals: AccessTotals) -> bool:
        return totals.has_place and self._knows_patterns(totals)

    def _knows_patterns(self, totals: AccessTotals) -> bool:
        return _knows_addresses(totals) and self._has_whole and totals.is_even

    def _row_bytes(self, sizes: Sequence[AccessTotals]) -> int | None:
        """Distinct bytes at most: each different word names a row, and all is read of it that is of any."""
        namers = frozenset[int]().union(*(totals.namers for totals in sizes))
        if namers and (share := self.row_shares.get(_key(sizes))) is not None:
            return round(share * sum(map(_asked_bytes, sizes)))
        if not namers or not all(map(self._knows_patterns, sizes)):
            return None
        words = [self._distinct_words(row) for row in sorted(namers)]
        of_a_row = union_bytes([totals.footprint for totals in sizes])
        known = [number for number in words if number is not None]
        if of_a_row is None or len(known) < len(words):
            return None
        return min(sum(map(_asked_bytes, sizes)), round(of_a_row * sum(known)))

    def _distinct_words(self, row: int) -> float | None:
        """That an instruction loads over the grid; a wide load's are taken as one."""
        loads = [totals for key, totals in self.sums.accesses.items() if key[0] == row]
        if not loads or not all(map(self._knows_place, loads)):
            return None
        found = union_bytes([totals.footprint for totals in loads])
        return None if found is None else found / loads[0].access.lane_bytes

    @property
    def _has_whole(self) -> bool:
        """Footprints hold the whole grid's accesses."""
        return self.sample.has_even_accesses and not self.sums.stopped

    def _traffic(self) -> Traffic:
        def of(kinds: frozenset[OpKind]) -> Asked:
            chosen = [
                totals
                for totals in self._ordered()
                if totals.access.space in GLOBAL_SPACES and totals.access.kind in kinds
            ]
            n_bytes = sum(map(_asked_bytes, chosen))
            placed = [totals for totals in chosen if totals.knows_bytes]
            tables = self._tables([totals for totals in chosen if not totals.knows_bytes])
            if not self._has_whole or tables is None:
                return Asked(n_bytes, None)
            return Asked(n_bytes, [totals.footprint for totals in placed], tables)

        return traffic_of(of(READ_KINDS), of(WRITE_KINDS))

    def _surmised(self, found: MemoryAccess, surmise: Surmise) -> MemoryAccess:
        """With what random words come to where nothing else is known."""
        in_global = found.space in GLOBAL_SPACES
        sectors, wavefronts = found.sectors, found.wavefronts
        if sectors is None and (in_global or found.space is Space.LOCAL):
            sectors = round(found.requests * surmise.sectors)
        if wavefronts is None:
            wavefronts = round(found.requests * surmise.wavefronts)
        found = replace(found, sectors=sectors, wavefronts=wavefronts, provenance=Provenance.ASSUMED)
        lookups = self._lookups.get(_allocation(found.base)) if in_global else None
        if lookups is None:
            return found
        table = lookups.table_bytes(surmise)
        if table is None:
            return replace(found, is_looked_up=True, unique_bytes=None)
        n_sectors = max(1.0, lookups.n_sectors)
        return replace(
            found,
            is_looked_up=True,
            unique_bytes=round(distinct_sectors(table, sectors or 0) * SECTOR_BYTES),
            table_bytes=table,
            new_share=distinct_sectors(table, n_sectors) / n_sectors,
        )

    def _tables(self, looked_up: Sequence[AccessTotals]) -> Mapping[int, float] | None:
        """Sectors of tables that random places touch, by where they lie; None where not known."""
        found: dict[int, float] = {}
        for totals in looked_up:
            surmise = self.surmised.get((totals.access.row, totals.access.space))
            lookups = self._lookups.get(_place(totals))
            table = None if surmise is None or lookups is None else lookups.table_bytes(surmise)
            if table is None or lookups is None:
                return None
            touched = distinct_sectors(table, lookups.n_sectors)
            found[_place(totals)] = max(found.get(_place(totals), 0.0), touched)
        return found

    @cached_property
    def _lookups(self) -> Mapping[int, Lookups]:
        """What requests at random places come to, by the memory that they lead into."""
        found: dict[int, Lookups] = {}
        for totals in self._ordered():
            surmise = self.surmised.get((totals.access.row, totals.access.space))
            if surmise is None or totals.access.space not in GLOBAL_SPACES:
                continue
            own = found.setdefault(_place(totals), Lookups())
            own.n_sectors += totals.sectors or totals.requests * surmise.sectors
            own.n_read += _asked_bytes(totals) * (totals.access.kind in READ_KINDS)
            own.n_written += _asked_bytes(totals) * (totals.access.kind in WRITE_KINDS)
        return found

    def _unknown(self) -> tuple[UnknownBranch, ...]:
        lengths = np.array([segment.stop - segment.start for segment in self.task.kernel.segments])
        total = float(self.sums.segments @ lengths) or 1.0
        found = []
        for row, weight in sorted(self.sums.hanging.items(), key=lambda item: -item[1]):
            text, origin_row = self.sums.origins[row]
            found.append(
                UnknownBranch(
                    row=row,
                    origin=text or self._origin(origin_row),
                    origin_row=origin_row,
                    rule=self.task.options.guesser.rules.get(row, "all ways taken"),
                    settle=self._settle(row, origin_row),
                    share=min(1.0, weight / total),
                )
            )
        return tuple(found)

    def _origin(self, row: int | None) -> str:
        if row is None:
            return ""
        kernel = self.task.kernel.cfg.kernel
        return f"{int(kernel.addresses[row]):#06x} {kernel.form(row).text}"

    def _settle(self, row: int, origin_row: int | None) -> str:
        kernel, cfg = self.task.kernel.cfg.kernel, self.task.kernel.cfg
        address = int(kernel.addresses[row])
        loop = self.task.options.guesser.loop_of_exit(row)
        hint = f"--taken {address:#x}=SHARE"
        if loop is not None:
            header = int(kernel.addresses[cfg.blocks[loop.header].start])
            hint = f"--trip {header:#x}=N"
        if origin_row is not None and kernel.opcode(origin_row).space in GLOBAL_SPACES:
            return f"--arg WHICH=@data.npy for what it loads, or {hint}"
        return hint

    def _assumptions(self) -> tuple[str, ...]:
        notes = list(self.task.image.assumptions)
        cfg = self.task.kernel.cfg
        first = self.task.kernel.entry_of
        outside = [row for row in cfg.leaving if self.sums.segments[first[cfg.block_of[row]]] > 0]
        if outside:
            notes.append(
                f"calls of functions that the input does not have (malloc, printf or of another file) at "
                f"{len(outside)} places: what runs there is not counted"
            )
        if self.sums.stopped:
            notes.append(f"execution came to no end: {self.sums.stopped}; counts are of what ran until then")
        notes += self.sample.notes
        if self.sums.tickets:
            places = ", ".join(f"{int(cfg.kernel.addresses[row]):#06x}" for row in sorted(self.sums.tickets))
            notes.append(
                f"the atomic at {places} counts: what the one of many does that gets a certain number, "
                "as the last CTA of a grid, is not counted"
            )
        surmised = [t for t in self._ordered() if Trust.NOTHING < t.trust < Trust.ALL]
        if surmised:
            addresses = [f"{int(self.task.kernel.cfg.kernel.addresses[t.access.row]):#06x}" for t in surmised]
            names_rows = any(t.trust is Trust.ROW for t in surmised)
            notes.append(_stand_in_note(list(dict.fromkeys(addresses)), names_rows=names_rows))
        scattered = [
            t for t in self._ordered() if t.trust is Trust.NOTHING and t.access.row in self._surmised_rows
        ]
        if scattered:
            addresses = [
                f"{int(self.task.kernel.cfg.kernel.addresses[t.access.row]):#06x}" for t in scattered
            ]
            notes.append(_random_note(list(dict.fromkeys(addresses))))
        return tuple(notes)

    @property
    def _surmised_rows(self) -> frozenset[int]:
        return frozenset(row for row, _ in self.surmised)


def _key(sizes: Sequence[AccessTotals]) -> Key:
    return sizes[0].access.row, sizes[0].access.space


def _place(totals: AccessTotals) -> int:
    return _allocation(totals.base)


def _allocation(address: int | None) -> int:
    """Where the memory lies that an address belongs to."""
    return 0 if address is None else address - address % ALLOCATION_SPACING


def _asked_bytes(totals: AccessTotals) -> int:
    return round(totals.lanes) * totals.access.lane_bytes


def _knows_addresses(totals: AccessTotals) -> bool:
    return totals.trust is not Trust.NOTHING and totals.access.address is not None


def _knows_sectors(totals: AccessTotals) -> bool:
    """Of a copy whose size is known, wherever it goes."""
    return _knows_addresses(totals) or (totals.access.bulk is not None and totals.access.width_bytes > 0)


def _stand_in_note(addresses: Sequence[str], *, names_rows: bool) -> str:
    """names_rows: some of the words are loaded, and name rows that may lie anywhere."""
    more = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
    rows = "; rows that loaded ones name may lie anywhere" if names_rows else ""
    return (
        f"the address at {addresses[0]}{more} hangs on words that are the same for all lanes of a warp and "
        f"that neither an argument nor a buffer gives: taken as 0{rows}"
    )


def _random_note(addresses: Sequence[str]) -> str:
    more = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
    return (
        f"where lanes go at {addresses[0]}{more} hangs on words that are not given: anywhere that the code's "
        "masks and widths allow (--arg WHICH=@data.npy gives them, ptr:BYTES a table's size)"
    )


def _whole(sums: NDArray[np.float64]) -> IntArray:
    found: IntArray = np.rint(sums).astype(np.int64)
    return found


def _joined_classes(classes: list[WarpClass]) -> tuple[WarpClass, ...]:
    """Classes of several chunks: equal ones become one; most numerous first."""
    found: dict[tuple[bytes, bytes], WarpClass] = {}
    for one in classes:
        key = (one.block_counts.tobytes(), one.block_lanes.tobytes())
        known = found.get(key)
        found[key] = (
            one
            if known is None
            else WarpClass(
                n_warps=known.n_warps + one.n_warps,
                block_counts=known.block_counts,
                block_lanes=known.block_lanes,
                example=known.example,
                seats=tuple(a + b for a, b in zip(known.seats, one.seats, strict=True)),
                n_beside=known.n_beside + one.n_beside,
            )
        )
    return tuple(sorted(found.values(), key=lambda c: -c.n_warps))
