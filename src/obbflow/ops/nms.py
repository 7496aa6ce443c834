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
    hboxes = rbox_to_hbox(ranked)
    by_x = hboxes[:, 0].argsort()
    left = hboxes[by_x, 0].contiguous()
    first = torch.arange(1, len(by_x) + 1, device=by_x.device)
    last = torch.searchsorted(left, hboxes[by_x, 2].contiguous())
    counts = (last - first).clamp(min=0)
    found = [torch.empty(0, 2, dtype=torch.int64, device=by_x.device)]
    for rows in _chunks(counts):
        i = rows.repeat_interleave(counts[rows])
        run_start = counts[rows].cumsum(0) - counts[rows]
        j = torch.arange(len(i), device=i.device) - run_start.repeat_interleave(counts[rows])
        pairs = torch.stack([by_x[i], by_x[j + first[i]]], dim=1)
        pairs = pairs[_may_exceed(ranked, hboxes, pairs, iou_threshold)]
        found.append(pairs[overlap_of_pairs(ranked, ranked, *pairs.unbind(1)) > iou_threshold])
    better, worse = torch.cat(found).sort(dim=1).values.unbind(1)
    by_rank = better.argsort()
    return better[by_rank], worse[by_rank]


def _chunks(counts: Tensor) -> list[Tensor]:
    """Return consecutive rows in groups whose counts add up to about the chunk size."""
    group = counts.cumsum(0).div(_PAIRS_PER_CHUNK, rounding_mode="floor")
    sizes = group.unique_consecutive(return_counts=True)[1].tolist()
    return list(torch.arange(len(counts), device=counts.device).split(sizes)) if sizes else []


def _may_exceed(rboxes: Tensor, hboxes: Tensor, pairs: Tensor, iou_threshold: float) -> Tensor:
    """Return (P,) bool: is the IoU bound from areas and level boxes above the threshold?"""
    a, b = hboxes[pairs[:, 0]], hboxes[pairs[:, 1]]
    sides = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
    area = rboxes[:, 2] * rboxes[:, 3]
    area_a, area_b = area[pairs[:, 0]], area[pairs[:, 1]]
    most = torch.minimum(sides[:, 0] * sides[:, 1], torch.minimum(area_a, area_b))
    return most * (1 + _BOUND_SLACK) > iou_threshold * (area_a + area_b - most)


def _suppress(better: np.ndarray, worse: np.ndarray, count: int) -> np.ndarray:
    """Return the ranks that survive; pairs are sorted by ``better``."""
    ranks, starts = np.unique(better, return_index=True)
    ends = np.append(starts[1:], len(better))
    is_suppressed = np.zeros(count, dtype=bool)
    for rank, start, end in zip(ranks.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if not is_suppressed[rank]:
            is_suppressed[worse[start:end]] = True
    return np.flatnonzero(~is_suppressed)
