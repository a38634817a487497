"""Copies of the engine as they run: how many bytes, and where in global memory, by what registers hold.

A warp makes one copy, whichever of its lanes are on.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.bulk_forms import SIZE_UNIT_BYTES, BulkForm
from analyzer.execution.constant_image import MappedTensor
from analyzer.execution.lanes import View
from analyzer.execution.memory import lane_addresses
from analyzer.execution.program import Access, AddressForm, Term
from analyzer.execution.step import Bits
from analyzer.ir.machine import WARP_LANES

_FIRST = np.arange(WARP_LANES) == 0


class AccessPart(Struct, frozen=True, eq=False):
    """Lanes that do one thing; of copies those of one size, and one lane of each warp that makes them."""

    access: Access
    active: Bits


def parts_of(
    access: Access, view: View, active: Bits, tensors: tuple[MappedTensor, ...]
) -> Iterable[AccessPart]:
    """What the lanes of an access do: all the same, but copies may be of several sizes."""
    form = access.bulk
    return (AccessPart(access, active),) if form is None else _copies(access, form, view, active, tensors)


def _copies(
    access: Access, form: BulkForm, view: View, active: Bits, tensors: tuple[MappedTensor, ...]
) -> Iterator[AccessPart]:
    """By their size; as the access stands where that is not known."""
    lanes = _first(active)
    sizing = AddressForm(
        terms=(Term(form.sizing[0], len(form.sizing) > 1, 1),) if form.sizing else (), offset=0, wide=True
    )
    words, origin = lane_addresses(sizing, view)
    if not form.sizing or (origin is not None and bool(((origin != 0) & lanes).any())):
        yield AccessPart(access, lanes)
        return
    words = np.broadcast_to(words, np.broadcast_shapes(words.shape, lanes.shape))
    for word in np.unique(words[np.broadcast_to(lanes, words.shape)]).tolist():
        own = lanes & (words == np.uint64(word))
        sized = _sized(access, form, word, tensors)
        if sized is access or sized.width_bytes:
            yield AccessPart(sized, own)


def _sized(access: Access, form: BulkForm, word: int, tensors: tuple[MappedTensor, ...]) -> Access:
    """The access with its size; word: number of units, or the address of a descriptor."""
    if form.size is not None and form.place is not None:
        address = AddressForm(terms=(Term(form.place, True, 1),), offset=0, wide=True)
        return replace(access, kind=form.kind, address=address, width_bytes=word * SIZE_UNIT_BYTES)
    tensor = next((one for one in tensors if one.address == word), None)
    if tensor is None or len(tensor.layout.box) != len(form.coordinates):
        return access
    layout = tensor.layout
    terms = zip(form.coordinates, layout.strides_bytes, strict=True)
    return replace(
        access,
        kind=form.kind,
        address=AddressForm(
            terms=tuple(Term(slot, False, stride) for slot, stride in terms), offset=tensor.base, wide=True
        ),
        width_bytes=layout.row_bytes,
        repeats=tuple(zip(layout.box[1:], layout.strides_bytes[1:], strict=True)),
    )


def _first(active: Bits) -> Bits:
    """The first active lane of each warp."""
    if active.shape[-1] == 1:
        alone: Bits = active & _FIRST
        return alone
    first: Bits = active & (np.cumsum(active, axis=-1) == 1)
    return first
