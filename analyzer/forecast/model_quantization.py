"""Data type of a quantized model's products, from the `quantization_config` of its configuration.

Known: fp8 (blocks of 128 or a scale per tensor or channel), awq and gptq (weights alone), modelopt, and
compressed-tensors, whose groups say bits and kind of weights and, if these are quantized too, activations.
"""

from collections.abc import Mapping
from typing import Any

from analyzer.operators.names import DataType

QUANTIZATION_HINT = "known are fp8, awq, gptq, modelopt and compressed-tensors, of 4 or 8 bits"
_WEIGHTS_ALONE = {4: DataType.INT4_WEIGHTS, 8: DataType.INT8_WEIGHTS}
_MODELOPT = {"FP8": DataType.FP8, "NVFP4": DataType.NVFP4}


def find_quantized_type(quantization: Mapping[str, Any]) -> DataType | None:
    """Return the data type of the products, None for a method or number of bits that is not known."""
    match quantization.get("quant_method"):
        case "fp8" | "fbgemm_fp8":
            return DataType.FP8_BLOCK if quantization.get("weight_block_size") else DataType.FP8
        case "awq" | "gptq":
            return _find(_WEIGHTS_ALONE, quantization.get("bits", 4))
        case "modelopt":
            return _find(_MODELOPT, quantization.get("quant_algo"))
        case "compressed-tensors":
            return _find_grouped_type(quantization.get("config_groups"))
        case _:
            return None


def _find(types: Mapping[Any, DataType], key: object) -> DataType | None:
    return types.get(key) if isinstance(key, int | str) else None


def _find_grouped_type(groups: object) -> DataType | None:
    """Return the data type of the first group of layers, which in practice is the only one."""
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(group, dict) or not isinstance(weights, dict):
        return None
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    has_narrow_inputs = isinstance(group.get("input_activations"), dict)
    if kind == "float":
        is_block = weights.get("strategy") == "block"
        return _find({8: DataType.FP8_BLOCK if is_block else DataType.FP8, 4: DataType.NVFP4}, bits)
    if kind == "int":
        return _find({8: DataType.INT8} if has_narrow_inputs else _WEIGHTS_ALONE, bits)
    return None
