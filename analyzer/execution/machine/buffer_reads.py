"""Words of a buffer with known contents that have been loaded, and stores that may come before that.

What a buffer holds when the launch begins is what a load brings, unless another warp stores there first.
Warps of one CTA are ordered by its barriers (`WarpOrder`), those of different CTAs by nothing.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.machine.warp_order import Times, WarpOrder
from analyzer.ir.arrays import BoolArray, IntArray

_WORD_BYTES = 4
_MANY = -1


class BufferReads:
    """Last loads of each word of one buffer, by which warps, and when."""

    def __init__(self, order: WarpOrder, n_bytes: int) -> None:
        self.order = order
        n_words = -(-n_bytes // _WORD_BYTES)
        self.warps: NDArray[np.int32] = np.zeros(n_words, dtype=np.int32)  # plus 1
        self.ctas: NDArray[np.int32] = np.zeros(n_words, dtype=np.int32)  # plus 1
        self.times: Times = np.zeros(n_words, dtype=np.int32)

    def load(self, offsets: IntArray, warps: IntArray, width_bytes: int, row: int) -> None:
        """Note a load; offsets: in bytes, of each lane; warps: of each lane, in the batch."""
        time, ctas = self.order.add_event(row), warps // self.order.warps_per_cta
        for words in self._list_words(offsets, width_bytes):
            _add_reader(self.warps, words, warps)
            _add_reader(self.ctas, words, ctas)
            self.times[words] = time

    def store(self, offsets: IntArray, warps: IntArray, width_bytes: int, row: int) -> None:
        """Put loads in doubt that other warps have done of these bytes, where nothing orders them before."""
        for words in self._list_words(offsets, width_bytes):
            times = self.times[words]
            is_other = (times != 0) & (self.warps[words] != warps + 1)
            if is_other.any():
                is_near = self.ctas[words] == warps // self.order.warps_per_cta + 1
                late = is_other & (~is_near | self.order.find_unordered(warps, times))
                self.order.add_late_loads(times[late], row)

    def _list_words(self, offsets: IntArray, width_bytes: int) -> list[IntArray]:
        """Return the words that each lane touches, one array for each of its words."""
        count = max(1, width_bytes // _WORD_BYTES)
        last = len(self.times) - 1
        return [np.minimum(offsets // _WORD_BYTES + place, last) for place in range(count)]


def _add_reader(readers: NDArray[np.int32], words: IntArray, numbers: IntArray) -> None:
    """Add who reads words; of several, none is kept."""
    before = readers[words]
    is_shared: BoolArray = (before != 0) & (before != numbers + 1)
    readers[words] = np.where(is_shared, _MANY, numbers + 1)
    readers[words[readers[words] != numbers + 1]] = _MANY
