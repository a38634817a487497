"""One iteration of a loop, executed once for all iterations to come.

Each register of the loop is taken to be v + d * t in iteration t. If one pass over the loop's body, under
the rules that opcodes follow (`AffineRule`), leaves every register at v + d with the same d, and no branch,
guard or wrap comes out otherwise before iteration T, then by induction T iterations run alike: their
counts are those of one times T, their addresses those of one plus t times a step.
"""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.lanes import (
    Deltas,
    Group,
    LaneState,
    Origins,
    Rows,
    View,
    smallest,
    uneven,
    where_active,
)
from analyzer.execution.machine import Machine, settled
from analyzer.execution.memory import (
    TrackedMemory,
    address_steps,
    lane_addresses,
    stack_offsets,
)
from analyzer.execution.program import Access, Action, Segment
from analyzer.execution.shared_memory import stores_known
from analyzer.execution.step import AffineRule, Apply, Bits, ConstantRead, Step, Value
from analyzer.execution.tally import Tally
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind, Space

IntArray = NDArray[np.int64]

ENDLESS = 1 << 40
LEAST_REPEATS = 2
MOST_SEGMENTS = 1024
_HALF = 1 << 31
_NOTHING: Value = np.zeros((1, 1), dtype=np.uint32)


class TrialFailed(Exception):
    """The loop cannot be closed from here; it is executed iteration by iteration.

    leaving: warps that were seen to leave it; the others may be closed without them. is_lasting: over any
    period in which the same registers grow it would fail too.
    """

    def __init__(self, why: str, leaving: Rows | None = None, *, is_lasting: bool = False) -> None:
        super().__init__(why)
        self.leaving, self.is_lasting = leaving, is_lasting


class Trial(Machine):
    """Executes one period of a loop with growing registers; see `repeats` for how often it repeats alike."""

    def __init__(self, parent: Machine, segment: Segment, group: Group) -> None:
        super().__init__(parent.kernel, parent.batch, parent.decide, parent.budget)
        self.ends_at: int = parent.ends_at if isinstance(parent, Trial) else parent.budget.trial_end
        self.parent, self.segment, self.first = parent, segment, group
        self.state: LaneState = parent.state.copy()
        self.live = parent.live
        self.convergence.masks = {n: mask.copy() for n, mask in parent.convergence.masks.items()}
        self.tally.memory = parent.tally.memory.for_trial()
        self.overwritten = parent.overwritten
        self.most = ENDLESS  # repeats of any warp
        self.limits: IntArray | None = None  # of each, where they differ
        self.in_range: dict[tuple[int, ...], tuple[Rows, Value, Deltas, Bits]] = {}
        if parent.tracked is not None:
            self.tracked = TrackedMemory(self.batch)
            self.tracked.local = dict(parent.tracked.local)
            self.tracked.doubtful = parent.tracked.doubtful
        self.loop = parent.headers[segment.index]
        self.left: Bits | None = None  # warps that leave the loop meanwhile
        self.arrivals = 0
        self.wanted = 1
        self.back: Group | None = None

    def run_period(self, iterations: int) -> Tally:
        """Execute so many iterations; what they tally. Raises TrialFailed."""
        self.wanted = iterations
        self.enter(self.segment.index, replace(self.first, mask=self.first.mask.copy()))
        with np.errstate(all="ignore"):
            while self.queue:
                self.step()
        if self.back is None or not self.convergence.is_idle:
            raise TrialFailed("warps part")
        group, back = self.staying(self.first), self.staying(self.back)
        same = len(back.rows) == len(group.rows) and bool((back.rows == group.rows).all())
        if not same or bool((back.mask != group.mask).any()) or back.doubts != group.doubts:
            raise TrialFailed("other warps come back")
        return self.tally

    def execute(self, segment: Segment, group: Group) -> None:
        """See `Machine`. Raises TrialFailed where the trial, with those around it, has cost too much."""
        if self.budget.spent > self.ends_at:
            raise TrialFailed("too long")
        super().execute(segment, group)

    def at_header(self, segment: Segment, group: Group) -> bool:
        """Back at the header of the loop, as often as wanted, the trial is over."""
        if segment.index != self.segment.index:
            return super().at_header(segment, group)
        self.arrivals += 1
        if self.arrivals <= self.wanted:
            return False
        if self.back is not None:
            raise TrialFailed("warps part")
        self.back = group
        return True

    def runs_of(self, index: int) -> IntArray:
        """See `Machine`: with those before the trial."""
        return self.parent.runs_of(index) + super().runs_of(index)

    def left_before(self, loop: int) -> IntArray | None:
        found = super().left_before(loop)
        return self.parent.left_before(loop) if found is None else found

    def staying(self, group: Group) -> Group:
        """The group without warps that have left the loop."""
        if self.left is None:
            return group
        stays = ~self.left[group.rows]
        return self.made(group.rows[stays], group.mask[stays], group.doubts, is_full=group.is_full)

    def enter(self, index: int | None, group: Group) -> None:
        """See `Machine`. Warps that leave the loop do not repeat; the others go on without them."""
        if index is not None and self.kernel.segments[index].block in self.loop.blocks:
            super().enter(index, group)
            return
        left = np.zeros(self.batch.n_warps, dtype=bool) if self.left is None else self.left
        left[group.rows] = True
        if bool(left[self.first.rows].all()):
            raise TrialFailed("the loop ends")
        self.left = left

    def die(self, group: Group, gone: Bits) -> None:
        raise TrialFailed("a thread ends", group.rows)

    def tell_signal(self, action: Action, view: View, lanes: Bits | None) -> None:
        """See `Machine`: all barriers of a ring must have been heard of."""
        if self.parent.ears is None:
            return
        address = action.signal.address if action.signal is not None else None
        steps = None if address is None else address_steps(address, view)
        if steps is not None and bool(steps.any()):
            raise TrialFailed("other mbarriers follow")

    # ---- what grows ------------------------------------------------------------------------------

    def apply(self, step: Step, view: View, lanes: Bits | None, unknown: Origins | None) -> None:
        if self.loses(step, view, lanes, unknown):
            return
        step = settled(step, view, unknown)
        deltas = [view.delta(what) if isinstance(what, int) else None for what in step.reads]
        for what in step.reads:
            if isinstance(what, ConstantRead) and what.base is not None and view.delta(what.base) is not None:
                raise TrialFailed("an array of constants is indexed")
        if all(delta is None for delta in deltas):
            super().apply(step, view, lanes, unknown)
            return
        if step.rule is AffineRule.FIXED or (step.uses_mask and step.rule is not AffineRule.LINEAR):
            raise TrialFailed("an instruction that is not affine", is_lasting=True)
        if step.uses_mask:
            self._apply_across(step, view, lanes, unknown, deltas)
            return
        words, origin = self.read_all(step, view, unknown)
        relevant = view.active if lanes is None else view.active & lanes
        if origin is not None:
            relevant = relevant & (origin == 0)
        growth = _Growth(self, step, view, words, deltas, relevant)
        mask = None if lanes is None else self._within(lanes, view)
        for slot, result, delta in zip(step.writes, growth.first, growth.deltas(), strict=True):
            if slot >= 0:
                view.write(slot, result, origin, delta, mask)

    def _apply_across(
        self, step: Step, view: View, lanes: Bits | None, unknown: Origins | None, deltas: list[Deltas | None]
    ) -> None:
        """Of a sum of other lanes' words: it grows by what they grow by."""
        super().apply(step, view, lanes, unknown)
        active = view.active if lanes is None else view.active & lanes
        rows = np.broadcast_to(view.flat(active), (len(view.group.rows), WARP_LANES))
        grown = step.apply(rows, *(_NOTHING if delta is None else view.flat(delta) for delta in deltas))
        mask = None if lanes is None else self._within(lanes, view)
        for slot, delta in zip(step.writes, grown, strict=True):
            if slot >= 0:
                view.write(slot, view.value(slot), view.origin(slot), _nonzero(view.shaped(delta)), mask)

    def repeats(self, rows: Rows) -> IntArray:
        """How often the period repeats alike for these warps, or one number for all."""
        if self.limits is None:
            return np.full(1, self.most, dtype=np.int64)
        return np.minimum(self.limits[rows], self.most)

    def limit(self, view: View, counts: IntArray) -> None:
        """No more iterations than `counts`, one number per warp or one for all."""
        rows = view.group.rows
        is_all = self.left is None and len(rows) == len(self.first.rows)
        if is_all and len(counts) == 1:
            self.most = min(self.most, int(counts[0]))
        else:
            if self.limits is None:
                self.limits = np.full(self.batch.n_warps, ENDLESS, dtype=np.int64)
            self.limits[rows] = np.minimum(self.limits[rows], counts)
        if is_all and bool((self.repeats(rows) < LEAST_REPEATS).all()):
            raise TrialFailed("few iterations are alike")

    def _meets_contents(self, access: Access, view: View, addresses: NDArray[np.uint64] | None) -> bool:
        """Whether an access to shared memory reads or changes a known byte; None: anywhere."""
        tracked = self.parent.tracked
        stores = access.kind is not OpKind.LOAD
        if tracked is None or not (stores or access.results):
            return False
        return tracked.knows_any(addresses, access.width_bytes) or (stores and stores_known(access, view))

    def stay_in_range(
        self, view: View, value: Value, delta: Deltas, relevant: Bits, *, whole: bool = False
    ) -> None:
        """No more iterations than value + delta * t stays where it is read alike, signed and unsigned.

        whole: only the unsigned range counts.
        """
        key = (id(view.group.rows), id(value), id(delta), id(relevant), whole)
        if key in self.in_range:
            return
        self.in_range[key] = (view.group.rows, value, delta, relevant)
        within = np.uint32(0xFFFFFFFF if whole else _HALF - 1)
        if delta.size == 1:
            step = int(delta.view(np.int32).reshape(1)[0])
            room = (~value if step >= 0 else value) & within
            if int(room.min()) >= (self.most - 1) * abs(step):  # no lane need be looked at alone
                return
            least = np.where(relevant, room, within).min(axis=-1).astype(np.int64)
            counts = least // max(1, abs(step)) + 1
        else:
            steps = delta.view(np.int32).astype(np.int64)
            rooms = (np.where(steps >= 0, ~value, value) & within).astype(np.int64)
            rooms = np.where(relevant & (steps != 0), rooms, ENDLESS << 1)
            counts = rooms // np.maximum(np.abs(steps), 1) + 1
            counts = counts.min(axis=-1)
        self.limit(view, view.per_warp(counts))

    def touch(
        self, access: Access, view: View, lanes: Bits | None, active: Bits, unknown: Origins | None
    ) -> None:
        """See `Machine`; addresses grow from one iteration to the next."""
        if access.bulk is not None and any(view.delta(slot) is not None for slot in access.bulk.sizing):
            raise TrialFailed("copies of growing size")
        addresses = origin = steps = None
        if access.address is not None:
            addresses, origin = lane_addresses(access.address, view)
            origin = where_active(origin, active)
            steps = address_steps(access.address, view)
            for term in access.address.terms:
                delta = view.delta(term.slot)
                if delta is not None and term.pair:
                    relevant = active if origin is None else active & (origin == 0)
                    self.stay_in_range(view, view.value(term.slot), delta, relevant, whole=True)
        self.tally.memory.record(access, view.group, active, addresses, origin, unknown, steps)
        moves = steps is not None and bool(steps.any())
        if access.space is Space.SHARED and access.space in self.kept_spaces:
            if self._meets_contents(access, view, None if moves or origin is not None else addresses):
                raise TrialFailed("shared memory changes")
            self.forget(access.results, view, uneven(access.row), lanes)
            return
        if moves and ((access.results and self.batch.has_buffers) or access.space is Space.LOCAL):
            raise TrialFailed("a buffer is read on")
        self._check_contents(access, view, active, addresses if origin is None else None)
        self._transfer(access, view, lanes, addresses, origin)

    def _check_contents(
        self, access: Access, view: View, active: Bits, addresses: NDArray[np.uint64] | None
    ) -> None:
        """Contents that are kept must not change in a way that a trial does not follow."""
        if access.space is Space.LOCAL and addresses is not None and addresses.size > 1:
            here = np.broadcast_to(view.flat(active), view.group.mask.shape)
            places = stack_offsets(view, here, addresses)
            if places is None or len(places) > 1:
                raise TrialFailed("many places of the stack")
        if access.kind is OpKind.LOAD or access.space not in GLOBAL_SPACES:
            return
        is_near = self.tracked is not None and access.space is Space.GENERIC
        if self.overwritten.reaches(active, addresses) or (
            is_near and self.tracked is not None and not self.tracked.is_far(addresses)
        ):
            raise TrialFailed("a buffer changes")


class _Growth:
    """Results of one step for growing inputs: their first values, their growth, how long that holds."""

    def __init__(
        self,
        trial: Trial,
        step: Step,
        view: View,
        words: list[Value],
        deltas: list[Deltas | None],
        relevant: Bits,
    ) -> None:
        self.trial, self.step, self.view, self.relevant = trial, step, view, relevant
        self.words, self.grows = words, deltas
        self.first = step.apply(*words)

    def at(self, t: IntArray, function: Apply) -> tuple[Value, ...]:
        """`function` of the inputs in iteration t, [n_warp, 1] or [1, 1]."""
        times = self.view.shaped(t.astype(np.uint32))
        words = [
            word if delta is None else word + delta * times
            for word, delta in zip(self.words, self.grows, strict=True)
        ]
        return function(*words)

    def deltas(self) -> list[Deltas | None]:
        """Growth of each result, None where there is none."""
        rule = self.step.rule
        if rule is AffineRule.BITWISE:
            return self._bitwise()
        if rule in (AffineRule.PRODUCT, AffineRule.PAIR) and self._both_factors():
            raise TrialFailed("a product of two that grow")
        needs_range = rule in (AffineRule.PAIR, AffineRule.MONOTONE, AffineRule.SELECT) or any(
            result.dtype == np.bool_ for result in self.first
        )
        if needs_range:
            self._keep_ranges()
        if rule is AffineRule.MONOTONE:
            if self.step.watch is None:
                self._hold(self.step.apply, self.first)
            else:
                self._hold(self.step.watch, self.step.watch(*self.words))
            return [None] * len(self.first)
        if rule is AffineRule.SELECT and self.step.watch is not None:
            self._hold(self.step.watch, self.step.watch(*self.words))
        if any(result.dtype == np.bool_ for result in self.first):
            self._hold(lambda *words: _predicates(self.step.apply(*words)), _predicates(self.first))
        if rule in (AffineRule.LINEAR, AffineRule.PRODUCT):
            return self._linear()
        second = self.at(np.ones((1, 1), dtype=np.int64), self.step.apply)
        return self._pair(second) if rule is AffineRule.PAIR else _differences(self.first, second)

    def _linear(self) -> list[Deltas | None]:
        """What is only added does not matter, so that arrays stay as small as what grows."""
        kept = {place for places in self.step.factors for place in places if self.grows[place] is None}
        still = [
            word if word.dtype == np.bool_ or place in kept else _NOTHING
            for place, word in enumerate(self.words)
        ]
        moved = [word if delta is None else delta for word, delta in zip(still, self.grows, strict=True)]
        return _differences(self.step.apply(*still), self.step.apply(*moved))

    def _both_factors(self) -> bool:
        return all(any(self.grows[place] is not None for place in places) for places in self.step.factors)

    def _keep_ranges(self) -> None:
        for word, delta in zip(self.words, self.grows, strict=True):
            if delta is not None:
                self.trial.stay_in_range(self.view, word, delta, self.relevant)

    def _pair(self, second: tuple[Value, ...]) -> list[Deltas | None]:
        """Low and high word of a 64-bit sum: the high one grows evenly while the low one does not wrap."""
        low, high = self.first[0], self.first[1]
        before = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        after = second[0].astype(np.uint64) | second[1].astype(np.uint64) << np.uint64(32)
        growth = after - before
        low_delta = growth.astype(np.uint32)
        signed = low_delta.view(np.int32).astype(np.int64)
        high_delta = ((growth.view(np.int64) - signed) >> 32).astype(np.uint32)
        if low_delta.any():
            self.trial.stay_in_range(self.view, low, low_delta, self.relevant, whole=True)
        return [_nonzero(low_delta), _nonzero(high_delta)]

    def _hold(self, watch: Apply, start: tuple[Value, ...]) -> None:
        """No more iterations than until what `watch` gives changes; each is monotone in t.

        start: what it gives at first.
        """
        trial, rows = self.trial, self.view.group.rows
        limits = trial.repeats(rows)
        shape = (1, 1) if bool((limits == limits[:1]).all()) else (len(rows), 1)
        last = limits[: shape[0]].reshape(shape) - 1
        final = self.at(last, watch)
        if all(np.array_equal(before, after) for before, after in zip(start, final, strict=True)):
            return
        if self._same(start, final).all():
            return
        low, high = np.zeros_like(last), last
        if shape[0] == 1 and len(rows) > 1 and any(v[..., :1].size > 1 for v in start):
            low, high = np.zeros((len(rows), 1), np.int64), np.repeat(last, len(rows), axis=0)
        still = self._same(start, self.at(high, watch))
        low = np.where(still, high, low)
        while (high - low > 1).any():
            middle = np.minimum((low + high) // 2, 2 * low + 1)  # most change soon
            same = self._same(start, self.at(middle, watch))
            low = np.where(same, middle, low)
            high = np.where(same, high, middle)
        counts = np.where(still, last + 1, high)
        trial.limit(self.view, counts[:, 0])

    def _same(self, start: tuple[Value, ...], now: tuple[Value, ...]) -> Bits:
        """Per warp, [n, 1] or [1, 1]: whether all relevant lanes have the same."""
        same: Bits = np.ones((1, 1), dtype=bool)
        for before, after in zip(start, now, strict=True):
            differs = (before != after) & self.relevant
            same = same & self.view.flat(~differs.any(axis=-1, keepdims=True))
        return same

    def _bitwise(self) -> list[Deltas | None]:
        """LOP3: bits below the lowest one that grows are fixed; above, the result follows one input."""
        growing = [place for place, delta in enumerate(self.grows) if delta is not None]
        if len(growing) != 1:
            raise TrialFailed("two that grow in one logic operation")
        place = growing[0]
        delta = self.grows[place]
        assert delta is not None
        zeros, ones = list(self.words), list(self.words)
        zeros[place] = np.zeros((1, 1), dtype=np.uint32)
        ones[place] = np.full((1, 1), 0xFFFFFFFF, dtype=np.uint32)
        off, on = self.step.apply(*zeros), self.step.apply(*ones)
        fixed = int(np.bitwise_or.reduce(delta, axis=None))
        lowest = (fixed & -fixed) if fixed else 0
        moving = np.uint32(0xFFFFFFFF & ~(lowest - 1)) if lowest else np.uint32(0)
        found: list[Deltas | None] = []
        for first, a, b in zip(self.first, off, on, strict=True):
            if first.dtype == np.bool_:
                self._keep_ranges()
                raise TrialFailed("a predicate of logic")
            found.append(self._follow(place, delta, (a ^ b) & moving, b, moving))
        return found

    def _follow(
        self, place: int, delta: Deltas, depends: Value, on: Value, moving: np.uint32
    ) -> Deltas | None:
        """Growth of one result, whose bits `depends` follow the input (inverted where `on` has them off)."""
        relevant = np.broadcast_to(self.relevant, np.broadcast_shapes(self.relevant.shape, depends.shape))
        seen = np.broadcast_to(depends, relevant.shape)[relevant]
        if not seen.size or not seen.any():
            return None
        sense = int(seen.flat[0])
        alike = bool((seen == sense).all())
        direct = alike and bool(
            (np.broadcast_to(on, relevant.shape)[relevant] & np.uint32(sense) == sense).all()
        )
        if direct and sense == int(moving):
            return delta
        if direct and _is_low_part(sense, int(moving)):
            self._stay(place, sense.bit_length())
            return delta
        joint = int(np.bitwise_or.reduce(seen))
        self._stay(place, (joint & -joint).bit_length() - 1)
        return None

    def _stay(self, place: int, bit: int) -> None:
        """No more iterations than the input's bits from `bit` on stay the same."""
        self._keep_ranges()
        if bit < 32:
            shift = np.uint32(bit)
            self._hold(lambda *words: (words[place] >> shift,), (self.words[place] >> shift,))


def _is_low_part(sense: int, moving: int) -> bool:
    """The bits form one run that begins where the input begins to move."""
    lowest = sense & -sense
    return lowest == moving & -moving and (sense + lowest) & sense == 0


def _predicates(results: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(result for result in results if result.dtype == np.bool_)


def _differences(first: tuple[Value, ...], second: tuple[Value, ...]) -> list[Deltas | None]:
    """Of words; None for predicates."""
    return [
        None if after.dtype == np.bool_ else _nonzero(after - before)
        for before, after in zip(first, second, strict=True)
    ]


def _nonzero(delta: Deltas) -> Deltas | None:
    return smallest(delta.astype(np.uint32, copy=False)) if delta.any() else None
