"""Who does the work: any ``concurrent.futures.Executor``, and the ones that ``tiling`` names."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from obbflow.errors import ConfigError, DataError

if TYPE_CHECKING:  # a worker imports this module, and starts faster without pydantic
    from obbflow.config import TilingSection

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")

_JOBS_A_WORKER = 2  # waiting or at work at once: bounds memory, and keeps every worker busy


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
        ConfigError: If Dask is not installed, or its scheduler cannot be reached.
    """
    workers = max(1, min(tiling.num_workers or _count_cores(), n_jobs))
    if tiling.executor == "dask":
        with _connect(tiling.scheduler_address, workers) as client:
            n_threads = sum(client.nthreads().values())
            with client.get_executor() as executor:
                yield executor, _JOBS_A_WORKER * max(1, n_threads)
        return
    with _start(tiling.executor, workers) as executor:
        yield executor, 1 if tiling.executor == "serial" else _JOBS_A_WORKER * workers


def _start(kind: str, workers: int) -> Executor:
    if kind == "serial" or workers == 1:
        return SerialExecutor()
    if kind == "thread":
        return ThreadPoolExecutor(workers)
    context = multiprocessing.get_context("spawn")  # forking after torch has started can lock up
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)


def _connect(address: str | None, workers: int) -> Any:  # noqa: ANN401 - distributed is optional
    """Return a client of the cluster at ``address``, or of processes on this machine."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(
            "tiling.executor: dask needs the package distributed: pip install 'obbflow[dask]', or "
            "set it to process"
        ) from error
    if address is None:
        return Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    try:
        return Client(address)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tiling.scheduler_address: no Dask scheduler answers at {address!r} ({error}); start "
            "one with: dask scheduler"
        ) from error


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
