"""The node that trains the detector."""

import logging
from pathlib import Path
from typing import Any

import pandas as pd

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

logger = logging.getLogger(__name__)


def train_detector(
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    class_map: dict[str, int],
    class_weights: pd.DataFrame,
    run_id: str,
    paths: PathsSection,
    experiment: ExperimentSection,
    dataset: DatasetSection,
    tiling: TilingSection,
    preprocessing: PreprocessingSection,
    data_loader: DataLoaderSection,
    model: ModelSection,
    loss: LossSection,
    training: TrainingSection,
    evaluation: EvaluationSection,
    checkpoint: CheckpointSection,
    tensorboard: TensorboardSection,
) -> tuple[pd.DataFrame, Path, Path, dict[str, Any]]:
    """Return ``training_metrics``, ``best_checkpoint``, ``last_checkpoint`` and ``run_record``.

    Everything else lies in the run's folder below ``paths.runs``, which is written while training
    goes on and from which an interrupted run continues.
    """
    from obbflow.data.tile_settings import warn_about_other_settings
    from obbflow.training.run import RunSections, TrainingData, run_training

    sections = RunSections(
        paths=paths,
        experiment=experiment,
        dataset=dataset,
        tiling=tiling,
        preprocessing=preprocessing,
        data_loader=data_loader,
        model=model,
        loss=loss,
        training=training,
        evaluation=evaluation,
        checkpoint=checkpoint,
        tensorboard=tensorboard,
    )
    warn_about_other_settings(tile_index, dataset, tiling)
    data = TrainingData(tile_index, tile_annotations, class_map, class_weights)
    result = run_training(data, sections, run_id)
    logger.info(
        "Trained %d epochs; best checkpoint %s", len(result.metrics), result.best_checkpoint
    )
    return result.metrics, result.best_checkpoint, result.last_checkpoint, result.record
