"""Times between two tokens of a request, as a histogram of all requests.

Idea. What decodes gets its tokens in lock step, so one time of the last token serves all but the requests
that joined since, and a gap is counted once for as many requests as it is the same for.

Example: three requests decode, the last step at 2 s; a fourth joins at 2.5 s, with its first token. A step
that ends at 3 s counts a gap of 1 s three times, and one of .5 s once.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_PER_OCTAVE = 128  # of the histogram: half a percent
_SHORTEST_S = 1e-6
_N_BINS = 40 * _PER_OCTAVE  # up to 10**6 s
_MAX_LOOSE = 1 << 16


class TokenGaps:
    """The histogram, and the times of last tokens that it needs."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._counts = np.zeros(_N_BINS, dtype=np.int64)
        self._loose_s: list[float] = []  # not in the histogram yet
        self._times: list[int] = []  # how often each of those
        self._last_decode_s = -math.inf
        self._joined = dict[int, None]()  # since the last step that decoded
        self._last_token_s: dict[int, float] = {}  # of those, and of what was preempted

    def count_prefill(self, request: int, now_s: float, *, is_first: bool) -> None:
        """Count the token that ends a prefill, from which on the request decodes."""
        if not is_first:
            self._count(now_s - self._last_token_s[request], 1)
        if now_s != self._last_decode_s:
            self._joined[request] = None
            self._last_token_s[request] = now_s

    def count_decode(self, now_s: float, n_requests: int) -> None:
        """Count a token of all requests that decode."""
        n_before = n_requests - len(self._joined)
        if n_before:
            self._count(now_s - self._last_decode_s, n_before)
        for request in self._joined:
            self._count(now_s - self._last_token_s[request], 1)
        self._joined.clear()
        self._last_decode_s = now_s

    def count_more_decodes(self, durations_s: NDArray[np.float64], now_s: float, n_requests: int) -> None:
        """Count a token of all requests for each step of a run, which ends now."""
        self._loose_s += durations_s.tolist()
        self._times += [n_requests] * len(durations_s)
        self._last_decode_s = now_s

    def drop(self, requests: Iterable[int]) -> None:
        """Keep the time of the last token of what was preempted while it decoded."""
        for request in requests:
            if request in self._joined:
                del self._joined[request]
            else:
                self._last_token_s[request] = self._last_decode_s

    def end(self, requests: Iterable[int]) -> None:
        """Forget requests whose output is complete."""
        for request in requests:
            self._joined.pop(request, None)

    def _count(self, gap_s: float, times: int) -> None:
        self._loose_s.append(gap_s)
        self._times.append(times)
        if len(self._loose_s) > _MAX_LOOSE:
            self._sort()

    def _sort(self) -> None:
        if not self._loose_s:
            return
        gaps_s = np.array(self._loose_s).clip(min=_SHORTEST_S)
        bins = (np.log2(gaps_s / _SHORTEST_S) * _PER_OCTAVE).astype(np.int64).clip(max=_N_BINS - 1)
        np.add.at(self._counts, bins, self._times)
        self.longest_s = max(self.longest_s, float(gaps_s.max()))
        self._loose_s, self._times = [], []

    def make_histogram(self) -> NDArray[np.int64]:
        """Return how many gaps lie in each bin, all those counted so far."""
        self._sort()
        return self._counts


def locate_gap(share: float, counts: NDArray[np.int64]) -> float:
    """Return the inter-token latency in seconds that a share of the gaps is below, within half a percent."""
    total = int(counts.sum())
    if not total:
        return math.nan
    index = int(np.searchsorted(counts.cumsum(), share * total))
    return float(_SHORTEST_S * 2 ** ((min(index, _N_BINS - 1) + 0.5) / _PER_OCTAVE))
