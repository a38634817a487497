"""Triton IR (TTIR and TTGIR) as operations and regions, as the grammar reads them.

It is MLIR in textual form. An operation in pretty form and the same in generic form read to the same value:

    %8 = tt.load %7, %6 {cache = 1 : i32} : tensor<128x!tt.ptr<f32>, #blocked> loc(#loc4)
    Operation(name="tt.load", results=(%8,), operands=(%7, %6), attributes=(("cache", 1 : i32),), …)

Where the pretty form leaves types out, they are derived (a result of `tt.load` has the pointee type of its
operand), so every value of a module has a type. Aliases (`#blocked`, `#mma`, `!type`) are resolved.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from analyzer.ir.module import SourceLine


class ScalarType(Struct, frozen=True):
    """`i32`, `f16`, `bf16`, `f8E4M3FN`, `index`, `i1`."""

    name: str


class PointerType(Struct, frozen=True):
    """`!tt.ptr<f16>`."""

    pointee: "IrType"
    address_space: int = 1


class Layout(Struct, frozen=True):
    """A layout attribute: `#ttg.blocked<{sizePerThread = [1, 4], …}>`; what it holds is in `fields`.

    A layout that wraps another (slice, dot operand) holds it as a field's value.
    """

    kind: str  # `blocked`, `nvidia_mma`, `dot_op`, `slice`, `linear`, `swizzled_shared`, `nvmma_shared`, …
    fields: "tuple[tuple[str, Attribute], ...]" = ()


class TensorType(Struct, frozen=True):
    """`tensor<128x64xf16, #blocked>`: a tile over the threads of a CTA; without a layout in TTIR."""

    shape: tuple[int, ...]
    element: "IrType"
    layout: Layout | None = None


class MemoryType(Struct, frozen=True):
    """`!ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>`: a buffer in shared or tensor memory."""

    shape: tuple[int, ...]
    element: "IrType"
    layout: Layout | None
    memory_space: str  # `shared_memory`, `tensor_memory`
    is_mutable: bool = False


class DescriptorType(Struct, frozen=True):
    """`!tt.tensordesc<tensor<128x64xf16>>`: a tensor descriptor for the copy engine."""

    block: TensorType


class OpaqueType(Struct, frozen=True):
    """Any other type, as written: `!ttg.async.token`, a function type."""

    text: str


IrType = ScalarType | PointerType | TensorType | MemoryType | DescriptorType | OpaqueType


def dereference(pointers: IrType) -> IrType | None:
    """Return the type of what pointers point to, None if they are none.

    `tensor<8xf32>` for `tensor<8x!tt.ptr<f32>>`, and for the block pointer `!tt.ptr<tensor<8xf32>>`.
    """
    if isinstance(pointers, PointerType):
        return pointers.pointee
    if isinstance(pointers, TensorType) and isinstance(pointers.element, PointerType):
        return TensorType(pointers.shape, pointers.element.pointee, pointers.layout)
    return None


class IntegerAttribute(Struct, frozen=True):
    """`128 : i32`, `true`."""

    value: int
    type_name: str = ""


class FloatAttribute(Struct, frozen=True):
    """`0.000000e+00 : f32`, `0xFF800000 : f32`."""

    value: float
    type_name: str = ""


class StringAttribute(Struct, frozen=True):
    """`"cuda:90"`, a symbol `@name`, an enumeration `tf32`, or any attribute that is not read further."""

    text: str


class DenseAttribute(Struct, frozen=True):
    """`dense<0.0> : tensor<128xf32>`, `array<i32: 1, 2>`, `[1, 2]`: values in order; a splat has one."""

    values: "tuple[Attribute, ...]"
    type: IrType | None = None


class DictionaryAttribute(Struct, frozen=True):
    """`{a = 1, b = [2]}`."""

    entries: "tuple[tuple[str, Attribute], ...]"


class TypeAttribute(Struct, frozen=True):
    """A type as an attribute."""

    type: IrType


Attribute = (
    IntegerAttribute
    | FloatAttribute
    | StringAttribute
    | DenseAttribute
    | DictionaryAttribute
    | TypeAttribute
    | Layout
)


class Value(Struct, frozen=True):
    """A result or block argument: its name is unique in its function (`%8`, `%acc#1` for one of several)."""

    name: str
    type: IrType


class Block(Struct, frozen=True):
    """A block: arguments and operations; the last one is its terminator."""

    label: str  # `^bb1`; "" for the only block of a region
    arguments: tuple[Value, ...]
    operations: "tuple[Operation, ...]"


class Region(Struct, frozen=True):
    """The blocks inside an operation."""

    blocks: tuple[Block, ...]


class Operation(Struct, frozen=True, kw_only=True):
    """One operation."""

    name: str  # with its dialect: `tt.dot`, `scf.for`, `arith.addi`
    results: tuple[Value, ...]
    operands: tuple[
        Value, ...
    ]  # in the order of the operation's definition: scf.for has lower, upper, step, initial values
    attributes: tuple[tuple[str, Attribute], ...]
    regions: tuple[Region, ...]
    line: int  # of the file
    source_line: SourceLine | None  # of its location, with `inlined_at`
    successors: tuple[str, ...] = ()  # labels of blocks
    successor_operands: tuple[tuple[Value, ...], ...] = ()

    def find_attribute(self, name: str) -> Attribute | None:
        """Return an attribute, None if the operation has none of that name."""
        return next((value for key, value in self.attributes if key == name), None)

    @property
    def callee(self) -> str:
        """Name of the function that it calls, "" if it calls none."""
        found = self.find_attribute("callee")
        return found.text.lstrip("@").strip('"') if isinstance(found, StringAttribute) else ""


def walk_operations(regions: Iterable[Region]) -> Iterator[Operation]:
    """Yield all operations of regions, those inside of others too."""
    for region in regions:
        for block in region.blocks:
            for operation in block.operations:
                yield operation
                yield from walk_operations(operation.regions)


class TritonFunction(Struct, frozen=True, kw_only=True):
    """A kernel (public) or a function that it calls (private); the arguments are those of its first block."""

    name: str
    is_public: bool
    arguments: tuple[Value, ...]
    argument_names: tuple[str, ...]  # of the source, "" where the code has none
    argument_divisibility: tuple[int, ...]  # `tt.divisibility`, 1 where not given
    result_types: tuple[IrType, ...]
    body: Region  # without blocks: a declaration
    line: int


class TritonModule(Struct, frozen=True, kw_only=True):
    """A TTIR or TTGIR file."""

    level: str  # `ttir` or `ttgir`: the latter has layouts
    target: str  # `cuda:90`; "" in TTIR
    n_warps: int | None
    threads_per_warp: int
    n_ctas: int  # CTAs of a cluster
    attributes: tuple[tuple[str, Attribute], ...]  # of the module: `ttg.shared`, `ttg.maxnreg`, …
    functions: tuple[TritonFunction, ...]
    unknown_operations: tuple[
        tuple[str, int], ...
    ] = ()  # names that no rule of the grammar knows, and how often
