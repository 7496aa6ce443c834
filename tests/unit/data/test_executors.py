from concurrent.futures import ThreadPoolExecutor

import pytest

from executors import ShufflingExecutor
from obbflow.config import TilingSection
from obbflow.data.executors import SerialExecutor, open_executor, run_jobs
from obbflow.errors import DataError


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
