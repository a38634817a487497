"""Processes that share work: the one place where this package starts any.

There are three kinds, by what a task needs.

- `run_in_processes`: tasks that carry all that they need, such as the rows of a table. joblib starts fresh
  interpreters, which is safe whatever threads the caller has, and yields results as they come.
- `run_in_forks`: tasks on a value that is large and already in memory, such as a parsed dump of a million
  instructions. Workers are forks, which inherit the value. A fresh interpreter (joblib's way) would have to
  read the dump again, which takes longer than its analysis, because the decoders of instructions are closures
  and do not pickle. joblib's own forking backend is `multiprocessing.Pool`, which hangs once a worker is
  killed, so the executor of the standard library is used. Results come back as msgpack, which takes a tenth
  of the time of pickle, in the order of the tasks. A fork of a program with threads may deadlock: callers use
  it only where there are none.
- `connect`: tasks for the machines of a cluster, by Dask's scheduler. A task and its result are bytes, which
  a cluster passes on without looking at them. A task may be run twice, anywhere: one whose worker dies is
  given to another, and one that ends each worker is an error. Dask is asked directly, not by joblib's backend
  of that name, which waits for ever for a task that Dask has given up.
"""

import gc
import os
import pickle
import signal
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from analyzer.child_processes import ignore_interrupts, make_parent_bond
from analyzer.path_claims import FileKey, guard_in_worker, list_guarded
from analyzer.text.errors import InputError, ToolError, UsageError, WarplensError
from analyzer.text.optional_packages import DASK, check_packages

if TYPE_CHECKING:
    from distributed import Client

Task = TypeVar("Task")
Result = TypeVar("Result")

# Analysis makes millions of values and hardly a reference cycle, so the collector rarely has work.
RARE_COLLECTION_THRESHOLDS = (100_000, 50, 1000)

_CONNECT_TIMEOUT_S = 10
_WAIT_FOR_WORKERS_S = 30
TaskFunction = Callable[[bytes], bytes]


class Backend(StrEnum):
    """Who runs tasks; the value is the name on the command line."""

    LOCAL = "local"  # processes of this machine
    DASK = "dask"  # the machines of a cluster


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
    parent, guarded = os.getpid(), list_guarded()
    calls = (
        delayed(_run_indexed)(function, index, task, parent, guarded) for index, task in enumerate(tasks)
    )
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
    function: Callable[[Task], Result], index: int, task: Task, parent: int, guarded: Mapping[FileKey, str]
) -> tuple[int, Result]:
    make_parent_bond(parent)()
    guard_in_worker(guarded)
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
    others = set(active_children())  # of joblib, which a caller in a notebook may keep
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
                for child in set(active_children()) - others:
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


# Yields the index of each task with its result, as they come. Raises ToolError for a task that no worker
# survives, and what the function raises.
RunTasks = Callable[[TaskFunction, Sequence[bytes]], Iterator[tuple[int, bytes]]]


@contextmanager
def connect(scheduler: str | None, n_workers: int) -> Iterator[RunTasks]:
    """Yield a function that runs tasks; its function must be of a module that the workers can import.

    scheduler: address of Dask's scheduler; None: that of its own environment variable, else as many processes
        on this machine as `n_workers`.
    Raises ToolError where Dask is not installed, UsageError where the scheduler does not answer.
    """
    check_backend(Backend.DASK)
    with _connect_to_dask(scheduler, n_workers) as client:
        yield partial(_run_with_dask, client)


def check_backend(backend: Backend) -> None:
    """Raise ToolError where a package of the backend is missing."""
    if backend is Backend.DASK:
        check_packages(f"--backend {backend}", DASK)


@contextmanager
def _connect_to_dask(scheduler: str | None, n_workers: int) -> "Iterator[Client]":
    from dask import config
    from distributed import Client, LocalCluster

    address = scheduler or config.get("scheduler-address", None)
    if address is None:
        with (
            LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,  # type: ignore[no-untyped-call]
        ):
            yield client
        return
    try:
        client = Client(address, timeout=_CONNECT_TIMEOUT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, ImportError) as error:  # TimeoutError is an OSError
        raise UsageError(
            f"--scheduler {address}: no scheduler of Dask answers there ({type(error).__name__})",
            hint="start one with `dask scheduler`, and give the address that it prints: tcp://HOST:8786",
        ) from None
    with client:
        _check_workers(client, address)
        yield client


def _check_workers(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_WAIT_FOR_WORKERS_S)
    except TimeoutError:
        raise UsageError(
            f"--scheduler {address}: it has no worker", hint=f"start some with `dask worker {address}`"
        ) from None


def _run_with_dask(
    client: "Client", function: TaskFunction, tasks: Sequence[bytes]
) -> Iterator[tuple[int, bytes]]:
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    futures = client.map(_run_safely, [function] * len(tasks), list(tasks), pure=False, retries=0)
    places = {future.key: index for index, future in enumerate(futures)}
    try:
        finished = as_completed(futures, with_results=True, raise_errors=False)  # type: ignore[no-untyped-call]
        for future, result in finished:
            index = places[future.key]
            if future.status == "finished":
                yield index, _open(result)
            elif future.status == "cancelled":
                raise ToolError("the scheduler was stopped", hint="run again; what was done is in the cache")
            else:
                error = result[1]
                if isinstance(error, KilledWorker):
                    raise _make_killed_error(index, len(tasks))
                raise error
            future.release()
    finally:
        client.cancel(futures)  # type: ignore[no-untyped-call]


def _make_killed_error(index: int, n_tasks: int) -> ToolError:
    return ToolError(
        f"task {index + 1} of {n_tasks} has ended each worker that took it",
        hint="memory may have run out: give workers more of it, or leave the largest input out",
    )


def _run_safely(function: TaskFunction, task: bytes) -> bytes:
    """Run a task; an error that a user can cause comes back as a value, with all that it says."""
    try:
        return b"+" + function(task)
    except WarplensError as error:
        return b"-" + pickle.dumps(error)


def _open(result: bytes) -> bytes:
    """Return the result of a task, or raise its error: the cluster is trusted as this machine is."""
    if result[:1] == b"-":
        raise pickle.loads(result[1:])
    return result[1:]
