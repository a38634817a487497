"""A PTX module as its statements: what the grammar reads, before it is lowered to instructions of a target.

Names keep their `%` and are unique in a function: a register declared again in an inner scope, as inline
assembly does (`{ .reg .b32 t; … }`), gets a suffix, so a scope leaves no other trace: `t`, `t$1`. A label of
an inner scope always gets one, because the function may have a label of this name further down.

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
    is_minus: bool = False  # `-%r1`, which only video instructions allow
    part: str = ""  # `b0`, `h1`: a byte or half of it, as video instructions select them


class PtxSymbol(Struct, frozen=True):
    """The name of a variable, parameter, function or label; with an offset, `sym+8`, an address."""

    name: str
    offset: int = 0
    is_generic: bool = False  # `generic(sym)`: its address in the generic space


class PtxImmediate(Struct, frozen=True):
    """A constant; `0f3F800000` and `0d…` are the numbers they stand for, as floats."""

    value: int | float


class PtxAddress(Struct, frozen=True):
    """`[%rd1+16]`, `[symbol]`, `[map, {%r1, %r2}]`: a base, a byte offset, and coordinates of a tensor."""

    base: "PtxRegister | PtxSymbol | None"  # None: the offset is the address
    offset: int = 0
    coordinates: "tuple[PtxOperand, ...]" = ()
    sampler: "PtxRegister | PtxSymbol | None" = None  # `[texture, sampler, {%f1, %f2}]`


class PtxSum(Struct, frozen=True):
    """`%r1+4` as a value: the register, and a constant that is added to it."""

    base: PtxRegister
    offset: int


class PtxVector(Struct, frozen=True):
    """`{%r1, %r2}`; also `(%r1, %r2)`, the arguments and results of a call."""

    elements: "tuple[PtxOperand, ...]"


class PtxPair(Struct, frozen=True):
    """Two destinations: `%p1|%p2`."""

    first: PtxRegister
    second: PtxRegister


PtxOperand = PtxRegister | PtxSymbol | PtxImmediate | PtxAddress | PtxSum | PtxVector | PtxPair


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


class PtxReference(Struct, frozen=True):
    """An address in an initializer: of a symbol, or the byte of it that `0xFF00(sym)` selects."""

    position_bytes: int
    symbol: PtxSymbol
    mask: int | None = None


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
    pointer_alignment_bytes: int = 0  # of what it points to, 0 where it is not said
    is_extern: bool = False
    initial: bytes | None = None  # what an initializer says; bytes after it, and those of addresses, are 0
    references: tuple[PtxReference, ...] = ()  # addresses in the initializer


class PtxFunction(Struct, frozen=True, kw_only=True):
    """A kernel or a device function."""

    name: str
    is_entry: bool
    is_declaration: bool  # without a body
    parameters: tuple[PtxVariable, ...]
    results: tuple[PtxVariable, ...]  # of a device function
    register_types: dict[str, str]  # each register that a statement names, to its type: `pred`, `b32`, `f64`
    variables: tuple[PtxVariable, ...]  # declared inside, shared and local ones
    statements: tuple[PtxStatement, ...]
    line: int
    max_threads: tuple[int, ...] = ()  # `.maxntid`
    required_threads: tuple[int, ...] = ()  # `.reqntid`
    min_ctas_per_sm: int | None = None  # `.minnctapersm`
    max_registers: int | None = None  # `.maxnreg`
    cluster_size: tuple[int, ...] = ()  # `.reqnctapercluster`, or `.explicitcluster` without one: empty
    linkage: str = ""  # `visible`, `extern`, `weak`
    prototypes: "tuple[PtxFunction, ...]" = ()  # `.callprototype`s, by label


class PtxModule(Struct, frozen=True, kw_only=True):
    """A PTX file."""

    version: str  # of the PTX ISA: `8.7`
    target: str  # `sm_90a`
    address_bits: int
    variables: tuple[PtxVariable, ...]
    functions: tuple[PtxFunction, ...]
    target_options: tuple[str, ...] = ()  # `debug`, `texmode_independent`
    aliases: tuple[tuple[str, str], ...] = ()  # `.alias f, g;`: f is another name of g
