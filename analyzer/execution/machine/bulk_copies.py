"""Bulk copies (cp.async.bulk, TMA) at run time: their size and global addresses, from registers.

A warp issues one copy, whichever of its lanes are active.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.binding.constant_image import MappedTensor
from analyzer.execution.lowering.bulk_operands import BULK_SIZE_UNIT_BYTES, BulkOperands
from analyzer.execution.lowering.segments import AddressExpression, AddressTerm, LoweredAccess
from analyzer.execution.machine.register_state import RegisterView
from analyzer.execution.machine.tracked_memory import compute_lane_addresses
from analyzer.ir.arrays import BoolArray
from analyzer.ir.scheduling import WARP_SIZE

_FIRST_LANE = np.arange(WARP_SIZE) == 0


class AccessPart(Struct, frozen=True, eq=False):
    """Lanes with the same access."""

    access: LoweredAccess
    active: BoolArray  # of a bulk copy one lane of each warp that issues it


def split_access(
    access: LoweredAccess, view: RegisterView, active: BoolArray, tensors: tuple[MappedTensor, ...]
) -> Iterable[AccessPart]:
    """Split an access by the size of its bulk copies; any other access is one part."""
    form = access.bulk
    return (
        (AccessPart(access, active),) if form is None else _split_copies(access, form, view, active, tensors)
    )


def _split_copies(
    access: LoweredAccess,
    form: BulkOperands,
    view: RegisterView,
    active: BoolArray,
    tensors: tuple[MappedTensor, ...],
) -> Iterator[AccessPart]:
    """Split bulk copies by their size; return the access unchanged where that is unknown."""
    lanes = _find_first_lanes(active)
    size_address = AddressExpression(
        terms=(AddressTerm(form.size_registers[0], len(form.size_registers) > 1, 1),)
        if form.size_registers
        else (),
        offset=0,
        is_64_bit=True,
    )
    words, origin = compute_lane_addresses(size_address, view)
    if not form.size_registers or (origin is not None and bool(((origin != 0) & lanes).any())):
        yield AccessPart(access, lanes)
        return
    words = np.broadcast_to(words, np.broadcast_shapes(words.shape, lanes.shape))
    for word in np.unique(words[np.broadcast_to(lanes, words.shape)]).tolist():
        own = lanes & (words == np.uint64(word))
        sized = _make_sized_access(access, form, word, tensors)
        if sized is access or sized.width_bytes:
            yield AccessPart(sized, own)


def _make_sized_access(
    access: LoweredAccess, form: BulkOperands, word: int, tensors: tuple[MappedTensor, ...]
) -> LoweredAccess:
    """Return the access with its size and address.

    word: size in units of 16 bytes, or the address of a tensor map.
    """
    if form.size is not None and form.global_address is not None:
        address = AddressExpression(
            terms=(AddressTerm(form.global_address, True, 1),), offset=0, is_64_bit=True
        )
        return replace(access, kind=form.kind, address=address, width_bytes=word * BULK_SIZE_UNIT_BYTES)
    tensor = next((one for one in tensors if one.descriptor_address == word), None)
    if tensor is None or len(tensor.layout.box_extents) != len(form.coordinates):
        return access
    layout = tensor.layout
    terms = zip(form.coordinates, layout.strides_bytes, strict=True)
    return replace(
        access,
        kind=form.kind,
        address=AddressExpression(
            terms=tuple(AddressTerm(slot, False, stride) for slot, stride in terms),
            offset=tensor.base_address,
            is_64_bit=True,
        ),
        width_bytes=layout.box_row_bytes,
        repeats=tuple(zip(layout.box_extents[1:], layout.strides_bytes[1:], strict=True)),
    )


def _find_first_lanes(active: BoolArray) -> BoolArray:
    """Return the first active lane of each warp."""
    if active.shape[-1] == 1:
        alone: BoolArray = active & _FIRST_LANE
        return alone
    first: BoolArray = active & (np.cumsum(active, axis=-1) == 1)
    return first
