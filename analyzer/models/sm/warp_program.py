"""A role's code as the SM simulation reads it: stretches of instructions that issue one after another.

A step ends where something outside of the warp's own sub-core decides when it goes on: a memory
instruction, a barrier, an instruction whose result a scoreboard guards; or where the next one waits for a
scoreboard. What stands inside a step is summed: issue slots, cycles of each pipe, stall counts.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from analyzer.demand.opcode_costs import PIPE_INDEX, FloatArray
from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp, PipelineUse
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import OpKind, Semantics
from analyzer.ir.operand import Immediate, Register
from analyzer.ir.scheduling import WARP_SIZE, Pipe, SchedClass
from analyzer.isa.control_encoding import NO_BARRIER
from analyzer.models.block_sequences import BlockSequence, split_into_block_sequences
from analyzer.models.interface import ModelInput
from analyzer.models.sm.resource_demand import ResourceDemand, StepKind
from analyzer.models.timeline_warp import InstructionTiming
from analyzer.models.wait_causes import REGISTER_PORTS_INDEX

_MAX_ROWS_PER_STEP = 12
SHORT_LOOP_MAX_ITERATIONS = 32
_INSTRUCTION_BYTES = 16
_FRONTEND_PIPE_INDEX = PIPE_INDEX[Pipe.FRONTEND]
# Pipes with few lanes: what comes before such an instruction does not wait for them.
_SLOW_PIPES = frozenset({PIPE_INDEX[Pipe.XU], PIPE_INDEX[Pipe.FP64]})


WHOLE_CTA_KEY = -1


class CtaBarrier(Struct, frozen=True):
    """A barrier of the CTA: key: which; warps: that it takes, all where 0; who only arrives does not wait."""

    key: int
    n_warps: int
    waits: bool


class WarpProgram(Struct, eq=False):
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

    wait_scoreboards: list[tuple[int, ...]] = field(default_factory=list)
    depbar_waits: list[tuple[int, int] | None] = field(default_factory=list)
    max_pending_groups: list[int] = field(default_factory=list)
    issue_slots: list[float] = field(default_factory=list)
    stall_cycles: list[float] = field(default_factory=list)
    pipe_cycles: list[tuple[tuple[int, float, float], ...]] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    tail_cycles: list[float] = field(default_factory=list)
    load_store_cycles: list[float] = field(default_factory=list)
    tag_cycles: list[float] = field(default_factory=list)
    l2_cycles: list[float] = field(default_factory=list)
    dram_cycles: list[float] = field(default_factory=list)
    atomic_cycles: list[float] = field(default_factory=list)
    latency_cycles: list[float] = field(default_factory=list)
    spread_cycles: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    pipeline: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    iteration_share: list[float] = field(default_factory=list)
    predicated_ramp: list[PipelineRamp | None] = field(default_factory=list)
    barriers: list[CtaBarrier] = field(default_factory=list)
    write_scoreboard: list[int] = field(default_factory=list)
    read_scoreboard: list[int] = field(default_factory=list)
    async_mma_cycles: list[float] = field(default_factory=list)
    async_mma_pipe: list[int] = field(default_factory=list)
    ends_wgmma_group: list[bool] = field(default_factory=list)
    is_ldgsts: list[bool] = field(default_factory=list)
    is_ldgdepbar: list[bool] = field(default_factory=list)
    is_long: list[bool] = field(default_factory=list)
    fetch_cycles: list[float] = field(default_factory=list)
    first_row: list[int] = field(default_factory=list)
    last_row: list[int] = field(default_factory=list)
    sequences: "list[StepSequence]" = field(default_factory=list)
    outer_loops: "tuple[OuterLoop, ...]" = ()

    def __len__(self) -> int:
        return len(self.kind)


class StepSequence(Struct, frozen=True):
    """Steps [start, stop), gone through so often; meets: a barrier is among them; odd_ends: of the loop
    around it, where it is left out there; guarded: such ends of single steps; left_out: those of them in
    which these visits are.
    """

    start: int
    stop: int
    iterations: int
    has_barrier: bool
    ramp: PipelineRamp | None = None
    predicated_ramps: tuple[PipelineRamp, ...] = ()
    skipped_ramps: tuple[PipelineRamp, ...] = ()

    def limit_iterations(self, max_iterations: int) -> int:
        """Visits that are simulated where runs are cut short after `most`; short runs never are."""
        return (
            self.iterations
            if self.iterations <= SHORT_LOOP_MAX_ITERATIONS
            else min(self.iterations, max_iterations)
        )


class OuterLoop(Struct, frozen=True):
    """Runs [first, last] lie in a loop around them, which a warp goes round so often in all."""

    first_sequence: int
    last_sequence: int
    iterations: float


def build_warp_program(
    model_input: ModelInput, weights: FloatArray, timing: InstructionTiming, resource_demand: ResourceDemand
) -> WarpProgram:
    """The steps of a warp that runs each instruction weights[n] times."""
    warp_program = WarpProgram()
    cfg, memory = model_input.cfg, model_input.arch.memory
    miss_cycles_per_row = memory.instruction_miss_cycles.value * _INSTRUCTION_BYTES / memory.line_bytes.value
    sequences: list[BlockSequence] = []
    for sequence in split_into_block_sequences(cfg, model_input.loop_forest):
        counts = [float(weights[cfg.blocks[b].start]) for b in sequence.blocks]
        times = max(counts)
        if times <= 0:
            continue
        uses = _find_mbarrier_uses(model_input, sequence)
        iterations = max(1, round(times), _count_arrival_iterations(model_input, sequence, uses, weights))
        start = len(warp_program)
        for block, count in zip(sequence.blocks, counts, strict=True):
            if count > 0:
                rows = range(cfg.blocks[block].start, cfg.blocks[block].stop)
                _StepBuilder(warp_program, timing, resource_demand, count / iterations).append_rows(rows)
        has_barrier = int(StepKind.CTA_BARRIER) in warp_program.kind[start:]
        size = sum(cfg.blocks[b].stop - cfg.blocks[b].start for b in sequence.blocks) * _INSTRUCTION_BYTES
        per_row = miss_cycles_per_row if size > memory.instruction_cache_bytes.value else 0.0
        warp_program.fetch_cycles += [
            per_row * (warp_program.last_row[step] + 1 - warp_program.first_row[step])
            for step in range(start, len(warp_program))
        ]
        warp_program.sequences.append(
            StepSequence(start, len(warp_program), iterations, has_barrier, *_find_ramps(uses))
        )
        sequences.append(sequence)
    warp_program.outer_loops = _find_outer_loops(model_input, weights, sequences)
    return warp_program


def _find_mbarrier_uses(model_input: ModelInput, sequence: BlockSequence) -> list[PipelineUse]:
    """What a run does at rings of mbarriers."""
    uses = {} if model_input.mbarrier_pipelines is None else model_input.mbarrier_pipelines.uses
    blocks = [model_input.cfg.blocks[number] for number in sequence.blocks] if uses else []
    return [uses[row] for block in blocks for row in range(block.start, block.stop) if row in uses]


def _count_arrival_iterations(
    model_input: ModelInput, sequence: BlockSequence, uses: Sequence[PipelineUse], weights: FloatArray
) -> int:
    """Rounds of the loop around a block that arrives at a ring's mbarriers; 0 where it need not be in each.

    A block to which one warp of a group comes is a part of what each of the group does: the part of a phase
    that it ends is due in every round, not the whole in some.
    """
    loop = model_input.loop_forest.loop_of[sequence.blocks[0]]
    if not uses or sequence.loop is not None or loop is None:
        return 0
    if any(use.ramp or use.semantics is not Semantics.MBARRIER_ARRIVE for use in uses):
        return 0
    return round(float(weights[model_input.cfg.blocks[model_input.loop_forest.loops[loop].header].start]))


def _find_ramps(uses: Sequence[PipelineUse]) -> tuple[PipelineRamp | None, tuple[PipelineRamp, ...]]:
    """Those at which a whole run is left out, as all is that it tells mbarriers; and those of some steps."""
    found = {use.ramp for use in uses}
    guarded = tuple(odd for odd in found if odd is not None and odd.is_predicated)
    return (found.pop() if len(found) == 1 and not guarded else None), guarded


def _find_outer_loops(
    model_input: ModelInput, weights: FloatArray, sequences: Sequence[BlockSequence]
) -> tuple[OuterLoop, ...]:
    """Loops around more than one run, outer before inner; those that others cut across are left out."""
    found: list[OuterLoop] = []
    for loop in model_input.loop_forest.loops:
        indices = [place for place, run in enumerate(sequences) if loop.blocks.issuperset(run.blocks)]
        iterations = float(weights[model_input.cfg.blocks[loop.header].start])
        if len(indices) < 2 or iterations <= 0:
            continue
        outer_loop = OuterLoop(indices[0], indices[-1], iterations)
        if all(_are_nested_or_disjoint(outer_loop, other) for other in found):
            found.append(outer_loop)
    return tuple(sorted(found, key=lambda span: (span.first_sequence, -span.last_sequence)))


def _are_nested_or_disjoint(one: OuterLoop, other: OuterLoop) -> bool:
    apart = one.last_sequence < other.first_sequence or other.last_sequence < one.first_sequence
    within = one.first_sequence >= other.first_sequence and one.last_sequence <= other.last_sequence
    return (
        apart
        or within
        or (other.first_sequence >= one.first_sequence and other.last_sequence <= one.last_sequence)
    )


class _StepBuilder:
    """Cuts the rows of one block into steps."""

    __slots__ = ("_resource_demand", "_share", "_timing", "_warp_program")

    def __init__(
        self,
        warp_program: WarpProgram,
        timing: InstructionTiming,
        resource_demand: ResourceDemand,
        share: float,
    ) -> None:
        self._warp_program, self._timing, self._resource_demand, self._share = (
            warp_program,
            timing,
            resource_demand,
            share,
        )

    def append_rows(self, rows: Sequence[int]) -> None:
        begin = rows[0]
        for row in rows:
            if row > begin and (self._starts_step(row) or row - begin >= _MAX_ROWS_PER_STEP):
                self._append_step(begin, row - 1, StepKind.NONE)
                begin = row
            kind = self._classify_row(row)
            if kind is not StepKind.NONE:
                self._append_step(begin, row, kind)
                begin = row + 1
        if begin < rows[-1] + 1:
            self._append_step(begin, rows[-1], StepKind.NONE)

    def _starts_step(self, row: int) -> bool:
        """Whether a row begins a step: it waits for a scoreboard, or for a pipe that is often taken."""
        timing = self._timing
        waits = row in timing.special_waits or (timing.has_control_codes and bool(timing.wait_mask[row]))
        return waits or timing.pipe[row] in _SLOW_PIPES

    def _classify_row(self, row: int) -> StepKind:
        if self._timing.kernel.find_opcode(row).sched_class is SchedClass.CTA_BARRIER:
            return StepKind.CTA_BARRIER
        kind = StepKind(int(self._resource_demand.step_kind[row]))
        if kind is not StepKind.NONE:
            return kind
        timing = self._timing
        if self._resource_demand.async_mma_cycles[row]:
            return StepKind.RESULT
        guarded = timing.has_control_codes and (
            timing.write_barrier[row] != NO_BARRIER or timing.read_barrier[row] != NO_BARRIER
        )
        return StepKind.RESULT if guarded else StepKind.NONE

    def _append_step(self, first: int, last: int, kind: StepKind) -> None:
        """Write rows [first, last] as one step."""
        warp_program, timing, resource_demand, share = (
            self._warp_program,
            self._timing,
            self._resource_demand,
            self._share,
        )
        mask = timing.wait_mask[first] if timing.has_control_codes else 0
        special = timing.special_waits.get(first)
        warp_program.wait_scoreboards.append(tuple(b for b in range(6) if mask >> b & 1))
        warp_program.depbar_waits.append(None)
        warp_program.max_pending_groups.append(-1)
        if special is not None and not special.barrier_cycles:
            if special.waits_warpgroup:
                warp_program.max_pending_groups[-1] = special.max_outstanding
            else:
                warp_program.depbar_waits[-1] = (special.scoreboard, special.max_outstanding)
        stalls = (
            timing.stall_cycles[first : last + 1] if timing.has_control_codes else [1.0] * (last + 1 - first)
        )
        warp_program.issue_slots.append(share * (last + 1 - first))
        warp_program.stall_cycles.append(share * sum(stalls))
        warp_program.pipe_cycles.append(self._sum_pipe_cycles(first, last))
        warp_program.kind.append(int(kind))
        warp_program.tail_cycles.append(share * stalls[-1])
        warp_program.load_store_cycles.append(share * float(resource_demand.load_store_cycles[last]))
        warp_program.tag_cycles.append(share * float(resource_demand.tag_cycles[last]))
        warp_program.l2_cycles.append(share * float(resource_demand.l2_cycles[last]))
        warp_program.dram_cycles.append(share * float(resource_demand.dram_cycles[last]))
        warp_program.atomic_cycles.append(share * float(resource_demand.atomic_cycles[last]))
        warp_program.spread_cycles.append(float(resource_demand.spread_cycles[last]))
        warp_program.latency_cycles.append(
            resource_demand.commit_cycles if kind is StepKind.MBARRIER_COMMIT else timing.latency_cycles[last]
        )
        self._append_mbarrier_use(resource_demand.mbarrier_uses.get(last))
        warp_program.barriers.append(
            _decode_cta_barrier(timing.kernel.decode_form(last), last)
            if kind is StepKind.CTA_BARRIER
            else _PLACEHOLDER_BARRIER
        )
        warp_program.share.append(share)
        write = timing.write_barrier[last] if timing.has_control_codes else NO_BARRIER
        read = timing.read_barrier[last] if timing.has_control_codes else NO_BARRIER
        warp_program.write_scoreboard.append(-1 if write == NO_BARRIER else write)
        warp_program.read_scoreboard.append(-1 if read == NO_BARRIER else read)
        warp_program.async_mma_cycles.append(share * float(resource_demand.async_mma_cycles[last]))
        warp_program.async_mma_pipe.append(timing.pipe[last])
        warp_program.ends_wgmma_group.append(last in timing.group_end_rows)
        opcode = timing.kernel.find_opcode(last)
        warp_program.is_ldgsts.append(opcode.kind is OpKind.ASYNC_COPY)
        warp_program.is_ldgdepbar.append(
            opcode.sched_class is SchedClass.ASYNC_COPY and opcode.kind is not OpKind.ASYNC_COPY
        )
        warp_program.is_long.append(timing.is_long[last])
        warp_program.first_row.append(first)
        warp_program.last_row.append(last)

    def _append_mbarrier_use(self, use: PipelineUse | None) -> None:
        warp_program, ramp = self._warp_program, None if use is None else use.ramp
        warp_program.pipeline.append(-1 if use is None else use.pipeline)
        warp_program.arrivals.append(self._share * (1.0 if use is None else use.warp_share))
        warp_program.iteration_share.append(1.0 if use is None else use.iteration_share)
        warp_program.predicated_ramp.append(ramp if ramp is not None and ramp.is_predicated else None)

    def _is_queued_mma(self, row: int) -> bool:
        """Products that their warp does not wait for, and commits, which queue behind them."""
        return (
            bool(self._resource_demand.async_mma_cycles[row])
            or self._resource_demand.step_kind[row] == _COMMIT_KIND
        )

    def _sum_pipe_cycles(self, first: int, last: int) -> tuple[tuple[int, float, float], ...]:
        """Cycles on each pipe of the sub-core; the load/store path belongs to the SM and is left out."""
        timing, share, ports = self._timing, self._share, self._resource_demand.port_cycles
        busy: dict[int, float] = {}
        tails: dict[int, float] = {}
        for row in range(first, last + 1):
            pipe, cycles = timing.pipe[row], timing.issue_cycles[row]
            if ports[row]:
                busy[REGISTER_PORTS_INDEX] = busy.get(REGISTER_PORTS_INDEX, 0.0) + share * ports[row]
                tails[REGISTER_PORTS_INDEX] = share * ports[row]
            if (
                pipe == _FRONTEND_PIPE_INDEX
                or pipe in self._resource_demand.sm_pipes
                or self._is_queued_mma(row)
            ):
                continue
            other = timing.alternate_pipe[row]
            if other >= 0 and busy.get(other, 0.0) < busy.get(pipe, 0.0):
                pipe = other
            busy[pipe] = busy.get(pipe, 0.0) + share * cycles
            tails[pipe] = share * cycles
        return tuple((pipe, cycles, tails[pipe]) for pipe, cycles in busy.items())


_COMMIT_KIND = int(StepKind.MBARRIER_COMMIT)
_PLACEHOLDER_BARRIER = CtaBarrier(WHOLE_CTA_KEY, 0, waits=False)


def _decode_cta_barrier(form: InstructionForm, row: int) -> CtaBarrier:
    """By the barrier's number; where a register holds it, warps meet at the instruction."""
    numbers = [o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int)]
    is_named = any(isinstance(operand, Register) for operand in form.operands[:1])
    waits = "ARV" not in form.opcode.modifiers
    if is_named and numbers:
        return CtaBarrier(_REGISTER_BARRIER_KEY_BASE + row, numbers[0] // WARP_SIZE, waits)
    if len(numbers) > 1:
        return CtaBarrier(numbers[0], numbers[1] // WARP_SIZE, waits)
    return CtaBarrier(WHOLE_CTA_KEY, 0, waits)


_REGISTER_BARRIER_KEY_BASE = 16  # numbers of barriers lie below
