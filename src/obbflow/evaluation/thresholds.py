"""What a score threshold makes of ranked detections: counts, precision, recall and F1."""

import numpy as np
import pandas as pd

from obbflow.evaluation.scoring import EvaluationResult
from obbflow.tables import CLASS_METRICS, make_table

COCO_THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""IoU thresholds of AP50:95: 0.5, 0.55, ..., 0.95."""


def count_hits(
    detections: pd.DataFrame, result: EvaluationResult, score_threshold: float, iou_threshold: float
) -> pd.DataFrame:
    """Return which detections are true and which false positives at a score threshold.

    Detections below the threshold change nothing for those above it, for better scores are
    matched first.

    Args:
        detections: The table that ``result`` was made from.
        result: Of ``evaluate_detections``.
        score_threshold: Detections with this score or more count.
        iou_threshold: From this IoU on, a detection matches an object.

    Returns:
        ``image_id``, ``class_name``, ``is_hit``, ``is_miss`` (false positive) and ``gt_row`` (see
        ``EvaluationResult.judged_detections``), a row a detection in the order given.
    """
    judged = result.judged_detections(iou_threshold)
    counts = detections["score"].to_numpy("float64") >= score_threshold
    is_hit = judged["is_hit"].to_numpy() & counts
    return pd.DataFrame(
        {
            "image_id": detections["image_id"].to_numpy(),
            "class_name": detections["class_name"].to_numpy(),
            "is_hit": is_hit,
            "is_miss": counts & ~is_hit & ~judged["is_neutral"].to_numpy(),
            "gt_row": judged["gt_row"].to_numpy(),
        }
    )


def tabulate_classes(
    detections: pd.DataFrame, result: EvaluationResult, score_threshold: float, iou_threshold: float
) -> pd.DataFrame:
    """Return the table ``class_metrics``: one row a class.

    Args:
        detections: The table that ``result`` was made from.
        result: Of ``evaluate_detections``, at ``COCO_THRESHOLDS`` or more.
        score_threshold: For ``n_det``, precision, recall and F1.
        iou_threshold: For the same.

    Returns:
        ``tables.CLASS_METRICS``. ``n_gt`` and ``n_det`` leave out what counts neither way.
        Recall, F1 and AP are NaN for a class without ground truth, precision for one without
        detections.
    """
    judged = count_hits(detections, result, score_threshold, iou_threshold)
    by_class = judged.groupby("class_name")[["is_hit", "is_miss"]].sum()
    by_class = by_class.reindex(result.counts.index, fill_value=0)
    n_hit = by_class["is_hit"].to_numpy("int64")
    n_det = n_hit + by_class["is_miss"].to_numpy("int64")
    n_gt = result.counts["n_gt"].to_numpy("int64")
    ap = result.ap_per_class
    rows = {
        "class_name": result.counts.index.to_numpy(),
        "n_gt": n_gt,
        "n_det": n_det,
        "recall": _ratio(n_hit, n_gt),
        "precision": _ratio(n_hit, n_det),
        "f1": np.where(n_gt > 0, _ratio(2 * n_hit, n_gt + n_det), np.nan),
        "ap50": ap[0.5].to_numpy(),
        "ap75": ap[0.75].to_numpy(),
        "ap50_95": ap[list(COCO_THRESHOLDS)].mean(axis=1).to_numpy(),
    }
    return make_table(rows, CLASS_METRICS)


def score_tiles(
    detections: pd.DataFrame,
    ground_truth: pd.DataFrame,
    result: EvaluationResult,
    image_ids: pd.Series,
    score_threshold: float,
    iou_threshold: float,
) -> pd.DataFrame:
    """Return precision, recall and F1 of each image (or tile), over all classes.

    Args:
        detections: The table that ``result`` was made from.
        ground_truth: As ``detections``.
        result: Of ``evaluate_detections``.
        image_ids: All images that were looked at, also those without any box.
        score_threshold: Detections with this score or more count.
        iou_threshold: From this IoU on, a detection matches an object.

    Returns:
        ``image_id``, ``n_gt``, ``n_hit``, ``n_det``, ``precision``, ``recall``, ``f1``, in the
        order of ``image_ids``. F1 is NaN for an image without objects and without detections.
    """
    judged = count_hits(detections, result, score_threshold, iou_threshold)
    hits = judged.groupby("image_id")[["is_hit", "is_miss"]].sum().reindex(image_ids, fill_value=0)
    counted = ground_truth.loc[~ground_truth["difficult"].astype(bool), "image_id"]
    n_gt = counted.value_counts().reindex(image_ids, fill_value=0).to_numpy("int64")
    n_hit = hits["is_hit"].to_numpy("int64")
    n_det = n_hit + hits["is_miss"].to_numpy("int64")
    return pd.DataFrame(
        {
            "image_id": image_ids.to_numpy(),
            "n_gt": n_gt,
            "n_hit": n_hit,
            "n_det": n_det,
            "precision": _ratio(n_hit, n_det),
            "recall": _ratio(n_hit, n_gt),
            "f1": _ratio(2 * n_hit, n_gt + n_det),
        }
    )


def thin_curves(points: pd.DataFrame, max_points: int = 500) -> pd.DataFrame:
    """Return precision-recall curves with at most ``max_points`` a class.

    Args:
        points: ``class_name``, ``score``, ``recall``, ``precision``, best score first within a
            class.
        max_points: At least 2.

    Returns:
        For each class the first point at each recall (a hit: precision has just risen), then
        evenly thinned; the first and the last point of the curve stay.
    """
    parts = []
    for _, curve in points.groupby("class_name", sort=False):
        is_hit = curve["recall"].diff().fillna(curve["recall"]) > 0
        is_hit.iloc[[0, -1]] = True
        kept = curve[is_hit]
        picked = np.unique(np.linspace(0, len(kept) - 1, max_points).round().astype("int64"))
        parts.append(kept if len(kept) <= max_points else kept.iloc[picked])
    return pd.concat(parts, ignore_index=True) if parts else points


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return the quotient, NaN where the denominator is 0."""
    result = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result
