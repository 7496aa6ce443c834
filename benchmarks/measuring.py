"""Measure ways to the same answer side by side, and show them as tables."""

import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import shapely
import torch
import torchvision

_IMPORTS = ["pandas", "shapely", "torch", "torchvision", "obbflow.ops"]
_ENOUGH_SECONDS = 10.0  # no call is repeated after that time


class Prepared(NamedTuple):
    """A call to measure, on input that is ready."""

    call: Callable[[], Any]
    answer: Callable[[Any], list[float]]
    """Takes what the call returns; gives numbers on which all agree, or none to compare."""


class Measured(NamedTuple):
    """What a call took."""

    seconds: float  # median
    cpu_seconds: float  # median, summed over threads
    megabytes: float  # what the first call added to the process at its peak
    answer: list[float]


class Target(NamedTuple):
    """A figure and its limit."""

    what: str
    figure: float
    at_least: float = -math.inf
    at_most: float = math.inf


def compare(
    prepare: Callable[..., Prepared],
    contenders: dict[str, float],
    settings: Iterable[Sequence[float]],
    *,
    threads: int,
    repeats: int,
) -> pd.DataFrame:
    """Measure contenders in each setting, one process a measurement.

    Args:
        prepare: Makes the call from a contender's name and a setting.
        contenders: Names, and the largest number of boxes that each can be asked to do. The
            first is the one that the others are compared with.
        settings: Further arguments of ``prepare``; the first is the number of boxes.
        threads: Of torch.
        repeats: Calls of which the median is taken; fewer when they take long.

    Returns:
        One row a measurement; column "x" is the time over that of the first contender.

    Raises:
        RuntimeError: If a contender's answer is not that of the first.
    """
    rows = []
    for setting in settings:
        count, first = setting[0], None
        for name in [name for name, most in contenders.items() if count <= most]:
            # A fresh process each, forked from one that has made the imports and nothing else.
            context = get_context("forkserver")
            context.set_forkserver_preload(_IMPORTS)
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                job = partial(prepare, name, *setting)
                found = pool.submit(measure, job, threads, repeats).result()
            first = first or found
            if not agree(found.answer, first.answer):
                raise RuntimeError(f"{name} and {setting}: another answer than the first contender")
            rows.append(
                {
                    "contender": name,
                    "setting": setting,
                    "boxes": count,
                    "seconds": found.seconds,
                    "CPU seconds": found.cpu_seconds,
                    "MB": found.megabytes,
                    "x": found.seconds / first.seconds,
                }
            )
    return pd.DataFrame(rows)


def measure(prepare: Callable[[], Prepared], threads: int, repeats: int) -> Measured:
    """Return time, memory and answer of a call."""
    torch.set_num_threads(threads)
    prepared = prepare()
    before = peak_megabytes()
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    answer, after = None, before
    while len(seconds) < repeats and sum(seconds) < _ENOUGH_SECONDS:
        start, cpu_start = time.perf_counter(), time.process_time()
        result = prepared.call()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
        if answer is None:
            after = peak_megabytes()
            answer = prepared.answer(result)
        del result
    return Measured(
        statistics.median(seconds), statistics.median(cpu_seconds), after - before, answer or []
    )


def agree(answer: list[float], other: list[float]) -> bool:
    """Return whether two answers are the same up to rounding, or one of them is no answer."""
    if not answer or not other:
        return True
    # Tells whole numbers below 50,000, such as kept rows, from each other.
    return len(answer) == len(other) and np.allclose(answer, other, rtol=1e-5, atol=0)


def growth(measured: pd.DataFrame, contender: str, size: str) -> float:
    """Return the power of ``size`` with which a contender's time grows, from its last 3 rows."""
    rows = measured[measured["contender"] == contender].tail(3)
    return float(np.polyfit(np.log(rows[size]), np.log(rows["seconds"]), deg=1)[0])


def last(measured: pd.DataFrame, contender: str, column: str) -> float:
    """Return a figure of a contender in its last row."""
    return float(measured.loc[measured["contender"] == contender, column].iloc[-1])


def ratio(measured: pd.DataFrame, contender: str, other: str) -> float:
    """Return the time of a contender over that of another, in their last rows."""
    return last(measured, contender, "seconds") / last(measured, other, "seconds")


def show(title: str, measured: pd.DataFrame, size: str | None = None) -> None:
    """Print a table, and the power with which time grows with its column ``size``."""
    table = measured.drop(columns="setting")
    print(f"\n{title}\n\n{table.to_string(index=False, float_format='{:.3g}'.format)}")
    if size is not None:
        print(f"\nTime grows with {size} to the power of (last three rows)")
        for name in measured["contender"].unique():
            print(f"  {growth(measured, name, size):5.2f}  {name}")


def judge(targets: Iterable[Target]) -> pd.DataFrame:
    """Return the table of figures, limits and whether they are met."""
    return pd.DataFrame(
        {
            "what": what,
            "figure": f"{figure:.3g}",
            "limit": f">= {at_least:g}" if math.isfinite(at_least) else f"<= {at_most:g}",
            "verdict": "ok" if at_least <= figure <= at_most else "missed",
        }
        for what, figure, at_least, at_most in targets
    )


def describe_machine(threads: int) -> str:
    """Return the processor and the versions that figures depend on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (
        f"{names[0] if names else platform.machine()}, {cpu_count()} cores, {threads} threads; "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"torchvision {torchvision.__version__}, shapely {shapely.__version__}"
    )


def peak_megabytes() -> float:
    """Return the largest resident memory of this process so far.

    Not ``ru_maxrss``: that of a started program begins at the memory of whoever started it.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024 / 1e6
