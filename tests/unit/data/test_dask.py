"""Tiling with real Dask clusters on this machine."""

import os
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Future, LocalCluster, default_client
from PIL import Image

from obbflow import __version__
from obbflow.config import TilingSection
from obbflow.data import executors
from obbflow.data.executors import SerialExecutor, open_executor, run_jobs
from obbflow.data.tile_pixels import PixelJob, PixelResult, TileJob, cut_or_explain
from obbflow.errors import ConfigError, DataError

SIDE, TILE = 100, 60
DAMAGED = 3


def make_jobs(folder):
    """Write five images, one of them cut off, and return the jobs to make tiles of them."""
    rng = np.random.default_rng(0)
    (folder / "tiles").mkdir()
    jobs = []
    for number in range(5):
        source = folder / f"P{number}.png"
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(source)
        tiles = tuple(
            TileJob(
                str(folder / "tiles" / f"{number}_{x}.png"),
                x,
                40,
                TILE,
                TILE,
                (70, 60),
                (SIDE,) * 2,
            )
            for x in (0, 40)
        )
        jobs.append(
            PixelJob(
                str(number), str(source), SIDE, SIDE, None, (0.1, 99.9), tiles, "png", 95, "4:4:4"
            )
        )
    content = Path(jobs[DAMAGED].source).read_bytes()
    Path(jobs[DAMAGED].source).write_bytes(content[: len(content) // 2])
    return jobs


def cut(executor, at_once, jobs):
    """Return the tiles that an executor writes, and its results in the order of the jobs."""
    folder = Path(jobs[0].tiles[0].file).parent
    results = dict(run_jobs(executor, cut_or_explain, jobs, at_once=at_once))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.unlink()
    return files, [results[job] for job in jobs]


def require_same(executor, at_once, jobs):
    """Compare what an executor does with what this process does alone."""
    files, results = cut(executor, at_once, jobs)
    expected_files, expected = cut(SerialExecutor(), 1, jobs)
    assert len(expected_files) == 8
    assert files == expected_files
    assert [str(result) for result in results] == [str(result) for result in expected]
    kinds = [PixelResult] * 5
    kinds[DAMAGED] = DataError
    assert [type(result) for result in results] == kinds
    assert "P3.png" in str(results[DAMAGED])


@contextmanager
def start_cluster(n_workers):
    """Yield a cluster with a real address, of threads of this process."""
    with LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
    ) as cluster:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        yield cluster


def test_a_cluster_of_processes_cuts_the_same_tiles_and_its_end_is_explained(tmp_path, capfd):
    # These are inside as functions travel by value then: workers cannot import tests.
    def describe_process(_):
        time.sleep(0.02)
        return os.getpid(), os.environ["GDAL_CACHEMAX"]

    def end_process(_):
        os._exit(1)

    def cut_and_end():
        section = TilingSection(executor="dask", num_workers=2)
        with open_executor(section, n_jobs=5) as (executor, at_once):
            assert at_once == 4  # two for each worker
            require_same(executor, at_once, make_jobs(tmp_path))
            done = [
                found for _, found in run_jobs(executor, describe_process, range(20), at_once=20)
            ]
            workers = {process for process, _ in done}
            assert os.getpid() not in workers
            assert len(workers) == 2
            assert {cache for _, cache in done} == {"256"}  # MB: half of 512
            assert not capfd.readouterr().err
            list(run_jobs(executor, end_process, [0], at_once=1))

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        pytest.raises(DataError, match=r"Dask's scheduler or workers were ended from outside"),
    ):
        cut_and_end()


def test_a_cluster_that_runs_already_cuts_the_same_tiles(tmp_path):
    with start_cluster(2) as cluster:
        section = TilingSection(executor="dask", scheduler_address=cluster.scheduler_address)
        with open_executor(section, n_jobs=5) as (executor, at_once):
            assert at_once == 4
            require_same(executor, at_once, make_jobs(tmp_path))
        assert cluster.status.name == "running"  # it is not ours to stop


def test_jobs_that_a_cluster_gives_up_are_explained():
    def give_up():
        client = default_client()
        client.cancel([Future(key, client) for key in client.futures], force=True)

    def wait_in_vain(section):
        with open_executor(section, n_jobs=1) as (executor, _):
            threading.Timer(0.1, give_up).start()
            list(run_jobs(executor, time.sleep, [1], at_once=1))

    with start_cluster(1) as cluster:
        section = TilingSection(executor="dask", scheduler_address=cluster.scheduler_address)
        with pytest.raises(DataError, match=r"Dask's scheduler or workers were ended"):
            wait_in_vain(section)


def test_a_cluster_without_workers_is_named():
    with start_cluster(0) as none:
        section = TilingSection(executor="dask", scheduler_address=none.scheduler_address)
        with (
            pytest.raises(ConfigError, match=r"scheduler at 'tcp.*has no workers.*dask worker tcp"),
            open_executor(section, n_jobs=1),
        ):
            pass


def test_workers_with_another_version_are_named(monkeypatch):
    monkeypatch.setattr(executors, "__version__", "9.8.7")
    with start_cluster(1) as cluster:
        section = TilingSection(executor="dask", scheduler_address=cluster.scheduler_address)
        with (
            pytest.raises(ConfigError, match=rf"worker tcp.* has obbflow {__version__}; .*9\.8\.7"),
            open_executor(section, n_jobs=1),
        ):
            pass


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    assert executors._ANSWER_SECONDS <= 5
    monkeypatch.setattr(executors, "_ANSWER_SECONDS", 0.3)
    section = TilingSection(executor="dask", scheduler_address="tcp://127.0.0.1:9")
    with (
        pytest.raises(ConfigError, match=r"scheduler_address: no Dask .*'tcp://127.0.0.1:9'"),
        open_executor(section, n_jobs=1),
    ):
        pass


def test_missing_dask_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(ConfigError, match=r"tiling\.executor.*pip install 'obbflow\[dask\]'"),
        open_executor(TilingSection(executor="dask"), n_jobs=1),
    ):
        pass
