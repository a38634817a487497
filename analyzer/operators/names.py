"""Names of operators and data types, as users and tables write them."""

from enum import StrEnum


class Operator(StrEnum):
    """An operator that `predict` answers; the value is its name in tables and on the command line."""

    GEMM = "gemm"
    SCALED_MM = "scaled_mm"
    BMM = "bmm"
    MOE = "moe"
    ATTENTION = "attention"
    MLA = "mla"
    RMSNORM = "rmsnorm"
    FUSED_ADD_RMSNORM = "fused_add_rmsnorm"
    LAYERNORM = "layernorm"
    SOFTMAX = "softmax"
    SILU_MUL = "silu_mul"
    ELEMENTWISE = "elementwise"
    ALL_REDUCE = "all_reduce"
    SEND_RECV = "send_recv"


class DataType(StrEnum):
    """Data type of an operator's inputs; the value is its name in tables and on the command line."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"  # one scale per tensor or row
    FP8_BLOCK = "fp8_block"  # one scale per block of 128
    INT8 = "int8"
    INT8_WEIGHTS = "int8_wo"  # weights only; activations bf16
    INT4_WEIGHTS = "int4_wo"
    NVFP4 = "nvfp4"

    @property
    def activation_bytes(self) -> float:
        """Bytes of one element of the activations, without scales."""
        return _ACTIVATION_BYTES[self]

    @property
    def weight_bytes(self) -> float:
        """Bytes of one element of the weights, without scales."""
        return _WEIGHT_BYTES.get(self, _ACTIVATION_BYTES[self])

    @property
    def stored_activation_bytes(self) -> float:
        """Bytes of one element of the activations, its share of the scales included."""
        return self.activation_bytes + _ACTIVATION_SCALE_BYTES.get(self, 0.0)

    @property
    def stored_weight_bytes(self) -> float:
        """Bytes of one element of the weights, its share of the scales included."""
        return self.weight_bytes + _WEIGHT_SCALE_BYTES.get(self, 0.0)

    @property
    def output_bytes(self) -> float:
        """Bytes of one element of the output: narrow products write bf16."""
        return 4.0 if self in (DataType.FP32, DataType.TF32) else 2.0


_ACTIVATION_BYTES = {
    DataType.FP32: 4.0,
    DataType.TF32: 4.0,
    DataType.FP16: 2.0,
    DataType.BF16: 2.0,
    DataType.FP8: 1.0,
    DataType.FP8_BLOCK: 1.0,
    DataType.INT8: 1.0,
    DataType.INT8_WEIGHTS: 2.0,
    DataType.INT4_WEIGHTS: 2.0,
    DataType.NVFP4: 0.5,
}
_WEIGHT_BYTES = {DataType.INT8_WEIGHTS: 1.0, DataType.INT4_WEIGHTS: 0.5}
# of activations one of 32 bits per 128 along k, of 8 bits per 16; of weights one of 32 bits per 128 x 128, of
# 8 bits per 16, of 16 bits per 128
_ACTIVATION_SCALE_BYTES = {DataType.FP8_BLOCK: 4.0 / 128, DataType.NVFP4: 1.0 / 16}
_WEIGHT_SCALE_BYTES = {
    DataType.FP8_BLOCK: 4.0 / 128**2,
    DataType.NVFP4: 1.0 / 16,
    DataType.INT4_WEIGHTS: 2.0 / 128,
}

DATA_TYPE_ALIASES = {
    "float32": DataType.FP32,
    "float": DataType.FP32,
    "f32": DataType.FP32,
    "float16": DataType.FP16,
    "half": DataType.FP16,
    "f16": DataType.FP16,
    "bfloat16": DataType.BF16,
    "e4m3": DataType.FP8,
    "fp8_e4m3": DataType.FP8,
    "float8_e4m3fn": DataType.FP8,
    "float8": DataType.FP8,
    "fp4": DataType.NVFP4,
    "sq": DataType.INT8,
}


class Backend(StrEnum):
    """Serving framework whose kernels compute an operator."""

    TRTLLM = "trtllm"  # TensorRT-LLM
    SGLANG = "sglang"
    VLLM = "vllm"


class AttentionKind(StrEnum):
    """Implementation of attention."""

    FA2_PAGED = "fa2_paged"  # FlashInfer's FlashAttention-2 over a paged KV cache
    FA2_RAGGED = "fa2_ragged"
    FA3_PAGED = "fa3_paged"  # FlashAttention-3, Hopper alone
    FA3_RAGGED = "fa3_ragged"
    GENERIC = "generic"  # what a serving framework picks


class MoeProduct(StrEnum):
    """Which products of a fused mixture of experts are meant."""

    W13 = "w13"  # gate and up: hidden → 2 x intermediate
    W2 = "w2"  # down: intermediate → hidden
    BOTH = "both"
