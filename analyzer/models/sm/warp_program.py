"""Build the program of a warp for the SM simulation: steps of instructions that issue one after another.

A step ends at an instruction after which something outside of the warp's own sub-core decides when it goes
on: a memory instruction, a barrier, an instruction with a scoreboard. It also ends before an instruction
that waits for a scoreboard. Of the instructions inside a step only sums are kept: issue slots, cycles of
each pipe, stall counts. So one step has one wait at its start and one request at its end, and costs the
same to simulate for 2 or 12 instructions.

Example: `IADD; IADD; LDG; (waits for LDG) FFMA; FFMA` is two steps: 3 instructions with a request of kind
LOAD, and 2 that begin with a wait for its scoreboard.

The steps of a loop body are one `StepSequence` with its number of iterations.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp, PipelineUse, find_mbarrier_uses
from analyzer.ir.arrays import FloatArray
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import OpKind, Semantics
from analyzer.ir.operand import Immediate, Register
from analyzer.ir.scheduling import WARP_SIZE, Pipe, SchedClass
from analyzer.isa.control_encoding import NO_BARRIER
from analyzer.models.block_sequences import BlockSequence, split_into_block_sequences
from analyzer.models.interface import ModelInput
from analyzer.models.sm.instruction_fetch import find_entered_lines
from analyzer.models.sm.issue_order import issues_in_runs
from analyzer.models.sm.resource_demand import ResourceDemand, StepKind
from analyzer.models.timeline_warp import InstructionTiming
from analyzer.models.wait_causes import REGISTER_PORTS_INDEX

_MAX_ROWS_PER_STEP = 12
_INSTRUCTION_BYTES = 16
_FRONTEND_PIPE_INDEX = PIPE_INDEX[Pipe.FRONTEND]
# Pipes with few lanes: what comes before such an instruction does not wait for them.
_XU_PIPE_INDEX = PIPE_INDEX[Pipe.XU]
_SLOW_PIPES = frozenset({_XU_PIPE_INDEX, PIPE_INDEX[Pipe.FP64]})


WHOLE_CTA_KEY = -1


class CtaBarrier(Struct, frozen=True):
    """An operation on a barrier of the CTA."""

    key: int  # which barrier
    n_warps: int  # that it takes; 0 for all of the CTA
    waits: bool  # False for a warp that only arrives


class WarpProgram(Struct, eq=False):
    """Steps in columns, and the sequences that they make up."""

    # What a step waits for: scoreboards; (scoreboard, results that may be pending) of a DEPBAR; groups of
    # warpgroup products that may be pending, -1 where it waits for none.
    wait_scoreboards: list[tuple[int, ...]] = field(default_factory=list)
    depbar_waits: list[tuple[int, int] | None] = field(default_factory=list)
    max_pending_groups: list[int] = field(default_factory=list)
    # Issue: slots, cycles of the warp itself, and (pipe, cycles, cycles of the last instruction there).
    issue_slots: list[float] = field(default_factory=list)
    stall_cycles: list[float] = field(default_factory=list)
    pipe_cycles: list[tuple[tuple[int, float, float], ...]] = field(default_factory=list)
    # Request of the last instruction: its kind (`StepKind`), its stall count, and cycles of the load/store
    # path, of the tags of the L1, of the SM's share of the L2 and of the DRAM, of the L2's unit for atomics.
    kind: list[int] = field(default_factory=list)
    tail_cycles: list[float] = field(default_factory=list)
    load_store_cycles: list[float] = field(default_factory=list)
    tag_cycles: list[float] = field(default_factory=list)
    write_cycles: list[float] = field(default_factory=list)  # of the path, once an LDGSTS has its data
    l2_cycles: list[float] = field(default_factory=list)
    dram_cycles: list[float] = field(default_factory=list)
    atomic_cycles: list[float] = field(default_factory=list)
    latency_cycles: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)  # of the iterations in which the step executes
    # Mbarriers: the pipeline, -1 for none; arrivals each time; share of iterations in which it takes part;
    # ends of its loop at which a predicate leaves it out.
    pipeline: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    iteration_share: list[float] = field(default_factory=list)
    predicated_ramp: list[PipelineRamp | None] = field(default_factory=list)
    barriers: list[CtaBarrier] = field(default_factory=list)
    # Scoreboards that it sets, -1 for none.
    write_scoreboard: list[int] = field(default_factory=list)
    read_scoreboard: list[int] = field(default_factory=list)
    # Asynchronous products: cycles on their pipe, and whether a group of them ends here.
    async_mma_cycles: list[float] = field(default_factory=list)
    async_mma_pipe: list[int] = field(default_factory=list)
    ends_wgmma_group: list[bool] = field(default_factory=list)
    is_ldgsts: list[bool] = field(default_factory=list)
    is_ldgdepbar: list[bool] = field(default_factory=list)  # its scoreboard clears after the LDGSTS before it
    is_long: list[bool] = field(default_factory=list)  # waits for it are for the long scoreboard
    # Instructions IMAD.WIDE whose results the first instruction waits for, see `wide_products`.
    wide_waits: list[tuple[int, ...]] = field(default_factory=list)
    # Code: waits where it misses the instruction cache, by the size of the loop; lines that the step enters.
    fetch_cycles: list[float] = field(default_factory=list)
    code_lines: list[tuple[int, ...]] = field(default_factory=list)
    # Instructions [first_row, last_row].
    first_row: list[int] = field(default_factory=list)
    last_row: list[int] = field(default_factory=list)
    sequences: "list[StepSequence]" = field(default_factory=list)
    outer_loops: "tuple[OuterLoop, ...]" = ()

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def is_cached_load(self) -> list[bool]:
        """Return by step whether its last instruction loads into registers through the L1."""
        return [
            is_long and board >= 0 for is_long, board in zip(self.is_long, self.write_scoreboard, strict=True)
        ]


class StepSequence(Struct, frozen=True):
    """Steps [start, stop) and how often a warp goes through them."""

    start: int
    stop: int
    iterations: int
    ramp: PipelineRamp | None = None  # iterations of the outer loop in which the sequence is left out
    predicated_ramps: tuple[PipelineRamp, ...] = ()  # the same for single steps
    skipped_ramps: tuple[PipelineRamp, ...] = ()  # those of them that apply to these iterations


class OuterLoop(Struct, frozen=True):
    """A loop around sequences [first_sequence, last_sequence]."""

    first_sequence: int
    last_sequence: int
    iterations: float  # in all


def build_warp_program(
    model_input: ModelInput, weights: FloatArray, timing: InstructionTiming, resource_demand: ResourceDemand
) -> WarpProgram:
    """Build the program of a warp that executes each instruction weights[n] times."""
    warp_program = WarpProgram()
    cfg, memory = model_input.cfg, model_input.arch.memory
    miss_cycles_per_row = memory.instruction_miss_cycles.value * _INSTRUCTION_BYTES / memory.line_bytes.value
    in_runs = issues_in_runs(model_input)
    sequences: list[BlockSequence] = []
    for sequence in split_into_block_sequences(cfg, model_input.loop_forest):
        counts = [float(weights[cfg.blocks[b].start]) for b in sequence.blocks]
        times = max(counts)
        if times <= 0:
            continue
        uses = _list_mbarrier_uses(model_input, sequence)
        iterations = max(1, round(times), _count_arrival_iterations(model_input, sequence, uses, weights))
        start = len(warp_program)
        for block, count in zip(sequence.blocks, counts, strict=True):
            if count > 0:
                rows = range(cfg.blocks[block].start, cfg.blocks[block].stop)
                builder = _StepBuilder(
                    warp_program, timing, resource_demand, count / iterations, ends_at_stalls=in_runs
                )
                builder.append_rows(rows)
        size = sum(cfg.blocks[b].stop - cfg.blocks[b].start for b in sequence.blocks) * _INSTRUCTION_BYTES
        per_row = miss_cycles_per_row if size > memory.instruction_cache_bytes.value else 0.0
        _append_code_columns(warp_program, start, 0.0 if model_input.arch.instruction_caches else per_row)
        warp_program.sequences.append(StepSequence(start, len(warp_program), iterations, *_find_ramps(uses)))
        sequences.append(sequence)
    warp_program.outer_loops = _find_outer_loops(model_input, weights, sequences)
    return warp_program


def _append_code_columns(warp_program: WarpProgram, start: int, miss_cycles_per_row: float) -> None:
    """Append what the steps from `start` on need of the instruction caches."""
    previous = -1
    for step in range(start, len(warp_program)):
        first, last = warp_program.first_row[step], warp_program.last_row[step]
        warp_program.fetch_cycles.append(miss_cycles_per_row * (last + 1 - first))
        warp_program.code_lines.append(find_entered_lines(first, last, previous))
        previous = last


def _list_mbarrier_uses(model_input: ModelInput, sequence: BlockSequence) -> list[PipelineUse]:
    """Return the mbarrier operations of a sequence."""
    uses = find_mbarrier_uses(model_input.mbarrier_pipelines)
    blocks = [model_input.cfg.blocks[number] for number in sequence.blocks] if uses else []
    return [uses[row] for block in blocks for row in range(block.start, block.stop) if row in uses]


def _count_arrival_iterations(
    model_input: ModelInput, sequence: BlockSequence, uses: Sequence[PipelineUse], weights: FloatArray
) -> int:
    """Count the iterations of the loop around a block that arrives at mbarriers; 0 where they do not matter.

    Where one warp of several enters the block, each of them does a part of its arrivals: that part in every
    iteration, not the whole in some of them.
    """
    loop = model_input.loop_forest.loop_of[sequence.blocks[0]]
    if not uses or sequence.loop is not None or loop is None:
        return 0
    if any(use.ramp or use.semantics is not Semantics.MBARRIER_ARRIVE for use in uses):
        return 0
    return round(float(weights[model_input.cfg.blocks[model_input.loop_forest.loops[loop].header].start]))


def _find_ramps(uses: Sequence[PipelineUse]) -> tuple[PipelineRamp | None, tuple[PipelineRamp, ...]]:
    """Return the ramp that all mbarrier operations of a sequence share, and the ramps of single steps."""
    found = {use.ramp for use in uses}
    predicated = tuple(ramp for ramp in found if ramp is not None and ramp.is_predicated)
    return (found.pop() if len(found) == 1 and not predicated else None), predicated


def _find_outer_loops(
    model_input: ModelInput, weights: FloatArray, sequences: Sequence[BlockSequence]
) -> tuple[OuterLoop, ...]:
    """Return loops around more than one sequence, outer before inner, without those that overlap in part."""
    found: list[OuterLoop] = []
    for loop in model_input.loop_forest.loops:
        indices = [
            index for index, sequence in enumerate(sequences) if loop.blocks.issuperset(sequence.blocks)
        ]
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
    """Cut the rows of one block into steps."""

    __slots__ = ("_ends_at_stalls", "_resource_demand", "_share", "_timing", "_warp_program")

    def __init__(
        self,
        warp_program: WarpProgram,
        timing: InstructionTiming,
        resource_demand: ResourceDemand,
        share: float,
        *,
        ends_at_stalls: bool,
    ) -> None:
        self._ends_at_stalls = ends_at_stalls  # where others issue next, see `issue_order`
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
        """Return whether a row begins a step: it waits for a scoreboard, a slow pipe or its turn."""
        timing = self._timing
        waits = row in timing.special_waits or bool(timing.wait_mask[row])
        waits |= self._ends_at_stalls and timing.stall_cycles[row - 1] > 1.0
        return waits or timing.pipe[row] in _SLOW_PIPES or row in self._resource_demand.wide_hazards.waits

    def _classify_row(self, row: int) -> StepKind:
        if self._timing.kernel.find_opcode(row).sched_class is SchedClass.CTA_BARRIER:
            return StepKind.CTA_BARRIER
        kind = StepKind(int(self._resource_demand.step_kind[row]))
        if kind is not StepKind.NONE:
            return kind
        timing = self._timing
        if self._resource_demand.async_mma_cycles[row]:
            return StepKind.RESULT
        if row in self._resource_demand.wide_hazards.products:
            return StepKind.WIDE_PRODUCT
        guarded = timing.write_barrier[row] != NO_BARRIER or timing.read_barrier[row] != NO_BARRIER
        if not guarded:
            return StepKind.NONE
        return StepKind.DISPATCHED_RESULT if timing.pipe[row] == _XU_PIPE_INDEX else StepKind.RESULT

    def _append_step(self, first: int, last: int, kind: StepKind) -> None:
        """Append rows [first, last] as one step."""
        warp_program, timing, resource_demand, share = (
            self._warp_program,
            self._timing,
            self._resource_demand,
            self._share,
        )
        mask = timing.wait_mask[first]
        special = timing.special_waits.get(first)
        warp_program.wait_scoreboards.append(tuple(b for b in range(6) if mask >> b & 1))
        warp_program.depbar_waits.append(None)
        warp_program.max_pending_groups.append(-1)
        if special is not None and not special.barrier_cycles and not special.fence_cycles:
            if special.waits_warpgroup:
                warp_program.max_pending_groups[-1] = special.max_outstanding
            else:
                warp_program.depbar_waits[-1] = (special.scoreboard, special.max_outstanding)
        stalls = timing.stall_cycles[first : last + 1]
        warp_program.issue_slots.append(share * (last + 1 - first))
        warp_program.stall_cycles.append(share * sum(stalls))
        warp_program.pipe_cycles.append(self._sum_pipe_cycles(first, last))
        warp_program.kind.append(int(kind))
        warp_program.tail_cycles.append(share * stalls[-1])
        warp_program.load_store_cycles.append(share * float(resource_demand.load_store_cycles[last]))
        warp_program.tag_cycles.append(share * float(resource_demand.tag_cycles[last]))
        warp_program.write_cycles.append(share * float(resource_demand.write_cycles[last]))
        warp_program.l2_cycles.append(share * float(resource_demand.l2_cycles[last]))
        warp_program.dram_cycles.append(share * float(resource_demand.dram_cycles[last]))
        warp_program.atomic_cycles.append(share * float(resource_demand.atomic_cycles[last]))
        warp_program.latency_cycles.append(self._find_latency(last, kind))
        warp_program.wide_waits.append(resource_demand.wide_hazards.waits.get(first, ()))
        self._append_mbarrier_use(resource_demand.mbarrier_uses.get(last))
        warp_program.barriers.append(
            _decode_cta_barrier(timing.kernel.decode_form(last), last)
            if kind is StepKind.CTA_BARRIER
            else _PLACEHOLDER_BARRIER
        )
        warp_program.share.append(share)
        write, read = timing.write_barrier[last], timing.read_barrier[last]
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

    def _find_latency(self, row: int, kind: StepKind) -> float:
        if kind is StepKind.MBARRIER_COMMIT:
            return self._resource_demand.commit_cycles
        if kind is StepKind.WIDE_PRODUCT:
            return self._resource_demand.wide_hazards.latency_cycles
        return self._timing.latency_cycles[row]

    def _append_mbarrier_use(self, use: PipelineUse | None) -> None:
        warp_program, ramp = self._warp_program, None if use is None else use.ramp
        warp_program.pipeline.append(-1 if use is None else use.pipeline)
        warp_program.arrivals.append(self._share * (1.0 if use is None else use.warp_share))
        warp_program.iteration_share.append(1.0 if use is None else use.iteration_share)
        warp_program.predicated_ramp.append(ramp if ramp is not None and ramp.is_predicated else None)

    def _is_queued_mma(self, row: int) -> bool:
        """Return whether a row is a product that its warp does not wait for, or a commit behind such ones."""
        return (
            bool(self._resource_demand.async_mma_cycles[row])
            or self._resource_demand.step_kind[row] == _COMMIT_KIND
        )

    def _sum_pipe_cycles(self, first: int, last: int) -> tuple[tuple[int, float, float], ...]:
        """Sum the cycles on each pipe of the sub-core; pipes of the SM are left out."""
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
    """Return a barrier by its number; where a register holds that, by the instruction."""
    numbers = [o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int)]
    is_named = any(isinstance(operand, Register) for operand in form.operands[:1])
    waits = "ARV" not in form.opcode.modifiers
    if is_named and numbers:
        return CtaBarrier(_REGISTER_BARRIER_KEY_BASE + row, numbers[0] // WARP_SIZE, waits)
    if len(numbers) > 1:
        return CtaBarrier(numbers[0], numbers[1] // WARP_SIZE, waits)
    return CtaBarrier(WHOLE_CTA_KEY, 0, waits)


_REGISTER_BARRIER_KEY_BASE = 16  # numbers of barriers lie below
