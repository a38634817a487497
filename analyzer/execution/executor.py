"""Abstract execution of a whole launch: which CTAs are executed, and the profile that they add up to."""

from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.access_log import AccessTotals
from analyzer.execution.axes import LEAST_CTAS, AxesFinder, AxesFound
from analyzer.execution.closing import Closer
from analyzer.execution.compiling import compile_kernel
from analyzer.execution.dependence import GridDependence
from analyzer.execution.evenness import Evenness
from analyzer.execution.footprint import Footprint, union_bytes
from analyzer.execution.guesses import Guesser
from analyzer.execution.image import ConstantImage
from analyzer.execution.machine import SIGNATURE_FACTOR, Machine
from analyzer.execution.memory import StopExecution
from analyzer.execution.mixing import mixing_factors
from analyzer.execution.profile import (
    BlockPart,
    ExecutionProfile,
    MemoryAccess,
    Traffic,
    UnknownBranch,
    WarpClass,
)
from analyzer.execution.program import CompiledKernel
from analyzer.execution.provenance import Provenance, worst
from analyzer.execution.sampling import (
    MOST_WHOLE_WARPS,
    WHOLE_WARPS,
    Sample,
    boxed,
    scattered,
    uniform_boxes,
    whole_grid,
)
from analyzer.execution.step import Step
from analyzer.execution.warps import Batch, Shape, within_memory
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.ir.launch import Launch
from analyzer.ir.opcode import OpKind, Space
from analyzer.text.errors import UsageError

IntArray = NDArray[np.int64]

STEP_LIMIT = 30_000  # some ten seconds
_FEW_CTAS = 16
_CHUNK_WARPS = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """How to execute.

    closes_loops: take alike iterations at once; off only to check that it changes nothing.
    max_warps: execute every CTA of a grid of no more warps than these; None leaves it to `sampling`.
    """

    guesser: Guesser
    closes_loops: bool = True
    step_limit: int = STEP_LIMIT
    max_warps: int | None = None


@dataclass(slots=True, eq=False)
class _Sums:
    """What the chunks of a launch add up to."""

    segments: NDArray[np.float64]
    lanes: NDArray[np.float64]
    entries: NDArray[np.float64]
    accesses: dict[tuple[int, Space], AccessTotals] = field(default_factory=dict)
    hanging: dict[int, float] = field(default_factory=dict)
    doubted: set[int] = field(default_factory=set)
    origins: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    classes: list[WarpClass] = field(default_factory=list)
    stopped: str = ""


def execute(
    cfg: Cfg,
    nest: LoopNest,
    launch: Launch,
    shape: Shape,
    image: ConstantImage,
    options: ExecutionOptions | None = None,
    compiled: CompiledKernel | None = None,
) -> ExecutionProfile:
    """Execute a launch abstractly. Never runs past the step limit: what was known then is in the profile.

    Raises UsageError where an address is not aligned to its access, which no launch that works has.
    """
    kernel = compiled or compile_kernel(cfg, nest)
    options = options or ExecutionOptions(guesser=Guesser(kernel))
    if shape.grid.count * shape.warps_per_cta <= (options.max_warps or WHOLE_WARPS):
        samples: tuple[Sample, ...] = (whole_grid(shape.grid),)
    else:
        samples = _stand_ins(kernel, image, shape, options)
    sample = samples[0]
    sums = _execute_sample(kernel, image, shape, options, sample)
    if sample.evenness is not None and not sample.evenness.holds:
        samples = (_unproven(shape),)
        sample = samples[0]
        sums = _execute_sample(kernel, image, shape, options, sample)
    if sums.stopped and sample.is_whole and shape.grid.count > _FEW_CTAS:
        sample = scattered(shape.grid, _FEW_CTAS)
        sums = _execute_sample(kernel, image, shape, options, sample)
    if len(samples) > 1:
        more = _execute_sample(kernel, image, shape, options, samples[1])
        sums.accesses, sums.stopped = more.accesses, sums.stopped or more.stopped
        sample = replace(sample, has_even_accesses=False, notes=samples[1].notes)
    _check_alignment(kernel, sums)
    return _Profile(kernel, launch, shape, image, options, sample, sums).build()


def _check_alignment(kernel: CompiledKernel, sums: _Sums) -> None:
    """Raises UsageError where an access that surely runs would fault."""
    code = kernel.cfg.kernel
    for totals in sums.accesses.values():
        row = totals.access.row
        if totals.misaligned is not None and not totals.is_doubtful and not sums.hanging:
            raise UsageError(
                f"{code.name} would fault: {code.form(row).text} at {int(code.addresses[row]):#06x} has an "
                f"address that is no multiple of {totals.access.width_bytes}, as {totals.misaligned:#x}",
                hint="check the pointers, strides and offsets among the arguments",
            )


def _execute_sample(
    kernel: CompiledKernel, image: ConstantImage, shape: Shape, options: ExecutionOptions, sample: Sample
) -> _Sums:
    n_segments = len(kernel.segments)
    sums = _Sums(np.zeros(n_segments), np.zeros(n_segments), np.zeros(len(kernel.nest.loops)))
    for numbers, weights in _chunks(kernel, shape, sample):
        cta_shape = _rows_of_grid(shape, numbers) if sample.is_whole else None
        batch = Batch(kernel, image, shape, numbers, weights, cta_shape)
        if not sample.is_whole:
            batch.neighbours, batch.box_counts = sample.neighbours, sample.counts
        _collect(*_run(kernel, batch, options, sample.evenness), sums)
    return sums


def _rows_of_grid(shape: Shape, numbers: IntArray) -> tuple[int, int] | None:
    """Rows and columns of CTAs, where those of a chunk are whole rows of the grid."""
    width = shape.grid.x
    if width == 1 or len(numbers) % width or len(numbers) == width or numbers[0] % width:
        return None
    return len(numbers) // width, width


def _unproven(shape: Shape) -> Sample:
    """The whole grid where that can be afforded, else a sample."""
    if shape.grid.count * shape.warps_per_cta <= MOST_WHOLE_WARPS:
        return whole_grid(shape.grid)
    return scattered(shape.grid)


def _stand_ins(
    kernel: CompiledKernel, image: ConstantImage, shape: Shape, options: ExecutionOptions
) -> tuple[Sample, ...]:
    """CTAs for a grid too large to be executed whole; a second sample is for memory, if the first has none.

    Boxes of CTAs that are proven alike where branches allow it, else the whole grid if it can be afforded,
    else CTAs spread over it.
    """
    has_buffers = any(allocation.contents is not None for allocation in image.allocations)
    dependence = GridDependence(kernel, has_clusters=shape.cluster.count > 1, has_buffers=has_buffers)
    other = _unproven(shape)
    if not dependence.branches_evenly or (other.is_whole and not dependence.accesses_evenly):
        return (other,)

    def signatures(numbers: IntArray) -> NDArray[np.uint64]:
        return _signatures(kernel, image, shape, options, numbers, dependence.compared)

    boxes = uniform_boxes(shape.grid, signatures)
    if boxes is None:
        return (other,)
    proven = boxed(shape.grid, boxes, Evenness(dependence.to_check))
    return (proven,) if dependence.accesses_evenly else (proven, other)


def _signatures(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: Shape,
    options: ExecutionOptions,
    numbers: IntArray,
    compared: set[Step],
) -> NDArray[np.uint64]:
    """One number for each CTA: equal where all its warps take the same ways with the same predicates."""
    batch = Batch(kernel, image, shape, numbers, np.ones(len(numbers)))
    machine = _machine(kernel, batch, options)
    machine.signature, machine.signed = np.zeros(batch.n_warps, dtype=np.uint64), compared
    machine.start()
    with suppress(StopExecution):
        machine.run()
    table = machine.signature.reshape(len(numbers), -1)
    mixed = np.zeros(len(numbers), dtype=np.uint64)
    for column in range(table.shape[1]):
        mixed = mixed * SIGNATURE_FACTOR + table[:, column]
    return mixed


def _chunks(
    kernel: CompiledKernel, shape: Shape, sample: Sample
) -> list[tuple[IntArray, NDArray[np.float64]]]:
    wanted = max(1, _CHUNK_WARPS // shape.warps_per_cta)
    if not sample.is_whole:
        wanted = len(sample.numbers)  # neighbours stay together
    size = within_memory(kernel, shape, wanted)
    if sample.is_whole and size < len(sample.numbers):
        size = _evenly(size, shape.grid.x)
    return [
        (sample.numbers[first : first + size], sample.weights[first : first + size])
        for first in range(0, len(sample.numbers), size)
    ]


def _evenly(size: int, width: int) -> int:
    """At most so many CTAs: whole rows of the grid, else a power of two, as groups of tiles mostly are."""
    if 1 < width <= size:
        return size // width * width
    return 1 << size.bit_length() - 1


def _machine(kernel: CompiledKernel, batch: Batch, options: ExecutionOptions) -> Machine:
    machine = Machine(kernel, batch, options.guesser, step_limit=options.step_limit)
    if options.closes_loops:
        machine.on_header = Closer(machine)
    return machine


def _run(
    kernel: CompiledKernel,
    batch: Batch,
    options: ExecutionOptions,
    evenness: Evenness | None = None,
) -> tuple[Machine, str]:
    """A machine that has run, and why it was stopped."""
    machine = _machine(kernel, batch, options)
    machine.evenness = evenness
    if not batch.neighbours and batch.cta_shape[0] >= LEAST_CTAS and batch.cta_shape[1] == 1:
        machine.axes_finder = AxesFinder(batch.cta_shape[0])
    machine.start()
    stopped = ""
    try:
        machine.run()
    except AxesFound as found:
        return _run(kernel, batch.rearranged(found.order, found.shape), options, evenness)
    except StopExecution as stop:
        stopped = str(stop)
    machine.tally.memory.reduce()
    return machine, stopped


def _collect(machine: Machine, stopped: str, sums: _Sums) -> None:
    tally, batch = machine.tally, machine.batch
    sums.stopped = sums.stopped or stopped
    sums.segments += tally.segments @ batch.weights
    sums.lanes += tally.lanes @ batch.weights
    sums.entries += tally.entries
    for key, totals in tally.memory.totals.items():
        _merge(sums.accesses, key, totals)
    for row, weight in tally.hanging.items():
        sums.hanging[row] = sums.hanging.get(row, 0.0) + weight
        sums.origins.setdefault(row, batch.origin_text(batch.origins[row]))
    sums.doubted |= tally.doubted
    for row in tally.hanging:
        sums.doubted |= batch.regions.blocks(row, batch.meeting_block(row))
    entries = list(machine.kernel.entry_of)
    sums.classes += _classes(tally.segments[entries], tally.lanes[entries], batch)


def _merge(
    accesses: dict[tuple[int, Space], AccessTotals], key: tuple[int, Space], more: AccessTotals
) -> None:
    own = accesses.get(key)
    if own is None:
        accesses[key] = more
        return
    own.requests += more.requests
    own.lanes += more.lanes
    own.sectors += more.sectors
    own.wavefronts += more.wavefronts
    own.is_known &= more.is_known
    own.is_doubtful |= more.is_doubtful
    own.is_even &= more.is_even
    own.misaligned = own.misaligned or more.misaligned
    own.footprint.merge(more.footprint)


def _classes(blocks: IntArray, lanes: IntArray, batch: Batch) -> list[WarpClass]:
    """Warps with equal counts and lanes in every block."""
    factors = mixing_factors(2 * len(blocks)).view(np.int64)
    keys = factors[: len(blocks)] @ blocks + factors[len(blocks) :] @ lanes
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    weights = np.bincount(which.reshape(-1), weights=batch.weights, minlength=len(firsts))
    return [
        WarpClass(
            n_warps=round(float(weight)),
            block_counts=blocks[:, first].copy(),
            block_lanes=lanes[:, first].copy(),
            example=(int(batch.cta_numbers[batch.ctas[first]]), int(batch.warps[first])),
        )
        for first, weight in zip(firsts.tolist(), weights, strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Profile:
    """Puts a profile together."""

    kernel: CompiledKernel
    launch: Launch
    shape: Shape
    image: ConstantImage
    options: ExecutionOptions
    sample: Sample
    sums: _Sums

    def build(self) -> ExecutionProfile:
        blocks = self._block_provenance()
        entries = list(self.kernel.entry_of)
        accesses = tuple(self._access(totals, blocks) for totals in self._ordered())
        return ExecutionProfile(
            launch=self.launch,
            n_warps=self.shape.grid.count * self.shape.warps_per_cta,
            looked_at_ctas=len(self.sample.numbers),
            classes=_joined_classes(self.sums.classes),
            block_warps=_whole(self.sums.segments)[entries],
            block_lanes=_whole(self.sums.lanes)[entries],
            parts=self._parts(),
            block_provenance=blocks,
            loop_entries=self.sums.entries,
            accesses=accesses,
            traffic=self._traffic(),
            unknown_branches=self._unknown(),
            provenance=worst(blocks),
            assumptions=self._assumptions(),
        )

    def _ordered(self) -> list[AccessTotals]:
        return [
            self.sums.accesses[key] for key in sorted(self.sums.accesses, key=lambda k: (k[0], k[1].value))
        ]

    def _parts(self) -> tuple[BlockPart, ...]:
        """Segments of blocks in which lanes of a warp meet, so that its parts run unequally often."""
        segments, warps, lanes = self.kernel.segments, _whole(self.sums.segments), _whole(self.sums.lanes)
        first = self.kernel.entry_of
        cut = {s.block for s in segments if warps[s.index] != warps[first[s.block]]}
        return tuple(
            BlockPart(s.block, s.start, s.stop, int(warps[s.index]), int(lanes[s.index]))
            for s in segments
            if s.block in cut and s.stop > s.start
        )

    def _block_provenance(self) -> tuple[Provenance, ...]:
        if self.sums.stopped:
            return (Provenance.UNKNOWN,) * len(self.kernel.cfg.blocks)
        base = Provenance.EXACT if self.sample.is_proven else Provenance.ASSUMED
        return tuple(
            Provenance.ASSUMED if block.index in self.sums.doubted else base
            for block in self.kernel.cfg.blocks
        )

    def _access(self, totals: AccessTotals, blocks: tuple[Provenance, ...]) -> MemoryAccess:
        access = totals.access
        own = blocks[self.kernel.cfg.block_of[access.row]]
        if totals.is_doubtful:
            own = worst((own, Provenance.ASSUMED))
        known = totals.is_known and access.address is not None
        if not known and access.kind is not OpKind.BULK_COPY:
            own = Provenance.UNKNOWN
        elif not totals.is_even or not self.sample.has_even_accesses:
            own = worst((own, Provenance.ASSUMED))
        in_global = access.space in (Space.GLOBAL, Space.GENERIC)
        has_sectors = in_global or access.space is Space.LOCAL
        return MemoryAccess(
            row=access.row,
            space=access.space,
            is_store=access.kind in (OpKind.STORE, OpKind.REDUCTION),
            requests=round(totals.requests),
            lanes=round(totals.lanes),
            bytes=round(totals.lanes) * access.width_bytes,
            sectors=round(totals.sectors) if known and has_sectors else None,
            wavefronts=round(totals.wavefronts) if known else None,
            unique_bytes=totals.footprint.unique_bytes()
            if known and in_global and self._has_whole and totals.is_even
            else None,
            provenance=own,
        )

    @property
    def _has_whole(self) -> bool:
        """Footprints hold the whole grid's accesses."""
        return self.sample.has_even_accesses

    def _traffic(self) -> Traffic:
        def of(kinds: frozenset[OpKind]) -> tuple[int, int | None]:
            chosen = [
                totals
                for totals in self._ordered()
                if totals.access.space in (Space.GLOBAL, Space.GENERIC) and totals.access.kind in kinds
            ]
            asked = sum(round(t.lanes) * t.access.width_bytes for t in chosen)
            known = self._has_whole and all(
                t.is_known and t.is_even and t.access.address is not None for t in chosen
            )
            prints: list[Footprint] = [t.footprint for t in chosen]
            return asked, union_bytes(prints) if known else None

        read, read_unique = of(_READS)
        written, written_unique = of(_WRITES)
        return Traffic(
            read_bytes=read,
            read_unique_bytes=read_unique,
            written_bytes=written,
            written_unique_bytes=written_unique,
        )

    def _unknown(self) -> tuple[UnknownBranch, ...]:
        lengths = np.array([segment.stop - segment.start for segment in self.kernel.segments])
        total = float(self.sums.segments @ lengths) or 1.0
        found = []
        for row, weight in sorted(self.sums.hanging.items(), key=lambda item: -item[1]):
            text, origin_row = self.sums.origins[row]
            found.append(
                UnknownBranch(
                    row=row,
                    origin=text or self._origin(origin_row),
                    origin_row=origin_row,
                    rule=self.options.guesser.rules.get(row, "all ways taken"),
                    settle=self._settle(row, origin_row),
                    share=min(1.0, weight / total),
                )
            )
        return tuple(found)

    def _origin(self, row: int | None) -> str:
        if row is None:
            return ""
        kernel = self.kernel.cfg.kernel
        return f"{int(kernel.addresses[row]):#06x} {kernel.form(row).text}"

    def _settle(self, row: int, origin_row: int | None) -> str:
        kernel, cfg = self.kernel.cfg.kernel, self.kernel.cfg
        address = int(kernel.addresses[row])
        loop = self.options.guesser.loop_of_exit(row)
        hint = f"--taken {address:#x}=SHARE"
        if loop is not None:
            header = int(kernel.addresses[cfg.blocks[loop.header].start])
            hint = f"--trip {header:#x}=N"
        if origin_row is not None and kernel.opcode(origin_row).space in (Space.GLOBAL, Space.GENERIC):
            return f"--arg WHICH=@data.npy for what it loads, or {hint}"
        return hint

    def _assumptions(self) -> tuple[str, ...]:
        notes = list(self.image.assumptions)
        if self.sums.stopped:
            notes.append(f"execution {self.sums.stopped}: counts are of what ran until then")
        notes += self.sample.notes
        return tuple(notes)


_READS = frozenset({OpKind.LOAD, OpKind.ATOMIC})
_WRITES = frozenset({OpKind.STORE, OpKind.REDUCTION, OpKind.ATOMIC})


def _whole(sums: NDArray[np.float64]) -> IntArray:
    found: IntArray = np.rint(sums).astype(np.int64)
    return found


def _joined_classes(classes: list[WarpClass]) -> tuple[WarpClass, ...]:
    """Classes of several chunks: equal ones become one; most numerous first."""
    found: dict[tuple[bytes, bytes], WarpClass] = {}
    for one in classes:
        key = (one.block_counts.tobytes(), one.block_lanes.tobytes())
        known = found.get(key)
        found[key] = (
            one
            if known is None
            else WarpClass(
                n_warps=known.n_warps + one.n_warps,
                block_counts=known.block_counts,
                block_lanes=known.block_lanes,
                example=known.example,
            )
        )
    return tuple(sorted(found.values(), key=lambda c: -c.n_warps))
