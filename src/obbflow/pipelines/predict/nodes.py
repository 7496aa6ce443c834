"""Nodes that look at new images and export what is found."""

import hashlib
import logging
import time
from pathlib import Path
from typing import Any

import pandas as pd

from obbflow.config import DataLoaderSection, ProductionSection, TrainingSection

logger = logging.getLogger(__name__)


def find_images(production: ProductionSection) -> pd.DataFrame:
    """Return ``prediction_images``: what ``production.images`` names.

    Raises:
        ConfigError: If it is not set or does not exist.
        DataError: If there is no image that can be used.
    """
    from obbflow.inference.images import find_images as find

    images = find(production.images)
    megapixels = (images["width"] * images["height"]).sum() / 1e6
    logger.info("Found %s images, %.1f megapixels", f"{len(images):,}", megapixels)
    return images


def predict_windows(
    prediction_images: pd.DataFrame,
    best_checkpoint: Path,
    production: ProductionSection,
    data_loader: DataLoaderSection,
    training: TrainingSection,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return ``window_detections`` and ``prediction_settings``, all that they depend on.

    Classes, model and windows are those of the checkpoint; device and precision are chosen by
    ``training`` for this machine.

    Raises:
        CheckpointError: If the checkpoint is damaged or no detector.
        ConfigError: If ``production`` does not fit it.
        DataError: If an image is broken.
    """
    from obbflow.inference import load_detector, predict_images
    from obbflow.training.checkpoints import read_checkpoint
    from obbflow.training.device import detect_hardware, resolve_runtime, torch_settings

    started = time.perf_counter()
    content = read_checkpoint(best_checkpoint)
    detector = load_detector(best_checkpoint, content, production)
    runtime = resolve_runtime(training, detect_hardware())
    with torch_settings(runtime, deterministic=False):
        runtime.place(detector.model)
        detections = predict_images(
            detector,
            prediction_images,
            device=runtime.device,
            autocast_dtype=runtime.autocast_dtype,
            batch_size=data_loader.batch_size,
        )
    with best_checkpoint.open("rb") as stream:
        checksum = hashlib.file_digest(stream, "sha256").hexdigest()
    settings = {
        **detector.settings.as_dict(),
        "class_names": detector.settings.class_names,
        "production": production.model_dump(mode="json"),
        "precision": runtime.precision,
        "device": str(runtime.device),
        "checkpoint": str(best_checkpoint),
        "checkpoint_sha256": checksum,
        "epoch": content.get("epoch"),
        "run_id": content.get("run_id"),
    }
    logger.info(
        "Looked at %s images in windows of %d px (overlap %d) in %.1f s on %s: %s detections",
        f"{len(prediction_images):,}",
        detector.settings.tile_size,
        detector.settings.overlap,
        time.perf_counter() - started,
        runtime.device,
        f"{len(detections):,}",
    )
    return detections, settings


def merge_detections(
    window_detections: pd.DataFrame,
    prediction_images: pd.DataFrame,
    prediction_settings: dict[str, Any],
) -> pd.DataFrame:
    """Return ``predictions``: each object once, in px of the whole image."""
    from obbflow.inference.merge import merge_windows

    merged = merge_windows(
        window_detections,
        prediction_images,
        iou_threshold=prediction_settings["nms_iou_threshold"],
        class_agnostic=prediction_settings["nms_class_agnostic"],
    )
    logger.info(
        "Merged %s detections of windows into %s of %s images",
        f"{len(window_detections):,}",
        f"{len(merged):,}",
        f"{len(prediction_images):,}",
    )
    return merged


def export_predictions(
    predictions: pd.DataFrame,
    prediction_images: pd.DataFrame,
    prediction_settings: dict[str, Any],
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of ``dota_task1`` and of ``predictions_geojson``, by name."""
    from obbflow.inference.export import geojson_files, task1_files

    task1 = task1_files(predictions, prediction_settings["class_names"])
    geojson = geojson_files(predictions, prediction_images)
    logger.info(
        "Exported %s detections: %d Task 1 files, %s",
        f"{len(predictions):,}",
        len(task1),
        ", ".join(geojson),
    )
    return task1, geojson
