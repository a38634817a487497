"""What boxes of tensors that the copy engine writes hold, where no descriptor is known: what was staged.

A box leaves shared memory as it lies there, without gaps. One CTA is executed: what it stores to shared
memory from where a box begins on, or what a copy brought there, is the box, up to where the next one begins.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from analyzer.execution.access_log import MemoryLog
from analyzer.execution.budget import Budget, StopExecution
from analyzer.execution.bulk_forms import bulk_write
from analyzer.execution.closing import Closer
from analyzer.execution.compiling import with_shared_sides
from analyzer.execution.entries import AccessTotals
from analyzer.execution.footprint import Footprint
from analyzer.execution.guesses import Guesser
from analyzer.execution.image import ConstantImage
from analyzer.execution.machine import Machine
from analyzer.execution.measuring import touch
from analyzer.execution.profile import ExecutionProfile, MemoryAccess
from analyzer.execution.program import Access, CompiledKernel
from analyzer.execution.provenance import Provenance
from analyzer.execution.request_tables import tables_of
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.warps import Batch, Shape
from analyzer.ir.opcode import OpKind, Space

Brought = Callable[[], Mapping[int, float]]

_MOST_STEPS = 40_000  # some seconds
_WITHIN_CTA = np.uint64(0xFFFFFF)  # address bits above say which CTA of the cluster
_MATRIX_ROW_BYTES = 16


def with_staged_boxes(
    profile: ExecutionProfile, kernel: CompiledKernel, image: ConstantImage, shape: Shape, brought: Brought
) -> ExecutionProfile:
    """The profile with the bytes of boxes that were written; the same where all of them are known.

    brought: bytes of one execution of each copy to shared memory, by row.
    """
    unknown = {access.row for access in profile.accesses if _is_open(access, kernel)}
    if not unknown:
        return profile
    found = {row: size for row, size in _box_bytes(kernel, image, shape, brought).items() if row in unknown}
    if not found:
        return profile
    accesses = tuple(
        _filled(access, found[access.row]) if access.row in found else access for access in profile.accesses
    )
    written = sum(access.bytes for access in accesses if access.row in found)
    traffic = profile.traffic
    if traffic is not None:
        sectors = -(-written // SECTOR_BYTES)
        traffic = replace(
            traffic,
            written_bytes=traffic.written_bytes + written,
            written_unique_bytes=_more(traffic.written_unique_bytes, written),
            written_unique_sectors=_more(traffic.written_unique_sectors, sectors),
            unique_sectors=_more(traffic.unique_sectors, sectors),
        )
    note = _note(kernel, sorted(found))
    return replace(profile, accesses=accesses, traffic=traffic, assumptions=(*profile.assumptions, note))


def _more(known: int | None, added: int) -> int | None:
    return None if known is None else known + added


def _is_open(access: MemoryAccess, kernel: CompiledKernel) -> bool:
    form = kernel.cfg.kernel.form(access.row)
    return access.requests > 0 and access.sectors is None and bulk_write(form) is not None


def _filled(access: MemoryAccess, n_bytes: float) -> MemoryAccess:
    whole = round(access.requests * n_bytes)
    return replace(
        access,
        is_store=True,
        bytes=whole,
        sectors=-(-whole // SECTOR_BYTES),
        unique_bytes=whole,
        provenance=Provenance.ASSUMED,
    )


def _note(kernel: CompiledKernel, rows: list[int]) -> str:
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return (
        f"the box written at {int(kernel.cfg.kernel.addresses[rows[0]]):#06x}{more} is taken to be what was "
        "put into shared memory for it, and no two to be the same: --arg WHICH=tensormap:TYPE:EXTENTS:BOX "
        "settles it"
    )


def _box_bytes(
    kernel: CompiledKernel, image: ConstantImage, shape: Shape, brought: Brought
) -> dict[int, float]:
    """Bytes of a box in the mean, by the row that writes it."""
    log = _staging_log(kernel, image, shape)
    stored, written, copied = Footprint(), dict[int, Footprint](), dict[int, Footprint]()
    for totals in log.totals.values():
        row = totals.access.row
        if not totals.has_place:
            continue
        if totals.access.kind is not OpKind.BULK_COPY:
            _add(stored, totals, log.batch)
        else:
            is_write = bulk_write(kernel.cfg.kernel.form(row)) is not None
            _add((written if is_write else copied).setdefault(row, Footprint()), totals, log.batch)
    boxes = {row: _starts(footprint) for row, footprint in written.items()}
    begins = sorted({start for starts in boxes.values() for start in starts})
    sizes = _stored_sizes(begins, stored)
    if len(sizes) < len(begins) and copied:
        by_row = brought()
        sizes |= {
            start: by_row[row]
            for row, footprint in copied.items()
            if row in by_row
            for start in _starts(footprint)
        }
    found = {row: [sizes[start] for start in starts if start in sizes] for row, starts in boxes.items()}
    return {row: float(np.mean(known)) for row, known in found.items() if known}


def _stored_sizes(begins: list[int], stored: Footprint) -> dict[int, float]:
    """Bytes stored from where a box begins on without a gap, up to where the next one does."""
    found: dict[int, float] = {}
    for start, stop in _intervals(stored):
        inside = [begin for begin in begins if start <= begin < stop]
        for begin, end in pairwise([*inside, stop]):
            found[begin] = float(end - begin)
    return found


def _staging_log(kernel: CompiledKernel, image: ConstantImage, shape: Shape) -> MemoryLog:
    """What the first CTA puts into shared memory, and where its copies begin there."""
    compiled = with_shared_sides(kernel)
    batch = Batch(compiled, image, shape, np.zeros(1, dtype=np.int64), np.ones(1))
    machine = Machine(compiled, batch, Guesser(compiled), Budget(_MOST_STEPS))
    log = machine.tally.memory = MemoryLog(batch, reduces=False, wants=_stages)
    machine.on_header = Closer(machine)
    machine.start()
    with suppress(StopExecution):
        machine.run()
    return log


def _stages(access: Access) -> bool:
    return access.space is Space.SHARED and access.kind in (OpKind.STORE, OpKind.BULK_COPY)


def _add(footprint: Footprint, totals: AccessTotals, batch: Batch) -> None:
    access = totals.access
    if access.n_matrices:
        access = replace(access, width_bytes=_MATRIX_ROW_BYTES)
    for requests in tables_of(totals, totals.entries, batch):
        if requests.addresses is not None:
            touch(footprint, access, requests)


def _starts(footprint: Footprint) -> list[int]:
    return [at for start, stop in _intervals(footprint) for at in range(start, stop)]


def _intervals(footprint: Footprint) -> list[tuple[int, int]]:
    """Within the shared memory of the CTA."""
    found = footprint.intervals()
    if found is None:
        return []
    starts, stops = found[0] & _WITHIN_CTA, found[1] - found[0]
    return [(start, start + length) for start, length in zip(starts.tolist(), stops.tolist(), strict=True)]
