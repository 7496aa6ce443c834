"""Exact area that two rotated boxes have in common, for many pairs at once.

Shapes: N and M boxes, P pairs, E = 4 edges (or corners) of a rectangle. Everything is computed in
float64, along the axes of one box of the pair and relative to the centre of the other, so neither
large coordinates nor tiny boxes lose digits.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from obbflow.ops.pairs import IouMode

# P in one go. A chunk needs about 20 (E, P) float64 arrays: on a CPU these should stay in cache,
# and at 32,768 numbers torch would call in other threads, for too little work each. (Measured:
# 8,192 pairs are as fast as 16,384 on an idle machine, and several times as fast on a busy one.)
_PAIRS_PER_CHUNK_CPU = 1 << 13
_PAIRS_PER_CHUNK_GPU = 1 << 18


class RboxColumns(NamedTuple):
    """Rotated boxes, column by column, all (N,) float64."""

    cx: Tensor
    cy: Tensor
    half_w: Tensor
    half_h: Tensor
    cos: Tensor
    sin: Tensor

    def take(self, rows: Tensor) -> "RboxColumns":
        """Return the boxes in ``rows`` (P,) int64."""
        return RboxColumns(*(column.index_select(0, rows) for column in self))


def split_columns(rboxes: Tensor) -> RboxColumns:
    """Return the columns of ``rboxes`` (N, 5), for :func:`overlap_of_pairs`."""
    cx, cy, w, h, angle = rboxes.double().T.contiguous()
    return RboxColumns(cx, cy, w / 2, h / 2, angle.cos(), angle.sin())


def overlap_of_pairs(boxes: RboxColumns, i: Tensor, j: Tensor, mode: IouMode = "iou") -> Tensor:
    """Return the IoU or IoF of pairs of boxes.

    Args:
        boxes: N boxes. Their sines are computed once, and not for each pair.
        i: (P,) int64, the first box of each pair; P may be 0.
        j: (P,) int64, the second one.
        mode: "iou" or "iof" (over the area of the first box).

    Returns:
        (P,) float64 in [0, 1]; 0 where the divisor is 0, and exactly 0 for boxes apart.
    """
    size = _PAIRS_PER_CHUNK_CPU if i.device.type == "cpu" else _PAIRS_PER_CHUNK_GPU
    area = 4 * boxes.half_w * boxes.half_h
    chunks = zip(i.split(size), j.split(size), strict=True)
    return torch.cat([_overlap(boxes, area, rows, columns, mode) for rows, columns in chunks])


def _overlap(boxes: RboxColumns, area: Tensor, i: Tensor, j: Tensor, mode: IouMode) -> Tensor:
    """Return :func:`overlap_of_pairs` of one chunk."""
    area_i, area_j = area.index_select(0, i), area.index_select(0, j)
    # The smaller box is cut in the frame of the larger one: its own size sets the rounding.
    i_is_larger = area_i > area_j
    cut, frame = (
        boxes.take(torch.where(i_is_larger, j, i)),
        boxes.take(torch.where(i_is_larger, i, j)),
    )
    near = _may_touch(cut, frame).nonzero().squeeze(1)
    common = torch.zeros_like(area_i)
    common.index_copy_(0, near, _intersection_area(cut.take(near), frame.take(near)))
    common = torch.minimum(common, torch.minimum(area_i, area_j)).clamp_(min=0)
    divisor = area_i if mode == "iof" else area_i + area_j - common
    return torch.where(divisor > 0, common / divisor, 0)


def _may_touch(a: RboxColumns, b: RboxColumns) -> Tensor:
    """Return (P,) bool: is there no side of either box that separates the two?

    Source:
        The separating axis theorem, see Gottschalk, Lin and Manocha, "OBBTree", 1996, section 5.
    """
    dx, dy = b.cx - a.cx, b.cy - a.cy
    cos, sin = _turn(a, b)
    cos, sin = cos.abs(), sin.abs()
    touching = (dx * a.cos + dy * a.sin).abs() < a.half_w + b.half_w * cos + b.half_h * sin
    touching &= (dy * a.cos - dx * a.sin).abs() < a.half_h + b.half_w * sin + b.half_h * cos
    touching &= (dx * b.cos + dy * b.sin).abs() < b.half_w + a.half_w * cos + a.half_h * sin
    touching &= (dy * b.cos - dx * b.sin).abs() < b.half_h + a.half_w * sin + a.half_h * cos
    return touching


def _turn(a: RboxColumns, b: RboxColumns) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the angle of ``b`` minus that of ``a``."""
    return a.cos * b.cos + a.sin * b.sin, a.cos * b.sin - a.sin * b.cos


def _intersection_area(cut: RboxColumns, frame: RboxColumns) -> Tensor:
    """Return the area (P,) of the boxes ``cut`` inside the boxes ``frame``.

    Along the frame's own axes the frame is a level box, and the area inside it is the integral,
    over x within the box, of the lower minus the upper y of the other rectangle, both clipped to
    the box. Running round the rectangle, each edge adds its own integral, the upper edges with
    one sign and the lower ones with the other. The integral of a clipped straight line has a
    closed form: nothing is intersected or sorted, and edges that touch, coincide or are nearly
    parallel are no special case.
    """
    x, y = _corners_along(cut, frame)  # (E, P), relative to the centre of ``cut``
    x_next, y_next = x.roll(-1, dims=0), y.roll(-1, dims=0)
    left, top, right, bottom = _limits(cut, frame)  # (P,), relative to the same point
    start, end = x.clamp(left, right), x_next.clamp(left, right)
    run, rise = x_next - x, y_next - y
    # Vertical edges (run 0) have start == end and add nothing, whatever y they are given.
    run = run.masked_fill_(run == 0, 1)
    y_start = y + ((start - x) / run).clamp_(0, 1) * rise
    y_end = y_next - ((x_next - end) / run).clamp_(0, 1) * rise
    return ((start - end) * _mean_clipped(y_start, y_end, top, bottom)).sum(dim=0)


def _corners_along(cut: RboxColumns, frame: RboxColumns) -> tuple[Tensor, Tensor]:
    """Return x and y (E, P) of the corners about their centre, along the axes of ``frame``."""
    cos, sin = _turn(frame, cut)
    w_x, w_y, h_x, h_y = cut.half_w * cos, cut.half_w * sin, -cut.half_h * sin, cut.half_h * cos
    sum_x, sum_y, difference_x, difference_y = w_x + h_x, w_y + h_y, w_x - h_x, w_y - h_y
    x = torch.stack([-sum_x, difference_x, sum_x, -difference_x])
    y = torch.stack([-sum_y, difference_y, sum_y, -difference_y])
    return x, y


def _limits(cut: RboxColumns, frame: RboxColumns) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return left, top, right and bottom (P,) of ``frame`` on its axes about ``cut``'s centre.

    Limits outside the circle round ``cut`` are moved onto it, which leaves the area as it is and
    keeps the numbers as small as the box.
    """
    dx, dy = frame.cx - cut.cx, frame.cy - cut.cy
    x, y = dx * frame.cos + dy * frame.sin, dy * frame.cos - dx * frame.sin
    radius = torch.hypot(cut.half_w, cut.half_h)
    left, top, right, bottom = (
        limit.clamp(-radius, radius)
        for limit in (x - frame.half_w, y - frame.half_h, x + frame.half_w, y + frame.half_h)
    )
    return left, top, right, bottom


def _mean_clipped(y_start: Tensor, y_end: Tensor, top: Tensor, bottom: Tensor) -> Tensor:
    """Return the mean of clip(y, top, bottom) along straight lines from y_start to y_end.

    The line spends its time in proportion to what is cut off at the start (there the value is
    the clipped start), inside the limits, and cut off at the end.
    """
    start, end = y_start.clamp(top, bottom), y_end.clamp(top, bottom)
    cut_start, cut_end = (y_start - start).abs_(), (y_end - end).abs_()
    rise = end - start
    inside = rise.abs()
    total = cut_start.add_(inside).add_(cut_end).clamp_(min=torch.finfo(inside.dtype).tiny)
    return start + rise * (cut_end.add_(inside, alpha=0.5) / total)
