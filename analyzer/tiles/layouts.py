"""Layouts of tiles over the threads of a CTA: which threads hold an element, and how often it is held.

A layout is taken as a linear map over bits (Triton's linear layouts): each bit of a register's, lane's and
warp's number adds a fixed offset to the coordinates of the element. Of a tile that is smaller than what a
layout covers, bits that would lead out of it lead nowhere (offset 0): threads that differ in them hold the
same elements. That is what replication counts:

    blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4]}> of 256 elements:
    register bits 1, 2; lane bits 4, 8, 16, 32, 64; warp bits 128 and 0: each element in 2 threads

Loads and arithmetic run in every thread that holds an element; stores, atomics and asynchronous copies in one
of them.
Facts on the layouts: Triton's TritonGPUAttrDefs.td and its conversion to linear layouts.
"""

from msgspec import Struct

from analyzer.ir.tile_operations import (
    Attribute,
    DenseAttribute,
    DictionaryAttribute,
    IntegerAttribute,
    Layout,
    TensorType,
)

Offset = tuple[int, ...]  # what a bit adds to the coordinates
_MAX_BASES = 40


class ThreadBases(Struct, frozen=True):
    """What each bit of register, lane and warp numbers adds to an element's coordinates."""

    register: tuple[Offset, ...]
    lane: tuple[Offset, ...]
    warp: tuple[Offset, ...]


def find_integers(layout: Layout, name: str) -> tuple[int, ...] | None:
    """Return the integers of a field such as `sizePerThread`; None if it has none."""
    value = find_field(layout, name)
    return None if value is None else list_integers(value)


def find_field(layout: Layout, name: str) -> Attribute | None:
    """Return a field of a layout, None if it is not there."""
    return next((value for key, value in layout.fields if key == name), None)


def list_integers(value: Attribute) -> tuple[int, ...] | None:
    """Return the integers of an attribute; None if it holds anything else."""
    if isinstance(value, IntegerAttribute):
        return (value.value,)
    if not isinstance(value, DenseAttribute):
        return None
    numbers = [each.value for each in value.values if isinstance(each, IntegerAttribute)]
    return tuple(numbers) if len(numbers) == len(value.values) else None


def compute_replication(tile: TensorType, n_warps: int, lanes: int = 32) -> int:
    """Return how many threads hold each element of a tile; 1 where the layout is not known.

    Threads of the CTA that hold it in several registers count once.
    """
    if tile.layout is None:
        return 1
    bases = find_thread_bases(tile.layout, tile.shape, n_warps, lanes)
    if bases is None:
        return 1
    everything = bases.register + bases.lane + bases.warp
    n_threads_bits = len(bases.lane) + len(bases.warp)
    return int(2 ** (n_threads_bits + _rank(bases.register, tile.shape) - _rank(everything, tile.shape)))


def _rank(bases: tuple[Offset, ...], shape: tuple[int, ...]) -> int:
    """Return the rank over the field of two elements of offsets, as bits of a flattened coordinate."""
    pivots: dict[int, int] = {}
    for offset in bases:
        word = 0
        for coordinate, length in zip(offset, shape, strict=True):
            word = word << max(1, length.bit_length()) | coordinate
        while word:
            top = word.bit_length()
            if top not in pivots:
                pivots[top] = word
                break
            word ^= pivots[top]
    return len(pivots)


def find_thread_bases(
    layout: Layout, shape: tuple[int, ...], n_warps: int, lanes: int = 32
) -> ThreadBases | None:
    """Return the bits of a layout on a tile of a shape; None for layouts that are not known."""
    found = _find_bases(layout, shape)
    if found is None or len(found.register) + len(found.lane) + len(found.warp) > _MAX_BASES:
        return None
    rank = len(shape)
    # A layout made for fewer warps or lanes than there are is repeated in the others.
    lane = found.lane + ((0,) * rank,) * (_count_bits(lanes) - len(found.lane))
    warp = found.warp + ((0,) * rank,) * (_count_bits(n_warps) - len(found.warp))
    return _grow_and_cut(ThreadBases(found.register, lane, warp), shape)


def _count_bits(count: int) -> int:
    return max(0, (count - 1).bit_length())


def _grow_and_cut(bases: ThreadBases, shape: tuple[int, ...]) -> ThreadBases:
    """Return a layout repeated in registers until it covers the tile, and cut where it leads out of it."""
    reach = [1] * len(shape)
    for offset in (*bases.register, *bases.lane, *bases.warp):
        for axis, step in enumerate(offset):
            reach[axis] = max(reach[axis], 2 * step)
    register = list(bases.register)
    for axis in range(len(shape)):
        step = reach[axis]
        while step < shape[axis] and len(register) < _MAX_BASES:
            register.append(tuple(step if each == axis else 0 for each in range(len(shape))))
            step *= 2
    return ThreadBases(
        *(
            tuple(
                tuple(step if step < shape[axis] else 0 for axis, step in enumerate(offset))
                for offset in part
            )
            for part in (tuple(register), bases.lane, bases.warp)
        )
    )


def _find_bases(layout: Layout, shape: tuple[int, ...]) -> ThreadBases | None:
    match layout.kind:
        case "blocked":
            return _find_blocked_bases(layout, shape)
        case "slice":
            return _find_slice_bases(layout, shape)
        case "nvidia_mma":
            return _find_mma_bases(layout, len(shape))
        case "dot_op":
            return _find_operand_bases(layout, shape)
        case "linear":
            return _find_linear_bases(layout)
        case _:
            return None


def _find_blocked_bases(layout: Layout, shape: tuple[int, ...]) -> ThreadBases | None:
    rank = len(shape)
    parts = [
        find_integers(layout, name) for name in ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
    ]
    if any(part is None or len(part) != rank for part in parts):
        return None
    per_thread, per_warp, per_cta, order = (part for part in parts if part is not None)
    done = [1] * rank
    found = []
    for counts in (per_thread, per_warp, per_cta):
        bases: list[Offset] = []
        for axis in order:
            if not 0 <= axis < rank:
                return None
            # Each factor of two of an axis is a bit.
            for bit in range(_count_bits(counts[axis])):
                bases.append(_make_offset(rank, axis, done[axis] << bit))
        found.append(tuple(bases))
        done = [size * count for size, count in zip(done, counts, strict=True)]
    # Bits beyond the tile's length along an axis lead nowhere, however the layout numbers them.
    return ThreadBases(*found)


def _make_offset(rank: int, axis: int, step: int) -> Offset:
    return tuple(step if each == axis else 0 for each in range(rank))


def _find_slice_bases(layout: Layout, shape: tuple[int, ...]) -> ThreadBases | None:
    """Return the parent's bits without one axis; those along it lead nowhere."""
    axes, parent = find_integers(layout, "dim"), find_field(layout, "parent")
    if axes is None or not isinstance(parent, Layout) or not 0 <= axes[0] <= len(shape):
        return None
    axis = axes[0]
    found = _find_bases(parent, (*shape[:axis], 1, *shape[axis:]))
    if found is None:
        return None
    return ThreadBases(
        *(
            tuple((*offset[:axis], *offset[axis + 1 :]) for offset in part)
            for part in (found.register, found.lane, found.warp)
        )
    )


def _find_mma_bases(layout: Layout, rank: int) -> ThreadBases | None:
    """Return the bits of an accumulator: tiles of 16 x 8, two neighbours and two rows 8 apart per thread."""
    warps = find_integers(layout, "warpsPerCTA")
    version = find_integers(layout, "versionMajor")
    if warps is None or len(warps) != rank or rank < 2 or version is None or version[0] not in (2, 3):
        return None
    row, column = rank - 2, rank - 1
    register = [_make_offset(rank, column, 1), _make_offset(rank, row, 8)]
    lane = [_make_offset(rank, column, 2), _make_offset(rank, column, 4)]
    lane += [_make_offset(rank, row, step) for step in (1, 2, 4)]
    columns = 8
    shape = find_integers(layout, "instrShape")
    if version[0] == 3 and shape is not None and len(shape) == 3:
        columns = shape[1]
        register += [_make_offset(rank, column, 8 << bit) for bit in range(_count_bits(max(1, columns // 8)))]
    return ThreadBases(tuple(register), tuple(lane), _list_warp_bases(rank, warps, (16, columns)))


def _list_warp_bases(rank: int, warps: tuple[int, ...], tile: tuple[int, int]) -> tuple[Offset, ...]:
    steps = (*[1] * (rank - 2), *tile)
    order = (rank - 2, rank - 1, *range(rank - 2)) if tile[1] > 8 else tuple(reversed(range(rank)))
    return tuple(
        _make_offset(rank, axis, steps[axis] << bit)
        for axis in order
        for bit in range(_count_bits(warps[axis]))
    )


def _find_operand_bases(layout: Layout, shape: tuple[int, ...]) -> ThreadBases | None:
    """Return the bits of a dot operand: along its inner axis all warps of that axis hold the same."""
    parent, operand, width = (
        find_field(layout, "parent"),
        find_integers(layout, "opIdx"),
        find_integers(layout, "kWidth"),
    )
    if not isinstance(parent, Layout) or operand is None:
        return None
    rank = len(shape)
    if parent.kind == "blocked":
        return _find_blocked_operand_bases(parent, operand[0], shape)
    warps = find_integers(parent, "warpsPerCTA")
    if parent.kind != "nvidia_mma" or warps is None or len(warps) != rank:
        return None
    inner = rank - 1 if operand[0] == 0 else rank - 2
    outer = rank - 2 if operand[0] == 0 else rank - 1
    packed = width[0] if width is not None and width[0] > 0 else 2
    steps = _count_bits(packed)
    register = [_make_offset(rank, inner, 1 << bit) for bit in range(steps)]
    lane = [_make_offset(rank, inner, packed), _make_offset(rank, inner, 2 * packed)]
    lane += [_make_offset(rank, outer, step) for step in (1, 2, 4)]
    register += [_make_offset(rank, inner, 4 * packed)]
    if operand[0] == 0:
        register.insert(steps, _make_offset(rank, outer, 8))
    # Warps along the inner axis repeat the operand.
    found = []
    for axis in reversed(range(rank)):
        for bit in range(_count_bits(warps[axis])):
            step = (
                (16 if operand[0] == 0 else 8) << bit
                if axis == outer
                else (1 << bit if axis < rank - 2 else 0)
            )
            found.append(_make_offset(rank, axis, step) if axis != inner else (0,) * rank)
    return ThreadBases(tuple(register), tuple(lane), tuple(found))


def _find_blocked_operand_bases(parent: Layout, operand: int, shape: tuple[int, ...]) -> ThreadBases | None:
    """Return the bits of an operand of a product on CUDA cores: whole along its inner axis in each thread."""
    found = _find_blocked_bases(parent, shape)
    if found is None:
        return None
    inner = len(shape) - 1 if operand == 0 else len(shape) - 2
    return ThreadBases(
        *(
            tuple(tuple(0 if axis == inner else step for axis, step in enumerate(offset)) for offset in part)
            for part in (found.register, found.lane, found.warp)
        )
    )


def _find_linear_bases(layout: Layout) -> ThreadBases | None:
    found = []
    for name in ("register", "lane", "warp"):
        value = find_field(layout, name)
        if value is None and name != "register":
            return None
        bases = _list_offsets(value)
        if bases is None:
            return None
        found.append(bases)
    return ThreadBases(*found)


def _list_offsets(value: Attribute | None) -> tuple[Offset, ...] | None:
    """Return the offsets in `[[0, 1], [0, 2]]`; none in `[]`."""
    if value is None:
        return ()
    if isinstance(value, DictionaryAttribute) or not isinstance(value, DenseAttribute):
        return None
    offsets = [list_integers(each) for each in value.values]
    known = tuple(each for each in offsets if each is not None)
    return known if len(known) == len(offsets) else None
