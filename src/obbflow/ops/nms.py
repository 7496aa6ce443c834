"""Exact greedy non-maximum suppression of rotated boxes.

Shapes: N boxes, P pairs, K kept. Only pairs that can overlap by more than the threshold are ever
formed, so memory grows with the pairs that touch and not with N x N.
"""

import numpy as np
import torch
from torch import Tensor

from obbflow.geometry.rbox import check_boxes, rbox_to_hbox
from obbflow.ops.intersection import overlap_of_pairs, split_columns
from obbflow.ops.pairs import touching_pairs_within

_BOUND_SLACK = 1e-6  # above the rounding of level boxes, even 1e-4 px small at 1e5 px


@torch.no_grad()
def nms_rotated(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the boxes that greedy non-maximum suppression keeps, whatever their class.

    From the best score down, a box is suppressed when its IoU with a kept one is greater than
    the threshold. Equal scores keep input order.

    Args:
        boxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians, finite; N may be 0.
        scores: (N,) float, not NaN.
        iou_threshold: 0..1.

    Returns:
        (K,) int64 rows of ``boxes``, best score first.

    Raises:
        ValueError: If a shape is wrong, a score is NaN, a box is not finite, or the threshold is
            outside 0..1.

    Example:
        >>> boxes = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0], [4.5, 3.0, 4.0, 2.0, 0.0]])
        >>> nms_rotated(boxes, torch.tensor([0.6, 0.9]), 0.5).tolist()
        [1]
    """
    _check_arguments(boxes, scores, iou_threshold)
    return _keep_best(boxes, scores, None, iou_threshold)


@torch.no_grad()
def batched_nms_rotated(
    boxes: Tensor, scores: Tensor, labels: Tensor, iou_threshold: float
) -> Tensor:
    """Return the boxes that :func:`nms_rotated` keeps in each class by itself.

    Args:
        boxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians, finite; N may be 0.
        scores: (N,) float, not NaN.
        labels: (N,) integers, any values.
        iou_threshold: 0..1.

    Returns:
        (K,) int64 rows of ``boxes``, best score first over all classes; equal scores keep input
        order.

    Raises:
        ValueError: As :func:`nms_rotated`, or if ``labels`` is not (N,).

    Example:
        >>> boxes = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0], [4.5, 3.0, 4.0, 2.0, 0.0]])
        >>> batched_nms_rotated(boxes, torch.tensor([0.6, 0.9]), torch.tensor([1, 2]), 0.5).tolist()
        [1, 0]
    """
    _check_arguments(boxes, scores, iou_threshold)
    if labels.shape != scores.shape:
        raise ValueError(f"labels must be ({len(boxes)},), got {tuple(labels.shape)}")
    groups = labels.unique(return_inverse=True)[1]
    return _keep_best(boxes, scores, groups, iou_threshold)


def _check_arguments(boxes: Tensor, scores: Tensor, iou_threshold: float) -> None:
    """Raise for wrong shapes, NaN scores, boxes that are not finite and odd thresholds."""
    check_boxes(boxes, 5, "boxes")
    if scores.shape != boxes.shape[:1]:
        raise ValueError(f"scores must be ({len(boxes)},), got {tuple(scores.shape)}")
    if scores.isnan().any():
        raise ValueError(f"{int(scores.isnan().sum())} of {len(scores)} scores are NaN")
    if not boxes.isfinite().all():
        raise ValueError("boxes must be finite: some coordinate is NaN or infinite")
    if not 0 <= iou_threshold <= 1:
        raise ValueError(f"iou_threshold must be within 0..1, got {iou_threshold}")


def _keep_best(
    boxes: Tensor, scores: Tensor, groups: Tensor | None, iou_threshold: float
) -> Tensor:
    """Return the kept rows (K,), best first; boxes of different groups (N,) both stay."""
    order = scores.argsort(descending=True, stable=True)
    ranked = boxes[order].double()
    better, worse = _conflicts(ranked, None if groups is None else groups[order], iou_threshold)
    kept = _suppress(better.cpu().numpy(), worse.cpu().numpy(), len(boxes))
    return order[torch.from_numpy(kept).to(order.device)]


def _conflicts(
    ranked: Tensor, groups: Tensor | None, iou_threshold: float
) -> tuple[Tensor, Tensor]:
    """Return pairs (better, worse) of ranks with IoU above the threshold, sorted by better."""
    columns = split_columns(ranked)
    hboxes = rbox_to_hbox(ranked)
    sides = hboxes.T.contiguous()  # (4, N): gathering from one row is fast
    area = ranked[:, 2] * ranked[:, 3]
    found = [torch.empty(2, 0, dtype=torch.int64, device=ranked.device)]
    for pairs in touching_pairs_within(hboxes, groups):
        i, j = _select(pairs, _may_exceed(sides, area, *pairs, iou_threshold))
        above = overlap_of_pairs(columns, i, j) > iou_threshold
        found.append(torch.stack(_select((i, j), above)))
    better, worse = torch.cat(found, dim=1)
    better, by_rank = better.sort()
    return better, worse[by_rank]


def _select(pairs: tuple[Tensor, Tensor], which: Tensor) -> tuple[Tensor, Tensor]:
    """Return those pairs (P,) for which ``which`` (P,) is true."""
    chosen = which.nonzero().squeeze(1)
    return pairs[0].index_select(0, chosen), pairs[1].index_select(0, chosen)


def _may_exceed(sides: Tensor, area: Tensor, i: Tensor, j: Tensor, iou_threshold: float) -> Tensor:
    """Return (P,) bool: is the IoU bound from areas and level boxes above the threshold?

    Args:
        sides: (4, N) x1, y1, x2, y2 of the level boxes round the rotated ones.
        area: (N,) of the rotated boxes.
        i: (P,) rows.
        j: (P,) rows.
        iou_threshold: 0..1.
    """
    x1, y1 = (torch.maximum(s.index_select(0, i), s.index_select(0, j)) for s in sides[:2])
    x2, y2 = (torch.minimum(s.index_select(0, i), s.index_select(0, j)) for s in sides[2:])
    area_i, area_j = area.index_select(0, i), area.index_select(0, j)
    most = torch.minimum((x2 - x1) * (y2 - y1), torch.minimum(area_i, area_j))
    return most * (1 + _BOUND_SLACK) > iou_threshold * (area_i + area_j - most)


def _suppress(better: np.ndarray, worse: np.ndarray, count: int) -> np.ndarray:
    """Return the ranks that survive; pairs are sorted by ``better``."""
    ranks, starts = np.unique(better, return_index=True)
    ends = np.append(starts, len(better))[1:]
    is_suppressed = np.zeros(count, dtype=bool)
    for rank, start, end in zip(ranks.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if not is_suppressed[rank]:
            is_suppressed[worse[start:end]] = True
    return np.flatnonzero(~is_suppressed)
