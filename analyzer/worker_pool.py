"""Processes that share work: the one place where this package starts any.

There are two kinds, by what a task needs.

- `run_in_processes`: tasks that carry all that they need, such as the rows of a table. joblib starts fresh
  interpreters, which is safe whatever threads the caller has, and yields results as they come.
- `run_in_forks`: tasks on a value that is large and already in memory, such as a parsed dump of a million
  instructions. Workers are forks, which inherit the value. A fresh interpreter (joblib's way) would have to
  read the dump again, which takes longer than its analysis, because the decoders of instructions are closures
  and do not pickle. joblib's own forking backend is `multiprocessing.Pool`, which hangs once a worker is
  killed, so the executor of the standard library is used. Results come back as msgpack, which takes a tenth
  of the time of pickle, in the order of the tasks. A fork of a program with threads may deadlock: callers use
  it only where there are none.
"""

import gc
import os
import signal
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import msgspec

from analyzer.child_processes import ignore_interrupts, make_parent_bond
from analyzer.text.errors import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")

# Analysis makes millions of values and hardly a reference cycle, so the collector rarely has work.
RARE_COLLECTION_THRESHOLDS = (100_000, 50, 1000)


def run_in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_workers: int
) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result as they come; function and tasks must pickle.

    Raises what the function raises, InputError where a worker process dies.
    """
    n_workers = min(n_workers, len(tasks))
    if n_workers <= 1:
        yield from ((task, function(task)) for task in tasks)
        return
    from concurrent.futures.process import BrokenProcessPool

    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=n_workers, return_as="generator_unordered", batch_size=1)
    parent = os.getpid()
    calls = (delayed(_run_indexed)(function, index, task, parent) for index, task in enumerate(tasks))
    try:
        with ignore_interrupts():
            results = pool(calls)
        for index, result in results:
            yield tasks[index], result
    except BrokenProcessPool:
        hint = f"memory may have run out with {n_workers} of them: give fewer --jobs"
        raise InputError("a worker process has died", hint=hint) from None
    except BaseException:  # Ctrl-C, or an error of the caller: what the others do is of no use
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


def _run_indexed(
    function: Callable[[Task], Result], index: int, task: Task, parent: int
) -> tuple[int, Result]:
    make_parent_bond(parent)()
    gc.set_threshold(*RARE_COLLECTION_THRESHOLDS)
    return index, function(task)


def run_in_forks(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_workers: int, result_type: type[Result]
) -> Iterator[Result]:
    """Yield the result of each task in the order of the tasks; one that fails in a worker is run again here.

    So an error is raised by this process, with its own traceback, and a worker that was killed costs time
    alone. `function` may refer to anything in memory: it is inherited, not pickled.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    bond = make_parent_bond()
    gc.freeze()  # else each worker's collector would visit, and so copy, what it shares with this process
    decoder = msgspec.msgpack.Decoder(result_type)
    try:
        with ProcessPoolExecutor(
            n_workers, mp_context=get_context("fork"), initializer=_inherit, initargs=(function, bond)
        ) as pool:
            try:
                for task, found in [(task, pool.submit(_run_inherited, task)) for task in tasks]:
                    yield function(task) if found.exception() else decoder.decode(found.result())
            except BaseException:  # else the pool would wait for tasks that are of no use any more
                for child in active_children():
                    child.kill()
                raise
    finally:
        gc.unfreeze()


_inherited_function: Callable[[Any], object] | None = None


def _inherit(function: Callable[[Any], object], bond: Callable[[], None]) -> None:
    """Keep, in a worker, the function that the fork has in memory; Ctrl-C is the parent's to answer."""
    global _inherited_function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bond()
    _inherited_function = function


def _run_inherited(task: object) -> bytes:
    assert _inherited_function is not None
    return msgspec.msgpack.encode(_inherited_function(task))


def count_forkable_cores() -> int:
    """Return the cores that this process may use; 1 where it cannot be forked safely."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def split_evenly(sizes: Sequence[int], n_parts: int) -> list[tuple[int, int]]:
    """Return ranges [start, stop) of tasks, cut after each n-th part of their total size.

    >>> split_evenly([5, 1, 1, 1, 8], 2)
    [(0, 4), (4, 5)]
    """
    done = list(accumulate(sizes))
    cuts = [bisect_left(done, done[-1] * part / n_parts) + 1 for part in range(1, n_parts + 1)]
    return [(start, stop) for start, stop in pairwise((0, *cuts)) if stop > start]
