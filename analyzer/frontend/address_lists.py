"""Address lists of traced memory instructions, kept in compressed form.

The tracer writes one of three encodings after an instruction (Accel-Sim, tracer_nvbit):

    0 0x100 0x104 0x108      the address of each active lane
    1 0x100 4                base and stride
    2 0x100 4 8              base, then the step from each active lane to the next

A base with a stride is kept as it is. The other two become a base and steps.
"""

from itertools import pairwise

import numpy as np

from analyzer.ir.arrays import IntArray
from analyzer.ir.trace import AddressTable, WordArray

_LIST_ENCODING, _STRIDE_ENCODING, _DELTA_ENCODING = b"0", b"1", b"2"
_INT64_LIMIT = 1 << 63
_MAX_IMMEDIATES = 2


class AddressListError(Exception):
    """An address list that cannot be parsed."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index  # among the lists given to `add_lists`


class AddressListBuilder:
    """Columns of an `AddressTable` under construction, one row per list."""

    def __init__(self) -> None:
        self.bases: list[WordArray] = []
        self.strides: list[IntArray] = []
        self.sizes: list[IntArray] = []
        self.deltas: list[IntArray] = []

    def add_lists(self, tails: list[bytes], lanes: list[int]) -> None:
        """Add the lists of some lines. Raises AddressListError.

        tails: the text after each instruction; lanes: number of active lanes of each line.
        """
        bases: list[int] = []
        strides: list[int] = []
        sizes: list[int] = []
        deltas: list[int] = []
        for tail, count in zip(tails, lanes, strict=True):
            words = tail.split()
            try:
                if words[0] == _STRIDE_ENCODING:
                    stride, size, used = int(words[2]), 0, 3
                    base = int(words[1], 16)
                else:
                    base, steps, used = _parse_steps(words, count)
                    stride, size = 0, len(steps)
                    deltas += steps
                if (
                    not used <= len(words) <= used + _MAX_IMMEDIATES
                    or not 0 <= base < _INT64_LIMIT << 1
                    or abs(stride) >= _INT64_LIMIT
                ):
                    raise ValueError
            except (ValueError, IndexError):
                raise AddressListError(len(bases)) from None
            bases.append(base)
            strides.append(stride)
            sizes.append(size)
        self.bases.append(np.array(bases, dtype=np.uint64))
        self.strides.append(np.array(strides, dtype=np.int64))
        self.sizes.append(np.array(sizes, dtype=np.int64))
        self.deltas.append(np.array(deltas, dtype=np.int64))

    def build_table(self) -> AddressTable:
        """Return all rows added so far."""
        if not self.bases:
            empty = np.zeros(0, dtype=np.int64)
            return AddressTable(
                bases=empty.astype(np.uint64),
                strides=empty,
                delta_offsets=np.zeros(1, np.int64),
                deltas=empty,
            )
        sizes = np.concatenate(self.sizes)
        return AddressTable(
            bases=np.concatenate(self.bases),
            strides=np.concatenate(self.strides),
            delta_offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
            deltas=np.concatenate(self.deltas),
        )


def _parse_steps(words: list[bytes], lanes: int) -> tuple[int, list[int], int]:
    """Return (first address, steps between active lanes, words used) of a list of addresses or of steps."""
    n_steps = max(lanes - 1, 0)
    if words[0] == _DELTA_ENCODING:
        steps = list(map(int, words[2 : 2 + n_steps]))
        base, used = int(words[1], 16), 2 + n_steps
    elif words[0] == _LIST_ENCODING:
        addresses = [int(word, 16) for word in words[1 : 1 + lanes]]
        if len(addresses) != lanes or any(not 0 <= address < _INT64_LIMIT << 1 for address in addresses):
            raise ValueError
        steps = [_wrap_int64(b - a) for a, b in pairwise(addresses)]
        base, used = addresses[0] if addresses else 0, 1 + lanes
    else:
        raise ValueError
    if len(steps) != n_steps or any(abs(step) >= _INT64_LIMIT for step in steps):
        raise ValueError
    return base, steps, used


def _wrap_int64(step: int) -> int:
    """Return the difference of two 64-bit addresses as a signed 64-bit number."""
    return (step + _INT64_LIMIT) % (_INT64_LIMIT << 1) - _INT64_LIMIT
