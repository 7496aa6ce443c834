"""Exact greedy non-maximum suppression of rotated boxes.

Shapes: N boxes, P pairs, K kept. Only pairs that can overlap by more than the threshold are ever
formed, so memory grows with the pairs that touch and not with N x N.
"""

import numpy as np
import torch
from torch import Tensor

from obbflow.geometry.rbox import check_boxes, rbox_to_hbox
from obbflow.ops.iou import overlap_of_pairs

_PAIRS_PER_CHUNK = 1 << 20  # candidate pairs in one go: two int64 rows and a few masks
_BOUND_SLACK = 1e-9  # far above the rounding of float64, far below any difference that matters


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
    order = scores.argsort(descending=True, stable=True)
    ranked = boxes[order].double()
    better, worse = _conflicts(ranked, iou_threshold)
    kept = _suppress(better.cpu().numpy(), worse.cpu().numpy(), len(boxes))
    return order[torch.from_numpy(kept).to(order.device)]


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
    is_kept = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    for label in labels.unique():
        rows = (labels == label).nonzero().squeeze(1)
        is_kept[rows[nms_rotated(boxes[rows], scores[rows], iou_threshold)]] = True
    order = scores.argsort(descending=True, stable=True)
    return order[is_kept[order]]


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


def _conflicts(ranked: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor]:
    """Return pairs (better, worse) of ranks with IoU above the threshold, sorted by better.

    Candidates come from sweeping over the level boxes sorted along x: the partners of a box are
    the boxes after it that begin before it ends, a contiguous run.
    """
    by_x = rbox_to_hbox(ranked)[:, 0].argsort()
    swept = ranked[by_x]
    hboxes = rbox_to_hbox(swept).T.contiguous()  # (4, N): gathering from one row is fast
    first = torch.arange(1, len(by_x) + 1, device=by_x.device)
    last = torch.searchsorted(hboxes[0], hboxes[2])
    counts = (last - first).clamp(min=0)
    found = [torch.empty(0, 2, dtype=torch.int64, device=by_x.device)]
    for rows in _chunks(counts):
        i = rows.repeat_interleave(counts[rows])
        run_start = counts[rows].cumsum(0) - counts[rows]
        steps = torch.arange(len(i), device=i.device)
        j = steps + (first[rows] - run_start).repeat_interleave(counts[rows])
        touching = (_common_length(hboxes[1], hboxes[3], i, j) > 0).nonzero().squeeze(1)
        i, j = i[touching], j[touching]
        likely = _may_exceed(swept, hboxes, i, j, iou_threshold).nonzero().squeeze(1)
        i, j = i[likely], j[likely]
        above = overlap_of_pairs(swept, swept, i, j) > iou_threshold
        found.append(torch.stack([by_x[i[above]], by_x[j[above]]], dim=1))
    better, worse = torch.cat(found).sort(dim=1).values.unbind(1)
    by_rank = better.argsort()
    return better[by_rank], worse[by_rank]


def _chunks(counts: Tensor) -> list[Tensor]:
    """Return consecutive rows in groups whose counts add up to about the chunk size."""
    group = counts.cumsum(0).div(_PAIRS_PER_CHUNK, rounding_mode="floor")
    sizes = group.unique_consecutive(return_counts=True)[1].tolist()
    return list(torch.arange(len(counts), device=counts.device).split(sizes)) if sizes else []


def _common_length(start: Tensor, end: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Return (P,): how much the intervals i and j have in common, negative for a gap."""
    return torch.minimum(end[i], end[j]) - torch.maximum(start[i], start[j])


def _may_exceed(
    rboxes: Tensor, hboxes: Tensor, i: Tensor, j: Tensor, iou_threshold: float
) -> Tensor:
    """Return (P,) bool: is the IoU bound from areas and level boxes above the threshold?"""
    common_w = _common_length(hboxes[0], hboxes[2], i, j)
    common_h = _common_length(hboxes[1], hboxes[3], i, j)
    area = rboxes[:, 2] * rboxes[:, 3]
    area_i, area_j = area[i], area[j]
    most = torch.minimum(common_w * common_h, torch.minimum(area_i, area_j))
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
