"""Average precision of detection tables: matching, AP for each class and threshold, means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from obbflow.errors import DataError, did_you_mean
from obbflow.evaluation.average_precision import (
    Interpolation,
    average_precision,
    precision_recall,
)
from obbflow.evaluation.matching import HIT, NEUTRAL, Boxes, Matches, match_detections
from obbflow.tables import RBOX

NO_GROUND_TRUTH = "no ground truth: no object of any class counts"


@dataclass(frozen=True)
class EvaluationResult:
    """What ``evaluate_detections`` found.

    Attributes:
        mean_ap: Mean of ``ap_per_class`` over the classes with ground truth and over the
            thresholds; NaN when no class has any, see ``reason``.
        ap_per_class: AP, one row a class (index ``class_name``, in the order given) and one
            column an IoU threshold; NaN for classes without ground truth.
        counts: Index ``class_name``; ``n_gt`` (objects that count), ``n_difficult`` (objects
            that count neither way) and ``n_det`` (all detections).
        reason: Why ``mean_ap`` is NaN; None when it is a number.
        interpolation: Form of AP, "area" or "voc07".
        scores: (N,) float64, of the detections as ``matches`` orders them.
        matches: Best ground truth of each detection.
    """

    mean_ap: float
    ap_per_class: pd.DataFrame
    counts: pd.DataFrame
    reason: str | None
    interpolation: Interpolation
    scores: Tensor
    matches: Matches

    def mean_ap_at(self, *iou_thresholds: float) -> float:
        """Return the mean over the classes with ground truth at some of the thresholds.

        Args:
            iou_thresholds: Some of those evaluated; none: all.

        Returns:
            NaN when no class has ground truth.

        Raises:
            KeyError: If a threshold was not evaluated.
        """
        table = self.ap_per_class
        return _mean(table[list(iou_thresholds)] if iou_thresholds else table)

    def with_interpolation(self, interpolation: Interpolation) -> "EvaluationResult":
        """Return the same result with AP in another form; nothing is matched again."""
        thresholds = [float(threshold) for threshold in self.ap_per_class.columns]
        ap = _average_precisions(self.matches, self.counts, thresholds, interpolation)
        return replace(self, mean_ap=_mean(ap), ap_per_class=ap, interpolation=interpolation)

    def judged_detections(self, iou_threshold: float) -> pd.DataFrame:
        """Return the verdict on each detection, in the order of the detection table.

        Args:
            iou_threshold: Any, also one that was not evaluated.

        Returns:
            ``is_hit`` and ``is_neutral`` (counts neither way; neither: a false positive),
            ``best_iou`` (0: nothing of its class overlaps) and ``gt_row``, the position in the
            ground truth table of the object it stands for, -1 for false positives.
        """
        verdicts, found = self.matches.judge(iou_threshold)
        table = pd.DataFrame(
            {
                "is_hit": (verdicts == HIT).numpy(),
                "is_neutral": (verdicts == NEUTRAL).numpy(),
                "best_iou": self.matches.ious.numpy(),
                "gt_row": found.numpy(),
            },
            index=self.matches.order.numpy(),
        )
        return table.sort_index()

    def precision_recall(self, iou_threshold: float) -> pd.DataFrame:
        """Return the precision-recall points of every class with ground truth.

        Args:
            iou_threshold: Any, also one that was not evaluated.

        Returns:
            ``class_name``, ``score``, ``recall``, ``precision``: a row a detection that counts,
            best score first within a class.
        """
        verdicts, _ = self.matches.judge(iou_threshold)
        parts = []
        for class_id, rows in _rows_by_class(self.matches.classes, len(self.counts)):
            n_gt = int(self.counts["n_gt"].iloc[class_id])
            rows = rows[verdicts[rows] != NEUTRAL]
            if n_gt == 0 or len(rows) == 0:
                continue
            precision, recall = precision_recall(verdicts[rows] == HIT, n_gt)
            part = {"score": self.scores[rows], "recall": recall, "precision": precision}
            frame = pd.DataFrame({name: values.numpy() for name, values in part.items()})
            frame.insert(0, "class_name", str(self.counts.index[class_id]))
            parts.append(frame)
        if not parts:
            return pd.DataFrame(columns=["class_name", "score", "recall", "precision"])
        return pd.concat(parts, ignore_index=True)


def evaluate_detections(
    detections: pd.DataFrame,
    ground_truth: pd.DataFrame,
    class_names: Sequence[str],
    iou_thresholds: Sequence[float] = (0.5,),
    interpolation: Interpolation = "area",
) -> EvaluationResult:
    """Return the average precision of ``detections`` by the rules of PASCAL VOC and DOTA.

    Detections are judged by descending score. Each belongs to the object of its class and image
    with the highest exact rotated IoU, and is a true positive when that IoU is at the threshold
    or above and the object has not been found before, else a false positive. Where that object
    is difficult, the detection counts neither way; difficult objects are never missed. The order
    of the rows does not matter: equal scores are ordered by image id and box.

    Args:
        detections: Columns ``image_id``, ``class_name``, ``score``, and ``cx``, ``cy``, ``w``,
            ``h`` (px), ``angle`` (radians); may be empty.
        ground_truth: Columns ``image_id``, ``class_name``, the box as above, ``difficult``
            (counts neither way); may be empty.
        class_names: All classes, in the order of the result.
        iou_thresholds: Each in (0, 1].
        interpolation: "area" or "voc07", see ``average_precision``.

    Returns:
        AP for each class and threshold, their mean, and the matches. A class without ground truth
        has no AP (NaN) and is left out of the mean; one without detections has AP 0.

    Raises:
        ValueError: If a column is missing, a class is not in ``class_names``, a class name
            occurs twice, or a threshold or the interpolation is out of range.
        DataError: If a score or a box is not a finite number, or a side is negative.
    """
    _check_arguments(detections, ground_truth, class_names, iou_thresholds)
    images = pd.concat([detections["image_id"], ground_truth["image_id"]], ignore_index=True)
    codes = torch.from_numpy(pd.factorize(images.astype(str), sort=True)[0].astype("int64"))
    found = _boxes(detections, codes[: len(detections)], class_names, "detections")
    objects = _boxes(ground_truth, codes[len(detections) :], class_names, "ground_truth")
    scores = _numbers(detections, ["score"], "detections")[:, 0]
    difficult = torch.from_numpy(ground_truth["difficult"].to_numpy("bool").copy())
    matches = match_detections(found, scores, objects, difficult)
    counts = pd.DataFrame(
        {
            "n_gt": _count(objects.classes[~difficult], class_names),
            "n_difficult": _count(objects.classes[difficult], class_names),
            "n_det": _count(found.classes, class_names),
        },
        index=pd.Index(list(class_names), name="class_name"),
    )
    ap = _average_precisions(matches, counts, iou_thresholds, interpolation)
    return EvaluationResult(
        mean_ap=_mean(ap),
        ap_per_class=ap,
        counts=counts,
        reason=None if counts["n_gt"].any() else NO_GROUND_TRUTH,
        interpolation=interpolation,
        scores=scores[matches.order],
        matches=matches,
    )


def _average_precisions(
    matches: Matches,
    counts: pd.DataFrame,
    iou_thresholds: Sequence[float],
    interpolation: Interpolation,
) -> pd.DataFrame:
    """Return AP, class x threshold."""
    columns = {}
    for threshold in iou_thresholds:
        verdicts, _ = matches.judge(threshold)
        column = []
        for class_id, rows in _rows_by_class(matches.classes, len(counts)):
            judged = verdicts[rows]
            is_hit = judged[judged != NEUTRAL] == HIT
            n_gt = int(counts["n_gt"].iloc[class_id])
            column.append(average_precision(is_hit, n_gt, interpolation))
        columns[float(threshold)] = column
    table = pd.DataFrame(columns, index=counts.index, dtype="float64")
    table.columns.name = "iou_threshold"
    return table


def _rows_by_class(classes: Tensor, n_classes: int) -> list[tuple[int, Tensor]]:
    """Return (class, its rows) for each class; ``classes`` (N,) ascends."""
    bounds = torch.searchsorted(classes, torch.arange(n_classes + 1)).tolist()
    return [(c, torch.arange(bounds[c], bounds[c + 1])) for c in range(n_classes)]


def _mean(ap: pd.DataFrame) -> float:
    """Return the mean of the cells that are numbers, NaN when there is none."""
    values = ap.to_numpy("float64")
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def _count(classes: Tensor, class_names: Sequence[str]) -> np.ndarray:
    """Return the number of boxes of each class (C,)."""
    return torch.bincount(classes, minlength=len(class_names)).numpy()


def _boxes(table: pd.DataFrame, images: Tensor, class_names: Sequence[str], name: str) -> Boxes:
    """Return the boxes of a table as tensors, checked."""
    names = table["class_name"].astype(str)
    classes = pd.Index(list(class_names)).get_indexer(pd.Index(names))
    unknown = sorted(set(names[classes < 0]))
    if unknown:
        raise ValueError(
            f"{name}: class {unknown[0]!r} is not in class_names"
            f"{did_you_mean(unknown[0], class_names)} ({len(unknown)} such classes)"
        )
    rboxes = _numbers(table, list(RBOX), name)
    negative = (rboxes[:, 2:4] < 0).any(1).nonzero()
    if len(negative):
        row = int(negative[0])
        raise DataError(
            f"{name}: row {row} of {len(table)} (image {table['image_id'].iloc[row]}) has a "
            f"negative w or h: {rboxes[row].tolist()}. Give the sides as lengths in px."
        )
    return Boxes(images, torch.from_numpy(classes.astype("int64")), rboxes)


def _numbers(table: pd.DataFrame, columns: list[str], name: str) -> Tensor:
    """Return columns (N, K) as float64 and refuse what is not finite."""
    values = torch.from_numpy(table[columns].to_numpy("float64").copy())
    bad = (~values.isfinite()).any(1).nonzero()
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{name}: {len(bad)} of {len(table)} rows have a {', '.join(columns)} that is not a "
            f"finite number, first row {row} (image {table['image_id'].iloc[row]}): "
            f"{values[row].tolist()}. Remove or correct these rows."
        )
    return values


def _check_arguments(
    detections: pd.DataFrame,
    ground_truth: pd.DataFrame,
    class_names: Sequence[str],
    iou_thresholds: Sequence[float],
) -> None:
    """Raise for missing columns, repeated classes and thresholds out of range."""
    needed = ["image_id", "class_name", *RBOX]
    for name, table, columns in (
        ("detections", detections, [*needed, "score"]),
        ("ground_truth", ground_truth, [*needed, "difficult"]),
    ):
        missing = [column for column in columns if column not in table.columns]
        if missing:
            raise ValueError(f"{name} lacks the columns {', '.join(missing)}")
    if len(set(class_names)) < len(class_names):
        raise ValueError(f"class_names holds a name twice: {list(class_names)}")
    wrong = [t for t in iou_thresholds if not 0 < t <= 1]
    if wrong or not iou_thresholds:
        raise ValueError(f"iou_thresholds must lie in (0, 1], got {list(iou_thresholds)}")
