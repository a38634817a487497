"""Names that the ISA tables and the hardware database share: scheduling classes, pipes, tensor rates, bases.

They lie below both, so that neither imports the other: the ISA maps an opcode to a scheduling class, the file
of an architecture maps the class to a pipe, an issue interval and a latency.
"""

from enum import StrEnum

WARP_SIZE = 32  # lanes


class Basis(StrEnum):
    """Origin of a hardware parameter, most reliable first."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    VENDOR = "vendor"
    ASSUMED = "assumed"


def find_weakest_basis(*bases: Basis) -> Basis:
    """Return the least trustworthy of several bases: that of a result which uses all of them."""
    return max(bases, key=tuple(Basis).index)


class Pipe(StrEnum):
    """Execution pipes of a sub-core, named as Nsight Compute names them."""

    ALU = "alu"
    FMA = "fma"
    FMALITE = "fmalite"
    FP16 = "fp16"
    FP64 = "fp64"
    XU = "xu"
    TENSOR = "tensor"
    TC = "tc"
    LSU = "lsu"
    TEX = "tex"
    TMA = "tma"
    TMEM = "tmem"
    UNIFORM = "uniform"
    ADU = "adu"
    CBU = "cbu"
    FRONTEND = "frontend"


# One per SM, not per sub-core; an elected thread issues to it.
SM_LEVEL_PIPES = frozenset({Pipe.TC, Pipe.TMA})


class Completion(StrEnum):
    """Way in which a consumer waits for a result, which names its stall in Nsight Compute."""

    FIXED = "fixed"
    SHORT_SCOREBOARD = "short_scoreboard"
    LONG_SCOREBOARD = "long_scoreboard"


class SchedClass(StrEnum):
    """Scheduling classes: instructions of one class share a pipe, an issue interval and a latency."""

    # arithmetic
    INT_ADD = "int_add"  # IADD3, IADD: some chips have more lanes for them than for logic
    INT_LOGIC = "int_logic"  # LOP3, SHF, PRMT, LEA, SEL, MOV, ISETP
    INT_MINMAX = "int_minmax"
    INT_MUL = "int_mul"  # IMAD, IDP
    INT_MUL_WIDE = "int_mul_wide"  # IMAD.WIDE, IMAD.HI
    FP32 = "fp32"  # FFMA, FADD, FMUL
    FP32_PACKED = "fp32_packed"  # FFMA2, FADD2, FMUL2
    FP32_COMPARE = "fp32_compare"  # FMNMX, FSETP, FSEL, FSET
    FP16 = "fp16"  # HFMA2, HADD2, HMUL2
    FP16_MMA_PIPE = "fp16_mma_pipe"  # HFMA2.MMA
    FP16_COMPARE = "fp16_compare"
    FP64 = "fp64"
    PACK_CONVERT = "pack_convert"  # F2FP, I2FP, F2IP, I2IP: conversions on the ALU
    CONVERT = "convert"  # I2F, F2I, F2F, FRND of at most 32 bits
    CONVERT_64 = "convert_64"
    SPECIAL_FUNCTION = "special_function"  # MUFU
    BIT_COUNT = "bit_count"  # POPC, FLO, BREV
    # across lanes
    VOTE = "vote"
    SHUFFLE = "shuffle"
    REDUX = "redux"
    MATCH = "match"
    MATRIX_MOVE = "matrix_move"  # MOVM
    # special registers and constants
    SPECIAL_REGISTER = "special_register"  # S2R, S2UR
    SPECIAL_REGISTER_FAST = "special_register_fast"  # CS2R
    CONSTANT_LOAD = "constant_load"  # LDC
    UNIFORM_CONSTANT_LOAD = "uniform_constant_load"  # ULDC: fixed latency
    UNIFORM_CONSTANT_LOAD_ASYNC = "uniform_constant_load_async"  # LDCU: scoreboarded
    UNIFORM = "uniform"
    UNIFORM_FLOAT = "uniform_float"
    TO_UNIFORM = "to_uniform"  # R2UR, VOTEU
    # tensor
    MMA_HALF = "mma_half"  # HMMA
    MMA_INT = "mma_int"
    MMA_BINARY = "mma_binary"
    MMA_DOUBLE = "mma_double"
    MMA_FP8 = "mma_fp8"  # QMMA
    MMA_FP4 = "mma_fp4"  # OMMA
    MMA_WARPGROUP = "mma_warpgroup"  # HGMMA, QGMMA, IGMMA, BGMMA
    MMA_TENSOR_CORE = "mma_tensor_core"  # UTC*MMA
    TENSOR_CORE_COPY = "tensor_core_copy"  # UTCCP, UTCSHIFT
    TENSOR_CORE_CONTROL = "tensor_core_control"  # UTCBAR, UTCATOMSWS
    TENSOR_MEMORY_LOAD = "tensor_memory_load"
    TENSOR_MEMORY_STORE = "tensor_memory_store"
    WARPGROUP_CONTROL = "warpgroup_control"
    # memory
    GLOBAL_LOAD = "global_load"
    GLOBAL_STORE = "global_store"
    GLOBAL_ATOMIC = "global_atomic"
    GLOBAL_REDUCTION = "global_reduction"
    GENERIC_LOAD = "generic_load"
    GENERIC_STORE = "generic_store"
    LOCAL_LOAD = "local_load"
    LOCAL_STORE = "local_store"
    SHARED_LOAD = "shared_load"
    SHARED_STORE = "shared_store"
    SHARED_MATRIX = "shared_matrix"  # LDSM, STSM
    SHARED_ATOMIC = "shared_atomic"
    ASYNC_COPY = "async_copy"  # LDGSTS
    BULK_COPY = "bulk_copy"  # UTMALDG, UBLKCP
    CACHE_CONTROL = "cache_control"
    FENCE = "fence"  # MEMBAR, FENCE, ERRBAR
    MBARRIER = "mbarrier"  # SYNCS
    TEXTURE = "texture"
    SURFACE = "surface"
    RAY = "ray"
    # control
    BRANCH = "branch"
    BRANCH_INDIRECT = "branch_indirect"
    CONVERGENCE = "convergence"  # BSSY, BSYNC, WARPSYNC
    CTA_BARRIER = "cta_barrier"
    CLUSTER_BARRIER = "cluster_barrier"
    FRONTEND = "frontend"  # NOP, DEPBAR: no pipe
    GRAPHICS = "graphics"  # attribute and pixel instructions
    UNKNOWN = "unknown"


class TensorRate(StrEnum):
    """Tensor rates of a product, by input type and, where it matters, accumulator type."""

    F16 = "f16"  # FP32 accumulation
    F16_ACC16 = "f16_acc16"
    BF16 = "bf16"
    TF32 = "tf32"
    F64 = "f64"
    INT8 = "int8"
    INT4 = "int4"
    BINARY = "binary"
    FP8 = "fp8"  # FP32 accumulation
    FP8_ACC16 = "fp8_acc16"
    FP8_SCALED = "fp8_scaled"  # of one warp, with a scale for each 32 values; FP32 accumulation
    FP6 = "fp6"
    FP4 = "fp4"
