"""How a model is served: GPU, parallelism, framework, data types."""

from enum import StrEnum

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.operators.names import DataType


class Framework(StrEnum):
    """A serving framework whose operator sequence is known."""

    SGLANG = "sglang"
    VLLM = "vllm"


class Deployment(Struct, frozen=True):
    """One replica of a model: tp · pp GPUs of one node."""

    gpu: Gpu
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1  # of the tensor-parallel GPUs, how many ways the experts are divided
    framework: Framework = Framework.SGLANG
    dtype: DataType = DataType.BF16  # of weights and products
    expert_dtype: DataType | None = None  # of the routed experts, where it is another one
    kv_dtype: DataType = DataType.BF16
    memory_fraction: float = 0.9  # of the GPU's memory that weights, activations and KV cache may fill
    gemm_tflops: float | None = None  # sustained rate of large products, where the user measured it
    has_bridge: bool = False  # NVLink bridges join pairs of GPUs that have no switch

    @property
    def routed_dtype(self) -> DataType:
        """Data type of the routed experts."""
        return self.expert_dtype or self.dtype
