"""The training loop over epochs: train, validate, save, log."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from obbflow.config import (
    CheckpointSection,
    EvaluationSection,
    TensorboardSection,
    TrainingSection,
)
from obbflow.errors import TrainingError
from obbflow.training.best import BestRule, choose_best_rule
from obbflow.training.checkpoints import LAST, CheckpointManager, read_checkpoint
from obbflow.training.device import Runtime, torch_settings
from obbflow.training.epoch import EpochTools, steps_per_epoch, train_one_epoch
from obbflow.training.metrics import MetricsCsv, Row
from obbflow.training.optimizer import build_optimizer
from obbflow.training.progress import EpochProgress
from obbflow.training.schedules import build_scheduler
from obbflow.training.state import BestMark, TrainingState, is_better, seed_everything
from obbflow.training.status import update_status
from obbflow.training.steps import LossGuard
from obbflow.training.tensorboard import TensorboardLog
from obbflow.training.validate import predict_dataset, score_detections

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.csv"


@dataclass(frozen=True)
class LoopSettings:
    """The sections that the loop reads, and the seed."""

    training: TrainingSection = field(default_factory=TrainingSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    tensorboard: TensorboardSection = field(default_factory=TensorboardSection)
    seed: int = 0
    deterministic: bool = False


@dataclass(frozen=True)
class TrainingOutcome:
    """What a finished training leaves.

    Attributes:
        history: One row an epoch, resumed epochs included.
        best: The best epoch; None when no epoch had a finite value of the metric.
        best_checkpoint: File with its weights, None likewise.
        last_checkpoint: Full state of the last epoch.
    """

    history: list[Row]
    best: BestMark | None
    best_checkpoint: Path | None
    last_checkpoint: Path


def train(
    model: nn.Module,
    train_loader: Any,  # noqa: ANN401  (a DataLoader of (images, targets) lists)
    run_dir: Path,
    settings: LoopSettings,
    *,
    runtime: Runtime | None = None,
    val_loader: Any = None,  # noqa: ANN401
    about: Mapping[str, Any] | None = None,
    resume: Path | None = None,
) -> TrainingOutcome:
    """Train ``model`` for ``settings.training.num_epochs`` epochs, counted from the very first.

    After each epoch ``run_dir`` holds ``last.pt``, ``best.pt``, ``metrics.csv`` and ``status.json``
    of that epoch, each replaced at once: a run killed at any moment continues from there, and on
    a CPU gives the weights and metrics that it would have given uninterrupted.

    Args:
        model: In training mode it takes (images, targets) and returns a dictionary of losses, in
            evaluation mode it takes images and returns one ``Detections`` each.
        train_loader: Its samplers or data set may have ``set_epoch``.
        run_dir: Folder of this run; made when it is missing.
        settings: Sections and seed.
        runtime: Device and precision, None: CPU, float32.
        val_loader: Over a `obbflow.training.validate.TileSource`; None: no validation.
        about: Plain data for every checkpoint (class map, configuration, versions).
        resume: Full checkpoint to continue from.

    Raises:
        ConfigError: If the schedule, ``checkpoint.best_metric`` or a loss weight cannot work.
        CheckpointError: If ``resume`` cannot be read or does not fit.
        TrainingError: If there is no batch, losses stay non-finite, or the disk is full.
    """
    runtime = runtime or Runtime()
    batches = len(train_loader)
    if batches == 0:
        raise TrainingError("training: the loader gives no batch. Check the training split.")
    rule = choose_best_rule(settings.checkpoint, settings.evaluation, _classes_of(val_loader))
    if runtime.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(runtime.device)
    with torch_settings(runtime, deterministic=settings.deterministic):
        state = _start_state(runtime.place(model), settings.training, runtime, batches)
        if resume is not None:
            steps = steps_per_epoch(batches, settings.training)
            state.restore(read_checkpoint(resume), resume, steps_per_epoch=steps)
            _settle_best(state, CheckpointManager(run_dir), rule)
        run = _Run(run_dir, settings, rule, dict(about or {}), state)
        try:
            for epoch in range(state.epoch + 1, settings.training.num_epochs + 1):
                run.train_epoch(epoch, train_loader, val_loader, runtime)
        finally:
            run.close()
    return run.outcome()


class _Run:
    """One run over its epochs: state, files and logs."""

    def __init__(
        self,
        run_dir: Path,
        settings: LoopSettings,
        rule: BestRule,
        about: dict[str, Any],
        state: TrainingState,
    ) -> None:
        self.settings, self.rule, self.about, self.state = settings, rule, about, state
        self.run_dir = run_dir
        self.checkpoints = CheckpointManager(run_dir, settings.checkpoint.keep_last_n)
        self.checkpoints.remove_scratch()
        self.metrics = _open_metrics(run_dir, state)
        self.progress = EpochProgress(settings.training.progress_bar)
        self.events = TensorboardLog.open(
            run_dir / "tensorboard", settings.tensorboard, first_step=state.scheduler.position + 1
        )
        self.durations: list[float] = []

    def train_epoch(
        self,
        epoch: int,
        train_loader: Any,  # noqa: ANN401
        val_loader: Any,  # noqa: ANN401
        runtime: Runtime,
    ) -> None:
        """Train, validate, save and log one epoch."""
        state, training = self.state, self.settings.training
        started = time.perf_counter()
        seed_everything(self.settings.seed, epoch)
        tools = EpochTools(runtime, state.scaler, state.guard, self.progress, self.events)
        trained = train_one_epoch(
            state.model,
            train_loader,
            state.optimizer,
            state.scheduler,
            training,
            epoch=epoch,
            tools=tools,
        )
        validated = self._validate(epoch, val_loader, runtime)
        row: Row = {"epoch": epoch, **trained, **validated}
        row["epoch_seconds"] = time.perf_counter() - started
        state.epoch = epoch
        state.history.append(row)
        self._save(row)
        if runtime.device.type == "cuda":
            torch.cuda.empty_cache()  # validation and training need blocks of other sizes
        self.durations.append(time.perf_counter() - started)
        self._report(row)

    def outcome(self) -> TrainingOutcome:
        """Return what the run leaves."""
        return TrainingOutcome(
            history=list(self.state.history),
            best=self.state.best,
            best_checkpoint=self.checkpoints.best if self.state.best else None,
            last_checkpoint=self.run_dir / LAST,
        )

    def close(self) -> None:
        """Close the event files."""
        if self.events is not None:
            self.events.close()

    def _validate(self, epoch: int, val_loader: Any, runtime: Runtime) -> Row:  # noqa: ANN401
        """Return the validation columns; empty for an epoch that is not scored."""
        if val_loader is None or not is_scored(epoch, self.settings):
            return {}
        started = time.perf_counter()
        detections = predict_dataset(
            self.state.model,
            val_loader,
            val_loader.dataset,
            runtime.device,
            autocast_dtype=runtime.autocast_dtype,
        )
        scores = score_detections(detections, val_loader.dataset, self.settings.evaluation)
        if self.events is not None:
            threshold = self.settings.tensorboard.vis_score_threshold
            if threshold is None:
                threshold = self.settings.evaluation.score_threshold
            shown = detections[detections["score"] >= threshold]
            self.events.log_images(epoch, val_loader.dataset, shown)
        row: Row = {f"val/{name}": value for name, value in scores.items()}
        return {**row, "validation_seconds": time.perf_counter() - started}

    def _save(self, row: Row) -> None:
        """Write the checkpoints and the metrics of the epoch that has ended, best first.

        A run killed in between repeats the epoch from the former ``last.pt`` and writes the same
        best file again.
        """
        state, value = self.state, row.get(self.rule.metric)
        if is_better(value, state.best, higher_is_better=self.rule.higher_is_better):
            state.best = BestMark(self.rule.metric, float(value or 0), state.epoch)
            self.checkpoints.save_best({**state.model_content(), **self.about})
        self.checkpoints.save({**state.full_content(), **self.about})
        self.metrics.append(row)
        best = asdict(state.best) if state.best else None
        update_status(self.run_dir, epoch=state.epoch, best=best)

    def _report(self, row: Row) -> None:
        """Log the epoch in one line and to TensorBoard."""
        if self.events is not None:
            self.events.log_epoch(row)
        epoch, total = self.state.epoch, self.settings.training.num_epochs
        loss, score = row.get("train/total_loss"), row.get("val/mAP")
        left = sum(self.durations) / len(self.durations) * (total - epoch)
        logger.info(
            "Epoch %d/%d: loss %s%s, rate %.3g, %.1f images/s, %.1f s, about %.0f s left%s",
            epoch,
            total,
            "not finite" if loss is None else f"{loss:.4f}",
            "" if score is None else f", mAP {score:.4f}",
            row["lr"],
            row["images_per_second"],
            row["epoch_seconds"],
            left,
            " (best so far)" if self.state.best and self.state.best.epoch == epoch else "",
        )


def is_scored(epoch: int, settings: LoopSettings) -> bool:
    """Return whether ``epoch`` is validated: a multiple of the interval, or the last epoch."""
    every = settings.evaluation.compute_map_every_n_epochs
    return every > 0 and (epoch % every == 0 or epoch == settings.training.num_epochs)


def _start_state(
    model: nn.Module, training: TrainingSection, runtime: Runtime, batches: int
) -> TrainingState:
    """Return the state before epoch 1."""
    optimizer = build_optimizer(model, training)
    return TrainingState(
        model=model,
        optimizer=optimizer,
        scheduler=build_scheduler(optimizer, training, steps_per_epoch(batches, training)),
        scaler=runtime.make_scaler(),
        guard=LossGuard(training.max_nonfinite_steps),
    )


def _open_metrics(run_dir: Path, state: TrainingState) -> MetricsCsv:
    """Return the metrics file; what the state knows of its epochs wins over what the file holds."""
    path = run_dir / METRICS_FILE
    metrics = MetricsCsv.resume(path, state.epoch)
    if state.history:
        metrics.rows = list(state.history)
        metrics.write()
    return metrics


def _settle_best(state: TrainingState, checkpoints: CheckpointManager, rule: BestRule) -> None:
    """Make ``best.pt`` and the best mark of a restored state speak of the same epoch and metric.

    A run killed between its two files, or continued from an older epoch, has a best file that is
    younger than the state. Values of different metrics cannot be compared.
    """
    if state.best is None:
        return
    if state.best.metric != rule.metric:
        logger.warning(
            "The best epoch so far (%d) was chosen by %s, now %s decides: the best epoch is chosen "
            "anew among those that follow",
            state.best.epoch,
            state.best.metric,
            rule.metric,
        )
        state.best = None
        return
    source = checkpoints.best_of(state.best.epoch)
    if source is not None:
        checkpoints.adopt_best(source)
        return
    logger.warning(
        "The weights of the best epoch so far (%d, %s %.4f) are gone: the best epoch is chosen "
        "anew among those that follow",
        state.best.epoch,
        state.best.metric,
        state.best.value,
    )
    state.best = None


def _classes_of(val_loader: Any) -> list[str] | None:  # noqa: ANN401
    return None if val_loader is None else list(val_loader.dataset.class_names)
