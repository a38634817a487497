"""Data types that models are served in, and which GPUs multiply them."""

from analyzer.hardware.gpu import Gpu
from analyzer.ir.scheduling import TensorRate
from analyzer.operators.names import DATA_TYPE_ALIASES, DataType
from analyzer.text.errors import UsageError

SERVING_TYPES = (
    DataType.BF16,
    DataType.FP16,
    DataType.FP8,
    DataType.FP8_BLOCK,
    DataType.INT8,
    DataType.INT8_WEIGHTS,
    DataType.INT4_WEIGHTS,
    DataType.NVFP4,
)
KV_TYPES = (DataType.BF16, DataType.FP16, DataType.FP8)
# Tensor rate that a GPU must have to multiply a type; types not named here are multiplied by all.
_NEEDED_RATES = {
    DataType.BF16: TensorRate.BF16,
    DataType.FP8: TensorRate.FP8,
    DataType.FP8_BLOCK: TensorRate.FP8,
    DataType.NVFP4: TensorRate.FP4,
    DataType.INT8: TensorRate.INT8,
    DataType.INT8_WEIGHTS: TensorRate.INT8,
    DataType.INT4_WEIGHTS: TensorRate.INT8,
}
_INSTEAD = {
    DataType.BF16: "--dtype fp16",
    DataType.FP8: "--dtype int8_wo keeps weights of 8 bits and multiplies in 16",
    DataType.FP8_BLOCK: "--dtype int8_wo keeps weights of 8 bits and multiplies in 16",
    DataType.NVFP4: "--dtype int4_wo keeps weights of 4 bits and multiplies in 16",
}


def parse_data_type(option: str, text: str, known: tuple[DataType, ...]) -> DataType:
    """Return the data type that an option names. Raises UsageError."""
    name = text.strip().lower()
    found = DATA_TYPE_ALIASES.get(name) or next((each for each in known if each.value == name), None)
    if found not in known or found is None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise UsageError(f"{option}: unknown data type {shown!r}", hint=f"one of: {', '.join(known)}")
    return found


def check_multiplies(gpu: Gpu, dtype: DataType) -> None:
    """Raise UsageError for a type that the tensor cores of a GPU do not multiply."""
    rate = _NEEDED_RATES.get(dtype)
    if rate is not None and rate not in gpu.file.tensor:
        raise UsageError(
            f"{gpu.name} ({gpu.file.arch}) does not multiply {dtype}",
            hint=_INSTEAD.get(dtype, "--dtype fp16"),
        )
