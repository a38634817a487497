"""Data types that models are served in, and which GPUs multiply them."""

import re

from analyzer.hardware.gpu import Gpu
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
# Compute capability from which tensor cores multiply a type; types not named here are multiplied by all.
_LEAST_CAPABILITY = {
    DataType.BF16: 80,
    DataType.FP8: 89,
    DataType.FP8_BLOCK: 89,
    DataType.NVFP4: 100,
    DataType.INT8: 75,
    DataType.INT8_WEIGHTS: 75,
    DataType.INT4_WEIGHTS: 75,
}
_INSTEAD = {
    DataType.BF16: "--dtype fp16",
    DataType.FP8: "--dtype int8_wo keeps weights of 8 bits and multiplies in 16",
    DataType.FP8_BLOCK: "--dtype int8_wo keeps weights of 8 bits and multiplies in 16",
    DataType.NVFP4: "--dtype int4_wo keeps weights of 4 bits and multiplies in 16",
}
_CAPABILITY = re.compile(r"sm_(\d+)")
_AMD_FP8_ARCHITECTURES = ("gfx942", "gfx950")


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
    arch = gpu.file.arch
    match = _CAPABILITY.match(arch)
    if match is not None:
        is_known = int(match[1]) >= _LEAST_CAPABILITY.get(dtype, 0)
    else:
        is_narrow = dtype in (DataType.FP8, DataType.FP8_BLOCK, DataType.NVFP4)
        is_known = not is_narrow or (arch in _AMD_FP8_ARCHITECTURES and dtype is not DataType.NVFP4)
    if not is_known:
        raise UsageError(
            f"{gpu.name} ({arch}) does not multiply {dtype}", hint=_INSTEAD.get(dtype, "--dtype fp16")
        )
