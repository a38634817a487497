"""Shapes of matrix instructions, read from their modifiers by the table `hwdb/isa/mma.toml`.

Examples:
    HMMA.16816.F32.BF16      m16 n8 k16, FP32 accumulation, BF16 inputs
    HGMMA.64x128x16.F32      m64 n128 k16 for the four warps of a warpgroup
"""

import re
from functools import cache

from analyzer.ir.opcode import DataType, MmaShape
from analyzer.ir.scheduling import TensorRate
from analyzer.isa.schema import MmaFamilyRow, MmaTable
from analyzer.isa.table_files import load_table

_WARPGROUP_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
_FP16_ACCUMULATION_RATES = {
    TensorRate.F16: TensorRate.F16_ACC16,
    TensorRate.FP8: TensorRate.FP8_ACC16,
}
_BLOCK_SCALES = "SF"  # QMMA.SF: GeForce parts halve FP32 accumulation only where it is missing
_ACCUMULATOR_BITS = {DataType.F16: 16, DataType.F32: 32, DataType.F64: 64, DataType.S32: 32}
# Tile of a tcgen05 instruction whose descriptor is unknown: the largest of one CTA (PTX ISA, tcgen05.mma).
DEFAULT_TCGEN05_TILE_M, DEFAULT_TCGEN05_TILE_N = 128, 256


@cache
def load_mma_table() -> MmaTable:
    """Load the shipped table of matrix shapes and types. Raises HardwareError if the file is wrong."""
    return load_table("mma.toml", MmaTable)


def find_mma_shape(name: str, modifiers: tuple[str, ...]) -> MmaShape | None:
    """Return the shape and rate of a matrix instruction, None if `name` is no matrix instruction.

    AMALI equation 25 counts m*n*k fused multiply-adds from the modifiers.
    """
    table = load_mma_table()
    family = table.families.get(name)
    if family is None:
        return None
    types = [table.types[m] for m in modifiers if m in table.types]
    accumulator_bits, inputs = _split_types(types, family)
    extents = _find_extents(modifiers, table) or _make_tcgen05_extents(name, inputs, family, table)
    rate = table.rates[inputs]
    if family.in_bytes and rate is TensorRate.FP4:
        rate = TensorRate.FP6
    if rate is TensorRate.FP8 and family.in_bytes and _BLOCK_SCALES in modifiers:
        rate = TensorRate.FP8_SCALED
    if accumulator_bits == 16:
        rate = _FP16_ACCUMULATION_RATES.get(rate, rate)
    return MmaShape(
        m=extents[0],
        n=extents[1],
        k=extents[2],
        is_sparse="SP" in modifiers,
        tensor_rate=rate,
        accumulator_bits=accumulator_bits,
        n_warps=family.warps,
    )


def _split_types(types: list[DataType], family: MmaFamilyRow) -> tuple[int, DataType]:
    """Return the accumulator's bits and the input type.

    The accumulator, if printed, comes first; of two input types the wider one sets the rate.
    """
    table = load_mma_table()
    bits = family.default_accumulator_bits
    if types and types[0] in _ACCUMULATOR_BITS:
        bits, types = _ACCUMULATOR_BITS[types[0]], types[1:]
    inputs = [t for t in types if t in table.rates]  # sm_70 names C's type as well as D's
    return bits, max(inputs, key=lambda t: table.bits[t], default=family.default_input)


def _find_extents(modifiers: tuple[str, ...], table: MmaTable) -> tuple[int, int, int] | None:
    """Return (m, n, k) as the modifiers print it, None if they do not."""
    for word in modifiers:
        if word in table.shapes:
            return table.shapes[word]
        match = _WARPGROUP_SHAPE.fullmatch(word)
        if match:
            return int(match[1]), int(match[2]), int(match[3])
    return None


def _make_tcgen05_extents(
    name: str, inputs: DataType, family: MmaFamilyRow, table: MmaTable
) -> tuple[int, int, int]:
    """Return (m, n, k) of a tcgen05 instruction: only k is known, m and n are in a descriptor register."""
    k = family.k_bytes * 8 // table.bits[inputs] if family.k_bytes else 16
    return DEFAULT_TCGEN05_TILE_M, DEFAULT_TCGEN05_TILE_N, k
