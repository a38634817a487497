"""Sub-cores of an SM: their pipes, and instructions whose results a scoreboard guards.

Each sub-core is a list of times from which its pipes are free, by pipe, with the issue port behind them. The
central loop of `sm_simulator` reads and writes it in place; here is what comes after an instruction's issue.
Products that their warp does not wait for queue on their pipe, and behind those of the same warp. Few of them
fit in the queue: then warps stand at the next one, so those of two warpgroups take turns. Example: two
warpgroups that begin 16 products of 32 cycles at the same time have all of them done after 1,024 cycles each;
without a limit of the queue, the first one after 512.
"""

from collections import deque

from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.ir.scheduling import SM_LEVEL_PIPES, Pipe
from analyzer.models.sm.simulated_warp import SimulatedStep, SimulatedWarp
from analyzer.models.wait_causes import REGISTER_PORTS_INDEX

_SHARED_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in SM_LEVEL_PIPES)
_TENSOR_PIPE_INDEX = PIPE_INDEX[Pipe.TENSOR]
ISSUE_INDEX = REGISTER_PORTS_INDEX + 1  # of the issue port in a sub-core's list
OWNER_INDEX = ISSUE_INDEX + 1  # number of the warp that issued last


class Subcores:
    """Sub-cores of one SM and the warps that they hold."""

    __slots__ = (
        "n_warps",
        "pipe_free",
        "product_ends",
        "product_latency_cycles",
        "read_release_cycles",
    )

    def __init__(self, n_subcores: int, read_release_cycles: float) -> None:
        self.pipe_free = [[0.0] * (OWNER_INDEX + 1) for _ in range(n_subcores)]
        self.product_ends = [deque[float]() for _ in range(n_subcores)]  # of products not known to be done
        self.n_warps = [0] * n_subcores
        self.read_release_cycles = read_release_cycles
        self.product_latency_cycles = 0.0  # of a warpgroup's product, beyond its turn at the tensor core

    def assign_warp(self) -> int:
        """Return the sub-core with the fewest warps, with one more there."""
        subcore = self.n_warps.index(min(self.n_warps))
        self.n_warps[subcore] += 1
        return subcore

    def release_warp(self, warp: SimulatedWarp) -> None:
        """Remove a warp that has ended from its sub-core."""
        subcore = next(index for index, free in enumerate(self.pipe_free) if free is warp.pipe_free)
        self.n_warps[subcore] -= 1

    def serve_result(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float:
        """Start an instruction whose result comes a fixed latency later, or an asynchronous product."""
        if step.async_mma_cycles:
            done = self._queue_product(warp, step, at)
            released = at + self.read_release_cycles
        else:
            released = done = at + step.latency_cycles
        if step.uses_scoreboards:
            warp.write_scoreboards(step, done, released)
        return time

    def serve_wide_product(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float:
        """Note when an IMAD.WIDE has its result: late while the tensor core works, see `wide_products`."""
        busy_until = warp.pipe_free[_TENSOR_PIPE_INDEX] + self.product_latency_cycles
        warp.products.wide_ends[step.last_row] = min(at + step.latency_cycles, busy_until)
        if step.uses_scoreboards:
            warp.write_scoreboards(step, time, time)
        return time

    def _queue_product(self, warp: SimulatedWarp, step: SimulatedStep, at: float) -> float:
        """Return when a product ends: after those before it on its pipe, and after its warp's own.

        A warpgroup that waits for it has its result `latency_cycles` later.
        """
        pipe = step.async_mma_pipe
        pipe_free = self.pipe_free[0] if pipe in _SHARED_PIPES else warp.pipe_free
        begin = max(pipe_free[pipe], warp.products.last_end, at)
        done = begin + step.async_mma_cycles
        warp.products.last_end = pipe_free[pipe] = done
        if step.max_queued_products:
            warp.products.queue.append(done)
        self.product_latency_cycles = step.latency_cycles
        if step.ends_wgmma_group:
            warp.products.group_ends.append(done + step.latency_cycles)
        return done
