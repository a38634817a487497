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
    DenseAttribute,
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
    dereference,
    walk_operations,
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
    shape: tuple[int, ...] = ()  # of the tile that it moves
    descriptor: Value | None = None  # whose extents cut the box off, with `indices`
    indices: tuple[Value, ...] = ()  # where its box starts; of rows that are gathered, their numbers
    uncounted: tuple[Quantity, ...] = ()  # of which it asks for an amount that is not known
    is_predicated: bool = False  # the mask is one flag that lets the operation run as a whole

    @property
    def elements(self) -> int:
        """Elements of the tile that it moves, those that a mask keeps out too."""
        return prod(self.shape)


UNKNOWN_WORK = OperationWork(uncounted=tuple(Quantity))
_UNKNOWN_ARITHMETIC = OperationWork(uncounted=(Quantity.XU_OPERATIONS, Quantity.FMA_OPERATIONS))
_UNKNOWN_PRODUCTS = OperationWork(uncounted=(Quantity.MMA_FMA, Quantity.FMA_OPERATIONS))
_EXCHANGE = (Quantity.SHARED_BYTES, Quantity.EXCHANGES, Quantity.BARRIERS)
_UNKNOWN_REDUCTION = OperationWork(uncounted=(*_UNKNOWN_ARITHMETIC.uncounted, *_EXCHANGE))
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
ASYNC_COPIES = frozenset(("ttg.async_copy_global_to_local", "ttg.insert_slice_async"))
_ATOMICS = frozenset(("tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "tt.atomic_store"))
POINTER_ACCESSES = _ATOMICS | ASYNC_COPIES | {"tt.load", "tt.store"}
_ROW_ACCESSES = frozenset(
    ("tt.descriptor_gather", "tt.descriptor_scatter", "ttng.async_tma_gather", "ttng.async_tma_scatter")
)
_FIRST_MASK = {  # operands before it may be truth values themselves
    "tt.store": 2, "tt.atomic_rmw": 2, "tt.atomic_store": 2,
}  # fmt: skip
_BARRIERS = frozenset(("gpu.barrier", "ttg.barrier", "ttg.local_barrier", "ttg.async_wait"))
_EXTERNAL_MUFU = {  # functions of libdevice by what they are made of
    "exp": 1, "exp2": 1, "exp10": 1, "expm1": 1, "log": 0, "log2": 0, "log1p": 0, "tanh": 2, "fast_expf": 1,
    "fast_logf": 1, "fast_sinf": 1, "fast_cosf": 1, "fast_dividef": 1, "rsqrt": 1, "sqrt": 1, "div_rn": 1,
    "fdiv_rn": 1, "erf": 1, "fast_tanhf": 1, "pow": 2, "fast_powf": 2,
}  # fmt: skip
_OPAQUE = frozenset(("tt.call", "tt.extern_elementwise", "tt.elementwise_inline_asm"))
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
    for letter in element.name.removeprefix("b").lstrip("fius"):
        if not letter.isdigit():
            break
        digits += letter
    return int(digits) if digits else 0


def count_bytes(kind: IrType, elements: int) -> int:
    """Return the bytes of elements of a type."""
    return elements * count_bits(kind) // 8


def find_shape(kind: IrType) -> tuple[int, ...]:
    """Return the shape of a tile, buffer or box; () of a number."""
    if isinstance(kind, TensorType | MemoryType):
        return kind.shape
    return kind.block.shape if isinstance(kind, DescriptorType) else ()


def count_elements(kind: IrType) -> int:
    """Return the elements of a tile, buffer or box; 1 of a number."""
    return prod(find_shape(kind))


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
    return _UNCOUNTED.get(operation.name)


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


def _find_external_work(operation: Operation, threads: ThreadCount) -> OperationWork:
    """Return the work of a function of libdevice, such as `__nv_tanhf`."""
    symbol = operation.find_attribute("symbol")
    name = symbol.text.strip('"@').removeprefix("__nv_") if isinstance(symbol, StringAttribute) else ""
    short = name.removesuffix("f")
    xu = _EXTERNAL_MUFU.get(name, _EXTERNAL_MUFU.get(short))
    if xu is None or not operation.results:
        return _UNKNOWN_ARITHMETIC
    counted = _XU_OPERATIONS.get(f"math.{short}")
    kind = operation.results[0].type
    elements = count_elements(kind)
    terms = [(Quantity.XU_OPERATIONS, xu * elements)]
    if counted is not None:
        terms.append((Quantity.FMA_OPERATIONS, counted[1] * elements))
    return OperationWork(
        fixed=tuple(terms),
        replication=_find_replication(kind, threads),
        type_name=name_type(kind),
        uncounted=(Quantity.FMA_OPERATIONS,) if counted is None else (),
    )


def _find_dot_work(operation: Operation, threads: ThreadCount) -> OperationWork:
    if len(operation.operands) < 2 or not operation.results:
        return _UNKNOWN_PRODUCTS
    a, result = operation.operands[0].type, operation.results[0].type
    if not isinstance(a, TensorType | MemoryType) or not isinstance(result, TensorType) or len(a.shape) < 2:
        return _UNKNOWN_PRODUCTS
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


def _find_tensor_memory_dot_work(operation: Operation, threads: ThreadCount) -> OperationWork:
    if len(operation.operands) < 3:
        return _UNKNOWN_PRODUCTS
    a, result = operation.operands[0].type, operation.operands[2].type
    if not isinstance(a, MemoryType) or not isinstance(result, MemoryType) or len(a.shape) < 2:
        return _UNKNOWN_PRODUCTS
    flags = [each for each in operation.operands[3:] if name_type(each.type) == "i1"]
    inner = a.shape[-1] * _find_packing(operation)
    return OperationWork(
        per_element=((Quantity.MMA_FMA, result.shape[-2] * result.shape[-1] * inner),),
        type_name=_name_product_type(operation, a),
        mask=flags[1] if len(flags) > 1 else None,
        is_predicated=True,
    )


def _find_moved(operation: Operation) -> IrType | None:
    """Return the type of what an access to global memory moves, None where the operation does not tell.

    Through pointers that is what they point to. Beside a descriptor it is the last tile or buffer: the
    numbers of rows and the buffer of a barrier stand before it.
    """
    if operation.name in POINTER_ACCESSES:
        moved = dereference(operation.operands[0].type) if operation.operands else None
    else:
        tiles = [
            each.type
            for each in (*operation.operands[1:], *operation.results)
            if isinstance(each.type, TensorType | MemoryType)
        ]
        moved = tiles[-1] if tiles else None
    return moved if moved is not None and count_bits(moved) else None


def _make_access_finder(quantity: Quantity) -> "Finder":
    """Return the function that finds the work of accesses to global memory, of which `quantity` counts."""

    def find(operation: Operation, threads: ThreadCount) -> OperationWork:
        moved = _find_moved(operation)
        if moved is None:
            return OperationWork(uncounted=(quantity,))
        size = max(1, count_bits(moved) // 8)
        shape = find_shape(moved)
        is_copy = operation.name in ASYNC_COPIES
        return OperationWork(
            fixed=((Quantity.SHARED_BYTES, size * prod(shape)),) if is_copy else (),
            per_element=((quantity, 1 if quantity is Quantity.ATOMICS else size),),
            replication=_find_replication(moved, threads) if operation.name == "tt.load" else 1,
            type_name=name_type(moved),
            mask=_find_mask(operation),
            shape=shape,
            descriptor=_find_descriptor(operation),
            indices=_find_indices(operation),
        )

    return find


def _find_mask(operation: Operation) -> Value | None:
    """Return the mask of an access, or the one flag of a bulk copy: its operand of truth values."""
    start = _FIRST_MASK.get(operation.name, 1)
    flags = [each for each in operation.operands[start:] if name_type(each.type) == "i1"]
    return flags[0] if flags else None


def _find_descriptor(operation: Operation) -> Value | None:
    """Return what cuts the box off: a descriptor, or a pointer to a block whose boundaries are checked."""
    first = operation.operands[0] if operation.operands else None
    if operation.name not in POINTER_ACCESSES:
        return first
    checked = operation.find_attribute("boundaryCheck")
    return first if isinstance(checked, DenseAttribute) and checked.values else None


def _find_indices(operation: Operation) -> tuple[Value, ...]:
    """Return where the box of a descriptor starts, as its operands say."""
    if operation.name in POINTER_ACCESSES:
        return ()
    rows = operation.operands[1:2] if operation.name in _ROW_ACCESSES else ()
    numbers = [
        each
        for each in operation.operands[1:]
        if isinstance(each.type, ScalarType) and name_type(each.type) != "i1"
    ]
    return (*rows, *numbers)


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
    tile = tiles[-1]  # a gather has the indices before it
    return OperationWork(
        fixed=((Quantity.SHARED_BYTES, count_bytes(tile, count_elements(tile))),),
        replication=_find_replication(tile, threads) if operation.results else 1,
        type_name=name_type(tile),
    )


def _find_reduction_work(operation: Operation, threads: ThreadCount) -> OperationWork:
    """Return the work of a reduction: its body once for each element but the first of those reduced.

    With a layout: within a thread, then by shuffles among lanes that hold parts of one result, and where
    warps hold parts, through shared memory: each warp stores its part, one their sum, and all load that.
    """
    source = operation.operands[0].type if operation.operands else None
    if not operation.regions or not isinstance(source, TensorType):
        return _UNKNOWN_REDUCTION  # Triton 2.0 names the operation by a number
    body = _count_body(operation)
    xu, fma = body or (0, 0)
    results = max(1, count_elements(operation.results[0].type)) if operation.results else 1
    steps = prod(source.shape) - results
    terms = [(Quantity.XU_OPERATIONS, xu * steps), (Quantity.FMA_OPERATIONS, fma * steps)]
    exchange = _find_exchange(operation, source, threads)
    return OperationWork(
        fixed=(*terms, *(exchange or [])),
        type_name=name_type(source),
        uncounted=(
            *(_EXCHANGE if exchange is None else ()),
            *(_UNKNOWN_ARITHMETIC.uncounted if body is None else ()),
        ),
    )


def _find_exchange(
    operation: Operation, source: TensorType, threads: ThreadCount
) -> list[tuple[Quantity, int]] | None:
    """Return what a reduction or scan exchanges through shared memory, None if it is not known.

    It is nothing where each result is in one warp, and where layouts are not given.
    """
    if not threads.has_layouts:
        return []
    axis, bases = operation.find_attribute("axis"), _find_bases(source, threads)
    if bases is None or not isinstance(axis, IntegerAttribute) or not 0 <= axis.value < len(source.shape):
        return None
    n_parts = 2 ** sum(1 for offset in bases.warp if offset[axis.value])
    if n_parts == 1:
        return []
    if operation.name != "tt.reduce":
        return None
    moved = 0
    for result in operation.results:
        size = count_bytes(result.type, count_elements(result.type))
        moved += size * (2 * n_parts + 1 + _find_replication(result.type, threads))
    return [(Quantity.SHARED_BYTES, moved), (Quantity.EXCHANGES, 1), (Quantity.BARRIERS, 2)]


def _find_bases(tile: TensorType, threads: ThreadCount) -> ThreadBases | None:
    if tile.layout is None:
        return None
    return find_thread_bases(tile.layout, tile.shape, threads.n_warps, threads.lanes)


def _count_body(operation: Operation) -> tuple[int, int] | None:
    """Return the XU and FMA operations of a reduction's body, None where they are not known."""
    inner = list(walk_operations(operation.regions))
    if any(each.name in _UNCOUNTED or each.name in _OPAQUE for each in inner):
        return None
    counts = [_XU_OPERATIONS.get(each.name, (0, int(each.name in _FMA_OPERATIONS))) for each in inner]
    return sum(xu for xu, _ in counts), sum(fma for _, fma in counts)


def _find_conversion_work(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    """Return the bytes of a change of layout: through shared memory where elements go to other warps."""
    source, result = operation.operands[0].type, operation.results[0].type
    if not isinstance(source, TensorType) or not isinstance(result, TensorType):
        return None
    before, after = _find_bases(source, threads), _find_bases(result, threads)
    if before is None or after is None:
        return OperationWork(uncounted=_EXCHANGE) if threads.has_layouts else None
    if before.warp == after.warp:
        return None
    size = count_bytes(source, count_elements(source))
    moved = size + size * _find_replication(result, threads)
    return OperationWork(
        fixed=((Quantity.SHARED_BYTES, moved), (Quantity.EXCHANGES, 1), (Quantity.BARRIERS, 1)),
        type_name=name_type(source),
    )


def _find_unknown_exchange(operation: Operation, threads: ThreadCount) -> OperationWork | None:
    """Return the work of what goes through shared memory in a way that depends on the layout, in TTGIR."""
    return OperationWork(uncounted=_EXCHANGE) if threads.has_layouts else None


def _find_assembly_work(operation: Operation, threads: ThreadCount) -> OperationWork:
    """Return the work of inline assembly: without effects it computes, else it may do anything."""
    pure = operation.find_attribute("pure")
    return _UNKNOWN_ARITHMETIC if isinstance(pure, IntegerAttribute) and pure.value else UNKNOWN_WORK


Finder = Callable[[Operation, ThreadCount], OperationWork | None]
_FINDERS: dict[str, Finder] = {
    **dict.fromkeys(
        ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "ttng.async_tma_copy_global_to_local"),
        _make_access_finder(Quantity.BYTES_LOADED),
    ),
    **dict.fromkeys(("ttng.async_tma_gather", *ASYNC_COPIES), _make_access_finder(Quantity.BYTES_LOADED)),
    **dict.fromkeys(
        ("tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.descriptor_scatter"),
        _make_access_finder(Quantity.BYTES_STORED),
    ),
    **dict.fromkeys(
        ("ttng.async_tma_copy_local_to_global", "ttng.async_tma_reduce", "ttng.async_tma_scatter"),
        _make_access_finder(Quantity.BYTES_STORED),
    ),
    **dict.fromkeys(_ATOMICS, _make_access_finder(Quantity.ATOMICS)),
    **dict.fromkeys(
        ("ttg.local_alloc", "ttg.local_load", "ttg.local_store", "ttg.local_gather"), _find_shared_work
    ),
    **dict.fromkeys(("tt.reduce", "tt.scan"), _find_reduction_work),
    **dict.fromkeys(("tt.gather", "tt.histogram"), _find_unknown_exchange),
    "ttg.convert_layout": _find_conversion_work,
    "tt.extern_elementwise": _find_external_work,
    "tt.elementwise_inline_asm": _find_assembly_work,
    **dict.fromkeys(("tt.dot_scaled", *_DOTS), _find_dot_work),
    **dict.fromkeys(_TENSOR_MEMORY_DOTS, _find_tensor_memory_dot_work),
}
_UNCOUNTED: dict[str, OperationWork] = {  # operations that read, but whose work nothing here tells
    **dict.fromkeys(
        (
            *("math.acos", "math.acosh", "math.asin", "math.asinh", "math.atan", "math.atan2", "math.atanh"),
            *("math.cbrt", "math.cosh", "math.erfc", "math.expm1", "math.fpowi", "math.log10", "math.log1p"),
            *("math.powf", "math.sinh", "math.tan", "arith.remf", "tt.approx_divf", "tt.map_elementwise"),
            "ttng.packed_arith",
        ),
        _UNKNOWN_ARITHMETIC,
    ),
    **dict.fromkeys(
        ("ttg.local_scatter", "ttg.local_atomic_scatter_rmw", "ttng.async_shared_store"),
        OperationWork(uncounted=_EXCHANGE),
    ),
    **dict.fromkeys(
        ("ttg.inline_asm", "llvm.inline_asm", "llvm.call", "llvm.call_intrinsic", "tt.atomic_poll"),
        UNKNOWN_WORK,
    ),
    **dict.fromkeys(("scf.parallel", "scf.forall", "scf.index_switch", "scf.reduce"), UNKNOWN_WORK),
}
