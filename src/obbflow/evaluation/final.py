"""The final scores of a detector: the numbers of ``final_metrics`` and their tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from obbflow.config import EvaluationSection
from obbflow.evaluation.scoring import EvaluationResult, evaluate_detections
from obbflow.evaluation.thresholds import COCO_THRESHOLDS, tabulate_classes, thin_curves

CURVE_THRESHOLDS = (0.5, 0.75)
NO_IMAGES = "no validation image"


@dataclass(frozen=True)
class FinalScores:
    """``metrics`` (plain values for JSON), ``class_metrics`` and ``precision_recall`` (tables)."""

    metrics: dict[str, Any]
    class_metrics: pd.DataFrame
    precision_recall: pd.DataFrame


def score_final(
    detections: pd.DataFrame,
    ground_truth: pd.DataFrame,
    class_names: Sequence[str],
    *,
    n_images: int,
    evaluation: EvaluationSection,
    not_trainable: Mapping[str, int] | None = None,
) -> FinalScores:
    """Return all final scores, with exact rotated IoU.

    Args:
        detections: ``tables.DETECTIONS`` of all images looked at.
        ground_truth: ``tables.GROUND_TRUTH`` of the same, of these classes.
        class_names: Classes of the detector.
        n_images: Number of images (or tiles) looked at, also those without any box.
        evaluation: ``iou_threshold`` and ``score_threshold`` are used.
        not_trainable: Objects of classes that the detector cannot know, by class; named in the
            result, and in no number.

    Returns:
        The scores. ``metrics`` holds ``mAP`` (at ``evaluation.iou_threshold``), ``AP50``,
        ``AP75``, ``AP50_95`` in the area form, the same with ``_voc07``, and ``per_class``. What
        cannot be computed is None, and ``reason`` says why.
    """
    thresholds = sorted({*COCO_THRESHOLDS, evaluation.iou_threshold})
    area = evaluate_detections(detections, ground_truth, class_names, thresholds)
    voc07 = area.with_interpolation("voc07")
    metrics: dict[str, Any] = {
        **_means(area, "", evaluation.iou_threshold),
        **_means(voc07, "_voc07", evaluation.iou_threshold),
        "reason": NO_IMAGES if n_images == 0 else area.reason,
        "interpolation": "area; _voc07: the 11-point form",
        "iou": "exact rotated IoU",
        "iou_threshold": evaluation.iou_threshold,
        "score_threshold": evaluation.score_threshold,
        "n_images": n_images,
        "n_objects": int(area.counts["n_gt"].sum()),
        "n_ignored": int(area.counts["n_difficult"].sum()),
        "n_detections": len(detections),
        "n_classes": len(class_names),
        "classes_without_ground_truth": area.counts.index[area.counts["n_gt"] == 0].tolist(),
        "not_trainable": dict(not_trainable or {}),
        "per_class": {
            name: {**_cells(area, name, ""), **_cells(voc07, name, "_voc07")}
            for name in class_names
        },
    }
    return FinalScores(
        metrics=metrics,
        class_metrics=tabulate_classes(
            detections, area, evaluation.score_threshold, evaluation.iou_threshold
        ),
        precision_recall=_curves(area, evaluation.iou_threshold),
    )


def _means(result: EvaluationResult, suffix: str, iou_threshold: float) -> dict[str, float | None]:
    """Return the means over classes at the customary thresholds."""
    means = {
        "mAP": result.mean_ap_at(iou_threshold),
        "AP50": result.mean_ap_at(0.5),
        "AP75": result.mean_ap_at(0.75),
        "AP50_95": result.mean_ap_at(*COCO_THRESHOLDS),
    }
    return {name + suffix: _finite(value) for name, value in means.items()}


def _cells(result: EvaluationResult, class_name: str, suffix: str) -> dict[str, float | None]:
    """Return AP of one class at the customary thresholds."""
    ap = result.ap_per_class.loc[[class_name]]
    cells = {"AP50": [0.5], "AP75": [0.75], "AP50_95": list(COCO_THRESHOLDS)}
    return {
        name + suffix: _finite(float(ap[thresholds].to_numpy("float64").mean()))
        for name, thresholds in cells.items()
    }


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def _curves(result: EvaluationResult, iou_threshold: float) -> pd.DataFrame:
    """Return the table ``precision_recall``, one curve a class and threshold."""
    parts = []
    for threshold in sorted({*CURVE_THRESHOLDS, iou_threshold}):
        points = thin_curves(result.precision_recall(threshold))
        points.insert(1, "iou_threshold", threshold)
        parts.append(points)
    table = pd.concat(parts, ignore_index=True)
    types = dict.fromkeys(("iou_threshold", "score", "recall", "precision"), "float64")
    return table.astype({"class_name": "str", **types})
