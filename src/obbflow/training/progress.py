"""How far an epoch is: a bar on a terminal, a log line now and then elsewhere."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

logger = logging.getLogger(__name__)

Mode = Literal["auto", "rich", "plain", "none"]

SECONDS_BETWEEN_LINES = 20.0
_GIB = 2**30


class EpochProgress:
    """Shows the batches of an epoch as they are done."""

    def __init__(self, mode: Mode = "none") -> None:
        """Choose how to show progress.

        Args:
            mode: "auto" is "rich" where the log goes to a terminal, else "plain".
        """
        self._console = log_console()
        is_terminal = self._console is not None and self._console.is_terminal
        self.mode = ("rich" if is_terminal else "plain") if mode == "auto" else mode
        self._bar: Progress | None = None
        self._text = ""
        self._total = self._done = self._images = 0
        self._started = self._last_line = 0.0

    @contextmanager
    def epoch(self, epoch: int, num_epochs: int, batches: int) -> Iterator[None]:
        """Show an epoch of ``batches`` batches while the block runs."""
        self._text, self._total = f"Epoch {epoch}/{num_epochs}", batches
        self._done = self._images = 0
        self._started = self._last_line = time.monotonic()
        if self.mode != "rich":
            yield
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4g}, {task.fields[rate]:.1f} img/s"),
            TextColumn("{task.fields[memory]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._bar.add_task(self._text, total=batches, loss=float("nan"), rate=0.0, memory="")
            yield
        self._bar = None

    def advance(self, batches: int, images: int, loss: float) -> None:
        """Note that ``batches`` more batches are done.

        Args:
            batches: Since the last call.
            images: In these batches.
            loss: Total loss, to be shown.
        """
        self._done += batches
        self._images += images
        now = time.monotonic()
        seconds = max(now - self._started, 1e-9)
        rate = self._images / seconds
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, advance=batches, loss=loss, rate=rate, memory=_memory())
        elif self.mode == "plain" and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = seconds / self._done * (self._total - self._done)
            logger.info(
                "%s: batch %d of %d, loss %.4g, %.1f images/s, %.0f s left%s",
                self._text,
                self._done,
                self._total,
                loss,
                rate,
                left,
                _memory(", "),
            )


def log_console() -> Console | None:
    """Return the console that the log is printed on, so that bar and lines do not mix."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RichHandler):
            return handler.console
    return None


def _memory(before: str = "") -> str:
    """Return the peak of this process and what the device has left, "" without CUDA."""
    if not torch.cuda.is_initialized():
        return ""
    free, total = torch.cuda.mem_get_info()
    peak = torch.cuda.max_memory_allocated()
    return (
        f"{before}max_mem {peak / _GIB:.1f} GiB, free_mem {free / _GIB:.1f}/{total / _GIB:.1f} GiB"
    )
