"""Schedule of CTAs of unequal work: when the last one ends, over what CTAs of equal work would take.

CTAs are handed out in the order of their numbers, each to a slot that is free; an SM is the faster the more
CTAs it holds, and each of them the slower. So where the last CTAs are long ones, or the first wave ends
piece by piece, the launch takes longer, or less long, than so many waves of mean CTAs.

Idea: an SM with k CTAs serves each at the rate g(k) / k, where g goes from 1 to the gain of all slots. In
the SM's own time, which passes at that rate, each CTA takes its work and nothing else; so a heap of ends
for each SM and one of the SMs' next ends give all of it, with two heap operations a CTA.

Example: 4 SMs of one slot, CTAs of 1, 2, 3, 4, 1, 2, 3, 4: the second four begin at 1, 2, 2 and 3 and end
at 2, 4, 5 and 7. CTAs of the mean, 2.5, would end at 5: the factor is 1.4.
"""

from heapq import heapify, heappop, heappush, heapreplace

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.ir.arrays import FloatArray

MAX_SCHEDULED_CTAS = 1 << 14  # where there are more, the mean decides: one CTA is little of an SM's time


class SmSlots(Struct, frozen=True):
    """SMs of a GPU and the CTAs that each holds."""

    n_sms: int
    speeds: tuple[float, ...]  # of an SM with 1, 2, ... CTAs, as many as it holds, over that with one

    @property
    def n_slots(self) -> int:
        """CTAs that an SM holds."""
        return len(self.speeds)


def compute_schedule_factor(work: FloatArray, n_working: float, slots: SmSlots) -> float:
    """Return when the last CTA ends, over when it would if all CTAs that have work had the mean one.

    Mean CTAs are those of the busiest SM, as it is simulated: they end at the same times, so handed out one
    by one, those of the last wave would all go to the first SMs.

    work: [CTA] in any unit of time, of a CTA alone on an SM, in the order in which they are handed out.
    n_working: those that have work. 1 where there are too many CTAs for that to matter.
    """
    n_equal, total = max(1, round(n_working)), float(work.sum())
    if not 1 < len(work) <= MAX_SCHEDULED_CTAS or total <= 0:
        return 1.0
    equal = np.full(-(-n_equal // slots.n_sms), total / n_equal)
    return find_last_end(work, slots) / find_last_end(equal, replace(slots, n_sms=1))


def find_last_end(work: FloatArray, slots: SmSlots) -> float:
    """Return when the last CTA ends."""
    sms = [_Sm() for _ in range(slots.n_sms)]
    events: list[tuple[float, int]] = []
    order = iter(work.tolist())
    for number, amount in zip(range(slots.n_sms * slots.n_slots), order, strict=False):
        sms[number % slots.n_sms].ends.append(amount)
    for number, sm in enumerate(sms):
        heapify(sm.ends)
        if sm.ends:
            events.append((sm.find_next_end(slots), number))
    heapify(events)
    last = 0.0
    while events:
        last, number = events[0]
        sm = sms[number]
        sm.end_cta(last)
        following = next(order, None)
        if following is not None:
            heappush(sm.ends, sm.own_time + following)
        if sm.ends:
            heapreplace(events, (sm.find_next_end(slots), number))
        else:
            heappop(events)
    return last


class _Sm(Struct, eq=False):
    """An SM and the CTAs that it holds."""

    ends: list[float] = []  # of its CTAs, a heap, in the SM's own time
    own_time: float = 0.0
    time: float = 0.0  # of the last end

    def find_next_end(self, slots: SmSlots) -> float:
        """Return the time at which its next CTA ends."""
        n_resident = len(self.ends)
        return self.time + (self.ends[0] - self.own_time) * n_resident / slots.speeds[n_resident - 1]

    def end_cta(self, time: float) -> None:
        """End the CTA that ends first."""
        self.own_time, self.time = heappop(self.ends), time
