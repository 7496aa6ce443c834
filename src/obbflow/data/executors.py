"""Who does the work: any ``concurrent.futures.Executor``, and the ones that ``tiling`` names."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from obbflow import __version__
from obbflow.data.images import gdal
from obbflow.errors import ConfigError, DataError

if TYPE_CHECKING:  # a worker imports this module, and starts faster without pydantic
    from obbflow.config import TilingSection

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")

_JOBS_A_WORKER = 2  # waiting or at work at once: bounds memory, and keeps every worker busy
_ANSWER_SECONDS = 5  # that a Dask scheduler has


class SerialExecutor(Executor):
    """Does each job at once, in the thread that submits it."""

    def submit(
        self, fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[ResultT]:
        """Return the future of a call that is over; what it raises is raised here."""
        future: Future[ResultT] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def run_jobs(
    executor: Executor,
    function: Callable[[JobT], ResultT],
    jobs: Sequence[JobT],
    *,
    at_once: int,
) -> Iterator[tuple[JobT, ResultT]]:
    """Yield each job with the result of ``function``, in the order in which they end.

    Args:
        executor: Any executor; a job and its result can be pickled if it needs that.
        function: What to do with a job, at the top level of a module.
        jobs: All jobs.
        at_once: Jobs that are submitted and not yet over.

    Raises:
        DataError: If a worker was ended from outside.
    """
    waiting = iter(jobs)
    pending: dict[Future[ResultT], JobT] = {}
    try:
        while True:
            for job in islice(waiting, at_once - len(pending)):
                pending[executor.submit(function, job)] = job
            if not pending:
                return
            ended, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in ended:
                yield pending.pop(future), future.result()
    except BrokenExecutor as error:
        raise DataError(
            "a tiling process was ended from outside, most likely because memory ran out: lower "
            "tiling.num_workers"
        ) from error
    finally:
        for future in pending:
            future.cancel()


@contextlib.contextmanager
def open_executor(tiling: "TilingSection", n_jobs: int) -> Iterator[tuple[Executor, int]]:
    """Yield the executor of a section and how many jobs it takes at once; shut it down after.

    Args:
        tiling: Section ``tiling``: ``executor``, ``num_workers``, ``scheduler_address``.
        n_jobs: Number of jobs: no more workers are started.

    Raises:
        ConfigError: If Dask is not installed, its scheduler cannot be reached, or it has no workers
            or some without this version of obbflow.
        DataError: If Dask gave a job up, as its scheduler or the workers that had it ended.
    """
    workers = max(1, min(tiling.num_workers or _count_cores(), n_jobs))
    if tiling.executor == "dask":
        with _open_dask(tiling.scheduler_address, workers) as (executor, n_threads):
            yield executor, _JOBS_A_WORKER * n_threads
        return
    with _start(tiling.executor, workers) as executor:
        yield executor, 1 if tiling.executor == "serial" else _JOBS_A_WORKER * workers


def _start(kind: str, workers: int) -> Executor:
    if kind == "serial" or workers == 1:
        return SerialExecutor()
    if kind == "thread":
        return ThreadPoolExecutor(workers)
    context = multiprocessing.get_context("spawn")  # forking after torch has started can lock up
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(workers,))


@contextlib.contextmanager
def _open_dask(address: str | None, workers: int) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of the cluster at ``address``, or of processes here, and its threads."""
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise ConfigError(
            "tiling.executor: dask needs the package distributed: pip install 'obbflow[dask]', or "
            "set it to process"
        ) from error
    with _connect(Client, address, workers) as client:
        if address is None:
            client.run(gdal.share_cache, workers)
        else:
            _require_our_workers(client, address)
        n_threads = sum(client.nthreads().values())
        with client.get_executor() as executor:
            try:
                yield executor, n_threads
            except (KilledWorker, CancelledError) as error:
                raise DataError(
                    "Dask's scheduler or workers were ended from outside, most likely because "
                    "memory ran out: give them more, or start fewer on a machine"
                ) from error


def _connect(client: Any, address: str | None, workers: int) -> Any:  # noqa: ANN401 - optional
    """Return a client of the cluster at ``address``, or of processes on this machine."""
    if address is None:
        return client(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # a free port: Dask warns where its usual one is taken
            scheduler_kwargs={"dashboard": False},
        )
    try:
        return client(address, timeout=_ANSWER_SECONDS)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tiling.scheduler_address: no Dask scheduler answers at {address!r} ({error}); start "
            "one with: dask scheduler"
        ) from error


def _require_our_workers(client: Any, address: str) -> None:  # noqa: ANN401 - optional
    """Raise ConfigError if a cluster has no workers, or some that Dask would wait for for ever."""
    from importlib.metadata import version as find_version  # not at the top: workers start faster

    versions = client.run(find_version, "obbflow", on_error="return")
    if not versions:
        raise ConfigError(
            f"tiling.scheduler_address: the Dask scheduler at {address!r} has no workers; start "
            f"some with: dask worker {address}"
        )
    for worker, version in versions.items():
        if version != __version__:
            raise ConfigError(
                f"tiling.scheduler_address: the Dask worker {worker} has obbflow {version!s:.100}; "
                f"install {__version__} there, as here"
            )


def _begin(workers: int) -> None:
    """Prepare a worker, one of so many."""
    gdal.share_cache(workers)
    _end_with_parent()


def _end_with_parent() -> None:
    """End this worker when its parent is killed: it would wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_exit, args=(parent,), daemon=True).start()


def _wait_and_exit(parent: Any) -> None:  # noqa: ANN401 - a private class of multiprocessing
    parent.join()
    os._exit(1)


def _count_cores() -> int:
    """Return the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
