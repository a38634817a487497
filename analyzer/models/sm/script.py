"""A role's code as the SM simulation reads it: stretches of instructions that issue one after another.

A step ends where something outside of the warp's own sub-core decides when it goes on: a memory
instruction, a barrier, an instruction whose result a scoreboard guards; or where the next one waits for a
scoreboard. What stands inside a step is summed: issue slots, cycles of each pipe, stall counts.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from analyzer.demand.costs import PIPE_INDEX, FloatArray
from analyzer.execution.rings import OddEnds, RingUse
from analyzer.ir.machine import WARP_LANES, Pipe, SchedClass
from analyzer.ir.opcode import OpKind, Semantics
from analyzer.ir.operand import Immediate, Register
from analyzer.ir.program import InstructionForm
from analyzer.isa.control_bits import NO_BARRIER
from analyzer.models.base import Situation
from analyzer.models.block_runs import BlockRun, block_runs
from analyzer.models.causes import PORTS
from analyzer.models.sm.traffic import Act, Traffic
from analyzer.models.warp_state import Code

_MOST_ROWS = 12
WHOLE_VISITS = 32
_INSTRUCTION_BYTES = 16
_FRONTEND = PIPE_INDEX[Pipe.FRONTEND]
# Pipes with few lanes: what comes before such an instruction does not wait for them.
_SLOW = frozenset({PIPE_INDEX[Pipe.XU], PIPE_INDEX[Pipe.FP64]})


WHOLE_CTA = -1


class Meeting(Struct, frozen=True):
    """A barrier of the CTA: key: which; warps: that it takes, all where 0; who only arrives does not wait."""

    key: int
    warps: int
    waits: bool


class Script(Struct, eq=False):
    """Steps in columns, and the runs that they make up.

    Of step i: waits: scoreboards to wait for; pending: (scoreboard, how many may be left) of a DEPBAR;
    groups: how many groups of warpgroup products may be left, -1 where it waits for none;
    issued, stalls: issue slots and the warp's own cycles; pipes: (pipe, cycles, cycles of the last
    instruction there); act and what it needs: tail (stall count of the last instruction), path_cycles of the
    SM's load/store path, tag_cycles of its L1, l2_cycles and dram_cycles of the SM's share of them, latency;
    meetings: at barriers; ring: of mbarriers that it waits for or arrives at (arrivals: so often each time
    that it does, part: of its visits; guarded: ends of its loop at which it does not), -1 for none;
    spread: cycles that it takes longer than another time at most;
    fetch: cycles that it waits for its instructions, where they do not stay in the instruction cache;
    copies, ends_copies: LDGSTS, and what raises a scoreboard when those before it are done;
    writes, reads: scoreboards that it raises, -1 for none; matrix: cycles of an asynchronous product on the
    pipe matrix_pipe;
    first, last: rows [first, last].
    """

    waits: list[tuple[int, ...]] = field(default_factory=list)
    pending: list[tuple[int, int] | None] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    issued: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    pipes: list[tuple[tuple[int, float, float], ...]] = field(default_factory=list)
    act: list[int] = field(default_factory=list)
    tail: list[float] = field(default_factory=list)
    path_cycles: list[float] = field(default_factory=list)
    tag_cycles: list[float] = field(default_factory=list)
    l2_cycles: list[float] = field(default_factory=list)
    dram_cycles: list[float] = field(default_factory=list)
    atomic_cycles: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    ring: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    part: list[float] = field(default_factory=list)
    guarded: list[OddEnds | None] = field(default_factory=list)
    meetings: list[Meeting] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    matrix: list[float] = field(default_factory=list)
    matrix_pipe: list[int] = field(default_factory=list)
    ends_group: list[bool] = field(default_factory=list)
    copies: list[bool] = field(default_factory=list)
    ends_copies: list[bool] = field(default_factory=list)
    is_long: list[bool] = field(default_factory=list)
    fetch: list[float] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    runs: "list[Run]" = field(default_factory=list)
    spans: "tuple[Span, ...]" = ()

    def __len__(self) -> int:
        return len(self.act)


class Run(Struct, frozen=True):
    """Steps [start, stop), gone through so often; meets: a barrier is among them; odd_ends: of the loop
    around it, where it is left out there; guarded: such ends of single steps; left_out: those of them in
    which these visits are.
    """

    start: int
    stop: int
    visits: int
    meets: bool
    odd_ends: OddEnds | None = None
    guarded: tuple[OddEnds, ...] = ()
    left_out: tuple[OddEnds, ...] = ()

    def most_visits(self, most: int) -> int:
        """Visits that are simulated where runs are cut short after `most`; short runs never are."""
        return self.visits if self.visits <= WHOLE_VISITS else min(self.visits, most)


class Span(Struct, frozen=True):
    """Runs [first, last] lie in a loop around them, which a warp goes round so often in all."""

    first: int
    last: int
    rounds: float


def write_script(situation: Situation, weights: FloatArray, code: Code, traffic: Traffic) -> Script:
    """The steps of a warp that runs each instruction weights[n] times."""
    script = Script()
    cfg, memory = situation.cfg, situation.arch.memory
    miss_cycles_per_row = memory.instruction_miss_cycles.value * _INSTRUCTION_BYTES / memory.line_bytes.value
    written: list[BlockRun] = []
    for run in block_runs(cfg, situation.nest):
        counts = [float(weights[cfg.blocks[b].start]) for b in run.blocks]
        times = max(counts)
        if times <= 0:
            continue
        uses = _uses_of(situation, run)
        visits = max(1, round(times), _rounds_of_arrivals(situation, run, uses, weights))
        start = len(script)
        for block, count in zip(run.blocks, counts, strict=True):
            if count > 0:
                rows = range(cfg.blocks[block].start, cfg.blocks[block].stop)
                _Writer(script, code, traffic, count / visits).write(rows)
        meets = int(Act.BARRIER) in script.act[start:]
        size = sum(cfg.blocks[b].stop - cfg.blocks[b].start for b in run.blocks) * _INSTRUCTION_BYTES
        per_row = miss_cycles_per_row if size > memory.instruction_cache_bytes.value else 0.0
        script.fetch += [
            per_row * (script.last[step] + 1 - script.first[step]) for step in range(start, len(script))
        ]
        script.runs.append(Run(start, len(script), visits, meets, *_odd_ends(uses)))
        written.append(run)
    script.spans = _spans(situation, weights, written)
    return script


def _uses_of(situation: Situation, run: BlockRun) -> list[RingUse]:
    """What a run does at rings of mbarriers."""
    uses = {} if situation.rings is None else situation.rings.uses
    blocks = [situation.cfg.blocks[number] for number in run.blocks] if uses else []
    return [uses[row] for block in blocks for row in range(block.start, block.stop) if row in uses]


def _rounds_of_arrivals(
    situation: Situation, run: BlockRun, uses: Sequence[RingUse], weights: FloatArray
) -> int:
    """Rounds of the loop around a block that arrives at a ring's mbarriers; 0 where it need not be in each.

    A block to which one warp of a group comes is a part of what each of the group does: the part of a phase
    that it ends is due in every round, not the whole in some.
    """
    loop = situation.nest.loop_of[run.blocks[0]]
    if not uses or run.loop is not None or loop is None:
        return 0
    if any(use.odd_ends or use.meaning is not Semantics.MBARRIER_ARRIVE for use in uses):
        return 0
    return round(float(weights[situation.cfg.blocks[situation.nest.loops[loop].header].start]))


def _odd_ends(uses: Sequence[RingUse]) -> tuple[OddEnds | None, tuple[OddEnds, ...]]:
    """Those at which a whole run is left out, as all is that it tells mbarriers; and those of some steps."""
    found = {use.odd_ends for use in uses}
    guarded = tuple(odd for odd in found if odd is not None and odd.is_guarded)
    return (found.pop() if len(found) == 1 and not guarded else None), guarded


def _spans(situation: Situation, weights: FloatArray, written: Sequence[BlockRun]) -> tuple[Span, ...]:
    """Loops around more than one run, outer before inner; those that others cut across are left out."""
    found: list[Span] = []
    for loop in situation.nest.loops:
        inside = [place for place, run in enumerate(written) if loop.blocks.issuperset(run.blocks)]
        rounds = float(weights[situation.cfg.blocks[loop.header].start])
        if len(inside) < 2 or rounds <= 0:
            continue
        span = Span(inside[0], inside[-1], rounds)
        if all(_nest(span, other) for other in found):
            found.append(span)
    return tuple(sorted(found, key=lambda span: (span.first, -span.last)))


def _nest(one: Span, other: Span) -> bool:
    apart = one.last < other.first or other.last < one.first
    within = one.first >= other.first and one.last <= other.last
    return apart or within or (other.first >= one.first and other.last <= one.last)


class _Writer:
    """Cuts the rows of one block into steps."""

    __slots__ = ("_code", "_script", "_share", "_traffic")

    def __init__(self, script: Script, code: Code, traffic: Traffic, share: float) -> None:
        self._script, self._code, self._traffic, self._share = script, code, traffic, share

    def write(self, rows: Sequence[int]) -> None:
        begin = rows[0]
        for row in rows:
            if row > begin and (self._parts(row) or row - begin >= _MOST_ROWS):
                self._close(begin, row - 1, Act.NONE)
                begin = row
            act = self._act(row)
            if act is not Act.NONE:
                self._close(begin, row, act)
                begin = row + 1
        if begin < rows[-1] + 1:
            self._close(begin, rows[-1], Act.NONE)

    def _parts(self, row: int) -> bool:
        """Whether a row begins a step: it waits for a scoreboard, or for a pipe that is often taken."""
        code = self._code
        waits = row in code.special or (code.has_control and bool(code.wait_mask[row]))
        return waits or code.pipe[row] in _SLOW

    def _act(self, row: int) -> Act:
        if self._code.kernel.opcode(row).sched is SchedClass.CTA_BARRIER:
            return Act.BARRIER
        act = Act(int(self._traffic.act[row]))
        if act is not Act.NONE:
            return act
        code = self._code
        if self._traffic.matrix_cycles[row]:
            return Act.RESULT
        guarded = code.has_control and (
            code.write_barrier[row] != NO_BARRIER or code.read_barrier[row] != NO_BARRIER
        )
        return Act.RESULT if guarded else Act.NONE

    def _close(self, first: int, last: int, act: Act) -> None:
        """Write rows [first, last] as one step."""
        script, code, traffic, share = self._script, self._code, self._traffic, self._share
        mask = code.wait_mask[first] if code.has_control else 0
        special = code.special.get(first)
        script.waits.append(tuple(b for b in range(6) if mask >> b & 1))
        script.pending.append(None)
        script.groups.append(-1)
        if special is not None and not special.barrier_cycles:
            if special.waits_warpgroup:
                script.groups[-1] = special.outstanding
            else:
                script.pending[-1] = (special.scoreboard, special.outstanding)
        stalls = code.stall[first : last + 1] if code.has_control else [1.0] * (last + 1 - first)
        script.issued.append(share * (last + 1 - first))
        script.stalls.append(share * sum(stalls))
        script.pipes.append(self._pipes_of(first, last))
        script.act.append(int(act))
        script.tail.append(share * stalls[-1])
        script.path_cycles.append(share * float(traffic.path_cycles[last]))
        script.tag_cycles.append(share * float(traffic.tag_cycles[last]))
        script.l2_cycles.append(share * float(traffic.l2_cycles[last]))
        script.dram_cycles.append(share * float(traffic.dram_cycles[last]))
        script.atomic_cycles.append(share * float(traffic.atomic_cycles[last]))
        script.spread.append(float(traffic.spread_cycles[last]))
        script.latency.append(traffic.commit_cycles if act is Act.COMMIT else code.latency[last])
        self._tell(traffic.ring_uses.get(last))
        script.meetings.append(_meeting(code.kernel.form(last), last) if act is Act.BARRIER else _NOWHERE)
        script.share.append(share)
        write = code.write_barrier[last] if code.has_control else NO_BARRIER
        read = code.read_barrier[last] if code.has_control else NO_BARRIER
        script.writes.append(-1 if write == NO_BARRIER else write)
        script.reads.append(-1 if read == NO_BARRIER else read)
        script.matrix.append(share * float(traffic.matrix_cycles[last]))
        script.matrix_pipe.append(code.pipe[last])
        script.ends_group.append(last in code.group_ends)
        opcode = code.kernel.opcode(last)
        script.copies.append(opcode.kind is OpKind.ASYNC_COPY)
        script.ends_copies.append(
            opcode.sched is SchedClass.ASYNC_COPY and opcode.kind is not OpKind.ASYNC_COPY
        )
        script.is_long.append(code.is_long[last])
        script.first.append(first)
        script.last.append(last)

    def _tell(self, use: RingUse | None) -> None:
        script, ends = self._script, None if use is None else use.odd_ends
        script.ring.append(-1 if use is None else use.ring)
        script.arrivals.append(self._share * (1.0 if use is None else use.share))
        script.part.append(1.0 if use is None else use.part)
        script.guarded.append(ends if ends is not None and ends.is_guarded else None)

    def _queues(self, row: int) -> bool:
        """Products that their warp does not wait for, and commits, which queue behind them."""
        return bool(self._traffic.matrix_cycles[row]) or self._traffic.act[row] == _COMMIT

    def _pipes_of(self, first: int, last: int) -> tuple[tuple[int, float, float], ...]:
        """Cycles on each pipe of the sub-core; the load/store path belongs to the SM and is left out."""
        code, share, ports = self._code, self._share, self._traffic.port_cycles
        busy: dict[int, float] = {}
        tails: dict[int, float] = {}
        for row in range(first, last + 1):
            pipe, cycles = code.pipe[row], code.issue[row]
            if ports[row]:
                busy[PORTS] = busy.get(PORTS, 0.0) + share * ports[row]
                tails[PORTS] = share * ports[row]
            if pipe == _FRONTEND or pipe in self._traffic.sm_pipes or self._queues(row):
                continue
            other = code.alternate[row]
            if other >= 0 and busy.get(other, 0.0) < busy.get(pipe, 0.0):
                pipe = other
            busy[pipe] = busy.get(pipe, 0.0) + share * cycles
            tails[pipe] = share * cycles
        return tuple((pipe, cycles, tails[pipe]) for pipe, cycles in busy.items())


_COMMIT = int(Act.COMMIT)
_NOWHERE = Meeting(WHOLE_CTA, 0, waits=False)


def _meeting(form: InstructionForm, row: int) -> Meeting:
    """By the barrier's number; where a register holds it, warps meet at the instruction."""
    numbers = [o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int)]
    is_named = any(isinstance(operand, Register) for operand in form.operands[:1])
    waits = "ARV" not in form.opcode.modifiers
    if is_named and numbers:
        return Meeting(_NAMED + row, numbers[0] // WARP_LANES, waits)
    if len(numbers) > 1:
        return Meeting(numbers[0], numbers[1] // WARP_LANES, waits)
    return Meeting(WHOLE_CTA, 0, waits)


_NAMED = 16  # numbers of barriers lie below
