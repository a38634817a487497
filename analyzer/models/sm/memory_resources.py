"""The memory of one SM in its simulation: load/store path, tags of the L1, shares of the L2 and of the DRAM.

Every resource is a queue that serves requests in the order in which they come, without gaps. So it is one
number, the time from which it is free: a request that begins at `begin` and takes `cycles` leaves it free at
max(free, begin) + cycles. Example: two requests of 4 cycles at times 0 and 1 leave it free at 4 and 8; the
second one was queued for 3 cycles.

The load/store path comes first. Where more work is queued there than it can hold, warps are kept until there
is room. The oldest of them goes first, but a younger one waits no longer than the queue's work for each older
one: else the youngest of eight warps that only load would end their loops alone, with the path half idle.
Behind it the L2, the DRAM and the unit for atomics take a request in parallel; the longest queue, less a
burst that they take at once, is what a load waits for. A store waits for nothing.

LDGSTS that fill whole rows of 128 bytes of shared memory, as swizzled tiles do, take one turn on the path.
Their lines go through the tags beside it; what they bring is written beside reads. Example: 512 bytes in rows
of 64 are eight lines, eight cycles of the tags; LDSM go on meanwhile.

Loads through the L1 into registers, of all sub-cores, have one turn in `dispatch_cycles` at a port that they
share with the XU (conversions, special functions), which has units in each sub-core. On Hopper that is one in
a cycle: two LDG that hit the L1 and one F2I take three cycles of an SM, though the path could take the LDG in
two and the XU the F2I beside them in two. Two LDS and one F2I take 2.2.

Others, as to padded rows, go through the path twice: for their lines, in the order in which they are issued,
and when their data are there, to write these through the banks of shared memory. What goes through the banks
then (LDS, LDSM, STS, LDG) waits for such writes; others fill gaps. Warps hardly stall at LDGSTS: these have a
deep queue of their own (profiles of one CTA with its LDGSTS and with NOP in their place, on Hopper). What
overwrites the address of an LDGSTS waits until the lines before it have been taken in.

What a predicate never lets happen (`@!PT LDS`, which ptxas writes between products and LDGSTS) has its turn
on the path too. LDGSTS by the L1, those of 8 bytes a lane, have a turn for each line.
"""

from heapq import heappop, heappush

from analyzer.models.sm.mbarriers import Mbarriers
from analyzer.models.sm.resource_demand import StepKind
from analyzer.models.sm.simulated_warp import EventHeap, SimulatedStep, SimulatedWarp, StepPhase
from analyzer.models.sm.simulation_state import SmParameters
from analyzer.models.wait_causes import WaitCause

_LOAD_KIND, _COPY_KIND, _FULL_FENCE_KIND = (
    int(kind) for kind in (StepKind.LOAD, StepKind.BULK_COPY_IN, StepKind.FULL_FENCE)
)
FENCE_KINDS = (int(StepKind.FENCE), int(StepKind.FULL_FENCE))
_NEVER = float("-inf")
_MEMORY_PIPE, _MEMBAR = int(WaitCause.MEMORY_PIPE), int(WaitCause.MEMBAR)
_HAS_ISSUED = int(StepPhase.HAS_ISSUED)
# Of the DRAM: load beyond which its queue is simulated; cycles over which the load is averaged at least.
_MAX_DRAM_LOAD_SHARE, _DRAM_LOAD_WINDOW_CYCLES = 0.8, 2000.0


class L2Share:
    """The SM's share of the L2: one queue to the SM, one from it, and one of both together.

    Loads go first: what both directions take together holds up stores only.
    """

    __slots__ = ("free", "joint_free", "store_factor", "stores_free")

    def __init__(self, store_factor: float) -> None:
        self.free = [0.0, 0.0]  # to the SM, and from it
        self.joint_free = 0.0
        self.stores_free = 0.0  # of the joint queue, if there were stores only
        self.store_factor = store_factor  # a store's cycles in the joint queue over its own

    def request(self, step: SimulatedStep, begin: float) -> float:
        """Return when the L2 has served a request."""
        cycles, is_outgoing = step.l2_cycles, step.is_outgoing
        free = self.free[is_outgoing]
        free = (free if free > begin else begin) + cycles
        self.free[is_outgoing] = free
        # cycles of copies are those of their stream, not of the L2
        if step.kind != _COPY_KIND:
            joint_free = self.joint_free if self.joint_free > begin else begin
            joint_free += cycles * self.store_factor if is_outgoing else cycles
            self.joint_free = joint_free
            if is_outgoing:
                stores_free = self.stores_free if self.stores_free > begin else begin
                self.stores_free = stores_free + cycles * self.store_factor
                return joint_free
        return free


class DramShare:
    """The SM's share of the DRAM: a queue, and the latency that grows with its load."""

    __slots__ = ("burst_cycles", "free", "load_cycles", "skipped_cycles", "work_cycles")

    def __init__(self, load_cycles: float, burst_cycles: float) -> None:
        self.burst_cycles = burst_cycles
        self.free = 0.0
        self.work_cycles = 0.0  # so far
        self.skipped_cycles = 0.0  # in which a part of that was done
        self.load_cycles = load_cycles  # see `MemorySubsystem.dram_load_cycles`

    def request(self, step: SimulatedStep, begin: float) -> float:
        """Return when the DRAM has served a request."""
        self.free = (self.free if self.free > begin else begin) + step.dram_cycles
        return self.free

    def add_latency(self, step: SimulatedStep, begin: float, done: float, stream_wait: float) -> float:
        """Return when a request is done with the latency that the DRAM adds to its own.

        stream_wait: cycles that a copy waits for its stream; its lines wait for the DRAM meanwhile.
        """
        self.work_cycles += step.dram_cycles
        if self.load_cycles and not step.is_outgoing:
            load = self.work_cycles / (begin + self.skipped_cycles + _DRAM_LOAD_WINDOW_CYCLES)
            if load > _MAX_DRAM_LOAD_SHARE:
                load = _MAX_DRAM_LOAD_SHARE
            wait = self.load_cycles * load / (1.0 - load)
            if stream_wait > self.burst_cycles:
                wait = max(0.0, wait - stream_wait + self.burst_cycles)
            done += wait
        return done


class LoadStorePath:
    """The load/store path of an SM, with the warps that wait for room, and the memory behind it."""

    __slots__ = (
        "atomics_free",
        "banks_free",
        "burst_cycles",
        "copies_end",
        "copy_writes",
        "dispatch_cycles",
        "dispatch_free",
        "dram",
        "free",
        "heap",
        "is_admitting",
        "l2",
        "last_stores",
        "ldgsts_reads_free",
        "mbarriers",
        "queue_cycles",
        "read_release_cycles",
        "tags_free",
        "waiting_warps",
    )

    def __init__(self, parameters: SmParameters, heap: EventHeap, mbarriers: Mbarriers) -> None:
        self.heap, self.mbarriers = heap, mbarriers
        self.free = self.tags_free = self.banks_free = self.atomics_free = 0.0
        self.dispatch_cycles, self.dispatch_free = parameters.dispatch_cycles, 0.0
        self.ldgsts_reads_free = 0.0  # when the addresses of all LDGSTS are read
        self.copies_end = 0.0  # when the last of them is written
        self.copy_writes: list[tuple[float, float]] = []  # heap: time and cycles of what LDGSTS bring
        self.l2 = L2Share(parameters.l2_store_factor)
        self.dram = DramShare(parameters.dram_load_cycles, parameters.dram_burst_cycles)
        self.queue_cycles = parameters.load_store_queue_cycles
        self.burst_cycles = parameters.l2_burst_cycles
        self.read_release_cycles = parameters.read_release_cycles
        self.last_stores: dict[int, float] = {}  # by number of the warp: when the L2 has taken its last store
        self.waiting_warps: list[tuple[float, int, SimulatedWarp]] = []  # heap: see the module
        self.is_admitting = False  # the next request is that of a warp that has waited for room

    @property
    def end_cycles(self) -> float:
        """Time at which the last request so far has been served everywhere."""
        return max(self.free, *self.l2.free, self.l2.joint_free, self.dram.free, self.atomics_free)

    def list_queue_ends(self) -> tuple[float, ...]:
        """Return when each queue has served what is in it."""
        l2 = self.l2
        return (self.free, self.tags_free, *l2.free, l2.joint_free, self.dram.free, self.atomics_free)

    def admit_warp(self) -> SimulatedWarp:
        """Take the first of the waiting warps; its request comes next."""
        warp = heappop(self.waiting_warps)[2]
        warp.phase = _HAS_ISSUED
        self.is_admitting = True
        return warp

    def dispatch(self, step: SimulatedStep, at: float) -> float:
        """Return when a load or an instruction of the XU has its turn at the port that both share."""
        if not self.dispatch_cycles:
            return at
        begin = self.dispatch_free if self.dispatch_free > at else at
        self.dispatch_free = begin + self.dispatch_cycles * step.share
        return begin

    def pass_barrier(self, step: SimulatedStep, at: float) -> None:
        """Let a barrier through, which takes its turn on the path and waits for no room."""
        self.free = (self.free if self.free > at else at) + step.load_store_cycles

    def request(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float | None:
        """Serve a memory instruction; keep its warp where the path has no room."""
        is_admitted = self.is_admitting
        if is_admitted:
            self.is_admitting = False
            late = warp.blocked_since - at
            if late > 0.0:
                time += late
                at = warp.blocked_since
            step.wait_cycles[_MEMORY_PIPE] += at - warp.blocked_since
        elif not step.uses_ldgsts and (self.waiting_warps or self.free - self.queue_cycles > at):
            self._keep_warp(warp, at)
            return None
        begin = self._take_path(step, at)
        done = self.free
        if step.tag_cycles:
            done = self._serve_tags(step, begin)
        if is_admitted and self.waiting_warps:
            self._admit_when_free(at)
        done += step.latency_cycles
        if step.l2_cycles:
            done = self._serve_beyond_l1(step, begin, done)
            self._note_drain(warp, step)
        self._end_request(warp, step, begin, done)
        return time

    def _end_request(self, warp: SimulatedWarp, step: SimulatedStep, begin: float, done: float) -> None:
        """Note when a request that began then has read its registers, and when it is done."""
        if step.uses_ldgsts:
            done = self._find_ldgsts_end(warp, step, begin, done)
            if step.is_ldgsts:
                begin = max(self.ldgsts_reads_free, begin)
                self.ldgsts_reads_free = begin + step.tag_cycles
        if step.kind == _COPY_KIND:
            self.mbarriers.arrive(warp, step, done)
        if step.uses_scoreboards:
            warp.write_scoreboards(step, done, begin + self.read_release_cycles)

    def _take_path(self, step: SimulatedStep, at: float) -> float:
        """Give a request its turn on the path, and return when that begins.

        What goes through the banks waits for what LDGSTS have brought until then; an LDGSTS does not.
        """
        if step.is_cached_load:
            at = self.dispatch(step, at)
        begin = self.free if self.free > at else at
        if step.uses_ldgsts:
            self.free = begin + step.load_store_cycles
            return begin
        if self.copy_writes:
            begin = max(begin, self._write_copies(at))
        self.free = self.banks_free = begin + step.load_store_cycles
        return begin

    def _write_copies(self, at: float) -> float:
        """Write what LDGSTS have brought by now, and return when the banks are free again."""
        writes = self.copy_writes
        while writes and writes[0][0] <= at:
            arrival, cycles = heappop(writes)
            self.banks_free = max(self.banks_free, arrival) + cycles
        return self.banks_free

    def serve_store(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float | None:
        """Serve a store whose warp may wait for it at a fence."""
        ready = self.request(warp, step, at, time)
        if ready is not None:
            begin = self.free - step.load_store_cycles
            queued = max(self.l2.free[True], self.l2.joint_free) - begin - self.burst_cycles
            self.last_stores[warp.number] = begin + max(queued, 0.0)
        return ready

    def serve_fence(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float | None:
        """Serve a fence; its warp goes on when its last store has been to the L2 and back."""
        ready = self.request(warp, step, at, time)
        if ready is None:
            return None
        last = self.last_stores.get(warp.number, _NEVER)
        if step.kind == _FULL_FENCE_KIND:
            last = max(last, self.free - step.load_store_cycles)
        late = step.share * (last + step.latency_cycles - ready)
        if late <= 0.0:
            return ready
        step.wait_cycles[_MEMBAR] += late
        return ready + late

    def _keep_warp(self, warp: SimulatedWarp, at: float) -> None:
        warp.blocked_since = at
        heappush(self.waiting_warps, (at - self.queue_cycles * warp.number, -warp.number, warp))
        if len(self.waiting_warps) == 1:
            self._admit_when_free(at)

    def _admit_when_free(self, at: float) -> None:
        """Let the first of the waiting warps in when there is room, `at` at the earliest."""
        heappush(self.heap, (max(at, self.free - self.queue_cycles), -1, None))

    def _serve_tags(self, step: SimulatedStep, begin: float) -> float:
        """Return when both path and tags are done; tags that fall too far behind hold up the path."""
        done = self.free
        begin = self.tags_free if self.tags_free > begin else begin
        self.tags_free = begin + step.tag_cycles
        if self.tags_free > done:
            done = self.tags_free
        if self.tags_free - self.queue_cycles > self.free:
            self.free = self.tags_free - self.queue_cycles
        return done

    def _serve_beyond_l1(self, step: SimulatedStep, begin: float, done: float) -> float:
        """Return when a request is done that goes on to the L2.

        done: when it would be without any queue.
        """
        l2_free = self.l2.request(step, begin)
        stream_wait = 0.0
        if step.kind == _COPY_KIND:
            # a stream of its own, ahead of its share by as much as it waits
            stream_wait = max(l2_free - begin, self.dram.free + step.dram_cycles - done)
            if stream_wait > 0:
                done += stream_wait
        queued = l2_free - begin - self.burst_cycles
        if step.dram_cycles:
            queued = max(queued, self.dram.request(step, begin) - begin - self.dram.burst_cycles)
            done = self.dram.add_latency(step, begin, done, stream_wait)
        if step.atomic_cycles:
            free = self.atomics_free
            self.atomics_free = (free if free > begin else begin) + step.atomic_cycles
            queued = max(queued, self.atomics_free - begin - self.burst_cycles)
        if queued > 0.0 and step.kind == _LOAD_KIND:
            done += queued
        return done

    def _note_drain(self, warp: SimulatedWarp, step: SimulatedStep) -> None:
        """Note when what a CTA has stored has left the SM, less what the L2 takes at once."""
        if not step.is_outgoing:
            return
        free = max(self.l2.stores_free, self.l2.free[True], self.atomics_free if step.atomic_cycles else 0.0)
        warp.cta.drain_end = max(warp.cta.drain_end, free - self.burst_cycles)

    def _find_ldgsts_end(self, warp: SimulatedWarp, step: SimulatedStep, begin: float, done: float) -> float:
        """Return when an LDGSTS is done, or for an LDGDEPBAR, when all of its warp before it are."""
        if step.is_ldgsts:
            if step.write_cycles:
                done = max(done, self.copies_end)
                heappush(self.copy_writes, (done, step.write_cycles))
                done = self.copies_end = done + step.write_cycles
            if done > warp.last_ldgsts_end:
                warp.last_ldgsts_end = done
        elif warp.last_ldgsts_end:
            done = max(begin, warp.last_ldgsts_end)
            warp.last_ldgsts_end = 0.0
        return done
