"""Exact IoU of rotated boxes in plain torch.

Shapes: N and M boxes, P pairs, E = 4 edges (or corners) of a rectangle. Everything is
computed in float64, along the axes of one box of the pair and relative to the centre of the
other, so neither large coordinates nor tiny boxes lose digits. Results carry no gradient.
"""

from typing import Literal

import torch
from torch import Tensor

from obbflow.geometry.rbox import check_boxes, rbox_to_hbox

IouMode = Literal["iou", "iof"]

# P in one go. A chunk needs about 20 (E, P) float64 arrays: on a CPU these should stay in cache
# (measured: 4,096 pairs are 1.5 times as fast as 65,536), on a GPU they should fill it.
_PAIRS_PER_CHUNK_CPU = 1 << 12
_PAIRS_PER_CHUNK_GPU = 1 << 18
_CELLS_PER_CHUNK = 1 << 20  # cells of the (N, M) overlap test in one go


@torch.no_grad()
def box_iou_rotated(a: Tensor, b: Tensor, mode: IouMode = "iou") -> Tensor:
    """Return the IoU or IoF of every box of ``a`` with every box of ``b``.

    Only pairs whose enclosing level boxes overlap are computed; memory beyond the result is
    bounded.

    Args:
        a: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        b: (M, 5), as ``a``; M may be 0.
        mode: "iou": over the area of the union; "iof": over the area of the box of ``a``.

    Returns:
        (N, M) in [0, 1], dtype of ``a``; 0 where the area to divide by is 0.

    Raises:
        ValueError: If a shape is not (.., 5), a box is not finite or the mode is unknown.

    Example:
        >>> a = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
        >>> b = torch.tensor([[5.0, 3.0, 4.0, 2.0, 0.0], [9.0, 3.0, 2.0, 2.0, 0.0]])
        >>> box_iou_rotated(a, b, mode="iof").tolist()
        [[0.75, 0.0]]
    """
    _check_arguments(a, b, mode)
    result = a.new_zeros(len(a), len(b))
    if result.numel() == 0:
        return result
    hboxes_a, hboxes_b = rbox_to_hbox(a.double()), rbox_to_hbox(b.double())
    rows = max(1, _CELLS_PER_CHUNK // len(b))
    for start in range(0, len(a), rows):
        i, j = _touching(hboxes_a[start : start + rows], hboxes_b).nonzero(as_tuple=True)
        i = i + start
        result[i, j] = overlap_of_pairs(a, b, i, j, mode).to(result.dtype)
    return result


@torch.no_grad()
def pairwise_iou_rotated(a: Tensor, b: Tensor, mode: IouMode = "iou") -> Tensor:
    """Return the IoU or IoF of each box of ``a`` with the box of ``b`` in the same row.

    Args:
        a: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        b: (N, 5), as ``a``.
        mode: "iou": over the area of the union; "iof": over the area of the box of ``a``.

    Returns:
        (N,) in [0, 1], dtype of ``a``; 0 where the area to divide by is 0.

    Raises:
        ValueError: If a shape is not (N, 5), the lengths differ, a box is not finite or the mode
            is unknown.

    Example:
        >>> a = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
        >>> pairwise_iou_rotated(a, torch.tensor([[6.0, 3.0, 4.0, 2.0, 0.0]]), "iof").tolist()
        [0.5]
    """
    _check_arguments(a, b, mode)
    if len(a) != len(b):
        raise ValueError(f"a and b must have the same length, got {len(a)} and {len(b)}")
    rows = torch.arange(len(a), device=a.device)
    return overlap_of_pairs(a, b, rows, rows, mode).to(a.dtype)


def overlap_of_pairs(a: Tensor, b: Tensor, i: Tensor, j: Tensor, mode: IouMode = "iou") -> Tensor:
    """Return the IoU or IoF of the boxes ``a[i]`` with the boxes ``b[j]`` in float64.

    Args:
        a: (N, 5) float rboxes.
        b: (M, 5) float rboxes.
        i: (P,) int64, rows of ``a``; P may be 0.
        j: (P,) int64, rows of ``b``.
        mode: "iou" or "iof" (over the area of the box of ``a``).

    Returns:
        (P,) float64 in [0, 1].
    """
    a, b = a.double(), b.double()
    size = _PAIRS_PER_CHUNK_CPU if a.device.type == "cpu" else _PAIRS_PER_CHUNK_GPU
    chunks = zip(i.split(size), j.split(size), strict=True)
    return torch.cat([_overlap(a[rows], b[columns], mode) for rows, columns in chunks])


def _check_arguments(a: Tensor, b: Tensor, mode: str) -> None:
    """Raise for wrong shapes, boxes that are not finite and unknown modes."""
    for boxes, name in ((a, "a"), (b, "b")):
        check_boxes(boxes, 5, name)
        if not boxes.isfinite().all():
            raise ValueError(f"{name} must be finite: some coordinate is NaN or infinite")
    if mode not in ("iou", "iof"):
        raise ValueError(f"mode must be 'iou' or 'iof', got {mode!r}")


def _touching(a: Tensor, b: Tensor) -> Tensor:
    """Return (N, M) bool: do the level boxes a (N, 4) and b (M, 4) overlap?"""
    a, b = a[:, None], b[None]
    in_x = (a[..., 0] < b[..., 2]) & (b[..., 0] < a[..., 2])
    return in_x & (a[..., 1] < b[..., 3]) & (b[..., 1] < a[..., 3])


def _overlap(a: Tensor, b: Tensor, mode: IouMode) -> Tensor:
    """Return IoU or IoF of (P, 5) float64 pairs; 0 where the divisor is 0."""
    area_a, area_b = a[:, 2] * a[:, 3], b[:, 2] * b[:, 3]
    # The smaller box is cut in the frame of the larger one: its own size sets the rounding.
    a_is_larger = (area_a > area_b)[:, None]
    intersection = _intersection_area(
        torch.where(a_is_larger, b, a), torch.where(a_is_larger, a, b)
    )
    intersection = torch.minimum(intersection, torch.minimum(area_a, area_b)).clamp(min=0)
    divisor = area_a if mode == "iof" else area_a + area_b - intersection
    return torch.where(divisor > 0, intersection / divisor, torch.zeros_like(divisor))


def _intersection_area(cut: Tensor, frame: Tensor) -> Tensor:
    """Return the area (P,) of ``cut`` (P, 5) inside ``frame`` (P, 5).

    Along the frame's own axes the frame is a level box, and the area inside it is the integral,
    over x within the box, of the lower minus the upper y of the other rectangle, both clipped to
    the box. Running round the rectangle, each edge adds its own integral, the upper edges with
    one sign and the lower ones with the other. The integral of a clipped straight line has a
    closed form: nothing is intersected or sorted, and edges that touch, coincide or are nearly
    parallel are no special case.
    """
    x, y = _corners_along(cut, frame[:, 4])  # (E, P), relative to the centre of ``cut``
    x_next, y_next = x.roll(-1, dims=0), y.roll(-1, dims=0)
    left, top, right, bottom = _limits(cut, frame)  # (P,), relative to the same point
    start, end = x.clamp(left, right), x_next.clamp(left, right)
    run, rise = x_next - x, y_next - y
    # Vertical edges (run 0) have start == end and add nothing, whatever y they are given.
    divisor = torch.where(run == 0, torch.ones_like(run), run)
    y_start = y + ((start - x) / divisor).clamp(0, 1) * rise
    y_end = y_next - ((x_next - end) / divisor).clamp(0, 1) * rise
    return ((start - end) * _mean_clipped(y_start, y_end, top, bottom)).sum(dim=0)


def _corners_along(rboxes: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Return x and y (E, P) of the corners about their centre, on axes turned by ``angle``."""
    w, h = rboxes[:, 2] / 2, rboxes[:, 3] / 2
    cos, sin = (rboxes[:, 4] - angle).cos(), (rboxes[:, 4] - angle).sin()
    w_x, w_y, h_x, h_y = w * cos, w * sin, -h * sin, h * cos
    x = torch.stack([-w_x - h_x, w_x - h_x, w_x + h_x, h_x - w_x])
    y = torch.stack([-w_y - h_y, w_y - h_y, w_y + h_y, h_y - w_y])
    return x, y


def _limits(cut: Tensor, frame: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return left, top, right and bottom (P,) of ``frame`` on its axes about ``cut``'s centre.

    Limits outside the circle round ``cut`` are moved onto it, which leaves the area as it is and
    keeps the numbers as small as the box.
    """
    dx, dy = frame[:, 0] - cut[:, 0], frame[:, 1] - cut[:, 1]
    cos, sin = frame[:, 4].cos(), frame[:, 4].sin()
    x, y = dx * cos + dy * sin, dy * cos - dx * sin
    w, h = frame[:, 2] / 2, frame[:, 3] / 2
    radius = torch.hypot(cut[:, 2], cut[:, 3]) / 2
    left, top, right, bottom = (
        limit.clamp(-radius, radius) for limit in (x - w, y - h, x + w, y + h)
    )
    return left, top, right, bottom


def _mean_clipped(y_start: Tensor, y_end: Tensor, top: Tensor, bottom: Tensor) -> Tensor:
    """Return the mean of clip(y, top, bottom) along straight lines from y_start to y_end.

    The line spends its time in proportion to what is cut off at the start (there the value is
    the clipped start), inside the limits, and cut off at the end.
    """
    start, end = y_start.clamp(top, bottom), y_end.clamp(top, bottom)
    cut_start, cut_end = (y_start - start).abs(), (y_end - end).abs()
    inside = (end - start).abs()
    total = cut_start + inside + cut_end
    share = (cut_end + inside / 2) / torch.where(total == 0, torch.ones_like(total), total)
    return start + (end - start) * share
