"""Nodes that draw figures and write the report."""

import logging
import time
from typing import Any

import pandas as pd

from obbflow.config import (
    DatasetSection,
    EvaluationSection,
    ExperimentSection,
    PreprocessingSection,
)
from obbflow.errors import DataError

logger = logging.getLogger(__name__)


def draw_figures(
    training_metrics: pd.DataFrame,
    class_metrics: pd.DataFrame,
    precision_recall: pd.DataFrame,
    class_weights: pd.DataFrame,
    final_metrics: dict[str, Any],
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    class_map: dict[str, int],
) -> tuple[Any, ...]:
    """Return the matplotlib figures of a run in the order of the pipeline's outputs.

    Kedro evaluates the annotations of nodes at start-up, so they name nothing of matplotlib.

    Raises:
        DataError: If the scores belong to other tiles or classes.
    """
    from obbflow.reporting import figures

    _require_same_data(final_metrics, tile_index, tile_annotations, class_map)
    drawn = (
        figures.training_curves(training_metrics),
        figures.lr_curve(training_metrics),
        figures.class_ap(class_metrics),
        figures.precision_recall_curves(precision_recall, class_metrics),
        figures.class_balance(class_weights),
        figures.object_sizes(tile_annotations),
    )
    logger.info("Drew %d figures", len(drawn))
    return drawn


def render_report(
    run_record: dict[str, Any],
    training_metrics: pd.DataFrame,
    final_metrics: dict[str, Any],
    class_metrics: pd.DataFrame,
    class_weights: pd.DataFrame,
    precision_recall: pd.DataFrame,
    detections: pd.DataFrame,
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    class_map: dict[str, int],
    data_issues: pd.DataFrame,
    experiment: ExperimentSection,
    dataset: DatasetSection,
    preprocessing: PreprocessingSection,
    evaluation: EvaluationSection,
) -> str:
    """Return the report as one self-contained HTML page.

    It draws its figures itself, for light and for dark screens; those of the catalog cannot be
    read back.

    Raises:
        DataError: If the scores belong to other tiles or classes.
    """
    from obbflow.data.tile_dataset import validation_tiles
    from obbflow.reporting.report import ReportData
    from obbflow.reporting.report import render_report as render

    started = time.perf_counter()
    _require_same_data(final_metrics, tile_index, tile_annotations, class_map)
    tiles = validation_tiles(
        tile_index, tile_annotations, class_map, dataset, preprocessing, seed=experiment.seed
    )
    page = render(
        ReportData(
            run_record=run_record,
            training_metrics=training_metrics,
            final_metrics=final_metrics,
            class_metrics=class_metrics,
            class_weights=class_weights,
            precision_recall=precision_recall,
            detections=detections,
            tile_index=tile_index,
            tile_annotations=tile_annotations,
            data_issues=data_issues,
            class_names=tiles.class_names,
            tile_ids=tiles.tile_ids,
            ground_truth=tiles.ground_truth,
            tile_image=tiles.tile_image,
            evaluation=evaluation,
        )
    )
    size_mb, seconds = len(page.encode()) / 1e6, time.perf_counter() - started
    logger.info("Wrote a report of %.1f MB in %.1f s", size_mb, seconds)
    return page


def _require_same_data(
    final_metrics: dict[str, Any],
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    class_map: dict[str, int],
) -> None:
    """Raise unless the detections were scored on these very tiles."""
    from obbflow.training.record import data_hash

    if final_metrics["data_hash"] != data_hash(tile_index, tile_annotations, class_map):
        raise DataError(
            "final_metrics: the tiles, labels or classes have changed since the detections were "
            "scored, so a report would show boxes where they do not belong. Score the checkpoint "
            "on the present data first: kedro run --pipelines evaluation,reporting"
        )
