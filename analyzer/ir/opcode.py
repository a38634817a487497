"""Opcodes: the properties of an instruction that follow from its name and modifiers alone."""

from enum import StrEnum

from msgspec import Struct

from analyzer.ir.scheduling import SchedClass, TensorRate


class OpKind(StrEnum):
    """Operation of an instruction, as control flow, resource demand and reports distinguish it."""

    INTEGER = "integer"
    FLOAT = "float"
    HALF = "half"
    DOUBLE = "double"
    CONVERT = "convert"
    SPECIAL_FUNCTION = "special_function"
    MOVE = "move"
    PREDICATE = "predicate"
    MMA = "mma"
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    REDUCTION = "reduction"
    ASYNC_COPY = "async_copy"  # LDGSTS: each lane copies global to shared
    BULK_COPY = "bulk_copy"  # TMA and other engines: one thread, many bytes
    PREFETCH = "prefetch"
    TEXTURE = "texture"
    FENCE = "fence"
    BARRIER = "barrier"  # CTA and cluster barriers, mbarriers
    SHUFFLE = "shuffle"
    VOTE = "vote"
    SPECIAL_REGISTER = "special_register"
    CONTROL = "control"  # no effect on the order of instructions
    NOP = "nop"
    # control flow
    BRANCH = "branch"
    BRANCH_INDIRECT = "branch_indirect"
    CALL = "call"
    RETURN = "return"
    EXIT = "exit"
    CONVERGENCE_OPEN = "convergence_open"  # BSSY: names where the warp reconverges
    CONVERGENCE_WAIT = "convergence_wait"  # BSYNC
    CONVERGENCE_BREAK = "convergence_break"
    WARP_SYNC = "warp_sync"  # with a target: .COLLECTIVE, .EXCLUSIVE
    UNKNOWN = "unknown"


class Semantics(StrEnum):
    """Effects that abstract execution, static trip counts and scoreboard waits evaluate."""

    INT_COMPARE = "int_compare"
    INT_ADD = "int_add"
    INT_MAD = "int_mad"
    INT_DOT = "int_dot"
    INT_SHIFT_ADD = "int_shift_add"
    INT_SCALED_ADD = "int_scaled_add"
    INT_MIN_MAX = "int_min_max"
    INT_ADD_MIN_MAX = "int_add_min_max"
    INT_ABSOLUTE = "int_absolute"
    INT_DISTANCE = "int_distance"
    INT_DIVIDE = "int_divide"  # of 64 bits, in virtual code
    # bitwise
    LOGIC = "logic"
    LOGIC_OF_TWO = "logic_of_two"
    FUNNEL_SHIFT = "funnel_shift"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    PERMUTE = "permute"
    BIT_MASK = "bit_mask"
    SIGN_EXTEND = "sign_extend"
    LEADING_BIT = "leading_bit"
    BIT_COUNT = "bit_count"
    BIT_REVERSE = "bit_reverse"
    # predicates
    PREDICATE_LOGIC = "predicate_logic"
    PREDICATE_COMPARE = "predicate_compare"
    PREDICATES_TO_WORD = "predicates_to_word"
    WORD_TO_PREDICATES = "word_to_predicates"
    # moves
    MOVE = "move"
    SELECT = "select"
    SPECIAL_MOVE = "special_move"
    SPECIAL_READ = "special_read"
    HALF_FMA = "half_fma"
    CONSTANT_LOAD = "constant_load"
    # across lanes
    FIRST_LANE = "first_lane"
    VOTE = "vote"
    ELECT = "elect"
    SHUFFLE = "shuffle"
    LANE_REDUCTION = "lane_reduction"
    LANE_MATCH = "lane_match"
    # floating point
    INT_TO_FLOAT = "int_to_float"
    FLOAT_TO_INT = "float_to_int"
    FLOAT_TO_FLOAT = "float_to_float"
    FLOAT_ROUND = "float_round"
    FLOAT_FUNCTION = "float_function"
    FLOAT_ADD = "float_add"
    FLOAT_MULTIPLY = "float_multiply"
    FLOAT_FMA = "float_fma"
    FLOAT_MIN_MAX = "float_min_max"
    FLOAT_COMPARE = "float_compare"
    FLOAT_SELECT = "float_select"
    FLOAT_SET = "float_set"
    DIVISION_CHECK = "division_check"
    DOUBLE_ADD = "double_add"
    DOUBLE_MULTIPLY = "double_multiply"
    DOUBLE_FMA = "double_fma"
    DOUBLE_MIN_MAX = "double_min_max"
    DOUBLE_COMPARE = "double_compare"
    # across the CTA
    BARRIER_REDUCTION = "barrier_reduction"  # of a predicate over all threads that come to a barrier
    BARRIER_RESULT = "barrier_result"  # reads the last such result
    # waits
    WAIT_SCOREBOARD = "wait_scoreboard"
    WAIT_WARPGROUP = "wait_warpgroup"
    SLEEP = "sleep"
    TRAP = "trap"  # ends the launch with an error
    MEMORY_FENCE = "memory_fence"  # waits until the stores before it are visible in its scope
    NEXT_CTA = "next_cta"
    # mbarriers
    MBARRIER_WAIT = "mbarrier_wait"
    MBARRIER_ARRIVE = "mbarrier_arrive"
    MBARRIER_COMMIT = "mbarrier_commit"  # arrives when the tensor core is done
    MBARRIER_COPY = "mbarrier_copy"  # completes its bytes when they have arrived
    # copy engine
    BULK_STORE = "bulk_store"  # from shared to global memory
    BULK_REDUCTION = "bulk_reduction"  # the same, as a reduction


class AddressSpace(StrEnum):
    """Memory that an instruction accesses, as PTX names state spaces."""

    GLOBAL = "global"
    SHARED = "shared"
    DISTRIBUTED_SHARED = "distributed_shared"
    LOCAL = "local"
    CONSTANT = "constant"
    GENERIC = "generic"
    TEXTURE = "texture"
    TENSOR = "tensor"


class DataType(StrEnum):
    """Element types of matrix instructions."""

    F64 = "f64"
    F32 = "f32"
    TF32 = "tf32"
    F16 = "f16"
    BF16 = "bf16"
    E5M2 = "e5m2"
    E4M3 = "e4m3"
    E3M2 = "e3m2"
    E2M3 = "e2m3"
    E2M1 = "e2m1"
    S8 = "s8"
    U8 = "u8"
    S4 = "s4"
    U4 = "u4"
    B1 = "b1"
    S32 = "s32"


class MmaShape(Struct, frozen=True):
    """The matrix product of one instruction: D[m, n] = A[m, k] B[k, n] + C[m, n]."""

    m: int
    n: int
    k: int
    is_sparse: bool
    tensor_rate: TensorRate
    accumulator_bits: int
    n_warps: int = 1  # that execute the instruction together: 4 for a warpgroup

    @property
    def n_fmas(self) -> int:
        """Multiply-adds of the product, as if it were dense."""
        return self.m * self.n * self.k


class Opcode(Struct, frozen=True, kw_only=True):
    """An opcode with its modifiers and what the opcode table says about it.

    Later packages decide by these properties and by modifiers; a few compare `name` with an opcode that no
    property tells apart, such as LEPC or UTCATOMSWS.
    """

    name: str
    modifiers: tuple[str, ...]
    kind: OpKind
    sched_class: SchedClass
    destination_pattern: str  # operands that are written, see `OpcodeRow.writes`
    registers_by_operand: tuple[int, ...]  # 32-bit registers, by place among non-predicate operands
    operand_registers: int  # 32-bit registers of the operands that this tuple does not cover
    width_bytes: int  # bytes that one lane moves (memory instructions, else 0)
    flops: int  # floating-point or integer-dot operations of one lane without MMA; an FMA counts two
    space: AddressSpace | None
    mma_shape: MmaShape | None
    semantics: Semantics | None
    is_known: bool  # False if the opcode is not in the table and got the conservative class

    @property
    def mnemonic(self) -> str:
        """Name and modifiers as printed: `LDG.E.128`."""
        return ".".join((self.name, *self.modifiers))


CONTROL_FLOW_KINDS = frozenset(
    {
        OpKind.BRANCH,
        OpKind.BRANCH_INDIRECT,
        OpKind.CALL,
        OpKind.RETURN,
        OpKind.EXIT,
        OpKind.CONVERGENCE_OPEN,
        OpKind.CONVERGENCE_WAIT,
        OpKind.CONVERGENCE_BREAK,
        OpKind.WARP_SYNC,
    }
)
MBARRIER_SEMANTICS = frozenset(
    {
        Semantics.MBARRIER_WAIT,
        Semantics.MBARRIER_ARRIVE,
        Semantics.MBARRIER_COMMIT,
        Semantics.MBARRIER_COPY,
    }
)
BULK_WRITE_SEMANTICS = frozenset({Semantics.BULK_STORE, Semantics.BULK_REDUCTION})
ATOMIC_KINDS = frozenset({OpKind.ATOMIC, OpKind.REDUCTION})
ARITHMETIC_KINDS = frozenset(
    {
        OpKind.INTEGER,
        OpKind.FLOAT,
        OpKind.HALF,
        OpKind.DOUBLE,
        OpKind.CONVERT,
        OpKind.SPECIAL_FUNCTION,
        OpKind.PREDICATE,
    }
)
GLOBAL_SPACES = frozenset({AddressSpace.GLOBAL, AddressSpace.GENERIC})
SHARED_SPACES = frozenset({AddressSpace.SHARED, AddressSpace.DISTRIBUTED_SHARED})
MEMORY_KINDS = frozenset(
    {
        OpKind.LOAD,
        OpKind.STORE,
        OpKind.ATOMIC,
        OpKind.REDUCTION,
        OpKind.ASYNC_COPY,
        OpKind.BULK_COPY,
        OpKind.TEXTURE,
    }
)


def accesses_local_memory(opcode: Opcode) -> bool:
    """Return whether an instruction loads from or stores to local memory."""
    return opcode.kind in MEMORY_KINDS and opcode.space is AddressSpace.LOCAL


def is_warpgroup_mma(opcode: Opcode) -> bool:
    """Return whether an instruction is the product of a warpgroup (wgmma)."""
    return opcode.sched_class is SchedClass.MMA_WARPGROUP


def is_cta_barrier(opcode: Opcode) -> bool:
    """Return whether an instruction is a barrier of a CTA."""
    return opcode.sched_class is SchedClass.CTA_BARRIER


def is_global_load(opcode: Opcode) -> bool:
    """Return whether an instruction loads from global memory, by a generic address too."""
    return opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES


def waits_for_others(opcode: Opcode) -> bool:
    """Return whether a thread waits for others at an mbarrier, or at the barrier of a cluster."""
    return opcode.semantics is Semantics.MBARRIER_WAIT or opcode.sched_class is SchedClass.CLUSTER_BARRIER
