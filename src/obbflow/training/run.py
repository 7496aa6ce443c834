"""A whole training run in its own folder: what the node ``train_detector`` does."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader

from obbflow.config import (
    CheckpointSection,
    DataLoaderSection,
    DatasetSection,
    EvaluationSection,
    ExperimentSection,
    LossSection,
    ModelSection,
    PathsSection,
    PreprocessingSection,
    TensorboardSection,
    TilingSection,
    TrainingSection,
)
from obbflow.data.class_weights import class_weight_vector
from obbflow.data.hard_tiles import weigh_tiles
from obbflow.data.loader import build_loader
from obbflow.data.sampler import EpochSampler
from obbflow.data.tile_dataset import TileDataset
from obbflow.data.transforms import EvalTransform, TrainTransform
from obbflow.errors import CheckpointError
from obbflow.models import build_model, load_checkpoint
from obbflow.training.checkpoints import CheckpointManager, peek_checkpoint
from obbflow.training.device import Runtime, detect_hardware, resolve_runtime
from obbflow.training.loop import METRICS_FILE, LoopSettings, TrainingOutcome, train
from obbflow.training.metrics import MetricsCsv
from obbflow.training.record import data_hash, describe_environment, describe_results
from obbflow.training.start import Request, Start, check_fit, choose_start, compare_settings
from obbflow.training.state import seed_everything
from obbflow.training.status import (
    FAILED,
    FINISHED,
    RUNNING,
    configuration_hash,
    read_json,
    read_status,
    run_lock,
    update_status,
    write_json,
)

logger = logging.getLogger(__name__)

RECORD_FILE = "run_record.json"


@dataclass(frozen=True)
class TrainingData:
    """The tables that a training needs, by their catalog names."""

    tile_index: pd.DataFrame
    tile_annotations: pd.DataFrame
    class_map: Mapping[str, int]
    class_weights: pd.DataFrame


@dataclass(frozen=True)
class RunSections:
    """The configuration sections that a training reads."""

    paths: PathsSection
    experiment: ExperimentSection
    dataset: DatasetSection
    tiling: TilingSection  # the checkpoint says how large its tiles were: inference cuts the same
    preprocessing: PreprocessingSection
    data_loader: DataLoaderSection
    model: ModelSection
    loss: LossSection
    training: TrainingSection
    evaluation: EvaluationSection
    checkpoint: CheckpointSection
    tensorboard: TensorboardSection

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return every key of every section as plain data."""
        sections = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: section.model_dump(mode="json") for name, section in sections.items()}


@dataclass(frozen=True)
class RunResult:
    """What a run leaves for the catalog."""

    metrics: pd.DataFrame
    best_checkpoint: Path
    last_checkpoint: Path
    record: dict[str, Any]


def run_training(data: TrainingData, sections: RunSections, run_id: str) -> RunResult:
    """Train a detector in ``paths.runs/<run id>``, or continue an earlier run.

    Args:
        data: Tiles, labels, classes and their weights.
        sections: The configuration; ``checkpoint`` says where to start.
        run_id: Name of the run directory.

    Returns:
        One row an epoch, the checkpoints, and the run record. When the run that is continued is
        complete, its results as they are.

    Raises:
        ObbflowError: For whatever the user can set right; the run directory says "failed".
    """
    plain = sections.as_dict()
    hash_of_data = data_hash(data.tile_index, data.tile_annotations, data.class_map)
    fingerprint = configuration_hash(plain, hash_of_data)
    start = choose_start(
        Request(
            runs=sections.paths.runs,
            run_id=run_id,
            checkpoint=sections.checkpoint,
            training=sections.training,
            sections=plain,
            data_hash=hash_of_data,
            fingerprint=fingerprint,
        )
    )
    if start.is_complete:
        return load_result(start.run_dir)
    for path in (start.resume, start.weights):
        if path is not None:
            check_fit(path, data.class_map, sections.checkpoint)
    if start.resume is not None:
        compare_settings(start.resume, plain, hash_of_data)
    hardware = detect_hardware()
    runtime = resolve_runtime(sections.training, hardware)
    now = _now()
    record = {
        "run_id": start.run_dir.name,
        "resumed_from": start.resumed_from,
        "started": (read_status(start.run_dir) or {}).get("started", now),
        "session_started": now,
        "configuration": plain,
        "configuration_hash": fingerprint,
        "data_hash": hash_of_data,
        "class_map": dict(data.class_map),
        "class_names": sorted(data.class_map, key=data.class_map.__getitem__),
        "num_classes": len(data.class_map),
        **describe_environment(runtime, hardware),
    }
    with run_lock(start.run_dir), _tracked(start, record):
        return _train(data, sections, start, runtime, record)


def load_result(run_dir: Path) -> RunResult:
    """Return the results of a complete run from its folder."""
    checkpoints = CheckpointManager(run_dir)
    last = checkpoints.latest
    if last is None:
        raise CheckpointError(
            f"{run_dir}: the run is finished but its last.pt is gone. Train anew, without "
            "checkpoint.discover_previous_run."
        )
    return RunResult(
        metrics=MetricsCsv(run_dir / METRICS_FILE, checkpoints.load()["history"]).table(),
        best_checkpoint=checkpoints.best or last,
        last_checkpoint=last,
        record=read_json(run_dir / RECORD_FILE) or {},
    )


def build_tiles(
    data: TrainingData, sections: RunSections, split: Literal["train", "val"], device_type: str
) -> tuple[TileDataset, DataLoader[Any]]:
    """Return the tiles of a split and a loader over them; only training is shuffled and moved.

    Raises:
        DataError: If tile files are missing, there is no training tile, or scores of tiles
            (``dataset.tile_metrics_csv``) cannot be used.
    """
    is_training = split == "train"
    seed = sections.experiment.seed
    tiles = TileDataset(
        data.tile_index,
        data.tile_annotations,
        data.class_map,
        TrainTransform(sections.preprocessing, data.class_map)
        if is_training
        else EvalTransform(sections.preprocessing),
        split=split,
        dataset=sections.dataset,
        seed=seed,
    )
    sampler = EpochSampler(
        len(tiles),
        shuffle=is_training and sections.data_loader.shuffle,
        seed=seed,
        weights=weigh_tiles(tiles.tile_ids, sections.dataset) if is_training else None,
    )
    where: Literal["cpu", "cuda"] = "cuda" if device_type == "cuda" else "cpu"
    return tiles, build_loader(tiles, sampler, sections.data_loader, device_type=where)


def _train(
    data: TrainingData,
    sections: RunSections,
    start: Start,
    runtime: Runtime,
    record: dict[str, Any],
) -> RunResult:
    """Build everything, train, and complete the record."""
    began = time.perf_counter()
    train_tiles, train_loader = build_tiles(data, sections, "train", runtime.device.type)
    val_tiles, val_loader = build_tiles(data, sections, "val", runtime.device.type)
    _warn_small(len(train_tiles), len(val_tiles), sections)
    seed_everything(sections.experiment.seed, 0)  # before the model: its heads start at random
    model = _build(data, sections, start)
    record["tiles"] = {"train": len(train_tiles), "val": len(val_tiles)}
    record["parameters"] = {
        "all": sum(each.numel() for each in model.parameters()),
        "trainable": sum(each.numel() for each in model.parameters() if each.requires_grad),
    }
    write_json(record, start.run_dir / RECORD_FILE)
    _announce(start, runtime, record)
    if start.best is not None:
        CheckpointManager(start.run_dir).adopt_best(start.best)
    resumed = peek_checkpoint(start.resume) if start.resume is not None else None
    first_epoch = 1 + (resumed or {}).get("epoch", 0)
    outcome = train(
        model,
        train_loader,
        start.run_dir,
        LoopSettings(
            sections.training,
            sections.evaluation,
            sections.checkpoint,
            sections.tensorboard,
            seed=sections.experiment.seed,
            deterministic=sections.experiment.deterministic,
        ),
        runtime=runtime,
        val_loader=val_loader if len(val_tiles) else None,
        about=_about(record),
        resume=start.resume,
    )
    session = time.perf_counter() - began
    record |= {"finished": _now(), "session_seconds": session}
    record |= describe_results(outcome, first_epoch=first_epoch, session_seconds=session)
    write_json(record, start.run_dir / RECORD_FILE)
    return RunResult(
        metrics=MetricsCsv(start.run_dir / METRICS_FILE, outcome.history).table(),
        best_checkpoint=_best_or_last(outcome),
        last_checkpoint=outcome.last_checkpoint,
        record=record,
    )


def _build(data: TrainingData, sections: RunSections, start: Start) -> nn.Module:
    """Return the model with the weights it starts from."""
    settings = sections.model
    weights = class_weight_vector(data.class_weights, data.class_map, sections.loss)
    if start.resume is not None:  # every weight comes from the checkpoint
        settings = settings.model_copy(update={"pretrained_backbone": False})
    model = build_model(
        settings,
        len(data.class_map),
        model_type=sections.experiment.model_type,
        loss=sections.loss,
        class_weights=None if weights is None else torch.tensor(weights),
        size_divisor=sections.preprocessing.pad_size_divisor,
    )
    if start.weights is not None:
        include = sections.checkpoint.load_include_prefixes or ()
        exclude = sections.checkpoint.load_exclude_prefixes or ()
        is_ours = peek_checkpoint(start.weights) is not None
        report = load_checkpoint(
            start.weights,
            model,
            strict=is_ours and not include and not exclude,
            include_prefixes=include,
            exclude_prefixes=exclude,
            class_names=sorted(data.class_map, key=data.class_map.__getitem__),
        )
        logger.info("Starting from %s: %s", start.weights, report)
    return model


@contextmanager
def _tracked(start: Start, record: Mapping[str, Any]) -> Iterator[None]:
    """Keep ``status.json``: running, then finished or failed."""
    update_status(
        start.run_dir,
        state=RUNNING,
        run_id=record["run_id"],
        configuration_hash=record["configuration_hash"],
        started=record["started"],
        resumed_from=start.resumed_from,
        finished=None,
        error=None,
    )
    try:
        yield
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        update_status(start.run_dir, state=FAILED, finished=_now(), error=reason)
        raise
    update_status(start.run_dir, state=FINISHED, finished=_now())


def _about(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every checkpoint tells about its run."""
    return {
        "run_id": record["run_id"],
        "class_map": record["class_map"],
        "config": record["configuration"],
        "configuration_hash": record["configuration_hash"],
        "data_hash": record["data_hash"],
        "versions": {
            "obbflow": record["package_version"],
            "python": record["python"],
            **record["libraries"],
        },
        "git": record["git"],
    }


def _announce(start: Start, runtime: Runtime, record: Mapping[str, Any]) -> None:
    """Log what is about to be trained."""
    for note in runtime.notes:
        logger.warning("%s", note)
    logger.info(
        "Training in %s: %s on %s (%s), %d classes, %d training and %d validation tiles, "
        "%s trainable parameters",
        start.run_dir,
        record["configuration"]["experiment"]["model_type"],
        runtime.device,
        runtime.precision,
        record["num_classes"],
        record["tiles"]["train"],
        record["tiles"]["val"],
        f"{record['parameters']['trainable']:,}",
    )


def _warn_small(train_tiles: int, val_tiles: int, sections: RunSections) -> None:
    """Warn where one optimizer step takes more tiles than there are, or none validate."""
    step = sections.data_loader.batch_size * sections.training.gradient_accumulation_steps
    if train_tiles < step:
        logger.warning(
            "There are %d training tiles, one optimizer step takes %d (data_loader.batch_size x "
            "training.gradient_accumulation_steps): each epoch is a single, smaller step",
            train_tiles,
            step,
        )
    if val_tiles == 0:
        logger.warning("There are no validation tiles: nothing is scored during training")


def _best_or_last(outcome: TrainingOutcome) -> Path:
    """Return the best checkpoint, the last one where no epoch could be judged."""
    if outcome.best_checkpoint is not None:
        return outcome.best_checkpoint
    logger.warning(
        "No epoch had a finite value of the metric that decides on the best one: the last "
        "checkpoint is used"
    )
    return outcome.last_checkpoint


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
