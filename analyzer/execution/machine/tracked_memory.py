"""Lane addresses, and contents of shared and local memory and of overwritten buffers."""

from collections.abc import Sequence

import numpy as np

from analyzer.execution.binding.constant_image import Allocation
from analyzer.execution.lowering.segments import AddressExpression, LoweredAccess
from analyzer.execution.lowering.step import Value
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.local_memory import LocalMemory
from analyzer.execution.machine.register_state import (
    RegisterView,
    UnknownOrigins,
    join_origins,
    make_divergent_origin,
)
from analyzer.execution.machine.shared_memory import AbstractWord, PlaceholderFinder, SharedMemory
from analyzer.ir.arrays import Addresses, BoolArray, IntArray
from analyzer.ir.opcode import AddressSpace


def compute_lane_addresses(
    form: AddressExpression, view: RegisterView
) -> tuple[Addresses, UnknownOrigins | None]:
    """Return the byte address of each lane, and the origin of unknown ones."""
    total: Addresses | None = None
    origin: UnknownOrigins | None = None
    for term in form.terms:
        low = view.read_value(term.slot)
        origin = join_origins(origin, view.read_origin(term.slot))
        if term.is_pair:
            value = _combine_words(low, view.read_value(term.slot + 1))
            origin = join_origins(origin, view.read_origin(term.slot + 1))
        else:
            value = low.astype(np.uint64)
        if term.scale != 1:
            value = value * np.uint64(term.scale)
        total = value if total is None else total + value
    offset = np.uint64(form.offset & 0xFFFFFFFFFFFFFFFF)
    if total is None:
        total = np.full((1, 1), offset, dtype=np.uint64)
    elif offset:
        total = total + offset
    return (total if form.is_64_bit else total & np.uint64(0xFFFFFFFF)), origin


def _combine_words(low: Value, high: Value) -> Addresses:
    """Combine words into uint64; two strided copies are cheaper than widening both."""
    shape = np.broadcast_shapes(low.shape, high.shape)
    words = np.empty((*shape, 2), dtype=np.uint32)
    words[..., 0], words[..., 1] = low, high
    pairs: Addresses = words.view(np.uint64)[..., 0]
    return pairs


def compute_address_strides(form: AddressExpression, view: RegisterView) -> IntArray | None:
    """Return the bytes by which each lane's address grows per symbolic iteration, None for 0."""
    total: IntArray | None = None
    for term in form.terms:
        for slot, shift in ((term.slot, 0), (term.slot + 1, 32)) if term.is_pair else ((term.slot, 0),):
            delta = view.read_delta(slot)
            if delta is not None:
                step = delta.view(np.int32).astype(np.int64) << shift
                step = step * term.scale
                total = step if total is None else total + step
    return total


class OverwrittenBuffers:
    """Bytes of buffers with known contents that the kernel has overwritten: they are unknown from then on."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        self.stale_bytes = [
            (a, np.zeros(len(a.contents), dtype=bool)) for a in allocations if a.contents is not None
        ]
        self.filled_allocations = [a for a in allocations if a.fill_pattern is not None]
        self.overwritten_addresses: set[int] = set()  # addresses of allocations that have been stored to

    def may_overwrite(self, active: BoolArray, addresses: Addresses | None) -> bool:
        """Return whether a store may change a buffer with known contents; None: any address."""
        held = [a for a, _ in self.stale_bytes] + [
            a for a in self.filled_allocations if a.address not in self.overwritten_addresses
        ]
        return any(addresses is None or bool((a.contains(addresses) & active).any()) for a in held)

    def store(self, access: LoweredAccess, active: BoolArray, addresses: Addresses | None) -> None:
        """Mark the bytes that lanes store to as stale; all bytes if addresses are unknown."""
        for allocation in self.filled_allocations:
            if addresses is None or bool((allocation.contains(addresses) & active).any()):
                self.overwritten_addresses.add(allocation.address)
        for allocation, is_stale in self.stale_bytes:
            if addresses is None:
                is_stale[:] = True
                self.overwritten_addresses.add(allocation.address)
                continue
            inside = allocation.contains(addresses) & active
            if inside.any():
                self.overwritten_addresses.add(allocation.address)
                offsets = np.broadcast_to(addresses, inside.shape)[inside] - np.uint64(allocation.address)
                for byte in range(access.width_bytes):
                    is_stale[np.minimum(offsets.astype(np.int64) + byte, len(is_stale) - 1)] = True

    def mark_stale(
        self, access: LoweredAccess, addresses: Addresses, loaded: list[AbstractWord] | None
    ) -> list[AbstractWord] | None:
        """Return what was loaded, unknown where it is stale."""
        if loaded is None:
            return None
        for allocation in self.filled_allocations:
            if (
                allocation.address in self.overwritten_addresses
                and (inside := allocation.contains(addresses)).any()
            ):
                loaded = _mark_unknown(inside, access, loaded)
        for allocation, is_stale in self.stale_bytes:
            if (
                allocation.address not in self.overwritten_addresses
                or not (inside := allocation.contains(addresses)).any()
            ):
                continue
            offsets = np.where(inside, addresses - np.uint64(allocation.address), 0).astype(np.int64)
            stale = np.zeros(inside.shape, dtype=bool)
            for byte in range(access.width_bytes):
                stale |= is_stale[np.minimum(offsets + byte, len(is_stale) - 1)] & inside
            if stale.any():
                loaded = _mark_unknown(stale, access, loaded)
        return loaded


def _mark_unknown(stale: BoolArray, access: LoweredAccess, loaded: list[AbstractWord]) -> list[AbstractWord]:
    """Return loaded words that are unknown where they are stale."""
    origin = np.where(stale, make_divergent_origin(access.row), 0).astype(np.int32)
    return [AbstractWord(word.value, join_origins(word.origin, origin)) for word in loaded]


class TrackedMemory:
    """Contents of shared and local memory.

    find_placeholders: see `SharedMemory`.
    """

    def __init__(self, batch: CtaBatch, find_placeholders: PlaceholderFinder | None = None) -> None:
        self.batch, self._find_placeholders = batch, find_placeholders
        self.shared: SharedMemory | None = None
        self.local = LocalMemory(batch)

    def _ensure_shared(self) -> SharedMemory:
        """Return the shared memory, made at its first use."""
        if self.shared is None:
            shape = self.batch.launch_shape
            self.shared = SharedMemory(
                self.batch.cta_indices,
                shape.shared_bytes,
                shape.reserved_shared_bytes,
                self.batch.shared_capacity_bytes,
                self._find_placeholders,
            )
        return self.shared

    def store(
        self, access: LoweredAccess, view: RegisterView, active: BoolArray, addresses: Addresses | None
    ) -> None:
        """Keep what the group stores; where addresses are unknown, nothing of its CTAs is known any more."""
        if access.space is AddressSpace.GENERIC:
            self._store_generic(access, view, addresses)
            return
        if access.space is AddressSpace.LOCAL:
            here = np.broadcast_to(view.to_warp_rows(active), view.group.mask.shape)
            self.local.store(access, view, here, addresses)
            return
        self._ensure_shared().store(access, view, active, addresses)

    def has_known_bytes(self, addresses: Addresses | None, width_bytes: int) -> bool:
        """Return whether some byte in the range of these shared addresses is known."""
        if self.shared is None:
            return False
        return self.shared.has_known_bytes(addresses, width_bytes)

    def load(
        self, access: LoweredAccess, view: RegisterView, addresses: Addresses, lanes: BoolArray | None
    ) -> list[AbstractWord] | None:
        """Return what the group loads, one word per register; None if nothing of it is known."""
        if access.space is AddressSpace.LOCAL:
            active = view.to_warp_rows(view.active if lanes is None else view.active & lanes)
            return self.local.load(access, view, np.broadcast_to(active, view.group.mask.shape), addresses)
        return None if access.n_matrices else self._ensure_shared().load(access, view, addresses)

    def _store_generic(self, access: LoweredAccess, view: RegisterView, addresses: Addresses | None) -> None:
        """Make shared and local memory unknown unless all addresses of a generic store are global."""
        if self.is_global_only(addresses):
            return
        if self.batch.launch_shape.cluster.count > 1:  # it may lie in another CTA
            self.forget_shared()
        elif self.shared is not None:
            self.shared.forget_all(view)
        self.local.forget(access, view, None)

    def forget_shared(self) -> None:
        """Make the shared memory of all CTAs unknown: one has stored to that of another."""
        if self.shared is not None:
            self.shared.forget_all_ctas()

    def is_global_only(self, addresses: Addresses | None) -> bool:
        """Return whether all of these generic addresses are in global memory."""
        if addresses is None:
            return False
        windows = self.batch.image.windows
        return not bool((windows.find_shared_lanes(addresses) | windows.find_local_lanes(addresses)).any())
