"""Proof that CTAs of a grid are equivalent, so that a few CTAs of each box represent all of it.

1. `CtaAffinity` shows that branches depend on affine functions of the CTA index only.
2. If that needs observations, the CTAs at the corners of the grid are executed and observed.
3. If adjacent CTAs are not affine, because of values that are rounded or masked, CTAs that are some stride
   apart may be. The stride is found by checking such steps while a few CTAs run.
4. `find_uniform_boxes` executes corners of boxes and splits boxes until all corners of each box agree.
5. The proof holds if no execution reached further into shared memory than step 1 assumed; else it is repeated
   once with these ranges.

Example: on a grid of 1000 CTAs, a kernel whose last CTA alone takes a branch for a remainder has two boxes,
CTAs 0 to 998 and CTA 999. CTA 0 represents the first box; CTA 1 is executed too, to see how addresses grow.
"""

import math
from contextlib import suppress

import numpy as np

from analyzer.execution.lowering.step import Step
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.access_log import AccessLog, reject_all
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_batch import MAX_TRACKED_SHARED_BYTES, CtaBatch
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.profile.cta_boxes import (
    CtaBox,
    GridVector,
    delinearize_ctas,
    find_uniform_boxes,
    linearize_cta,
    split_by_stride,
)
from analyzer.execution.sampling.affinity_checks import MAX_STRIDE_CTAS, AffinityCheckListener, AffinityChecks
from analyzer.execution.sampling.batch_runs import make_machine
from analyzer.execution.sampling.cta_affinity import CtaAffinity
from analyzer.execution.sampling.cta_observers import (
    CornerObserver,
    CtaObservations,
    CtaPositions,
    SignatureArray,
    SignatureObserver,
    merge_observed_ranges,
)
from analyzer.execution.sampling.cta_samples import CtaSample, find_grid_rows, make_box_sample
from analyzer.execution.sampling.execution_task import ExecutionTask
from analyzer.ir.arrays import IntArray
from analyzer.ir.opcode import AddressSpace

_PROOF_BUDGET_DIVISOR = 2  # a proof may take this part of the step limit
_MAX_PROOF_ATTEMPTS = 2
_MAX_STRIDE_SEARCHES = 3
_UNIT_STRIDE: GridVector = (1, 1, 1)


def make_partial_budget(task: ExecutionTask, divisor: int) -> Budget:
    """Make a budget of a part of the task's step limit."""
    return Budget(task.options.step_limit // divisor)


def make_batch(task: ExecutionTask, sample: CtaSample, first: int, size: int) -> CtaBatch:
    """Make a batch of up to `size` CTAs of a sample, to be executed together."""
    shape = task.shape
    numbers, weights = sample.cta_numbers[first : first + size], sample.weights[first : first + size]
    cta_shape = find_grid_rows(shape.grid, numbers) if sample.is_exhaustive else None
    batch = CtaBatch(task.kernel, task.image, shape, numbers, weights, cta_shape, MAX_TRACKED_SHARED_BYTES)
    batch.neighbor_ctas, batch.box_counts = sample.neighbor_ctas, sample.box_counts
    return batch


class EquivalenceProver:
    """Proves which CTAs of a launch are equivalent.

    cta_stride: distance along each axis between CTAs that may be equivalent.
    affinity: the affinity analysis for CTAs that are this far apart.
    """

    def __init__(self, task: ExecutionTask) -> None:
        self.task = task
        self.cta_stride: GridVector = _UNIT_STRIDE
        self._affinity: CtaAffinity | None = None

    @property
    def is_affine(self) -> bool:
        """True if CTAs may represent others in control flow and in memory accesses."""
        return self.affinity.has_affine_branches and self.affinity.has_affine_accesses

    @property
    def has_affine_control_flow(self) -> bool:
        """True if CTAs may represent others in control flow.

        If that relies on observed coefficients, memory accesses must be affine too: else there may be as many
        paths as CTAs, and a search for boxes would find none.
        """
        found = self.affinity
        return found.has_affine_branches and (found.has_affine_accesses or not found.relies_on_coefficients)

    @property
    def affinity(self) -> CtaAffinity:
        """Affinity analysis, with observations of the CTAs at the grid's corners if these help.

        If adjacent CTAs are not affine, a wider stride is tried.
        """
        if self._affinity is None:
            found = self._affinity = self._compute_affinity()
            if not (found.has_affine_branches and found.has_affine_accesses) and self._try_wider_stride(
                found
            ):
                self._affinity = self._compute_affinity()
        return self._affinity

    def _compute_affinity(self) -> CtaAffinity:
        found = self._analyze_affinity(None)
        observations = self._observe_corners() if found.needs_observations else None
        return found if observations is None else self._analyze_affinity(observations)

    def _analyze_affinity(
        self, observations: CtaObservations | None, *, is_optimistic: bool = False
    ) -> CtaAffinity:
        task = self.task
        return CtaAffinity(
            task.kernel,
            has_clusters=task.shape.cluster.count > 1,
            has_buffer_contents=task.image.has_contents,
            observations=observations,
            is_optimistic=is_optimistic,
        )

    # ---- CTAs that are further apart -------------------------------------------------------------

    def try_affine_strides(self, affinity_checks: AffinityChecks | None) -> bool:
        """Switch to the strides at which checked operations are affine; return whether that was possible.

        At most one switch is made, so that the search ends.
        """
        strides = (
            None
            if affinity_checks is None or self.cta_stride != _UNIT_STRIDE
            else affinity_checks.affine_strides
        )
        if strides is None or not _is_useful_stride(strides):
            return False
        self.cta_stride, self._affinity = strides, None
        return True

    def _try_wider_stride(self, found: CtaAffinity) -> bool:
        """Switch to a stride at which rounded values are affine too, or, if too wide, at which others are."""
        if self.cta_stride != _UNIT_STRIDE:
            return False
        observations = found.observations if found.has_observations else None
        optimistic = self._analyze_affinity(observations, is_optimistic=True)
        stride = self._find_affine_stride(optimistic) if optimistic.has_affine_branches else None
        if stride is not None and _is_useful_stride(stride):
            self.cta_stride, self._affinity = stride, None
            return True
        if stride == _UNIT_STRIDE and found.steps_to_check <= optimistic.steps_to_check:
            return False  # no step was seen that is not affine
        return self.try_affine_strides(self._check_at_stride(found.steps_to_check, _UNIT_STRIDE))

    def _find_affine_stride(self, optimistic: CtaAffinity) -> GridVector | None:
        """Find a stride at which all optimistic steps are affine; None if it would be too wide.

        Steps that depend on rounded words can be checked only at strides at which these words are affine. So
        the stride is widened, and steps are checked again.
        """
        stride = _UNIT_STRIDE
        for _ in range(_MAX_STRIDE_SEARCHES):
            affinity_checks = self._check_at_stride(optimistic.steps_to_check, stride)
            if affinity_checks.affine_strides is None:
                return None
            x, y, z = map(int.__mul__, stride, affinity_checks.affine_strides)
            stride = x, y, z
            if not affinity_checks.has_uneven_rounding:
                return stride
        return None

    def _check_at_stride(self, steps: set[Step], stride: GridVector) -> AffinityChecks:
        """Check whether operations are affine between the grid's first CTA and those one stride away."""
        grid = self.task.shape.grid
        affinity_checks = AffinityChecks(steps)
        if not steps:
            return affinity_checks
        sample = make_box_sample(grid, split_by_stride(grid, stride)[:1], affinity_checks)
        batch = make_batch(self.task, sample, 0, len(sample.cta_numbers))
        budget = make_partial_budget(self.task, _PROOF_BUDGET_DIVISOR)
        machine = self._make_unlogged_machine(batch, budget, AffinityCheckListener(affinity_checks, batch))
        machine.start()
        with suppress(StopExecution):
            machine.run()
        return affinity_checks

    # ---- observations ----------------------------------------------------------------------------

    def _observe_corners(self) -> CtaObservations | None:
        """Execute the corners of the grid; None if they do not end within the budget."""
        grid = self.task.shape.grid
        kind_of = {
            linearize_cta(grid, at): kind
            for kind, box in enumerate(split_by_stride(grid, self.cta_stride))
            for at in (*box.iter_corners(), *box.iter_axis_neighbors())
        }
        numbers, kinds = np.array(sorted(kind_of.items()), dtype=np.int64).T
        observer = CornerObserver(
            CtaPositions(kinds, self._compute_box_positions(numbers)), tracks_shared=self._tracks_shared
        )
        try:
            self._run_observed(numbers, observer, make_partial_budget(self.task, _PROOF_BUDGET_DIVISOR))
        except StopExecution:
            return None
        return observer.build_observations()

    def _compute_box_positions(self, numbers: IntArray) -> IntArray:
        """Return the positions of CTAs in their strided boxes, [axis, cta]."""
        coordinates = np.stack(delinearize_ctas(self.task.shape.grid, numbers))
        positions: IntArray = coordinates // np.array(self.cta_stride)[:, None]
        return positions

    # ---- proofs ----------------------------------------------------------------------------------

    def prove(self) -> CtaSample | None:
        """Return a sample of boxes of CTAs that are proven equivalent; None if there is no proof.

        The proof holds if instructions access no more of shared memory than it assumes; else it is repeated.
        """
        budget = make_partial_budget(self.task, _PROOF_BUDGET_DIVISOR)
        for _ in range(_MAX_PROOF_ATTEMPTS):
            affinity = self.affinity
            if not self.has_affine_control_flow:
                return None
            observers: list[SignatureObserver] = []
            boxes = self._find_proven_boxes(observers, budget)
            if boxes is None:
                return None
            shared_ranges = merge_observed_ranges(observers)
            if not affinity.has_observations or affinity.observations.covers_ranges(shared_ranges):
                affinity_checks = AffinityChecks(affinity.steps_to_check, affinity.monotone_steps)
                return make_box_sample(self.task.shape.grid, boxes, affinity_checks)
            self._affinity = self._analyze_affinity(affinity.observations.with_shared_ranges(shared_ranges))
        return None

    def _find_proven_boxes(self, observers: list[SignatureObserver], budget: Budget) -> list[CtaBox] | None:
        """Find boxes whose corners are equivalent; None if there are none.

        observers: receives the observers of all executions.
        """

        def signatures(numbers: IntArray) -> SignatureArray:
            observers.append(self._observe_signatures(numbers, budget))
            return observers[-1].compute_cta_signatures(len(numbers))

        try:
            return find_uniform_boxes(self.task.shape.grid, signatures, self.cta_stride)
        except StopExecution:
            return None

    def _observe_signatures(self, numbers: IntArray, budget: Budget) -> SignatureObserver:
        """Execute CTAs; those whose warps take the same paths with the same predicates get equal signatures.

        Raises StopExecution if they do not end within the budget.
        """
        n_warps = len(numbers) * self.task.shape.warps_per_cta
        affinity = self.affinity
        observer = SignatureObserver(
            n_warps,
            affinity.compared_steps,
            affinity.observations.coefficients,
            self._compute_box_positions(numbers),
            tracks_shared=self._tracks_shared,
        )
        self._run_observed(numbers, observer, budget)
        return observer

    def _run_observed(self, numbers: IntArray, observer: ExecutionListener, budget: Budget) -> None:
        """Run CTAs with an observer, without a log of accesses. Raises StopExecution."""
        batch = CtaBatch(self.task.kernel, self.task.image, self.task.shape, numbers, np.ones(len(numbers)))
        machine = self._make_unlogged_machine(batch, budget, observer)
        machine.start()
        machine.run()

    @property
    def _tracks_shared(self) -> bool:
        """True if contents of shared memory are tracked."""
        return AddressSpace.SHARED in self.task.kernel.slice.tracked_spaces

    def _make_unlogged_machine(
        self, batch: CtaBatch, budget: Budget, listener: ExecutionListener
    ) -> AbstractMachine:
        """Make a machine that logs no memory accesses."""
        return make_machine(self.task, batch, budget, (listener,), AccessLog(batch, access_filter=reject_all))


def _is_useful_stride(stride: GridVector) -> bool:
    """Return whether a stride is wider than one CTA, but not so wide that too many CTAs must be executed."""
    return 1 < math.prod(stride) <= MAX_STRIDE_CTAS
