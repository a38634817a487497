"""Sizes of boxes that bulk tensor stores write to global memory, if the tensor map is unknown.

A box is contiguous in shared memory. One CTA is executed: a box consists of the bytes that it stores to
shared memory from the box's address on without a gap, up to the address of the next box. If nothing is stored
there, the box has as many bytes as the copy that brought data to this address.

Example: stores cover [0x400, 0xc00), and bulk stores begin at 0x400 and 0x800: two boxes of 0x400 bytes.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from analyzer.execution.acceleration.accelerated_machine import AcceleratedMachine
from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.footprint.footprint import Footprint
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.lowering.bulk_operands import parse_bulk_store
from analyzer.execution.lowering.kernel_compiler import recompile_with_shared_addresses
from analyzer.execution.lowering.segments import CompiledKernel, LoweredAccess
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.access_totals import AccessTotals
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch, LaunchShape
from analyzer.execution.machine.request_measurement import add_to_footprint
from analyzer.execution.machine.request_tables import build_request_tables
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.opcode import AddressSpace, OpKind

FindCopiedBytes = Callable[[], Mapping[int, float]]

_STEP_LIMIT = 40_000  # some seconds
_CTA_ADDRESS_MASK = np.uint64(0xFFFFFF)  # address bits above are the CTA of the cluster
_MATRIX_ROW_BYTES = 16


def add_staged_boxes(
    profile: ExecutionProfile,
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: LaunchShape,
    find_copied_bytes: FindCopiedBytes,
) -> ExecutionProfile:
    """Add the bytes of bulk stores whose size is unknown to a profile; return it unchanged if there are none.

    find_copied_bytes: returns the bytes of one execution of each copy to shared memory, by row.
    """
    unknown = {access.row for access in profile.accesses if _has_unknown_box(access, kernel)}
    if not unknown:
        return profile
    found = {
        row: size
        for row, size in _measure_box_bytes(kernel, image, shape, find_copied_bytes).items()
        if row in unknown
    }
    if not found:
        return profile
    accesses = tuple(
        _fill_access(access, found[access.row]) if access.row in found else access
        for access in profile.accesses
    )
    written = sum(access.bytes for access in accesses if access.row in found)
    traffic = profile.traffic
    if traffic is not None:
        sectors = -(-written // SECTOR_BYTES)
        traffic = replace(
            traffic,
            written_bytes=traffic.written_bytes + written,
            written_unique_bytes=_add_if_known(traffic.written_unique_bytes, written),
            written_unique_sectors=_add_if_known(traffic.written_unique_sectors, sectors),
            unique_sectors=_add_if_known(traffic.unique_sectors, sectors),
        )
    note = _format_note(kernel, sorted(found))
    return replace(profile, accesses=accesses, traffic=traffic, assumptions=(*profile.assumptions, note))


def _add_if_known(known: int | None, added: int) -> int | None:
    return None if known is None else known + added


def _has_unknown_box(access: MemoryAccess, kernel: CompiledKernel) -> bool:
    form = kernel.cfg.kernel.decode_form(access.row)
    return access.requests > 0 and access.sectors is None and parse_bulk_store(form) is not None


def _fill_access(access: MemoryAccess, n_bytes: float) -> MemoryAccess:
    n_total = round(access.requests * n_bytes)
    return replace(
        access,
        is_store=True,
        bytes=n_total,
        sectors=-(-n_total // SECTOR_BYTES),
        unique_bytes=n_total,
        provenance=Provenance.ASSUMED,
    )


def _format_note(kernel: CompiledKernel, rows: list[int]) -> str:
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return (
        f"the box written at {int(kernel.cfg.kernel.addresses[rows[0]]):#06x}{more} is assumed to be "
        "what was put into shared memory for it, and no two to be the same: "
        "--arg WHICH=tensormap:TYPE:EXTENTS:BOX settles it"
    )


def _measure_box_bytes(
    kernel: CompiledKernel, image: ConstantImage, shape: LaunchShape, find_copied_bytes: FindCopiedBytes
) -> dict[int, float]:
    """Return the mean bytes of a box, by the row that writes it."""
    log = _record_staging(kernel, image, shape)
    stored, written, copied = Footprint(), dict[int, Footprint](), dict[int, Footprint]()
    for totals in log.totals.values():
        row = totals.access.row
        if not totals.has_usable_footprint:
            continue
        if totals.access.kind is not OpKind.BULK_COPY:
            _add_to_footprint(stored, totals, log.batch)
        else:
            is_write = parse_bulk_store(kernel.cfg.kernel.decode_form(row)) is not None
            _add_to_footprint(
                (written if is_write else copied).setdefault(row, Footprint()), totals, log.batch
            )
    boxes = {row: _list_addresses(footprint) for row, footprint in written.items()}
    box_starts = sorted({start for starts in boxes.values() for start in starts})
    sizes = _measure_stored_bytes(box_starts, stored)
    if len(sizes) < len(box_starts) and copied:
        by_row = find_copied_bytes()
        sizes |= {
            start: by_row[row]
            for row, footprint in copied.items()
            if row in by_row
            for start in _list_addresses(footprint)
        }
    found = {row: [sizes[start] for start in starts if start in sizes] for row, starts in boxes.items()}
    return {row: float(np.mean(known)) for row, known in found.items() if known}


def _measure_stored_bytes(box_starts: list[int], stored: Footprint) -> dict[int, float]:
    """Return the bytes stored without a gap from the start of each box, up to the start of the next one."""
    found: dict[int, float] = {}
    for start, stop in _find_shared_intervals(stored):
        inside = [begin for begin in box_starts if start <= begin < stop]
        for begin, end in pairwise([*inside, stop]):
            found[begin] = float(end - begin)
    return found


def _record_staging(kernel: CompiledKernel, image: ConstantImage, shape: LaunchShape) -> AccessLog:
    """Execute CTA 0 and log its stores to shared memory and the shared addresses of its bulk copies."""
    compiled = recompile_with_shared_addresses(kernel)
    batch = CtaBatch(compiled, image, shape, np.zeros(1, dtype=np.int64), np.ones(1))
    log = AccessLog(batch, may_reduce=False, access_filter=_is_staging_access)
    machine = AcceleratedMachine(
        compiled, batch, BranchDecider(compiled), Budget(_STEP_LIMIT), memory_log=log
    )
    machine.start()
    with suppress(StopExecution):
        machine.run()
    return log


def _is_staging_access(access: LoweredAccess) -> bool:
    return access.space is AddressSpace.SHARED and access.kind in (OpKind.STORE, OpKind.BULK_COPY)


def _add_to_footprint(footprint: Footprint, totals: AccessTotals, batch: CtaBatch) -> None:
    access = totals.access
    if access.n_matrices:
        access = replace(access, width_bytes=_MATRIX_ROW_BYTES)
    for requests in build_request_tables(totals, totals.entries, batch):
        if requests.addresses is not None:
            add_to_footprint(footprint, access, requests)


def _list_addresses(footprint: Footprint) -> list[int]:
    return [at for start, stop in _find_shared_intervals(footprint) for at in range(start, stop)]


def _find_shared_intervals(footprint: Footprint) -> list[tuple[int, int]]:
    """Return the intervals [start, stop) of a footprint within the shared memory of the CTA."""
    found = footprint.to_intervals()
    if found is None:
        return []
    starts, stops = found[0] & _CTA_ADDRESS_MASK, found[1] - found[0]
    return [(start, start + length) for start, length in zip(starts.tolist(), stops.tolist(), strict=True)]
