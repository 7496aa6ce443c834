"""Progress of long loops: a bar on a terminal, a log line now and then elsewhere."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 10.0


def track(items: Iterable[T], total: int, description: str) -> Iterator[T]:
    """Yield ``items`` and show how far the loop over them is.

    Args:
        items: What to loop over.
        total: How many items there are.
        description: What is done to them: "Cutting tiles".

    Yields:
        The items, in order. Loops shorter than ten seconds leave no line in the log.
    """
    if sys.stderr.isatty():
        yield from _show_bar(items, total, description)
        return
    last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            logger.info("%s: %s of %s", description, f"{done:,}", f"{total:,}")


def _show_bar(items: Iterable[T], total: int, description: str) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total=total, description=description)
