"""The benchmark of operations, small, and the arithmetic behind its figures."""

import re
import subprocess
import sys

import pandas as pd
import pytest


@pytest.fixture
def measuring(project_root, monkeypatch):
    """The module that measures, which lies outside the package."""
    monkeypatch.syspath_prepend(project_root / "benchmarks")
    import measuring

    return measuring


@pytest.fixture
def run(project_root):
    """Run the benchmark with one thread."""

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "benchmarks/ops.py", "--threads", "1", *arguments],
            cwd=project_root,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def test_small_benchmark_measures_every_contender_and_lists_every_figure(run):
    finished = run("--quick")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    _, output = finished.stdout.split("\n", maxsplit=1)  # the machine
    tables, figures = output.split("Figures and limits")
    measured = re.findall(r"^ *([^\d\n]+?) +\d+ .* (\d[\d.e+-]*)$", tables, re.MULTILINE)
    times = {name: float(over_first) for name, over_first in measured}
    assert times.keys() == {
        *("ours, sparse", "ours, table", "torchvision, table", "shapely, R-tree", "Python loop"),
        *("ours", "greedy, our table", "greedy, torchvision's table"),
        *("ours, level", "ours, level, channels last"),
        *("ours, any angle", "ours, any angle, channels last"),
        *("torchvision, level", "torchvision, level, channels last"),
    }
    assert all(time > 0 for time in times.values())
    assert len(re.findall(r"[<>]= [\d.]+$", figures, re.MULTILINE)) == 13


def test_an_operation_that_is_not_there_is_refused(run):
    finished = run("--only", "nms,soft_nms")
    assert finished.returncode == 2
    assert "--only knows iou, nms, roi_align, not soft_nms" in finished.stderr


def test_growth_is_the_power_of_the_last_three_rows(measuring):
    sizes = pd.Series([1.0, 10.0, 20.0, 40.0])
    seconds = 3 * sizes**1.5
    seconds[0] = 100.0  # small sizes say nothing about growth
    rows = pd.DataFrame({"contender": "ours", "boxes": sizes, "seconds": seconds})
    other = rows.assign(contender="peer", seconds=sizes)
    measured = pd.concat([rows, other])
    assert measuring.growth(measured, "ours", "boxes") == pytest.approx(1.5)
    assert measuring.growth(measured, "peer", "boxes") == pytest.approx(1)
    assert measuring.ratio(measured, "ours", "peer") == pytest.approx(3 * 40**0.5)


ALLOCATE = """
from measuring import Prepared, measure

def prepare():
    held = bytearray(b"x") * 200_000_000
    return Prepared(lambda: bytearray(b"x") * 300_000_000 + held[:1], lambda made: [len(made)])

found = measure(prepare, threads=1, repeats=2)
print(found.megabytes, found.answer)
"""


def test_memory_is_what_the_first_call_adds(project_root):
    ours = bytearray(b"x") * 1_500_000_000  # a large parent must not count
    finished = subprocess.run(
        [sys.executable, "-c", ALLOCATE],
        cwd=project_root / "benchmarks",
        capture_output=True,
        text=True,
        check=True,
    )
    del ours
    megabytes, answer = finished.stdout.split()
    assert float(megabytes) == pytest.approx(600, abs=30)  # 300 MB, and a copy with one byte more
    assert answer == "[300000001]"


@pytest.mark.parametrize(
    ("answer", "is_same"),
    [([49_999, 49_999], True), ([49_999, 49_998], False), ([49_999], False), ([], True)],
)
def test_answers_are_compared_row_by_row(measuring, answer, is_same):
    assert measuring.agree(answer, [49_999, 49_999]) is is_same


def test_limits_are_judged_from_their_own_side(measuring):
    figures = measuring.judge(
        [
            measuring.Target("faster", 3.0, at_least=3),
            measuring.Target("slower", 2.9, at_least=3),
            measuring.Target("small", 2.0, at_most=2),
            measuring.Target("large", 2.1, at_most=2),
        ]
    )
    assert figures["verdict"].tolist() == ["ok", "missed", "ok", "missed"]
    assert figures["limit"].tolist() == [">= 3", ">= 3", "<= 2", "<= 2"]
