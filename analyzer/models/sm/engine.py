"""The SM itself: its resident warps step by step, in the order in which they come to each resource.

Four schedulers with their pipes, one load/store path, the SM's share of the L2 and of the DRAM, barriers, and
CTAs that follow each other in the slots. Of the warps that a scheduler could issue from, the youngest goes
first (Huerta et al., MICRO 2025); where the load/store path is full, the oldest's request does. All else is
taken in the order of arrival, without gaps.
"""

from heapq import heappop, heappush, heappushpop

from analyzer.demand.costs import PIPE_INDEX
from analyzer.ir.machine import SHARED_PIPES, Pipe
from analyzer.models.causes import N_CAUSES, PIPE_CAUSE, PORTS, Cause
from analyzer.models.sm.script import WHOLE_CTA, Meeting, Script
from analyzer.models.sm.state import ROUNDING, Cta, Owed, Played, Point, SmFigures, Visits, Warp
from analyzer.models.sm.traffic import OUTWARD, Act

_N_PIPES = PORTS + 1
TENSOR = PIPE_INDEX[Pipe.TENSOR]
_SHARED_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in SHARED_PIPES)
NOT_SELECTED, NO_INSTRUCTIONS = N_CAUSES, N_CAUSES + 1
N_WAITS = N_CAUSES + 2
_RESULT, _LOAD, _STORE, _BARRIER = (int(act) for act in (Act.RESULT, Act.LOAD, Act.STORE, Act.BARRIER))
_WAIT, _ARRIVE, _COMMIT, _COPY = (int(act) for act in (Act.WAIT, Act.ARRIVE, Act.COMMIT, Act.COPY))
_ARRIVING = (_ARRIVE, _COMMIT)
_LONG, _SHORT = int(Cause.LONG), int(Cause.SHORT)
_CAUSE_OF = tuple(int(PIPE_CAUSE.get(pipe, Cause.MEMORY_PIPE)) for pipe in range(_N_PIPES))


# Part of all visits of a run behind which its pace is taken: before, warps start.
_FROM = 0.34
_ALWAYS = 1 << 60
_FIRST = 1 << 40  # the number of the first warp; later ones have lower numbers and come first
_GOLDEN = 0.618034  # of the spread: steps that fill it evenly
# Of the DRAM: beyond it what queues is simulated; and cycles over which the load is taken at least.
_MOST_LOAD, _SETTLING = 0.8, 2000.0


def play(scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> Played:
    """Simulate so many CTAs on one SM."""
    return _Play(scripts, figures, n_ctas).run()


class _Play:
    def __init__(self, scripts: tuple[Script, ...], figures: SmFigures, n_ctas: int) -> None:
        self.scripts, self.figures = scripts, figures
        self.to_come = self.n_ctas = n_ctas
        self.heap: list[tuple[float, int, Warp | None]] = []
        self.loads = [0] * figures.subcores
        self.number = _FIRST
        self.resident: list[Cta] = []
        self.last_launch = -figures.launch_cycles
        self.found = Played(waits=[[0.0] * (len(script) * N_WAITS) for script in scripts])

    def launch(self, time: float) -> None:
        """A CTA takes a slot."""
        crew, loads = self.figures.crew, self.loads
        time = max(time, self.last_launch + self.figures.launch_cycles)
        self.last_launch = time
        self.to_come -= 1
        wave = (self.n_ctas - self.to_come - 1) // self.figures.slots
        cta = Cta(len(crew), wave, self.figures.rings)
        self.resident.append(cta)
        for script in crew:
            subcore = loads.index(min(loads))
            loads[subcore] += 1
            warp = Warp(self.number, script, cta, subcore)
            warp.step = self.scripts[script].runs[0].start
            self.number -= 1
            heappush(self.heap, (time, warp.number, warp))

    def run(self) -> Played:  # noqa: C901 - calls would double the time of the innermost loop
        for _ in range(min(self.figures.slots, self.to_come)):
            self.launch(0.0)
        figures, found, heap = self.figures, self.found, self.heap
        n_sub = figures.subcores
        issue_free = [0.0] * n_sub
        pipe_free = [[0.0] * _N_PIPES for _ in range(n_sub)]
        path_free = tags_free = dram_free = atomic_free = dram_work = turn = 0.0
        load_latency = figures.dram_load
        l2_frees = [0.0, 0.0]  # to the SM, and from it
        l2_joint, store_factor = 0.0, figures.l2_store_factor
        depth, burst, release = figures.path_depth, figures.burst, figures.read_release
        store_depth = figures.store_depth
        queue_up: list[tuple[int, Warp]] = []  # warps whose memory instruction has no room on the path
        most, most_copies = figures.most_visits, figures.copies
        is_full = False
        steps = [
            list(zip(s.act, _holds(s), s.tail, s.issued, s.pipes, s.stalls, strict=True))
            for s in self.scripts
        ]
        again: tuple[float, int, Warp] | None = None  # of the last warp: when it goes on
        while again is not None or heap or self.free_parked():
            time, _, entry = heappop(heap) if again is None else heappushpop(heap, again)
            again = None
            has_room = entry is None
            warp = heappop(queue_up)[1] if entry is None else entry
            resumes = has_room or warp.acts
            warp.acts = False
            script, code = self.scripts[warp.script], steps[warp.script]
            waits = found.waits[warp.script]
            runs = script.runs
            boards = warp.boards
            issue, free = issue_free[warp.subcore], pipe_free[warp.subcore]
            limit = heap[0][0] if heap else 1e300
            stop = runs[warp.run].stop
            while True:
                i = warp.step
                if warp.woken:
                    warp.woken = False  # of a barrier: the step itself is done
                else:
                    base = i * N_WAITS
                    act, holds, tail, issued, pipes, stall = code[i]
                    if warp.waited:
                        warp.waited = False
                    elif holds and not resumes:
                        share = script.share[i]
                        if script.waits[i]:
                            if warp.owed:
                                if warp.asks:
                                    warp.asks = False
                                    waits[base + Cause.BARRIER] += time - warp.at
                                if not warp.settle(script.waits[i]):
                                    warp.asks, warp.at = True, time
                                    break
                            for b in script.waits[i]:
                                late = boards[b] - time
                                if late > 0:
                                    waits[base + warp.causes[b]] += share * late
                                    time += share * late
                        pending = script.pending[i]
                        if pending is not None:
                            b, left = pending
                            queue = warp.pending[b]
                            if queue and len(queue) > left:
                                late = max(queue[: len(queue) - left]) - time
                                if late > 0:
                                    waits[base + warp.causes[b]] += share * late
                                    time += share * late
                                del queue[: len(queue) - left]
                        if script.groups[i] >= 0:
                            groups = warp.groups
                            keep = script.groups[i]
                            done = max(groups[: len(groups) - keep], default=0.0)
                            if keep < len(groups):
                                del groups[: len(groups) - keep]
                            late = done - time
                            if late > 0:
                                waits[base + Cause.GMMA] += share * late
                                time += share * late
                        if most_copies and script.copies[i] and len(warp.copying) >= most_copies:
                            late = warp.copying.pop(0) - time
                            if late > 0:
                                waits[base + Cause.LONG] += share * late
                                time += share * late
                        fetch = script.fetch[i]
                        if fetch:
                            waits[base + NO_INSTRUCTIONS] += fetch
                            time += fetch
                        if time > limit:
                            # others come first: queues are taken in order of arrival
                            warp.waited = True
                            again = (time, warp.number, warp)
                            break
                    if not resumes:
                        free_at, which = issue, NOT_SELECTED
                        for p, _, _ in pipes:
                            if free[p] > free_at and p != TENSOR:
                                free_at, which = free[p], _CAUSE_OF[p]
                        if free_at > time:
                            waits[base + which] += free_at - time
                            time = free_at
                            if heap and heap[0][0] <= time:
                                # others may be ready as well then, and younger
                                warp.waited = True
                                again = (time, warp.number, warp)
                                break
                        issue = time + issued
                        end = 0.0
                        for p, cycles, last in pipes:
                            begin = free[p]
                            if begin > time:  # the tensor core's queue
                                waits[base + _CAUSE_OF[p]] += begin - time
                                time = begin
                            free[p] = begin = time + cycles
                            if begin - last > end:
                                end = begin - last
                                slow = p
                        time += stall
                        if end > time - tail:
                            late = end - time + tail
                            waits[base + _CAUSE_OF[slow]] += late
                            time += late
                    if act:
                        if resumes:
                            at = time
                            time += tail
                            resumes = False
                        else:
                            at = time - tail
                            if at > limit:
                                # others come first: what the SM shares is taken in order of arrival
                                warp.acts = True
                                again = (at, warp.number, warp)
                                break
                        if act == _RESULT:
                            matrix = script.matrix[i]
                            if matrix:
                                p = script.matrix_pipe[i]
                                cores = pipe_free[0] if p in _SHARED_PIPES else free
                                done = max(cores[p], warp.matrix_done, at) + matrix
                                warp.matrix_done = cores[p] = done
                                if script.ends_group[i]:
                                    warp.groups.append(done)
                                released = at + release
                            else:
                                released = done = at + script.latency[i]
                        elif act == _BARRIER:
                            meeting = script.meetings[i]
                            path_free = (path_free if path_free > at else at) + script.path_cycles[i]
                            time += script.latency[i] if meeting.waits else 0.0
                            if self.meets(warp, meeting, time):
                                warp.woken = True
                                warp.at = time
                                break
                            if heap and heap[0][0] < limit:
                                limit = heap[0][0]
                            done = released = time
                        elif act == _WAIT:
                            does = script.guarded[i] not in runs[warp.run].left_out
                            ring, b = script.ring[i], script.writes[i]
                            if does and not warp.asks:
                                warp.asked[ring] += script.share[i]
                            number = int(warp.asked[ring] + ROUNDING)
                            if does and b >= 0:
                                warp.owed.append(Owed(b, ring, number, script.latency[i]))
                            elif does:  # no scoreboard is known: it waits here
                                if not warp.asks:
                                    warp.asks, warp.at = True, at
                                ready = warp.cta.rings[ring].ended_at(number, warp)
                                if ready is None:
                                    warp.acts = True
                                    break
                                warp.asks = False
                                time += max(0.0, ready - at)
                                at = max(at, ready)
                                waits[base + Cause.BARRIER] += at - warp.at
                            done = released = at + script.latency[i]
                        elif act in _ARRIVING:
                            done = released = at + script.latency[i]
                            if act == _COMMIT:
                                released = at + release  # it waits for products; its warp does not
                                if warp.matrix_done > at:
                                    done += warp.matrix_done - at
                            if script.guarded[i] not in runs[warp.run].left_out:
                                self.arrive(warp, script.ring[i], script.arrivals[i], done)
                            if heap and heap[0][0] < limit:
                                limit = heap[0][0]
                        else:
                            if has_room:
                                has_room = False
                                if at < warp.at:
                                    time += warp.at - at
                                    at = warp.at
                                waits[base + Cause.MEMORY_PIPE] += at - warp.at
                                is_full = bool(queue_up)
                            elif queue_up or path_free - at > depth:
                                warp.at = at
                                heappush(queue_up, (-warp.number, warp))
                                if len(queue_up) == 1:
                                    heappush(heap, (path_free - depth, -1, None))
                                break
                            begin = path_free if path_free > at else at
                            path_free = begin + script.path_cycles[i]
                            done = path_free
                            moved = script.tag_cycles[i]
                            if moved:
                                tags_free = (tags_free if tags_free > begin else begin) + moved
                                if tags_free > done:
                                    done = tags_free
                                if tags_free - depth > path_free:
                                    path_free = tags_free - depth
                            if is_full:
                                is_full = False
                                heappush(
                                    heap, (path_free - depth if path_free - depth > at else at, -1, None)
                                )
                                if path_free - depth < limit:
                                    limit = path_free - depth
                            done += script.latency[i]
                            released = begin + release
                            moved = script.l2_cycles[i]
                            if moved:
                                way = act in OUTWARD
                                l2_free = l2_frees[way]
                                l2_frees[way] = l2_free = (l2_free if l2_free > begin else begin) + moved
                                if store_factor and act != _COPY:
                                    # loads go first: what both take together holds up stores;
                                    # cycles of copies are those of their stream, not of the L2
                                    l2_joint = l2_joint if l2_joint > begin else begin
                                    l2_joint += moved * store_factor if way else moved
                                    if way:
                                        l2_free = l2_joint
                                if act == _COPY:
                                    # a stream of its own, ahead of its share by as much as it waits
                                    late = max(l2_free - begin, dram_free + script.dram_cycles[i] - done)
                                    if late > 0:
                                        done += late
                                queued = l2_free - begin - burst
                                moved = script.dram_cycles[i]
                                if moved:
                                    dram_free = (dram_free if dram_free > begin else begin) + moved
                                    if dram_free - begin - burst > queued:
                                        queued = dram_free - begin - burst
                                    if load_latency and act not in OUTWARD:
                                        dram_work += moved
                                        load = min(_MOST_LOAD, dram_work / (begin + _SETTLING))
                                        wait = load_latency * load / (1.0 - load)
                                        if act == _COPY and late > burst:
                                            # its lines wait for the DRAM side by side
                                            wait = max(0.0, wait - late + burst)
                                        done += wait
                                    spread = script.spread[i]
                                    if spread:
                                        turn = (turn + _GOLDEN) % 1.0
                                        done += spread * (turn - 0.5)
                                moved = script.atomic_cycles[i]
                                if moved:
                                    atomic_free = (atomic_free if atomic_free > begin else begin) + moved
                                    if atomic_free - begin - burst > queued:
                                        queued = atomic_free - begin - burst
                                if queued > 0:
                                    if act == _LOAD:
                                        done += queued
                                    elif act == _STORE and queued > store_depth:
                                        path_free += queued - store_depth
                            if script.copies[i]:
                                if done > warp.copied:
                                    warp.copied = done
                                if most_copies:
                                    warp.copying.append(done)
                            elif warp.copied and script.ends_copies[i]:
                                done = max(begin, warp.copied)
                                warp.copied = 0.0
                            if act == _COPY:
                                if script.guarded[i] not in runs[warp.run].left_out:
                                    self.arrive(warp, script.ring[i], script.arrivals[i], done)
                                if heap and heap[0][0] < limit:
                                    limit = heap[0][0]
                        b = script.writes[i]
                        if b >= 0:
                            if done > boards[b]:
                                boards[b] = done
                                warp.causes[b] = _LONG if script.is_long[i] else _SHORT
                            queue = warp.pending[b]
                            if queue is None:
                                queue = warp.pending[b] = []
                            queue.append(done)
                            if len(queue) > 64:
                                del queue[0]
                        b = script.reads[i]
                        if b >= 0 and released > boards[b]:
                            boards[b] = released
                            warp.causes[b] = _LONG if script.is_long[i] else _SHORT
                i += 1
                if i == stop:
                    run = runs[warp.run]
                    warp.visit += 1
                    is_cut = run.visits > run.most_visits(most)
                    if self.goes_on(warp, time) if is_cut else warp.visit < run.visits:
                        i = run.start
                    else:
                        warp.visit = 0
                        warp.run += 1
                        if warp.run == len(runs):
                            self.end(warp, time)
                            break
                        i = runs[warp.run].start
                        stop = runs[warp.run].stop
                warp.step = i
                if time > limit:
                    again = (time, warp.number, warp)
                    break
            issue_free[warp.subcore] = issue
        found.cycles = max(path_free, *l2_frees, l2_joint, dram_free, atomic_free, found.cycles)
        return found

    def meets(self, warp: Warp, meeting: Meeting, time: float) -> bool:
        """Whether a warp that comes to a barrier is kept there; the last one lets the others go."""
        cta = warp.cta
        point = cta.points.get(meeting.key)
        if point is None:
            point = cta.points[meeting.key] = Point()
        point.arrived += 1
        if point.arrived < (meeting.warps or cta.left):
            if meeting.waits:
                point.parked.append(warp)
            return meeting.waits
        self.let_go(point, time)
        return False

    def let_go(self, point: Point, time: float) -> None:
        """The warps at a barrier go on."""
        for other in point.parked:
            step = other.step * N_WAITS + Cause.BARRIER
            self.found.waits[other.script][step] += max(0.0, time - other.at)
            heappush(self.heap, (max(time, other.at), other.number, other))
        point.parked, point.arrived = [], 0

    def arrive(self, warp: Warp, ring: int, times: float, time: float) -> None:
        """An arrival at a ring, which may end a phase and let warps go on."""
        if not times:
            return
        phases, figures = warp.cta.rings[ring], self.figures.rings[ring]
        number = int((warp.told[ring] + ROUNDING) / figures.each[warp.script]) if figures.each else None
        warp.told[ring] += times
        if not phases.add(times, time, figures.arrivals, number):
            return
        for other in phases.waiting:  # each looks anew whether this was the phase
            heappush(self.heap, (max(phases.ended[-1], other.at), other.number, other))
        phases.waiting = []

    def free_parked(self) -> bool:
        """Let go on who waits for warps that never come, at barriers first.

        Parts of a warp that come to a barrier one by one are not told apart from warps; and phases of
        mbarriers may be asked for in another order than that in which loops are taken.
        """
        points = [point for cta in self.resident for point in cta.points.values() if point.parked]
        for point in points:
            self.let_go(point, 0.0)
        for cta in self.resident if not points else ():
            for phases in cta.rings:
                phases.free += bool(phases.waiting)
                for warp in phases.waiting:
                    heappush(self.heap, (warp.at, warp.number, warp))
                phases.waiting = []
        return bool(self.heap)

    def goes_on(self, warp: Warp, time: float) -> bool:
        """Count a visit of a run that is cut short; whether the warp goes through the run once more.

        All CTAs that came together stay until they have made so many visits in all: those that have priority
        go through the run more often, as they would for as long as it lasts. Warps that meet at barriers make
        equally many.
        """
        cta = warp.cta
        key = (warp.script, warp.run, cta.wave)
        visits = self.found.visits.get(key)
        if visits is None:
            before = cta.wave * self.figures.slots
            n_ctas = min(self.figures.slots, self.n_ctas - before)
            n_warps = self.figures.crew.count(warp.script) * n_ctas
            low, high = (n_warps * int(part * self.figures.most_visits) for part in (_FROM, 1.0))
            visits = self.found.visits[key] = Visits(low, high, n_warps)
        visits.done += 1
        if visits.done == visits.low:
            visits.low_time = time
        elif visits.done == visits.high:
            visits.high_time = time
        if not self.scripts[warp.script].runs[warp.run].meets:
            return visits.done < visits.high
        place = (warp.script, warp.run)
        begun = cta.begun.get(place, 0)
        if visits.done >= visits.high and place not in cta.last_visits:
            cta.last_visits[place] = max(warp.visit, begun)
        if warp.visit >= cta.last_visits.get(place, _ALWAYS):
            return False
        cta.begun[place] = max(warp.visit + 1, begun)
        return True

    def end(self, warp: Warp, time: float) -> None:
        """A warp is done, and with the last one its CTA."""
        self.loads[warp.subcore] -= 1
        cta = warp.cta
        cta.left -= 1
        whole = cta.points.get(WHOLE_CTA)
        if whole is not None and whole.parked and whole.arrived == cta.left:
            self.let_go(whole, time)
        if cta.left:
            return
        self.resident.remove(cta)
        self.found.n_ctas += 1
        self.found.ends.append(time)
        self.found.cycles = max(self.found.cycles, time)
        if self.to_come:
            self.launch(time)


def _holds(script: Script) -> list[bool]:
    """Steps before which a warp may have to wait for something of its own."""
    columns = zip(script.waits, script.pending, script.groups, script.copies, script.fetch, strict=True)
    return [
        bool(waits or pending or groups >= 0 or copies or fetch)
        for waits, pending, groups, copies, fetch in columns
    ]
