import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from executors import ShufflingExecutor
from obbflow.config import TilingSection
from obbflow.data.executors import SerialExecutor, open_executor, run_jobs
from obbflow.errors import ConfigError, DataError


def square(number):
    return number * number


@pytest.mark.parametrize(
    "executor",
    [SerialExecutor(), ThreadPoolExecutor(3), ShufflingExecutor(0, 4)],
    ids=["serial", "threads", "shuffled"],
)
def test_every_job_comes_back_with_its_own_result(executor):
    jobs = list(range(20))
    found = list(run_jobs(executor, square, jobs, at_once=4))
    assert sorted(found) == [(number, number * number) for number in jobs]


def test_no_more_jobs_wait_than_allowed():
    taken = []

    def jobs():
        for number in range(9):
            taken.append(number)
            yield number

    results = run_jobs(SerialExecutor(), square, jobs(), at_once=2)
    next(results)
    assert taken == [0, 1]


@pytest.mark.parametrize("executor", ["process", "thread", "serial"])
def test_named_executors_do_the_work(executor):
    section = TilingSection(executor=executor, num_workers=2)
    with open_executor(section, n_jobs=3) as (chosen, at_once):
        assert sorted(run_jobs(chosen, square, [1, 2, 3], at_once=at_once)) == [
            (1, 1),
            (2, 4),
            (3, 9),
        ]


def end_the_process(_):
    import os

    os._exit(1)


def test_a_worker_that_was_ended_from_outside_is_explained():
    section = TilingSection(num_workers=2)
    with (
        pytest.raises(DataError, match=r"ended from outside.*tiling\.num_workers"),
        open_executor(section, n_jobs=2) as (chosen, at_once),
    ):
        list(run_jobs(chosen, end_the_process, [1, 2], at_once=at_once))


# Dask; distributed is an optional dependency, so a client of the same form stands in for its own


class FakeClient:
    made = ()

    def __init__(self, *address, **settings):
        if address == ("tcp://nobody:8786",):
            raise OSError("timed out")
        FakeClient.made = (address, settings)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def nthreads(self):
        return {"tcp://a:1": 2, "tcp://b:1": 1}

    def get_executor(self):
        return ThreadPoolExecutor(3)


@pytest.fixture
def fake_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=FakeClient))


@pytest.mark.usefixtures("fake_dask")
@pytest.mark.parametrize(
    ("address", "made"),
    [
        ("tcp://host:8786", (("tcp://host:8786",), {})),
        (None, ((), {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None})),
    ],
)
def test_dask_does_the_same_work(address, made):
    section = TilingSection(executor="dask", scheduler_address=address, num_workers=2)
    with open_executor(section, n_jobs=4) as (executor, at_once):
        assert at_once == 6  # two jobs for each of the three threads
        found = sorted(run_jobs(executor, square, [1, 2, 3, 4], at_once=at_once))
    assert found == [(1, 1), (2, 4), (3, 9), (4, 16)]
    assert FakeClient.made == made


@pytest.mark.usefixtures("fake_dask")
def test_a_scheduler_that_does_not_answer_is_named():
    section = TilingSection(executor="dask", scheduler_address="tcp://nobody:8786")
    with (
        pytest.raises(
            ConfigError, match=r"scheduler_address: no Dask .*'tcp://nobody:8786'.*timed"
        ),
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
