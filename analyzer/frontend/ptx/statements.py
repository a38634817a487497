"""A PTX module as its statements: what the grammar reads, before it is lowered to instructions of a target.

Names keep their `%` and are unique in a function: a register declared again in an inner scope, as inline
assembly does (`{ .reg .b32 t; … }`), gets a suffix, so a scope leaves no other trace.

    @!%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd3+16];
    PtxInstruction("ld", ("global", "v4", "b32"), guard=PtxGuard("%p1", True),
                   operands=(PtxVector((%r1, %r2, %r3, %r4)), PtxAddress(PtxRegister("%rd3"), 16)))
"""

from msgspec import Struct

from analyzer.ir.module import SourceLine


class PtxRegister(Struct, frozen=True):
    """A register of the function, a special register (`%tid.x`), or `_`, which discards a result."""

    name: str
    is_negated: bool = False  # `!%p1` as an operand


class PtxSymbol(Struct, frozen=True):
    """The name of a variable, parameter, function or label."""

    name: str


class PtxImmediate(Struct, frozen=True):
    """A constant; `0f3F800000` and `0d…` are the numbers they stand for, as floats."""

    value: int | float


class PtxAddress(Struct, frozen=True):
    """`[%rd1+16]`, `[symbol]`, `[map, {%r1, %r2}]`: a base, a byte offset, and coordinates of a tensor."""

    base: "PtxRegister | PtxSymbol | None"  # None: the offset is the address
    offset: int = 0
    coordinates: "tuple[PtxOperand, ...]" = ()


class PtxVector(Struct, frozen=True):
    """`{%r1, %r2}`; also `(%r1, %r2)`, the arguments and results of a call."""

    elements: "tuple[PtxOperand, ...]"


class PtxPair(Struct, frozen=True):
    """Two destinations: `%p1|%p2`."""

    first: PtxRegister
    second: PtxRegister


PtxOperand = PtxRegister | PtxSymbol | PtxImmediate | PtxAddress | PtxVector | PtxPair


class PtxGuard(Struct, frozen=True):
    """The predicate before an instruction."""

    register: str
    is_negated: bool


class PtxInstruction(Struct, frozen=True, kw_only=True):
    """One instruction."""

    name: str  # up to the first dot: `ld`, `mma`, `wgmma`, `cp`
    modifiers: tuple[str, ...]  # what follows, in order and without dots; `shared::cta` is one
    guard: PtxGuard | None
    operands: tuple[PtxOperand, ...]
    text: str  # as written, white space reduced, without the semicolon
    line: int  # of the file
    source_line: SourceLine | None  # as `.loc` gives it, with `inlined_at`
    pragmas: tuple[str, ...] = ()  # `.pragma` strings that stand before it


class PtxLabel(Struct, frozen=True):
    """A label; unique in the function, as registers are."""

    name: str
    line: int


class PtxBranchTargets(Struct, frozen=True):
    """`name: .branchtargets L1, L2;`: the targets of `brx.idx`; or a `.calltargets` list."""

    name: str
    targets: tuple[str, ...]


PtxStatement = PtxInstruction | PtxLabel | PtxBranchTargets


class PtxVariable(Struct, frozen=True, kw_only=True):
    """A variable or parameter: `.shared .align 16 .b8 smem[64]`, `.param .u64 .ptr .global .align 1 p`."""

    name: str
    space: str  # `param`, `shared`, `global`, `const`, `local`
    type_name: str  # `u64`, `b8`
    n_elements: int  # 1 for a scalar, 0 for `[]`
    n_bytes: int  # of all elements
    alignment_bytes: int
    is_pointer: bool = False  # `.ptr`
    pointer_space: str = ""  # `global`, as `.ptr .global` says
    is_extern: bool = False
    initial: bytes | None = None  # of a constant or global variable with an initializer of numbers


class PtxFunction(Struct, frozen=True, kw_only=True):
    """A kernel or a device function."""

    name: str
    is_entry: bool
    is_declaration: bool  # without a body
    parameters: tuple[PtxVariable, ...]
    results: tuple[PtxVariable, ...]  # of a device function
    register_types: dict[str, str]  # name of each register to its type: `pred`, `b32`, `f64`
    variables: tuple[PtxVariable, ...]  # declared inside, shared and local ones
    statements: tuple[PtxStatement, ...]
    line: int
    max_threads: tuple[int, ...] = ()  # `.maxntid`
    required_threads: tuple[int, ...] = ()  # `.reqntid`
    min_ctas_per_sm: int | None = None  # `.minnctapersm`
    max_registers: int | None = None  # `.maxnreg`
    cluster_size: tuple[int, ...] = ()  # `.reqnctapercluster`, or `.explicitcluster` without one: empty


class PtxModule(Struct, frozen=True, kw_only=True):
    """A PTX file."""

    version: str  # of the PTX ISA: `8.7`
    target: str  # `sm_90a`
    address_bits: int
    variables: tuple[PtxVariable, ...]
    functions: tuple[PtxFunction, ...]
