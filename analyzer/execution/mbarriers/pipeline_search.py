"""What a CTA says to its mbarriers: which instructions meet at which of them.

Barriers that the same instructions go through in turn are the stages of a pipeline: one ring. One CTA is
executed with the addresses, parities and byte counts of mbarrier instructions in its slice; others, where it
does not come to all of these. Then CTAs side by side begin their loops: by the coordinates of their tiles,
copies of which several CTAs ask are told.
"""

from collections.abc import Iterable, Sequence
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
from analyzer.execution.lowering.step import BoolArray
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
from analyzer.ir.opcode import Semantics

_STEP_LIMIT = 40_000  # some seconds
_MAX_HEADER_ARRIVALS = 400  # at a loop header that cannot be closed: its rings have gone round many times
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
    """The rings of a launch; None where no address of an mbarrier is known.

    ears: what the first CTA was heard to say when the launch was executed, if that was so; classes: of its
    warps, as far as they are known.
    """
    compiled = recompile_with_mbarriers(kernel)

    def record_cta(cta: int) -> MbarrierRecorder:
        machine = _PipelineMachine(compiled, _make_batch(compiled, image, shape, cta))
        return _run_machine(machine).mbarrier_recorder

    cluster = _collect_evidence(
        [mbarrier_recorder or record_cta(0), *map(record_cta, _list_cluster_ctas(shape))], compiled
    )
    others = [
        _collect_evidence([record_cta(cta)], compiled) for cta in _find_extra_ctas(compiled, classes, cluster)
    ]
    evidence = reduce(
        _PipelineEvidence.override_with, sorted((cluster, *others), key=lambda one: len(one.events))
    )
    if not evidence.events:
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
    """What CTAs said, by row."""

    events: dict[int, MbarrierEvents]
    warp_shares: dict[int, float]
    ramps: dict[int, PipelineRamp | None]
    matrix_descriptors: dict[int, int]

    def override_with(self, other: "_PipelineEvidence") -> "_PipelineEvidence":
        """What the other one tells, and these of instructions that it did not hear."""
        return _PipelineEvidence(
            self.events | other.events,
            self.warp_shares | other.warp_shares,
            self.ramps | other.ramps,
            self.matrix_descriptors | other.matrix_descriptors,
        )


def _collect_evidence(cluster: Sequence[MbarrierRecorder], kernel: CompiledKernel) -> _PipelineEvidence:
    """Of CTAs that take turns, like those of a cluster, the mean; the first one tells what comes when."""
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
    guarded = {row: one.active_share for row, one in found.items() if one.ramp.is_predicated}
    shares = {row: min(1.0, one.n_events / runs[row] / guarded.get(row, 1.0)) for row, one in events.items()}
    return _PipelineEvidence(events, shares, ramps, descriptors)


def _list_cluster_ctas(shape: LaunchShape) -> list[int]:
    """CTAs of the first one's cluster, a few."""
    spans = [range(min(one, other)) for one, other in zip(shape.cluster.sizes, shape.grid.sizes, strict=True)]
    across, down, _ = shape.grid.sizes
    ctas = [x + across * (y + down * z) for z in spans[2] for y in spans[1] for x in spans[0]]
    return ctas[1:_MAX_CLUSTER_CTAS]


def _find_extra_ctas(
    kernel: CompiledKernel, classes: Sequence[WarpClass], evidence: _PipelineEvidence
) -> list[int]:
    """A few CTAs whose warps come to instructions at mbarriers that were not heard, the busiest first."""
    unheard = {
        kernel.cfg.block_of[action.row]
        for segment in kernel.segments
        for action in segment.actions
        if action.mbarrier_operation is not None
        and action.mbarrier_operation.semantics is not None
        and action.row not in evidence.events
    }
    coming = [one for one in classes if any(one.block_counts[block] for block in unheard)]
    coming.sort(key=lambda one: -int(one.block_counts.sum()))
    return list(dict.fromkeys(one.example_warp[0] for one in coming if one.example_warp[0]))[:_MAX_EXTRA_CTAS]


def _make_batch(kernel: CompiledKernel, image: ConstantImage, shape: LaunchShape, *ctas: int) -> CtaBatch:
    return CtaBatch(kernel, image, shape, np.array(ctas, dtype=np.int64), np.ones(len(ctas)))


_AnyBoundedMachine = TypeVar("_AnyBoundedMachine", bound="_BoundedMachine")


def _run_machine(machine: _AnyBoundedMachine) -> _AnyBoundedMachine:
    machine.start()
    with suppress(StopExecution):
        machine.run()
    return machine


class _BoundedMachine(AbstractMachine):
    """A machine whose first CTA is heard; it goes round a loop so often at most."""

    def __init__(
        self, kernel: CompiledKernel, batch: CtaBatch, max_arrivals: int, listener: ExecutionListener
    ) -> None:
        log = AccessLog(batch, access_filter=reject_all)
        super().__init__(kernel, batch, BranchDecider(kernel), Budget(_STEP_LIMIT), (listener,), log)
        self.max_arrivals = max_arrivals
        self.arrivals: dict[int, int] = {}

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """True where a group has gone round a loop often enough."""
        key = segment.index
        self.arrivals[key] = self.arrivals.get(key, 0) + 1
        return self.arrivals[key] > self.max_arrivals


class _PipelineMachine(_BoundedMachine):
    """Hears one CTA to its end where its loops can be closed."""

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
    """Hears which tiles several CTAs ask for as they begin their loops, each as often as the others."""

    def __init__(self, kernel: CompiledKernel, batch: CtaBatch) -> None:
        self.tile_recorder = _TileRecorder()
        super().__init__(kernel, batch, _MAX_TILE_HEADER_ARRIVALS, self.tile_recorder)
        self.header_visits: dict[int, NDArray[np.int64]] = {}

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """See `_BoundedMachine`: warps that have parted are counted apart."""
        rounds = self.header_visits.setdefault(segment.index, np.zeros(self.batch.n_warps, dtype=np.int64))
        rounds[group.warp_indices] += 1
        return int(rounds[group.warp_indices].max(initial=0)) > self.max_arrivals


class _TileRecorder(ExecutionListener):
    """Tiles that copies ask for, and where they begin in their tensors."""

    def __init__(self) -> None:
        self.tile_hashes: list[NDArray[np.uint64]] = []
        self.tile_rows: list[int] = []
        self.box_origins = BoxOrigins()

    def compute_distinct_tile_share(self) -> float | None:
        """Of all that is copied, what lies in different tiles; as if all were as large, where that is not
        told."""
        if not self.tile_hashes:
            return None
        volumes = self.box_origins.find_volumes()
        is_told = volumes.keys() >= set(self.tile_rows)
        sizes = [
            np.full(len(t), volumes[r] if is_told else 1.0)
            for r, t in zip(self.tile_rows, self.tile_hashes, strict=True)
        ]
        _, firsts = np.unique(np.concatenate(self.tile_hashes), return_index=True)
        size = np.concatenate(sizes)
        return float(size[firsts].sum() / size.sum())

    def on_mbarrier(self, signal: MbarrierOperation, view: RegisterView, lanes: BoolArray | None) -> None:
        """Mix tensor (else row) and coordinates of a tile to one number for each warp."""
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
        mixed = np.zeros_like(source)
        for word, factor in zip((source, *words), make_hash_factors(1 + len(words)), strict=True):
            mixed = (mixed + word) * factor
        self.tile_hashes.append(mixed)
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
        """Where the descriptor lies of the tensor that each warp copies a box of."""
        if signal.tensor_map is None or not _is_register_known(view, signal.tensor_map, chosen):
            return None
        return _read_words(view, signal.tensor_map, chosen.shape)[warps, first]


def _read_words(view: RegisterView, slot: int, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """A register's words in the lanes of a group."""
    return np.broadcast_to(view.to_warp_rows(view.read_value(slot)), shape).astype(np.uint64)


def _is_register_known(view: RegisterView, slot: int, lanes: BoolArray) -> bool:
    """Whether a register holds known words in these lanes of the group."""
    unknown = view.read_origin(slot)
    return slot >= 0 and (
        unknown is None or not bool((view.to_warp_rows(unknown).astype(np.bool_) & lanes).any())
    )


def _build_pipelines(evidence: _PipelineEvidence) -> MbarrierPipelines:
    """Tiles are not compared."""
    events = evidence.events
    groups: list[_BarrierGroup] = []
    for row, one in events.items():
        meets = [not one.barrier_addresses.isdisjoint(group.barrier_addresses) for group in groups]
        met = [group for group, does in zip(groups, meets, strict=True) if does]
        apart = [group for group, does in zip(groups, meets, strict=True) if not does]
        rows = [row, *(other for group in met for other in group.rows)]
        groups = [
            *apart,
            _BarrierGroup(rows, one.barrier_addresses.union(*(group.barrier_addresses for group in met))),
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

    rows: list[int]
    barrier_addresses: set[int]


def _count_free_waits(group: Iterable[MbarrierEvents]) -> int:
    """Barriers at which a warp begins with the phase before the first, which is over; the most of any."""
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for one in group:
        for key, asked in one.first_parities.items():
            first[key] = min(asked, first.get(key, asked))
    free: dict[int, int] = {}
    for (warp, _), (_, parity) in first.items():
        free[warp] = free.get(warp, 0) + parity
    return max(free.values(), default=0)
