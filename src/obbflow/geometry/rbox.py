"""Conversions between rotated boxes, corner quadrilaterals and level boxes.

Shapes: N boxes; rbox (cx, cy, w, h, angle), qbox (x1, y1, ..., x4, y4), hbox (x1, y1, x2, y2).
Lengths are px, angles radians; x to the right, y down, so a positive angle turns the w axis
clockwise on the screen. le90: w >= h, angle in [-pi/2, pi/2), for a square in [-pi/4, pi/4), limits
rounded to the dtype of the boxes.

Results have the dtype and the device of the input and carry its gradient; integers are a TypeError.
The sign of a side is ignored: (-w, h) are the same four corners as (w, h). Rows do not meet: what
is NaN or infinite makes the result of its own row not finite, raises nothing and waits for no GPU.
(obbflow.ops, which compares boxes, refuses such rows.)
"""

import math

import torch
from torch import Tensor

_LAYOUTS = {
    4: "(N, 4) as (x1, y1, x2, y2)",
    5: "(N, 5) as (cx, cy, w, h, angle)",
    8: "(N, 8) as (x1, y1, ..., x4, y4)",
}
_FIRST_CORNER = [0, 0, 0, 1, 1, 2]  # the six pairs of four corners
_SECOND_CORNER = [1, 2, 3, 2, 3, 3]
_QBOXES_PER_CHUNK = 1 << 14  # a few (6, 4, N) float64 arrays, which should stay in cache
_EQUAL_AREAS = 1e-9  # relative; far above the rounding of float64
_SQUARE_ROUNDING = 8.0  # in units of the last place of the largest corner coordinate


def check_boxes(boxes: Tensor, columns: int, name: str) -> None:
    """Raise unless ``boxes`` is a floating-point (N, columns) tensor.

    Args:
        boxes: The tensor to check; N may be 0.
        columns: 4 for hboxes, 5 for rboxes, 8 for qboxes.
        name: The argument's name for the message.

    Raises:
        ValueError: If the shape is another one.
        TypeError: If the values are not floating-point.
    """
    if boxes.ndim != 2 or boxes.shape[1] != columns:
        raise ValueError(f"{name} must be {_LAYOUTS[columns]}, got {tuple(boxes.shape)}")
    if not boxes.is_floating_point():
        raise TypeError(f"{name} must be floating-point, got {boxes.dtype}")


def normalize_le90(rboxes: Tensor) -> Tensor:
    """Return the same rectangles in le90 form: w >= h and angle in [-pi/2, pi/2).

    Sides are swapped where h > w. A square has four descriptions; the one with its angle in
    [-pi/4, pi/4) is returned. Boxes already in le90 come back bit by bit. Negative sides lose
    their sign.

    Args:
        rboxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians, any angle; N may be 0.

    Returns:
        (N, 5), in the order given.

    Raises:
        ValueError: If ``rboxes`` is not (N, 5).

    Example:
        >>> normalize_le90(torch.tensor([[4.0, 3.0, 2.0, 6.0, 0.5]])).tolist()
        [[4.0, 3.0, 6.0, 2.0, -1.070796251296997]]
    """
    check_boxes(rboxes, 5, "rboxes")
    cx, cy, w, h, angle = rboxes.unbind(dim=1)
    w, h = w.abs(), h.abs()
    turned = torch.where(h > w, angle + math.pi / 2, angle)
    period = torch.full_like(angle, math.pi).masked_fill(w == h, math.pi / 2)
    limit = period / 2
    wrapped = turned - period * torch.floor(turned / period + 0.5)
    wrapped = torch.where((turned >= -limit) & (turned < limit), turned, wrapped)
    # Rounding may leave an angle at the upper limit, or just past the lower one.
    wrapped = torch.where((wrapped >= limit) | (wrapped < -limit), -limit, wrapped)
    return torch.stack([cx, cy, torch.maximum(w, h), torch.minimum(w, h), wrapped], dim=1)


def rbox_to_qbox(rboxes: Tensor) -> Tensor:
    """Return the four corners of rotated boxes.

    The w axis points along (cos angle, sin angle); with x to the right and y down, a positive
    angle turns it clockwise on the screen.

    Args:
        rboxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.

    Returns:
        (N, 8), px: x1, y1, ..., x4, y4, clockwise on the screen from the corner that is top-left
        when angle is 0.

    Raises:
        ValueError: If ``rboxes`` is not (N, 5).

    Example:
        >>> rbox_to_qbox(torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])).tolist()
        [[2.0, 2.0, 6.0, 2.0, 6.0, 4.0, 2.0, 4.0]]
    """
    check_boxes(rboxes, 5, "rboxes")
    centre, w, h, angle = rboxes.split([2, 1, 1, 1], dim=1)
    cos, sin = angle.cos(), angle.sin()
    half_w = torch.cat([cos, sin], dim=1) * w / 2  # (N, 2), centre to middle of the right edge
    half_h = torch.cat([-sin, cos], dim=1) * h / 2  # (N, 2), centre to middle of the bottom edge
    left, right = centre - half_w, centre + half_w
    return torch.cat([left - half_h, right - half_h, right + half_h, left + half_h], dim=1)


def qbox_to_rbox(qboxes: Tensor) -> Tensor:
    """Return the rectangle of least area around each quadrilateral, in le90.

    A rectangle of least area has a side along an edge of the convex hull, and every hull edge
    joins two of the four corners: the smallest of the six rectangles along the six pairs of
    corners is the answer. Concave and self-crossing quadrilaterals are no special case. When one
    corner lies within the rectangles along both edges of the other three, these have the same
    area, and the less elongated one is taken. The corners are sorted first: their order and the
    direction they run in change no bit of the result.

    Computed in float64 relative to the first corner, in chunks of bounded memory. A quadrilateral
    that has shrunk to a line gives h = 0, one that has shrunk to a point w = h = angle = 0. Sides
    that differ by no more than the rounding of the corners make a square.

    Args:
        qboxes: (N, 8) float, x1, y1, ..., x4, y4 in px, corners in any order; N may be 0.

    Returns:
        (N, 5), (cx, cy, w, h, angle), in the dtype of ``qboxes``.

    Raises:
        ValueError: If ``qboxes`` is not (N, 8).

    Source:
        Freeman and Shapira, "Determining the minimum-area encasing rectangle for an arbitrary
        closed curve", 1975: the side along a hull edge.

    Example:
        >>> qbox_to_rbox(torch.tensor([[6.0, 4.0, 2.0, 4.0, 2.0, 2.0, 6.0, 2.0]])).tolist()
        [[4.0, 3.0, 4.0, 2.0, 0.0]]
    """
    check_boxes(qboxes, 8, "qboxes")
    return torch.cat([_least_rectangles(chunk) for chunk in qboxes.split(_QBOXES_PER_CHUNK)])


def _least_rectangles(qboxes: Tensor) -> Tensor:
    x, y = _sorted_corners(qboxes)
    origin_x, origin_y = x[0], y[0]
    x, y = x - origin_x, y - origin_y
    run, rise = x[_SECOND_CORNER] - x[_FIRST_CORNER], y[_SECOND_CORNER] - y[_FIRST_CORNER]
    run = run.masked_fill((run == 0) & (rise == 0), 1.0)  # a repeated corner counts as level
    length = torch.hypot(run, rise)
    cos, sin = run / length, rise / length  # (6, N), the six directions of the w axis

    # Not aminmax: it waits for all threads even for a few boxes.
    across, down = cos[:, None] * x + sin[:, None] * y, cos[:, None] * y - sin[:, None] * x
    left, right = across.amin(dim=1), across.amax(dim=1)  # along the w axis
    top, bottom = down.amin(dim=1), down.amax(dim=1)  # along the h axis
    w, h = right - left, bottom - top
    area = w * h
    is_least = area <= area.amin(dim=0) * (1 + _EQUAL_AREAS)
    best = torch.maximum(w, h).masked_fill(~is_least, math.inf).argmin(dim=0, keepdim=True)
    cos, sin, left, right, top, bottom = (
        values.gather(0, best).squeeze(0) for values in (cos, sin, left, right, top, bottom)
    )

    along_w, along_h = (left + right) / 2, (top + bottom) / 2  # from the origin to the centre
    cx = origin_x + cos * along_w - sin * along_h
    cy = origin_y + sin * along_w + cos * along_h
    w, h, side = right - left, bottom - top, (right - left + bottom - top) / 2
    rounding = _SQUARE_ROUNDING * torch.finfo(qboxes.dtype).eps * qboxes.abs().amax(dim=1).double()
    is_square = (w - h).abs() <= rounding
    w, h = torch.where(is_square, side, w), torch.where(is_square, side, h)
    rboxes = torch.stack([cx, cy, w, h, torch.atan2(sin, cos)], dim=1)
    return normalize_le90(rboxes.to(qboxes.dtype))


def _sorted_corners(qboxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return x and y (4, N) of the corners in float64, from left to right and top to bottom."""
    x, y = qboxes.double().reshape(-1, 4, 2).permute(2, 1, 0)
    order = y.argsort(dim=0, stable=True)
    x, y = x.gather(0, order), y.gather(0, order)
    order = x.argsort(dim=0, stable=True)
    return x.gather(0, order), y.gather(0, order)


def rbox_to_hbox(rboxes: Tensor) -> Tensor:
    """Return the smallest level box around each rotated box.

    Args:
        rboxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.

    Returns:
        (N, 4), px: x1, y1, x2, y2 with x1 <= x2 and y1 <= y2.

    Raises:
        ValueError: If ``rboxes`` is not (N, 5).

    Example:
        >>> rbox_to_hbox(torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])).tolist()
        [[2.0, 2.0, 6.0, 4.0]]
    """
    check_boxes(rboxes, 5, "rboxes")
    centre, w, h, angle = rboxes.split([2, 1, 1, 1], dim=1)
    w, h = w.abs(), h.abs()
    cos, sin = angle.cos().abs(), angle.sin().abs()
    half = torch.cat([w * cos + h * sin, w * sin + h * cos], dim=1) / 2
    return torch.cat([centre - half, centre + half], dim=1)


def hbox_to_rbox(hboxes: Tensor) -> Tensor:
    """Return level boxes as rotated boxes in le90; a tall one gets angle -pi/2.

    Args:
        hboxes: (N, 4) float, x1, y1, x2, y2 in px, any two opposite corners; N may be 0.

    Returns:
        (N, 5), (cx, cy, w, h, angle).

    Raises:
        ValueError: If ``hboxes`` is not (N, 4).

    Example:
        >>> hbox_to_rbox(torch.tensor([[2.0, 2.0, 6.0, 4.0]])).tolist()
        [[4.0, 3.0, 4.0, 2.0, 0.0]]
    """
    check_boxes(hboxes, 4, "hboxes")
    start, end = hboxes.split([2, 2], dim=1)
    angle = torch.zeros_like(hboxes[:, :1])
    return normalize_le90(torch.cat([(start + end) / 2, end - start, angle], dim=1))
