"""One epoch of training: every batch once, in optimizer steps of several batches."""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from obbflow.config import TrainingSection
from obbflow.training.device import Runtime
from obbflow.training.metrics import MetricTracker, Row
from obbflow.training.optimizer import parameters_by_component
from obbflow.training.progress import EpochProgress
from obbflow.training.schedules import LearningRateSchedule
from obbflow.training.steps import (
    TOTAL,
    LossGuard,
    StepResult,
    Window,
    accumulate,
    apply_gradients,
)
from obbflow.training.tensorboard import TensorboardLog

logger = logging.getLogger(__name__)


@dataclass
class EpochTools:
    """What an epoch works with beside model, data and optimizer; the defaults suit a notebook."""

    runtime: Runtime = field(default_factory=Runtime)
    scaler: torch.amp.GradScaler | None = None
    guard: LossGuard | None = None
    progress: EpochProgress = field(default_factory=EpochProgress)
    events: TensorboardLog | None = None


def train_one_epoch(
    model: nn.Module,
    loader: Any,  # noqa: ANN401  (a DataLoader of (images, targets) lists)
    optimizer: Optimizer,
    scheduler: LearningRateSchedule | None,
    training: TrainingSection,
    *,
    epoch: int = 1,
    tools: EpochTools | None = None,
) -> Row:
    """Train ``model`` on every batch of ``loader`` once, and return the averages of this epoch.

    An optimizer step follows every ``gradient_accumulation_steps`` batches, and one more the rest,
    with the gradient of the mean of its own batches' losses. The scheduler moves on at each of
    them, also where a step is dropped because a loss or gradient is not finite.

    Args:
        model: On the device of ``tools.runtime``.
        loader: Has a length; its samplers or data set may have ``set_epoch``, as the model.
        optimizer: Over the trainable parameters of ``model``.
        scheduler: Moved on by one an optimizer step; None: constant rates.
        training: Accumulation, clipping, loss weights, non-finite limit.
        epoch: From 1.
        tools: Device, scaler, progress; the default computes in float32 on the CPU.

    Returns:
        ``train/total_loss`` and ``train/<loss>`` (averages over images), ``lr`` and its range over
        the groups at the last step, ``grad_norm_*`` before clipping, ``nonfinite_steps``,
        ``images_per_second`` and ``data_wait_share``. What could not be computed is absent.

    Raises:
        TrainingError: If ``max_nonfinite_steps`` steps in a row are not finite.
    """
    tools = tools or EpochTools()
    guard = tools.guard or LossGuard(training.max_nonfinite_steps)
    model.train()
    _set_epoch(model, loader, epoch)
    parts = parameters_by_component(model)
    losses, norms = MetricTracker(), MetricTracker()
    images = dropped = 0
    sizes = _window_sizes(len(loader), training.gradient_accumulation_steps)
    batches = _TimedBatches(loader)
    started = time.perf_counter()
    with tools.progress.epoch(epoch, training.num_epochs, len(loader)):
        for step, size in enumerate(sizes, start=1):
            window = Window(
                islice(batches, size), size, f"epoch {epoch}, step {step}", _tile_ids(loader)
            )
            optimizer.zero_grad(set_to_none=True)
            rates = [float(group["lr"]) for group in optimizer.param_groups]
            result = accumulate(model, window, tools.runtime, tools.scaler, training.loss_weights)
            _finish_step(result, window, optimizer, parts, training, tools.scaler, guard)
            if scheduler is not None:
                scheduler.step()
            dropped += result.problem is not None
            images += result.images
            for values, weight in result.losses:
                losses.update(values, weight)
            if result.problem is None:
                norms.update(result.norms)
            tools.progress.advance(size, result.images, _shown_loss(losses))
            if tools.events is not None:
                tools.events.log_step((epoch - 1) * len(sizes) + step, result, rates)
    seconds = time.perf_counter() - started
    row: Row = {f"train/{name}": value for name, value in losses.summary().items()}
    row |= {"lr": rates[0], "lr_min": min(rates), "lr_max": max(rates)}
    row |= _norm_columns(norms)
    row |= {"nonfinite_steps": dropped, "images_per_second": images / seconds}
    return {**row, "data_wait_share": batches.waited / seconds}


def steps_per_epoch(batches: int, training: TrainingSection) -> int:
    """Return the optimizer steps of an epoch of ``batches`` batches, the last partial one too."""
    return len(_window_sizes(batches, training.gradient_accumulation_steps))


class _TimedBatches:
    """Iterates over a loader once and adds up the seconds spent waiting for it."""

    def __init__(self, loader: Any) -> None:  # noqa: ANN401
        started = time.perf_counter()
        self._batches = iter(loader)
        self.waited = time.perf_counter() - started

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        started = time.perf_counter()
        try:
            return next(self._batches)
        finally:
            self.waited += time.perf_counter() - started


def _finish_step(
    result: StepResult,
    window: Window,
    optimizer: Optimizer,
    parts: Mapping[str, list[nn.Parameter]],
    training: TrainingSection,
    scaler: torch.amp.GradScaler | None,
    guard: LossGuard,
) -> None:
    """Take the step, or note in ``result`` and ``guard`` why it is not taken."""
    if result.problem is None:
        result.norms = apply_gradients(optimizer, scaler, parts, training.max_grad_norm)
        bad = [name for name, norm in result.norms.items() if not math.isfinite(norm)]
        if bad:
            result.problem = f"{window.name}: gradient of {', '.join(bad)}"
    else:
        optimizer.zero_grad(set_to_none=True)
    if result.problem is None:
        guard.stepped()
        return
    # A scaler looks for its scale by overflowing: that is no news.
    level = logging.DEBUG if scaler and result.norms else logging.WARNING
    logger.log(level, "Not finite, no optimizer step: %s", result.problem)
    guard.dropped(result.problem)


def _window_sizes(batches: int, accumulation: int) -> list[int]:
    """Return how many batches each optimizer step takes; the last may take fewer."""
    return [min(accumulation, batches - start) for start in range(0, batches, accumulation)]


def _set_epoch(model: nn.Module, loader: Any, epoch: int) -> None:  # noqa: ANN401
    """Tell the model and every part of a loader which epoch comes, if they want to know."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    parts = (
        getattr(model, "module", model),  # DistributedDataParallel hides what it wraps
        loader,
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
        getattr(loader, "dataset", None),
    )
    for part in parts:
        set_epoch = getattr(part, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)


def _tile_ids(loader: Any) -> list[str]:  # noqa: ANN401
    return list(getattr(getattr(loader, "dataset", None), "tile_ids", ()))


def _shown_loss(losses: MetricTracker) -> float:
    return losses.average(TOTAL, window=20) if TOTAL in losses else float("nan")


def _norm_columns(norms: MetricTracker) -> Row:
    """Return mean and maximum of the gradient norm, and the mean of each component."""
    if "total" not in norms:
        return {}
    means = norms.summary()
    row: Row = {"grad_norm_mean": means.pop("total"), "grad_norm_max": norms.largest("total")}
    return row | {f"grad_norm_mean_{name}": value for name, value in means.items()}
