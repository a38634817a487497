"""Work sent to the machines of a cluster: Dask's scheduler, or Ray through joblib.

A task and its result are bytes, which a cluster passes on without looking at them. A task may be run twice,
on any machine: one whose worker dies is given to another, and one that kills a worker each time is an error
that names no more than the task, since nobody else may know what it is.

Dask is asked directly, not by joblib's backend of that name, which waits for ever for a task that Dask has
given up.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from analyzer.pipeline.options import Backend
from analyzer.text.errors import ToolError, UsageError, WarplensError

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_TIMEOUT_S = 10
_WAIT_FOR_WORKERS_S = 30
_INSTALL_DASK = "pip install 'warplens[cluster]'"
TaskFunction = Callable[[bytes], bytes]


# Yields the index of each task with its result, as they come. Raises ToolError for a task that no worker
# survives, and what the function raises.
RunTasks = Callable[[TaskFunction, Sequence[bytes]], Iterator[tuple[int, bytes]]]


@contextmanager
def connect(backend: Backend, scheduler: str | None, n_workers: int) -> Iterator[RunTasks]:
    """Yield a function that runs tasks; its function must be of a module that the workers can import.

    scheduler: address of Dask's or Ray's scheduler; None: that of its own environment variable, else as many
        processes on this machine as `n_workers`.
    Raises UsageError where the backend is not installed or the scheduler does not answer.
    """
    if backend is Backend.DASK:
        with _connect_to_dask(scheduler, n_workers) as client:
            yield partial(_run_with_dask, client)
    else:
        _connect_to_ray(scheduler, n_workers)
        yield _run_with_ray


@contextmanager
def _connect_to_dask(scheduler: str | None, n_workers: int) -> "Iterator[Client]":
    try:
        from dask import config
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise UsageError(f"--backend dask: {error.name} is not installed", hint=_INSTALL_DASK) from None
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


def _connect_to_ray(scheduler: str | None, n_workers: int) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise UsageError(f"--backend ray: {error.name} is not installed", hint="pip install ray") from None
    if not ray.is_initialized():
        try:
            is_running = scheduler or os.environ.get("RAY_ADDRESS")
            ray.init(address=scheduler, log_to_driver=False, num_cpus=None if is_running else n_workers)
        except (ConnectionError, OSError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"--scheduler {scheduler}: no head of Ray answers there ({type(error).__name__})",
                hint="start one with `ray start --head`",
            ) from None
    register_ray()


def _run_with_ray(function: TaskFunction, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="ray"):
        pool = Parallel(n_jobs=-1, batch_size=1)
        results = pool(delayed(_run_safely)(function, task) for task in tasks)
    yield from ((index, _open(result)) for index, result in enumerate(results))


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
