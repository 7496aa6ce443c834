"""Nodes that score the best checkpoint on the validation tiles."""

import hashlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from obbflow.config import (
    DataLoaderSection,
    DatasetSection,
    EvaluationSection,
    ExperimentSection,
    ModelSection,
    PreprocessingSection,
    TilingSection,
    TrainingSection,
)
from obbflow.errors import CheckpointError

if TYPE_CHECKING:
    from torch import nn

    from obbflow.data.tile_dataset import TileDataset
    from obbflow.training.device import Runtime

logger = logging.getLogger(__name__)


def compute_final_map(
    best_checkpoint: Path,
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    class_map: dict[str, int],
    experiment: ExperimentSection,
    dataset: DatasetSection,
    tiling: TilingSection,
    preprocessing: PreprocessingSection,
    data_loader: DataLoaderSection,
    model: ModelSection,
    training: TrainingSection,
    evaluation: EvaluationSection,
) -> tuple[pd.DataFrame, dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Return ``detections``, ``final_metrics``, ``class_metrics`` and ``precision_recall``.

    The checkpoint is loaded strictly and every validation tile is looked at once, in the precision
    of training. IoU is exact.

    Raises:
        CheckpointError: If the checkpoint does not fit the model, has other classes, or was trained
            with other settings of the model or the tiles' preparation.
    """
    from obbflow.data.tile_dataset import validation_tiles
    from obbflow.data.tile_settings import warn_about_other_settings
    from obbflow.evaluation import score_final
    from obbflow.models.build import build_model
    from obbflow.models.checkpoint_file import read_torch_file
    from obbflow.models.weights import load_checkpoint
    from obbflow.training.agreement import check_agreement
    from obbflow.training.device import detect_hardware, resolve_runtime, torch_settings
    from obbflow.training.record import data_hash

    started = time.perf_counter()
    content = read_torch_file(best_checkpoint)
    origin = _describe_origin(best_checkpoint, content, class_map)
    check_agreement(
        best_checkpoint, content, experiment=experiment, model=model, preprocessing=preprocessing
    )
    warn_about_other_settings(tile_index, dataset, tiling)
    hash_of_data = data_hash(tile_index, tile_annotations, class_map)
    if content.get("data_hash", hash_of_data) != hash_of_data:
        logger.warning(
            "%s was trained on other tiles or labels than the present ones: images that are scored "
            "now may have been trained on",
            best_checkpoint,
        )
    tiles = validation_tiles(
        tile_index, tile_annotations, class_map, dataset, preprocessing, seed=experiment.seed
    )
    detector = build_model(
        model.at_epoch(int(content.get("epoch") or 0)).model_copy(
            update={"pretrained_backbone": False}
        ),
        len(class_map),
        model_type=experiment.model_type,
        size_divisor=preprocessing.pad_size_divisor,
    )
    load_checkpoint(best_checkpoint, detector, strict=True)
    runtime = resolve_runtime(training, detect_hardware())
    with torch_settings(runtime, deterministic=experiment.deterministic):
        detections = _predict(runtime.place(detector), tiles, data_loader, runtime)
    scores = score_final(
        detections,
        tiles.ground_truth,
        tiles.class_names,
        n_images=len(tiles),
        evaluation=evaluation,
        not_trainable=tiles.unmapped_classes,
    )
    metrics = {
        **scores.metrics,
        "level": "tile",
        "precision": runtime.precision,
        "data_hash": hash_of_data,
        **origin,
    }
    seconds = time.perf_counter() - started
    logger.info("Scored %d validation tiles in %.1f s: %s", len(tiles), seconds, _in_words(metrics))
    return detections, metrics, scores.class_metrics, scores.precision_recall


def _predict(
    detector: "nn.Module", tiles: "TileDataset", data_loader: DataLoaderSection, runtime: "Runtime"
) -> pd.DataFrame:
    """Return the detections on all tiles."""
    from obbflow.data.loader import build_loader
    from obbflow.data.sampler import EpochSampler
    from obbflow.training.validate import predict_dataset

    loader = build_loader(
        tiles,
        EpochSampler(len(tiles), shuffle=False, seed=tiles.seed),
        data_loader,
        device_type="cuda" if runtime.device.type == "cuda" else "cpu",
    )
    return predict_dataset(
        detector, loader, tiles, runtime.device, autocast_dtype=runtime.autocast_dtype
    )


def _describe_origin(
    checkpoint: Path, content: dict[str, Any], class_map: dict[str, int]
) -> dict[str, Any]:
    """Return what the numbers belong to: the checkpoint, and the run and code that made it."""
    trained_on = content.get("class_map", class_map)
    if dict(trained_on) != class_map:
        raise CheckpointError(
            f"{checkpoint}: was trained on the classes {', '.join(trained_on)}; the class map has "
            f"{', '.join(class_map)}. Train again, or load the class_map of the run "
            f"{content.get('run_id')} with --load-versions."
        )
    with checkpoint.open("rb") as stream:
        checksum = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "checkpoint": str(checkpoint),
        "checkpoint_sha256": checksum,
        "epoch": content.get("epoch"),
        "run_id": content.get("run_id"),
        "git_commit": (content.get("git") or {}).get("commit"),
    }


def _in_words(metrics: dict[str, Any]) -> str:
    """Return the headline of the scores for the log."""
    if metrics["mAP"] is None:
        return f"no mAP ({metrics['reason']})"
    return f"mAP {metrics['mAP']:.4f}, AP50:95 {metrics['AP50_95']:.4f} (exact IoU, tile level)"
