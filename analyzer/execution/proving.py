"""Proofs that CTAs of a grid run alike, so that a few of each box of them stand for all."""

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.access_log import MemoryLog, wants_none
from analyzer.execution.boxes import Box, Place, cta_number, cta_places, strided_boxes, uniform_boxes
from analyzer.execution.budget import Budget, StopExecution
from analyzer.execution.dependence import GridDependence
from analyzer.execution.evenness import MOST_STRIDE, Evenness
from analyzer.execution.machine import Machine
from analyzer.execution.sampling import Sample, boxed, rows_of_grid
from analyzer.execution.step import Step
from analyzer.execution.task import Task
from analyzer.execution.warps import KEPT_SHARED_BYTES, Batch
from analyzer.execution.watching import Onlooker, Places, Seen, Signature, Signer, Watcher, joint_reaches

IntArray = NDArray[np.int64]

_PROOF_SHARE = 2  # part of the budget to prove CTAs alike
_MOST_PROOFS = 2
_MOST_LOOKS = 3  # for CTAs that are far enough apart
_SIDE_BY_SIDE: Place = (1, 1, 1)


def part_of_budget(task: Task, share: int) -> Budget:
    return Budget(task.options.step_limit // share)


def batch_of(task: Task, sample: Sample, first: int, size: int) -> Batch:
    """So many CTAs of a sample, to be executed together."""
    shape = task.shape
    numbers, weights = sample.numbers[first : first + size], sample.weights[first : first + size]
    cta_shape = rows_of_grid(shape.grid, numbers) if sample.is_whole else None
    batch = Batch(task.kernel, task.image, shape, numbers, weights, cta_shape, KEPT_SHARED_BYTES)
    batch.neighbours, batch.box_counts = sample.neighbours, sample.counts
    return batch


class Proofs:
    """Which CTAs are proven alike.

    stride: between CTAs that may be; dependence: on the CTA's place, for CTAs that are so far apart.
    """

    def __init__(self, task: Task, machine_for: Callable[[Batch, Budget], Machine]) -> None:
        self.task, self.machine_for = task, machine_for
        self.stride: Place = _SIDE_BY_SIDE
        self._dependence: GridDependence | None = None

    @property
    def is_even(self) -> bool:
        """Whether boxes of CTAs may stand for others in their ways and in their memory accesses."""
        return self.dependence.branches_evenly and self.dependence.accesses_evenly

    @property
    def has_even_ways(self) -> bool:
        """Whether boxes of CTAs may stand for others in their ways.

        Where paces alone say so, they must in their memory accesses too: there may be as many ways as CTAs.
        """
        found = self.dependence
        return found.branches_evenly and (found.accesses_evenly or not found.rests_on_paces)

    @property
    def dependence(self) -> GridDependence:
        """On the CTA's place; the CTAs at the corners of the grid are run where that says more.

        Where those side by side are not alike, CTAs may be that are further apart.
        """
        if self._dependence is None:
            found = self._dependence = self._as_seen()
            if not (found.branches_evenly and found.accesses_evenly) and self._look_apart(found):
                self._dependence = self._as_seen()
        return self._dependence

    def _as_seen(self) -> GridDependence:
        found = self._depending(None)
        seen = self._seen_at_corners() if found.lacks else None
        return found if seen is None else self._depending(seen)

    def _depending(self, seen: Seen | None, *, is_hopeful: bool = False) -> GridDependence:
        task = self.task
        return GridDependence(
            task.kernel,
            has_clusters=task.shape.cluster.count > 1,
            has_buffers=task.image.has_contents,
            seen=seen,
            is_hopeful=is_hopeful,
        )

    # ---- CTAs that are further apart -------------------------------------------------------------

    def move_apart(self, evenness: Evenness | None) -> bool:
        """CTAs that are further apart along an axis may be alike where those side by side are not.

        They are taken from now on; only once, so that there is an end.
        """
        strides = None if evenness is None or self.stride != _SIDE_BY_SIDE else evenness.strides
        if strides is None or not _is_worth_it(strides):
            return False
        self.stride, self._dependence = strides, None
        return True

    def _look_apart(self, found: GridDependence) -> bool:
        """Move so far apart that what is rounded grows evenly too, or, where that is too far, what is not."""
        if self.stride != _SIDE_BY_SIDE:
            return False
        seen = found.seen if found.is_followed else None
        hopeful = self._depending(seen, is_hopeful=True)
        stride = self._even_stride(hopeful) if hopeful.branches_evenly else None
        if stride is not None and _is_worth_it(stride):
            self.stride, self._dependence = stride, None
            return True
        if stride == _SIDE_BY_SIDE and found.to_check <= hopeful.to_check:
            return False  # nothing is uneven that shows
        return self.move_apart(self._seen_apart(found.to_check, _SIDE_BY_SIDE))

    def _even_stride(self, hopeful: GridDependence) -> Place | None:
        """What follows from rounded words shows in CTAs that are so far apart that these grow evenly."""
        stride = _SIDE_BY_SIDE
        for _ in range(_MOST_LOOKS):
            evenness = self._seen_apart(hopeful.to_check, stride)
            if evenness.strides is None:
                return None
            x, y, z = map(int.__mul__, stride, evenness.strides)
            stride = x, y, z
            if not evenness.rounded:
                return stride
        return None

    def _seen_apart(self, steps: set[Step], stride: Place) -> Evenness:
        """Whether operations keep what grows even between the grid's first CTA and those so far from it."""
        grid = self.task.shape.grid
        evenness = Evenness(steps)
        if not steps:
            return evenness
        sample = boxed(grid, strided_boxes(grid, stride)[:1], evenness)
        machine = self._unlogged(
            batch_of(self.task, sample, 0, len(sample.numbers)), part_of_budget(self.task, _PROOF_SHARE)
        )
        machine.evenness = evenness
        machine.start()
        with suppress(StopExecution):
            machine.run()
        return evenness

    # ---- what is seen ----------------------------------------------------------------------------

    def _seen_at_corners(self) -> Seen | None:
        """None where these CTAs do not come to their end."""
        grid = self.task.shape.grid
        kind_of = {
            cta_number(grid, at): kind
            for kind, box in enumerate(strided_boxes(grid, self.stride))
            for at in (*box.corners(), *box.second())
        }
        numbers, kinds = np.array(sorted(kind_of.items()), dtype=np.int64).T
        onlooker = Onlooker(Places(kinds, self._turns(numbers)))
        try:
            self._watched(numbers, onlooker, part_of_budget(self.task, _PROOF_SHARE))
        except StopExecution:
            return None
        return onlooker.seen()

    def _turns(self, numbers: IntArray) -> IntArray:
        """How many CTAs of their box come before these along each axis."""
        places = np.stack(cta_places(self.task.shape.grid, numbers))
        turns: IntArray = places // np.array(self.stride)[:, None]
        return turns

    # ---- proofs ----------------------------------------------------------------------------------

    def prove(self) -> Sample | None:
        """Boxes of CTAs that are proven alike, None where they cannot be.

        The proof stands where instructions reach no further into shared memory than it takes them to; else
        it is made once more.
        """
        budget = part_of_budget(self.task, _PROOF_SHARE)
        for _ in range(_MOST_PROOFS):
            dependence = self.dependence
            if not self.has_even_ways:
                return None
            signers: list[Signer] = []
            boxes = self._boxes(signers, budget)
            if boxes is None:
                return None
            reaches = joint_reaches(signers)
            if not dependence.is_followed or dependence.seen.covers(reaches):
                return boxed(self.task.shape.grid, boxes, Evenness(dependence.to_check))
            self._dependence = self._depending(dependence.seen.with_reaches(reaches))
        return None

    def _boxes(self, signers: list[Signer], budget: Budget) -> list[Box] | None:
        """Boxes whose corners run alike; signers: what looked at them."""

        def signatures(numbers: IntArray) -> Signature:
            signers.append(self._signer(numbers, budget))
            return signers[-1].of_ctas(len(numbers))

        try:
            return uniform_boxes(self.task.shape.grid, signatures, self.stride)
        except StopExecution:
            return None

    def _signer(self, numbers: IntArray, budget: Budget) -> Signer:
        """What gives CTAs equal numbers where all warps take the same ways with the same predicates.

        Raises StopExecution where they do not come to their end.
        """
        n_warps = len(numbers) * self.task.shape.warps_per_cta
        dependence = self.dependence
        signer = Signer(n_warps, dependence.compared, dependence.seen.paces, self._turns(numbers))
        self._watched(numbers, signer, budget)
        return signer

    def _watched(self, numbers: IntArray, watcher: Watcher, budget: Budget) -> None:
        """Run some CTAs of which only the ways that they take matter. Raises StopExecution."""
        batch = Batch(self.task.kernel, self.task.image, self.task.shape, numbers, np.ones(len(numbers)))
        machine = self._unlogged(batch, budget)
        machine.watcher = watcher
        machine.start()
        machine.run()

    def _unlogged(self, batch: Batch, budget: Budget) -> Machine:
        """A machine of which only the ways matter that CTAs take."""
        machine = self.machine_for(batch, budget)
        machine.tally.memory = MemoryLog(batch, wants=wants_none)
        return machine


def _is_worth_it(stride: Place) -> bool:
    """Further apart, but not so far that all CTAs are looked at."""
    return 1 < math.prod(stride) <= MOST_STRIDE
