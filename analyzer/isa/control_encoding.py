"""Control fields of the 128-bit instruction word, Volta and later.

Bits of the upper 64-bit word (Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking,
2018, section 2.1; CuAssembler prints the same fields):

    41-44 stall cycles   45 no-yield   46-48 write barrier   49-51 read barrier
    52-57 wait mask      58-61 reuse mask

Checked on 4.3 million instructions of sm_70 to sm_121: the reuse bits match the printed `.reuse` suffixes
except on HMMA.SP and OMMA.SF, which have one operand more than bits.
"""

import re

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.control_code import ControlCode
from analyzer.ir.module import ControlWordArray

NO_BARRIER = 7  # in a barrier field: the instruction sets no scoreboard; 6 names none either
N_SCOREBOARDS = 6
_CONTROL_TEXT = re.compile(r"\[B([0-5-]{6}):R([0-5-]):W([0-5-]):([Y-]):S(\d{1,2})\]")
_MAX_STALL_CYCLES = 15


class ControlCodeColumns(Struct, frozen=True, eq=False):
    """The control fields of many instructions, as arrays of shape [n]."""

    stall_cycles: NDArray[np.uint8]
    has_yield: NDArray[np.bool_]
    write_barrier: NDArray[np.uint8]  # NO_BARRIER where none is set
    read_barrier: NDArray[np.uint8]
    wait_mask: NDArray[np.uint8]  # bit i: scoreboard i
    reuse_mask: NDArray[np.uint8]  # bit i: source slot i


def decode_control_code_columns(words: ControlWordArray) -> ControlCodeColumns:
    """Decode all fields of the upper instruction words `words`, shape [n]."""

    def field(shift: int, mask: int) -> NDArray[np.uint8]:
        return ((words >> np.uint64(shift)) & np.uint64(mask)).astype(np.uint8)

    def barrier(shift: int) -> NDArray[np.uint8]:
        found = field(shift, 7)
        found[found >= N_SCOREBOARDS] = NO_BARRIER  # 6, which damaged code has
        return found

    return ControlCodeColumns(
        stall_cycles=field(41, 15),
        has_yield=field(45, 1) == 0,
        write_barrier=barrier(46),
        read_barrier=barrier(49),
        wait_mask=field(52, 63),
        reuse_mask=field(58, 15),
    )


def decode_control_code(word: int) -> ControlCode:
    """Decode the fields of one upper instruction word."""
    write, read = word >> 46 & 7, word >> 49 & 7
    return ControlCode(
        stall_cycles=word >> 41 & 15,
        has_yield=not word >> 45 & 1,
        write_barrier=write if write < N_SCOREBOARDS else None,
        read_barrier=read if read < N_SCOREBOARDS else None,
        wait_mask=word >> 52 & 63,
        reuse_mask=word >> 58 & 15,
    )


def parse_control_code(text: str) -> ControlCode | None:
    """Return the fields that CuAssembler writes as `[B0-----:R-:W2:Y:S04]`; None for any other text."""
    match = _CONTROL_TEXT.fullmatch(text)
    if match is None or int(match[5]) > _MAX_STALL_CYCLES:
        return None
    waits, read, write, yields, stall = match.groups()
    if any(letter not in ("-", str(index)) for index, letter in enumerate(waits)):
        return None
    return ControlCode(
        stall_cycles=int(stall),
        has_yield=yields == "Y",
        write_barrier=None if write == "-" else int(write),
        read_barrier=None if read == "-" else int(read),
        wait_mask=sum(1 << index for index, letter in enumerate(waits) if letter != "-"),
        reuse_mask=0,
    )


def encode_control_code(code: ControlCode) -> int:
    """Return an upper instruction word with these control fields, all other bits 0."""
    write = NO_BARRIER if code.write_barrier is None else code.write_barrier
    read = NO_BARRIER if code.read_barrier is None else code.read_barrier
    return (
        code.stall_cycles << 41
        | (not code.has_yield) << 45
        | write << 46
        | read << 49
        | code.wait_mask << 52
        | code.reuse_mask << 58
    )
