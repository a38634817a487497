"""Search for the warp pipelines of a launch, by recording the operations of CTAs on their mbarriers.

Instructions that use a common mbarrier belong to one pipeline; the mbarriers that they use are its stages.
Three runs collect the evidence:

1. CTA 0 and a few CTAs of its cluster are executed with addresses, parities and byte counts of mbarrier
   instructions in the slice.
2. If warps of other CTAs reach mbarrier instructions that these do not, such CTAs are executed too.
3. Adjacent CTAs execute the first iterations of their loops. The coordinates of their tiles show which tiles
   are copied by several CTAs.

Invariant: the evidence of an instruction is never a mix of runs 1 and 2. It is from the run that reached most
instructions among those that reached this one.

Example: a producer waits at barriers 0x10 and 0x18 and copies to 0x00 and 0x08; consumers wait at 0x00 and
0x08 and arrive at 0x10 and 0x18. The copy and the consumers' wait use one pipeline of two stages, the arrive
and the producer's wait another one.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.acceleration.loop_acceleration import LoopAccelerator
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.footprint.hashing import make_hash_factors
from analyzer.execution.lowering.kernel_compiler import recompile_with_mbarriers
from analyzer.execution.lowering.segments import CompiledKernel, MbarrierOperation, Segment
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.access_log import AccessLog, reject_all
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch, LaunchShape
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.register_state import LockstepGroup, RegisterView
from analyzer.execution.mbarriers.box_pitches import BoxOrigins
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierEvents, MbarrierRecorder
from analyzer.execution.mbarriers.pipeline_ramp import find_pipeline_ramps
from analyzer.execution.profile.execution_profile import WarpClass
from analyzer.execution.profile.mbarrier_pipelines import (
    MbarrierPipeline,
    MbarrierPipelines,
    PipelineRamp,
    PipelineUse,
)
from analyzer.ir.arrays import BoolArray
from analyzer.ir.opcode import Semantics

_STEP_LIMIT = 40_000  # some seconds
_MAX_HEADER_ARRIVALS = 400  # at the header of a loop that is not accelerated: each stage was used many times
_MAX_TILE_HEADER_ARRIVALS = 6
_MAX_TILE_CTAS = 160
_MAX_EXTRA_CTAS = 2
_MAX_CLUSTER_CTAS = 4


def find_mbarrier_pipelines(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: LaunchShape,
    mbarrier_recorder: MbarrierRecorder | None = None,
    classes: Sequence[WarpClass] = (),
) -> MbarrierPipelines | None:
    """Find the pipelines of a launch; None if no address of an mbarrier is known, nor a tile of a product.

    mbarrier_recorder: recorder of CTA 0, if the launch was executed with one.
    classes: classes of the launch's warps, as far as they are known.
    """
    compiled = recompile_with_mbarriers(kernel)

    def record_cta(cta: int) -> MbarrierRecorder:
        recording_machine = _PipelineMachine(compiled, _make_batch(compiled, image, shape, cta))
        return _run_machine(recording_machine).mbarrier_recorder

    cluster = _collect_evidence(
        [mbarrier_recorder or record_cta(0), *map(record_cta, _list_cluster_ctas(shape))], compiled
    )
    others = [
        _collect_evidence([record_cta(cta)], compiled) for cta in _find_extra_ctas(compiled, classes, cluster)
    ]
    evidence = reduce(
        _PipelineEvidence.override_with, sorted((cluster, *others), key=lambda one: len(one.events))
    )
    if not evidence.events and not evidence.matrix_descriptors:
        return None
    pipelines = _build_pipelines(evidence)
    if not any(use.semantics is Semantics.MBARRIER_COPY for use in pipelines.uses.values()):
        return pipelines
    ctas = range(min(_MAX_TILE_CTAS, shape.grid.count))
    tiles = _run_machine(_TileMachine(compiled, _make_batch(compiled, image, shape, *ctas))).tile_recorder
    return replace(
        pipelines,
        distinct_tile_share=tiles.compute_distinct_tile_share(),
        box_pitches=tiles.box_origins.find_pitches(),
    )


class _PipelineEvidence(Struct, frozen=True, eq=False):
    """Mbarrier operations of some CTAs, by row of the instruction."""

    events: Mapping[int, MbarrierEvents]
    warp_shares: Mapping[int, float]
    ramps: Mapping[int, PipelineRamp | None]
    matrix_descriptors: Mapping[int, int]

    def override_with(self, other: "_PipelineEvidence") -> "_PipelineEvidence":
        """Return the other evidence, completed by this one for instructions that it lacks."""
        return _PipelineEvidence(
            {**self.events, **other.events},
            {**self.warp_shares, **other.warp_shares},
            {**self.ramps, **other.ramps},
            {**self.matrix_descriptors, **other.matrix_descriptors},
        )


def _collect_evidence(cluster: Sequence[MbarrierRecorder], kernel: CompiledKernel) -> _PipelineEvidence:
    """Merge the recorders of CTAs that share work, such as those of a cluster.

    Bytes and counts are summed over the CTAs; the order of events is that of the first CTA that has any.
    """
    events: dict[int, MbarrierEvents] = {}
    runs: dict[int, int] = {}
    descriptors: dict[int, int] = {}
    for mbarrier_recorder in cluster:
        for row, one in mbarrier_recorder.events.items():
            events[row] = one if row not in events else events[row].combine(one)
        for row, times in mbarrier_recorder.count_executions(kernel.segments).items():
            runs[row] = runs.get(row, 0) + times
        descriptors = mbarrier_recorder.matrix_descriptors | descriptors
    found = find_pipeline_ramps(events, runs, kernel)
    ramps = {row: found[row].ramp if row in found else None for row in events}
    predicated_shares = {row: one.active_share for row, one in found.items() if one.ramp.is_predicated}
    shares = {
        row: min(1.0, one.n_events / runs[row] / predicated_shares.get(row, 1.0))
        for row, one in events.items()
    }
    return _PipelineEvidence(events, shares, ramps, descriptors)


def _list_cluster_ctas(shape: LaunchShape) -> list[int]:
    """Return up to `_MAX_CLUSTER_CTAS` - 1 further CTAs of CTA 0's cluster."""
    ranges = [
        range(min(one, other)) for one, other in zip(shape.cluster.sizes, shape.grid.sizes, strict=True)
    ]
    across, down, _ = shape.grid.sizes
    ctas = [x + across * (y + down * z) for z in ranges[2] for y in ranges[1] for x in ranges[0]]
    return ctas[1:_MAX_CLUSTER_CTAS]


def _find_extra_ctas(
    kernel: CompiledKernel, classes: Sequence[WarpClass], evidence: _PipelineEvidence
) -> list[int]:
    """Return a few CTAs whose warps reach mbarrier instructions that have no evidence, the busiest first."""
    missing_blocks = {
        kernel.cfg.block_of[action.row]
        for segment in kernel.segments
        for action in segment.actions
        if action.mbarrier_operation is not None
        and action.mbarrier_operation.semantics is not None
        and action.row not in evidence.events
    }
    reaching = [one for one in classes if any(one.block_counts[block] for block in missing_blocks)]
    reaching.sort(key=lambda one: -int(one.block_counts.sum()))
    return list(dict.fromkeys(one.example_warp[0] for one in reaching if one.example_warp[0]))[
        :_MAX_EXTRA_CTAS
    ]


def _make_batch(kernel: CompiledKernel, image: ConstantImage, shape: LaunchShape, *ctas: int) -> CtaBatch:
    return CtaBatch(kernel, image, shape, np.array(ctas, dtype=np.int64), np.ones(len(ctas)))


_AnyBoundedMachine = TypeVar("_AnyBoundedMachine", bound="_BoundedMachine")


def _run_machine(machine: _AnyBoundedMachine) -> _AnyBoundedMachine:
    machine.start()
    with suppress(StopExecution):
        machine.run()
    return machine


class _BoundedMachine(AbstractMachine):
    """A machine that limits the iterations of each loop."""

    def __init__(
        self, kernel: CompiledKernel, batch: CtaBatch, max_arrivals: int, listener: ExecutionListener
    ) -> None:
        log = AccessLog(batch, access_filter=reject_all)
        super().__init__(kernel, batch, BranchDecider(kernel), Budget(_STEP_LIMIT), (listener,), log)
        self.max_arrivals = max_arrivals
        self.arrivals: dict[int, int] = {}

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """Return whether a group has executed enough iterations of a loop."""
        key = segment.index
        self.arrivals[key] = self.arrivals.get(key, 0) + 1
        return self.arrivals[key] > self.max_arrivals


class _PipelineMachine(_BoundedMachine):
    """A machine that records mbarrier operations of one CTA, to its end if its loops can be accelerated."""

    def __init__(self, kernel: CompiledKernel, batch: CtaBatch) -> None:
        self.mbarrier_recorder = MbarrierRecorder()
        super().__init__(kernel, batch, _MAX_HEADER_ARRIVALS, self.mbarrier_recorder)
        self.accelerator = LoopAccelerator(self)

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """See `_BoundedMachine`."""
        is_over = super().handle_loop_header(segment, group)
        self.accelerator.accelerate(segment, group)
        return is_over


class _TileMachine(_BoundedMachine):
    """A machine that records which tiles several CTAs copy in the first iterations of their loops.

    All CTAs execute equally many iterations, so that shares of distinct tiles are comparable.
    """

    def __init__(self, kernel: CompiledKernel, batch: CtaBatch) -> None:
        self.tile_recorder = _TileRecorder()
        super().__init__(kernel, batch, _MAX_TILE_HEADER_ARRIVALS, self.tile_recorder)
        self.header_visits: dict[int, NDArray[np.int64]] = {}

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """See `_BoundedMachine`: warps that have diverged are counted separately."""
        iterations = self.header_visits.setdefault(
            segment.index, np.zeros(self.batch.n_warps, dtype=np.int64)
        )
        iterations[group.warp_indices] += 1
        return int(iterations[group.warp_indices].max(initial=0)) > self.max_arrivals


class _TileRecorder(ExecutionListener):
    """Records the tiles that copies read, and where they begin in their tensors."""

    def __init__(self) -> None:
        self.tile_hashes: list[NDArray[np.uint64]] = []
        self.tile_rows: list[int] = []
        self.box_origins = BoxOrigins()

    def compute_distinct_tile_share(self) -> float | None:
        """Return the share of the copied elements that is left if each tile is counted once.

        Unless all box sizes are known, tiles count as equally large. None if nothing was copied.
        """
        if not self.tile_hashes:
            return None
        volumes = self.box_origins.find_volumes()
        has_volumes = volumes.keys() >= set(self.tile_rows)
        sizes = [
            np.full(len(t), volumes[r] if has_volumes else 1.0)
            for r, t in zip(self.tile_rows, self.tile_hashes, strict=True)
        ]
        _, firsts = np.unique(np.concatenate(self.tile_hashes), return_index=True)
        size = np.concatenate(sizes)
        return float(size[firsts].sum() / size.sum())

    def on_mbarrier(self, signal: MbarrierOperation, view: RegisterView, lanes: BoolArray | None) -> None:
        """Hash the tensor (else the row) and the coordinates of the tile that each warp copies."""
        if not signal.coordinates:
            return
        active = view.active if lanes is None else view.active & lanes
        chosen = np.broadcast_to(view.to_warp_rows(active), view.group.mask.shape) & view.group.mask
        if not all(_is_register_known(view, slot, chosen) for slot in signal.coordinates):
            return
        warps = np.asarray(chosen.any(axis=1))
        first = chosen[warps].argmax(axis=1)
        words = [_read_words(view, slot, chosen.shape)[warps, first] for slot in signal.coordinates]
        tensor = self._find_descriptors(signal, view, chosen, warps, first)
        source = np.full(len(first), signal.row, dtype=np.uint64) if tensor is None else tensor
        hashes = np.zeros_like(source)
        for word, factor in zip((source, *words), make_hash_factors(1 + len(words)), strict=True):
            hashes = (hashes + word) * factor
        self.tile_hashes.append(hashes)
        self.tile_rows.append(signal.row)
        if signal.tensor_map is not None:
            places = np.stack(words, axis=1).astype(np.uint32).view(np.int32).astype(np.int64)
            self.box_origins.add_copies(signal.row, tensor, places)

    @staticmethod
    def _find_descriptors(
        signal: MbarrierOperation,
        view: RegisterView,
        chosen: BoolArray,
        warps: NDArray[np.bool_],
        first: NDArray[np.int64],
    ) -> NDArray[np.uint64] | None:
        """Return the address of the tensor map of each warp's copy; None if unknown."""
        if signal.tensor_map is None or not _is_register_known(view, signal.tensor_map, chosen):
            return None
        return _read_words(view, signal.tensor_map, chosen.shape)[warps, first]


def _read_words(view: RegisterView, slot: int, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return a register's words in the lanes of a group, [n_warp, 32]."""
    return np.broadcast_to(view.to_warp_rows(view.read_value(slot)), shape).astype(np.uint64)


def _is_register_known(view: RegisterView, slot: int, lanes: BoolArray) -> bool:
    """Return whether a register holds known words in these lanes of the group."""
    unknown = view.read_origin(slot)
    return slot >= 0 and (
        unknown is None or not bool((view.to_warp_rows(unknown).astype(np.bool_) & lanes).any())
    )


def _build_pipelines(evidence: _PipelineEvidence) -> MbarrierPipelines:
    """Group instructions that share mbarriers into pipelines; tiles are compared later."""
    events = evidence.events
    groups: list[_BarrierGroup] = []
    for row, one in events.items():
        shares_barrier = [not one.barrier_addresses.isdisjoint(group.barrier_addresses) for group in groups]
        overlapping = [group for group, does in zip(groups, shares_barrier, strict=True) if does]
        disjoint = [group for group, does in zip(groups, shares_barrier, strict=True) if not does]
        rows = (row, *(other for group in overlapping for other in group.rows))
        groups = [
            *disjoint,
            _BarrierGroup(
                rows,
                frozenset(one.barrier_addresses).union(*(group.barrier_addresses for group in overlapping)),
            ),
        ]
    uses: dict[int, PipelineUse] = {}
    for number, group in enumerate(groups):
        for row in group.rows:
            one = events[row]
            n_bytes = one.expected_bytes / max(1, one.n_events)
            n_ctas = max(1.0, one.n_target_ctas / max(1, one.n_events))
            uses[row] = PipelineUse(
                number,
                one.semantics,
                n_bytes,
                evidence.warp_shares[row],
                evidence.ramps[row],
                n_target_ctas=n_ctas,
            )
    pipelines = (
        MbarrierPipeline(len(group.barrier_addresses), _count_free_waits(events[row] for row in group.rows))
        for group in groups
    )
    return MbarrierPipelines(tuple(pipelines), uses, evidence.matrix_descriptors, None)


class _BarrierGroup(Struct, frozen=True, eq=False):
    """Instructions that share mbarriers."""

    rows: tuple[int, ...]
    barrier_addresses: frozenset[int]


def _count_free_waits(group: Iterable[MbarrierEvents]) -> int:
    """Count the barriers at which a warp first waits for the phase before the first, which is complete.

    The largest count of any warp is returned.
    """
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for one in group:
        for key, wait in one.first_parities.items():
            first[key] = min(wait, first.get(key, wait))
    free: dict[int, int] = {}
    for (warp, _), (_, parity) in first.items():
        free[warp] = free.get(warp, 0) + parity
    return max(free.values(), default=0)
