"""Processes that share work: the one place where this package starts any.

Whoever does the tasks, the interface is one: a function and tasks go in, the index of each task comes out
with its result. There are three ways, by what a task needs.

- `run_in_processes`: tasks that carry all that they need, such as the rows of a table. joblib starts fresh
  interpreters, which is safe whatever threads the caller has, and yields results as they come.
- `run_in_forks`: tasks on a value that is large and already in memory, such as a parsed dump of a million
  instructions. Workers are forks, which inherit the value. A fresh interpreter (joblib's way) would have to
  read the dump again, which takes longer than its analysis, because the decoders of instructions are closures
  and do not pickle. joblib's own forking backend is `multiprocessing.Pool`, which hangs once a worker is
  killed, so the executor of the standard library is used. Results come back as msgpack, which takes a tenth
  of the time of pickle, in the order of the tasks. A fork of a program with threads may deadlock: callers use
  it only where there are none.
- `open_runner` with `Backend.DASK`: tasks for the machines of a cluster, which import the function and see
  the same files. A task and its result are bytes, which a cluster passes on without looking at them. A task
  may be run twice, anywhere: one whose worker dies is given to another, and one that ends each worker is an
  error. Dask is asked directly, not by joblib's backend of that name, which waits for ever for a task that
  Dask has given up.
"""

import gc
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from analyzer.child_processes import ignore_interrupts, make_parent_bond
from analyzer.fingerprint import compute_model_fingerprint
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


class Backend(StrEnum):
    """Who runs tasks; the value is the name on the command line."""

    LOCAL = "local"  # processes of this machine
    DASK = "dask"  # the machines of a cluster


class RunTasks(Protocol):
    """Way to run tasks, which yields the index of each with its result, as they come."""

    def __call__(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], result_type: type[Result], /
    ) -> Iterator[tuple[int, Result]]:
        """Run tasks. Raises what the function raises, ToolError for a task that no worker survives."""


def run_in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_workers: int
) -> Iterator[tuple[int, Result]]:
    """Yield the index of each task with its result, as they come; function and tasks must pickle.

    Raises what the function raises, InputError where a worker process dies.
    """
    n_workers = min(n_workers, len(tasks))
    if n_workers <= 1:
        yield from enumerate(map(function, tasks))
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
        yield from results
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
) -> Iterator[tuple[int, Result]]:
    """Yield the index of each task with its result, in their order; one that fails is run again here.

    So an error is raised by this process, with its own traceback, and a worker that was killed costs time
    alone. Function and tasks may refer to anything in memory: they are inherited, not pickled.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    bond = make_parent_bond()
    others = set(active_children())  # of joblib, which a caller in a notebook may keep
    gc.freeze()  # else each worker's collector would visit, and so copy, what it shares with this process
    decoder = msgspec.msgpack.Decoder(result_type)
    workers = (min(n_workers, len(tasks)), get_context("fork"), _inherit, (function, tasks, bond))
    try:
        with ProcessPoolExecutor(*workers) as pool:
            try:
                for index, found in enumerate([pool.submit(_run_inherited, n) for n in range(len(tasks))]):
                    failed = found.exception()
                    yield index, function(tasks[index]) if failed else decoder.decode(found.result())
            except BaseException:  # else the pool would wait for tasks that are of no use any more
                for child in set(active_children()) - others:
                    child.kill()
                raise
    finally:
        gc.unfreeze()


_inherited: tuple[Callable[[Any], object], Sequence[Any]] | None = None


def _inherit(function: Callable[[Any], object], tasks: Sequence[Any], bond: Callable[[], None]) -> None:
    """Keep, in a worker, what the fork has in memory; Ctrl-C is the parent's to answer."""
    global _inherited
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bond()
    _inherited = function, tasks


def _run_inherited(index: int) -> bytes:
    assert _inherited is not None
    function, tasks = _inherited
    return msgspec.msgpack.encode(function(tasks[index]))


def count_workers(n_jobs: int, n_tasks: int) -> int:
    """Return how many forks may share tasks: no more than jobs, tasks, or cores of this machine."""
    return min(n_jobs, count_forkable_cores(), n_tasks)


def count_forkable_cores() -> int:
    """Return the cores that this process may use; 1 where it cannot be forked safely."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


@contextmanager
def open_runner(backend: Backend, scheduler: str | None, n_workers: int) -> Iterator[RunTasks]:
    """Yield what runs tasks: forks of this process, or a cluster, which is connected to at the first task.

    scheduler: address of Dask's scheduler; None: that of its own environment variable, else as many processes
        on this machine as `n_workers`.
    Running raises ToolError where Dask is not installed, UsageError where the scheduler does not answer.
    """
    with ExitStack() as connections:
        client: Client | None = None

        def run(
            function: Callable[[Task], Result], tasks: Sequence[Task], result_type: type[Result], /
        ) -> Iterator[tuple[int, Result]]:
            nonlocal client
            if backend is Backend.LOCAL:
                return run_in_forks(function, tasks, n_workers, result_type)
            client = client or connections.enter_context(_connect_to_dask(scheduler, n_workers))
            return _run_with_dask(client, function, tasks, result_type)

        yield run


def check_backend(backend: Backend) -> None:
    """Raise ToolError where a package of the backend is missing."""
    if backend is Backend.DASK:
        check_packages(f"--backend {backend}", DASK)


@contextmanager
def _connect_to_dask(scheduler: str | None, n_workers: int) -> "Iterator[Client]":
    check_backend(Backend.DASK)
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
        try:
            client.wait_for_workers(1, timeout=_WAIT_FOR_WORKERS_S)
        except TimeoutError:
            hint = f"start some with `dask worker {address}`"
            raise UsageError(f"--scheduler {address}: it has no worker", hint=hint) from None
        yield client


def _run_with_dask(
    client: "Client", function: Callable[[Task], Result], tasks: Sequence[Task], result_type: type[Result]
) -> Iterator[tuple[int, Result]]:
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    packed = list(map(pack_task, tasks))
    futures = client.map(run_packed_task, [function] * len(tasks), packed, pure=False, retries=0)
    places = {future.key: index for index, future in enumerate(futures)}
    try:
        finished = as_completed(futures, with_results=True, raise_errors=False)  # type: ignore[no-untyped-call]
        for future, result in finished:
            index = places[future.key]
            if future.status == "finished":
                yield index, unpack_result(result, result_type)
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


def pack_task(task: object) -> bytes:
    """Return a task for `run_packed_task`, with the folder and the version of the code of whoever asks."""
    return pickle.dumps((compute_model_fingerprint(), os.getcwd(), pickle.dumps(task)))


def run_packed_task(function: Callable[[Any], object], packed: bytes) -> bytes:
    """Run a task that came from another process; return its result for `unpack_result`.

    An error that a user can cause comes back as a value, with all that it says: ToolError for another version
    of this package and InputError for a folder that is not there among them.
    """
    try:
        fingerprint, folder, task = pickle.loads(packed)
        if fingerprint != compute_model_fingerprint():
            raise ToolError(
                f"{os.uname().nodename} has another version of warplens",
                hint="install the same one everywhere",
            )
        _enter_folder(folder)
        return b"+" + msgspec.msgpack.encode(function(pickle.loads(task)))
    except WarplensError as error:
        return b"-" + pickle.dumps(error)


def _enter_folder(folder: str) -> None:
    if os.getcwd() == folder:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror} on {os.uname().nodename}",
            hint="all machines must see the same files, under the same names",
        ) from None


def unpack_result(result: bytes, result_type: type[Result]) -> Result:
    """Return the result of a task, or raise its error: the cluster is trusted as this machine is."""
    if result[:1] == b"-":
        raise pickle.loads(result[1:])
    return msgspec.msgpack.decode(result[1:], type=result_type)
