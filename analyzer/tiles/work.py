"""What one execution of a tile operation asks of the GPU: multiply-adds, bytes, operations per pipe.

Amounts are per execution by one program, or per element where a mask decides how many elements there are.
Arithmetic and loads run in each thread that holds an element, so they are given with a replication; what is
written, reduced or copied asynchronously is done by one thread. Operations are those of a lane.

    %y = math.exp2 %x : tensor<64x32xf32, #mma>        2,048 operations of the XU pipe
    tt.store %p, %y, %m : tensor<64x128x!tt.ptr<bf16>>  2 bytes stored per element whose mask is true
"""

from collections.abc import Callable
from enum import IntEnum
from math import prod

from msgspec import Struct

from analyzer.ir.tile_operations import (
    DescriptorType,
    IntegerAttribute,
    IrType,
    MemoryType,
    Operation,
    PointerType,
    ScalarType,
    StringAttribute,
    TensorType,
    Value,
)
from analyzer.tiles.layouts import ThreadBases, compute_replication, find_integers, find_thread_bases


class Quantity(IntEnum):
    """What is counted; the columns of a task's amounts."""

    MMA_FMA = 0  # multiply-adds of tensor cores
    XU_OPERATIONS = 1  # exponentials, reciprocals, roots …, per lane
    FMA_OPERATIONS = (
        2  # additions, multiplications and multiply-adds of floating point on CUDA cores, per lane
    )
    BYTES_LOADED = 3  # from global memory
    BYTES_STORED = 4  # to global memory
    SHARED_BYTES = 5  # read from and written to shared memory by threads
    ATOMICS = 6  # elements of atomic operations in global memory
    BARRIERS = (
        7  # of all threads of the CTA: written in the code, or needed by what goes through shared memory
    )
    EXCHANGES = 8  # conversions of layouts and reductions that go through shared memory


class OperandOrigin(Struct, frozen=True):
    """What an operand is made of: the tile or number that was broadcast to it.

    The code computes what depends on the broadcast value alone once: the reciprocal of a row's sum is taken
    per row, not per element.
    """

    type: IrType
    is_new: bool = True  # no earlier division has this divisor


class ThreadCount(Struct, frozen=True):
    """The threads of a program."""

    n_warps: int
    lanes: int
    has_layouts: bool  # TTGIR; in TTIR each element is taken to be in one thread, each number too

    @property
    def count(self) -> int:
        """Threads of a CTA; 1 where layouts are not given."""
        return self.n_warps * self.lanes if self.has_layouts else 1


class OperationWork(Struct, frozen=True):
    """The work of an operation."""

    fixed: tuple[tuple[Quantity, int], ...] = ()  # per execution
    per_element: tuple[tuple[Quantity, int], ...] = ()  # per element that its mask lets through
    replication: int = 1  # threads that do the same for each element; amounts above are of one of them
    type_name: str = ""  # of the elements that are computed with
    mask: Value | None = None
    elements: int = 1  # of the tile without a mask
    descriptor: Value | None = None  # whose extents cut the box off, with `indices`
    indices: tuple[Value, ...] = ()
    is_predicated: bool = False  # the mask is one flag that lets the operation run as a whole


_XU_OPERATIONS: dict[str, tuple[int, int]] = {
    # Operations of the XU pipe, and of the FMA pipe beside them, of numbers of 32 bits. Some are functions of
    # libdevice: their counts are those of the code that Triton 3.6 makes for sm_80 and sm_90.
    "math.exp2": (1, 0),
    "math.exp": (1, 1),
    "math.log2": (0, 17),
    "math.log": (0, 15),
    "math.erf": (1, 13),
    "math.sqrt": (1, 0),
    "math.rsqrt": (1, 0),
    "math.sin": (0, 12),
    "math.cos": (0, 12),
    "math.tanh": (2, 6),
    "tt.precise_sqrt": (1, 3),
    "tt.precise_divf": (1, 5),
}
_FMA_OPERATIONS = frozenset(("arith.addf", "arith.subf", "arith.mulf", "math.fma"))
DIVISIONS = frozenset(
    ("arith.divf",)
)  # integer divisions take their seed from the XU pipe too, in SASS alone
_DOTS = frozenset(("tt.dot", "ttng.warp_group_dot"))
_TENSOR_MEMORY_DOTS = frozenset(("ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled"))
_PACKED_TYPES = ("e2m1",)
_BARRIERS = frozenset(("gpu.barrier", "ttg.barrier", "ttg.local_barrier", "ttg.async_wait"))
_EXTERNAL_MUFU = {  # functions of libdevice by what they are made of
    "exp": 1, "exp2": 1, "exp10": 1, "expm1": 1, "log": 0, "log2": 0, "log1p": 0, "tanh": 2, "fast_expf": 1,
    "fast_logf": 1, "fast_sinf": 1, "fast_cosf": 1, "fast_dividef": 1, "rsqrt": 1, "sqrt": 1, "div_rn": 1,
    "fdiv_rn": 1, "erf": 1, "fast_tanhf": 1, "pow": 2, "fast_powf": 2,
}  # fmt: skip
_BITS = {
    "i1": 8, "f4E2M1FN": 4, "i4": 4, "tf32": 32, "index": 64,
}  # fmt: skip
_MMA_ROWS = 16


def find_element(kind: IrType) -> IrType:
    """Return the type of the elements of a tile or buffer; the type itself of a number."""
    if isinstance(kind, TensorType | MemoryType):
        return kind.element
    if isinstance(kind, DescriptorType):
        return kind.block.element
    return kind


def count_bits(kind: IrType) -> int:
    """Return the bits of an element of a type, in memory."""
    element = find_element(kind)
    if isinstance(element, PointerType):
        return 64
    if not isinstance(element, ScalarType):
        return 0
    if element.name in _BITS:
        return _BITS[element.name]
    digits = ""
    for letter in element.name.removeprefix("b").lstrip("fiu"):
        if not letter.isdigit():
            break
        digits += letter
    return int(digits) if digits else 0


def count_bytes(kind: IrType, elements: int) -> int:
    """Return the bytes of elements of a type."""
    return elements * count_bits(kind) // 8


def count_elements(kind: IrType) -> int:
    """Return the elements of a tile, buffer or box; 1 of a number."""
    if isinstance(kind, TensorType | MemoryType):
        return prod(kind.shape)
    if isinstance(kind, DescriptorType):
        return prod(kind.block.shape)
    return 1


def name_type(kind: IrType) -> str:
    """Return the name of the type of a tile's elements."""
    element = find_element(kind)
    return element.name if isinstance(element, ScalarType) else ""


def is_float(kind: IrType) -> bool:
    """Return whether elements are numbers of floating point."""
    return name_type(kind).startswith(("f", "bf", "tf"))


def find_work(
    operation: Operation, threads: ThreadCount, divisor: OperandOrigin | None = None
) -> OperationWork | None:
    """Return the work of an operation, None for those that have none.

    divisor: of a division, where its second operand is from.
    """
    if operation.name in DIVISIONS and divisor is not None:
        return _find_division_work(operation, threads, divisor)
    found = _FINDERS.get(operation.name)
    if found is not None:
        return found(operation, threads)
    if operation.name in _BARRIERS:
        return OperationWork(fixed=((Quantity.BARRIERS, 1),))
    if operation.name in _FMA_OPERATIONS or operation.name in _XU_OPERATIONS:
        return _find_arithmetic_work(operation, threads)
    return None


def _find_replication(kind: IrType, threads: ThreadCount) -> int:
    if isinstance(kind, TensorType):
        return compute_replication(kind, threads.n_warps, threads.lanes) if threads.has_layouts else 1
    return threads.count


def _find_arithmetic_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if not operation.results or not is_float(operation.results[0].type):
        return None
    kind = operation.results[0].type
    elements = count_elements(kind)
    xu, fma = _XU_OPERATIONS.get(operation.name, (0, 1))
    return OperationWork(
        fixed=((Quantity.XU_OPERATIONS, xu * elements), (Quantity.FMA_OPERATIONS, fma * elements)),
        replication=_find_replication(kind, threads),
        type_name=name_type(kind),
    )


def _find_division_work(
    operation: Operation, threads: ThreadCount, divisor: OperandOrigin
) -> OperationWork | None:
    """Return the work of a division: a reciprocal per divisor, and a product per element."""
    result = operation.results[0].type
    quotients = OperationWork(
        fixed=((Quantity.FMA_OPERATIONS, count_elements(result)),),
        replication=_find_replication(result, threads),
        type_name=name_type(result),
    )
    if not divisor.is_new:
        return quotients
    reciprocals = _count_reciprocals(divisor.type, threads)
    # Both in terms of the reciprocals' threads, so that one replication holds for the two.
    products = count_elements(result) * quotients.replication // reciprocals.replication
    return OperationWork(
        fixed=(*reciprocals.fixed, (Quantity.FMA_OPERATIONS, products)),
        replication=reciprocals.replication,
        type_name=quotients.type_name,
    )


def _count_reciprocals(divisor: IrType, threads: ThreadCount) -> OperationWork:
    return OperationWork(
        fixed=((Quantity.XU_OPERATIONS, count_elements(divisor)),),
        replication=_find_replication(divisor, threads),
        type_name=name_type(divisor),
    )


def _find_external_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    """Return the work of a function of libdevice, such as `__nv_fast_expf`."""
    symbol = operation.find_attribute("symbol")
    if not isinstance(symbol, StringAttribute) or not operation.results:
        return None
    name = symbol.text.strip('"@').removeprefix("__nv_")
    count = _EXTERNAL_MUFU.get(name, _EXTERNAL_MUFU.get(name.removesuffix("f"), 0))
    kind = operation.results[0].type
    return OperationWork(
        fixed=((Quantity.XU_OPERATIONS, count * count_elements(kind)),),
        replication=_find_replication(kind, threads),
        type_name=name_type(kind),
    )


def _find_dot_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if len(operation.operands) < 2 or not operation.results:
        return None
    a, result = operation.operands[0].type, operation.results[0].type
    if not isinstance(a, TensorType | MemoryType) or not isinstance(result, TensorType) or len(a.shape) < 2:
        return None
    inner = a.shape[-1] * _find_packing(operation)
    fma = prod(result.shape) * inner
    if result.layout is not None and result.layout.kind == "blocked":
        return OperationWork(
            fixed=((Quantity.FMA_OPERATIONS, fma),),
            replication=_find_replication(result, threads),
            type_name=name_type(a),
        )
    return OperationWork(
        fixed=((Quantity.MMA_FMA, fma),),
        replication=_count_repeated_products(result, threads),
        type_name=_name_product_type(operation, a),
    )


def _name_product_type(operation: Operation, a: IrType) -> str:
    """Return the type that tensor cores multiply: tf32 of float32 unless the code says otherwise."""
    name = name_type(a)
    return "tf32" if name == "f32" else name


def _find_packing(operation: Operation) -> int:
    """Return how many numbers an element of the first operand holds: two of four bits in a byte."""
    for name in ("a_elem_type", "a_type", "lhs_type"):
        found = operation.find_attribute(name)
        if isinstance(found, StringAttribute) and any(kind in found.text.lower() for kind in _PACKED_TYPES):
            return 2
    return 1


def _count_repeated_products(result: TensorType, threads: ThreadCount) -> int:
    """Return how many warps compute the same products, since a small tile has no rows of its own for each.

    A tile with fewer rows or columns than one matrix instruction is computed as a whole one.
    """
    layout = result.layout
    if layout is None or layout.kind != "nvidia_mma":
        return 1
    warps, shape = find_integers(layout, "warpsPerCTA"), find_integers(layout, "instrShape")
    if warps is None or shape is None or len(warps) != len(result.shape):
        return 1
    return _count_times_over(result.shape, warps, shape)


def _count_times_over(shape: tuple[int, ...], warps: tuple[int, ...], instruction: tuple[int, ...]) -> int:
    """Return by how much warps times their instruction's tile cover more than the tile."""
    tile = (instruction[0], instruction[1])
    covered = [count * size for count, size in zip(warps[-2:], tile, strict=True)]
    times = prod(max(1, size // max(1, length)) for size, length in zip(covered, shape[-2:], strict=True))
    return times * prod(max(1, w // max(1, n)) for w, n in zip(warps[:-2], shape[:-2], strict=True))


def _find_tensor_memory_dot_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if len(operation.operands) < 3:
        return None
    a, result = operation.operands[0].type, operation.operands[2].type
    if not isinstance(a, MemoryType) or not isinstance(result, MemoryType) or len(a.shape) < 2:
        return None
    flags = [each for each in operation.operands[3:] if name_type(each.type) == "i1"]
    inner = a.shape[-1] * _find_packing(operation)
    return OperationWork(
        per_element=((Quantity.MMA_FMA, result.shape[-2] * result.shape[-1] * inner),),
        type_name=_name_product_type(operation, a),
        mask=flags[1] if len(flags) > 1 else None,
        is_predicated=True,
    )


def _find_load_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if not operation.results or not operation.operands:
        return None
    kind = operation.results[0].type
    return OperationWork(
        per_element=((Quantity.BYTES_LOADED, max(1, count_bits(kind) // 8)),),
        replication=_find_replication(kind, threads),
        type_name=name_type(kind),
        mask=operation.operands[1] if len(operation.operands) > 1 else None,
        elements=count_elements(kind),
    )


def _find_store_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if len(operation.operands) < 2:
        return None
    kind = operation.operands[1].type
    return OperationWork(
        per_element=((Quantity.BYTES_STORED, max(1, count_bits(kind) // 8)),),
        type_name=name_type(kind),
        mask=operation.operands[2] if len(operation.operands) > 2 else None,
        elements=count_elements(kind),
    )


def _find_async_copy_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if len(operation.operands) < 2:
        return None
    target = operation.operands[1].type
    size = max(1, count_bits(target) // 8)
    flags = [each for each in operation.operands[2:] if name_type(each.type) == "i1"]
    return OperationWork(
        fixed=((Quantity.SHARED_BYTES, size * count_elements(target)),),
        per_element=((Quantity.BYTES_LOADED, size),),
        type_name=name_type(target),
        mask=flags[0] if flags else None,
        elements=count_elements(target),
    )


def _find_atomic_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if len(operation.operands) < 2:
        return None
    kind = operation.operands[1].type
    last = operation.operands[-1]
    has_mask = operation.name == "tt.atomic_rmw" and len(operation.operands) > 2
    return OperationWork(
        per_element=((Quantity.ATOMICS, 1),),
        type_name=name_type(kind),
        mask=last if has_mask else None,
        elements=count_elements(kind),
    )


def _find_descriptor_load_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if not operation.results or not operation.operands:
        return None
    kind = operation.results[0].type
    return _describe_box(kind, Quantity.BYTES_LOADED, operation.operands[0], operation.operands[1:])


def _find_descriptor_store_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    if len(operation.operands) < 2:
        return None
    return _describe_box(
        operation.operands[1].type, Quantity.BYTES_STORED, operation.operands[0], operation.operands[2:]
    )


def _describe_box(
    kind: IrType,
    quantity: Quantity,
    descriptor: Value,
    operands: tuple[Value, ...],
    flag: Value | None = None,
) -> OperationWork:
    indices = tuple(
        each for each in operands if isinstance(each.type, ScalarType) and name_type(each.type) != "i1"
    )
    return OperationWork(
        per_element=((quantity, max(1, count_bits(kind) // 8)),),
        type_name=name_type(kind),
        mask=flag,
        elements=count_elements(kind),
        descriptor=descriptor,
        indices=indices,
    )


def _find_bulk_load_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    """Return the work of a copy through the copy engine: descriptor, coordinates, barrier, buffer, flag."""
    buffers = [each for each in operation.operands if isinstance(each.type, MemoryType)]
    if len(buffers) < 2:
        return None
    flags = [
        each
        for each in operation.operands
        if name_type(each.type) == "i1" and isinstance(each.type, ScalarType)
    ]
    return _describe_box(
        buffers[-1].type,
        Quantity.BYTES_LOADED,
        operation.operands[0],
        operation.operands[1:],
        flags[-1] if flags else None,
    )


def _find_bulk_store_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    buffers = [each for each in operation.operands if isinstance(each.type, MemoryType)]
    if not buffers:
        return None
    return _describe_box(
        buffers[-1].type, Quantity.BYTES_STORED, operation.operands[0], operation.operands[1:]
    )


def _find_shared_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    """Return the bytes that threads move between registers and shared memory."""
    tiles = [
        each.type for each in (*operation.operands, *operation.results) if isinstance(each.type, TensorType)
    ]
    buffers = [
        each.type
        for each in (*operation.operands, *operation.results)
        if isinstance(each.type, MemoryType) and each.type.memory_space != "tensor_memory"
    ]
    if not tiles or not buffers:
        return None
    return OperationWork(
        fixed=((Quantity.SHARED_BYTES, count_bytes(tiles[0], count_elements(tiles[0]))),),
        replication=_find_replication(tiles[0], threads) if operation.name == "ttg.local_load" else 1,
        type_name=name_type(tiles[0]),
    )


def _find_reduction_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    """Return the work of a reduction: its body once for each element but the first of those reduced.

    With a layout: within a thread, then by shuffles among lanes that hold parts of one result, and where
    warps hold parts, through shared memory: each warp stores its part, one their sum, and all load that.
    """
    if not operation.operands or not operation.regions:
        return None
    source = operation.operands[0].type
    if not isinstance(source, TensorType):
        return None
    xu, fma = _count_body(operation)
    results = max(1, count_elements(operation.results[0].type)) if operation.results else 1
    steps = prod(source.shape) - results
    terms = [(Quantity.XU_OPERATIONS, xu * steps), (Quantity.FMA_OPERATIONS, fma * steps)]
    if operation.name == "tt.reduce" and threads.has_layouts:
        terms += _count_reduction_exchange(operation, source, threads)
    return OperationWork(fixed=tuple(terms), type_name=name_type(source))


def _count_reduction_exchange(
    operation: Operation, source: TensorType, threads: ThreadCount
) -> list[tuple[Quantity, int]]:
    """Return what a reduction exchanges through shared memory; nothing where each result is in one warp."""
    axis = operation.find_attribute("axis")
    bases = _find_bases(source, threads)
    if bases is None or not isinstance(axis, IntegerAttribute) or not 0 <= axis.value < len(source.shape):
        return []
    n_parts = 2 ** sum(1 for offset in bases.warp if offset[axis.value])
    if n_parts == 1:
        return []
    moved = 0
    for result in operation.results:
        size = count_bytes(result.type, count_elements(result.type))
        moved += size * (2 * n_parts + 1 + _find_replication(result.type, threads))
    return [(Quantity.SHARED_BYTES, moved), (Quantity.EXCHANGES, 1), (Quantity.BARRIERS, 2)]


def _find_bases(tile: TensorType, threads: ThreadCount) -> ThreadBases | None:
    if tile.layout is None:
        return None
    return find_thread_bases(tile.layout, tile.shape, threads.n_warps, threads.lanes)


def _count_body(operation: Operation) -> tuple[int, int]:
    """Return the XU and FMA operations of a reduction's body."""
    xu = fma = 0
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.name in _XU_OPERATIONS or inner.name in _FMA_OPERATIONS:
                    counts = _XU_OPERATIONS.get(inner.name, (0, 1))
                    xu, fma = xu + counts[0], fma + counts[1]
    return xu, fma


def _find_conversion_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    """Return the bytes of a change of layout: through shared memory where elements go to other warps."""
    source, result = operation.operands[0].type, operation.results[0].type
    if not isinstance(source, TensorType) or not isinstance(result, TensorType):
        return None
    before, after = _find_bases(source, threads), _find_bases(result, threads)
    if before is None or after is None or before.warp == after.warp:
        return None
    size = count_bytes(source, count_elements(source))
    moved = size + size * _find_replication(result, threads)
    return OperationWork(
        fixed=((Quantity.SHARED_BYTES, moved), (Quantity.EXCHANGES, 1), (Quantity.BARRIERS, 1)),
        type_name=name_type(source),
    )


Finder = Callable[[Operation, ThreadCount], OperationWork | None]
_FINDERS: dict[str, Finder] = {
    "tt.load": _find_load_work,
    "tt.store": _find_store_work,
    "tt.atomic_rmw": _find_atomic_work,
    "tt.atomic_cas": _find_atomic_work,
    "tt.descriptor_load": _find_descriptor_load_work,
    "tt.descriptor_gather": _find_descriptor_load_work,
    "tt.descriptor_store": _find_descriptor_store_work,
    "tt.descriptor_reduce": _find_descriptor_store_work,
    "tt.descriptor_scatter": _find_descriptor_store_work,
    "tt.experimental_descriptor_load": _find_descriptor_load_work,
    "tt.experimental_descriptor_store": _find_descriptor_store_work,
    "ttg.async_copy_global_to_local": _find_async_copy_work,
    "ttng.async_tma_copy_global_to_local": _find_bulk_load_work,
    "ttng.async_tma_gather": _find_bulk_load_work,
    "ttng.async_tma_copy_local_to_global": _find_bulk_store_work,
    "ttng.async_tma_reduce": _find_bulk_store_work,
    "ttng.async_tma_scatter": _find_bulk_store_work,
    "ttg.local_alloc": _find_shared_work,
    "ttg.local_load": _find_shared_work,
    "ttg.local_store": _find_shared_work,
    "tt.reduce": _find_reduction_work,
    "tt.scan": _find_reduction_work,
    "ttg.convert_layout": _find_conversion_work,
    "tt.extern_elementwise": _find_external_work,
    **dict.fromkeys(("tt.dot_scaled", *_DOTS), _find_dot_work),
    **dict.fromkeys(_TENSOR_MEMORY_DOTS, _find_tensor_memory_dot_work),
}
