"""Flip, rotate, scale and shift rotated boxes together with their image.

Coordinates are continuous: pixel (0, 0) covers [0, 1) x [0, 1), so an image of width W spans
[0, W] and a mirrored point moves from x to W - x.

Everything is computed in float64 and rounded once, to the dtype of the boxes; boxes that are NaN
or infinite stay so. There and back gives the same box: bit by bit where the coordinates in between
are exact in the dtype, as whole and half pixels are, otherwise within their rounding. Only unequal
scaling of an oblique box has no way back, since a rectangle cannot be sheared.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from obbflow.geometry.rbox import check_boxes, normalize_le90, qbox_to_rbox, rbox_to_qbox

FlipDirection = Literal["horizontal", "vertical", "diagonal"]

_FLIPPED_AXES = {"horizontal": (True, False), "vertical": (False, True), "diagonal": (True, True)}


def flip_rboxes(
    rboxes: Tensor, direction: FlipDirection, image_size: tuple[float, float]
) -> Tensor:
    """Return the boxes of the mirrored image.

    Args:
        rboxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        direction: "horizontal" exchanges left and right, "vertical" top and bottom,
            "diagonal" both, which is half a turn.
        image_size: Height and width of the image, px.

    Returns:
        (N, 5), le90.

    Raises:
        ValueError: If ``rboxes`` is not (N, 5), the direction is unknown or the size not finite.

    Example:
        >>> flip_rboxes(torch.tensor([[1.0, 3.0, 4.0, 2.0, 0.5]]), "horizontal", (8, 10)).tolist()
        [[9.0, 3.0, 4.0, 2.0, -0.5]]
    """
    check_boxes(rboxes, 5, "rboxes")
    if direction not in _FLIPPED_AXES:
        raise ValueError(f"direction must be one of {sorted(_FLIPPED_AXES)}, got {direction!r}")
    flip_x, flip_y = _FLIPPED_AXES[direction]
    height, width = image_size
    _check_finite(image_height=height, image_width=width)
    cx, cy, w, h, angle = rboxes.double().unbind(dim=1)
    cx = width - cx if flip_x else cx
    cy = height - cy if flip_y else cy
    angle = angle if flip_x == flip_y else -angle
    return _rounded(torch.stack([cx, cy, w, h, angle], dim=1), rboxes.dtype)


def rotate_rboxes(rboxes: Tensor, angle: float, centre: tuple[float, float]) -> Tensor:
    """Return the boxes turned about a point, clockwise on the screen for a positive angle.

    Whole quarter turns are exact: they exchange coordinates and sides, and no angle is added but
    the pi/2 by which le90 may have to swap the sides back.

    Args:
        rboxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        angle: Radians.
        centre: x and y of the fixed point, px; (width / 2, height / 2) is the image's middle.

    Returns:
        (N, 5), le90.

    Raises:
        ValueError: If ``rboxes`` is not (N, 5), or the angle or the centre is not finite.

    Example:
        >>> box = torch.tensor([[7.0, 4.0, 4.0, 2.0, 0.0]])
        >>> rotate_rboxes(box, math.pi / 2, (4.0, 4.0))[:, :4].tolist()
        [[4.0, 7.0, 4.0, 2.0]]
    """
    check_boxes(rboxes, 5, "rboxes")
    _check_finite(angle=angle, centre_x=centre[0], centre_y=centre[1])
    quarter_turns = round(angle / (math.pi / 2))
    if math.isclose(angle, quarter_turns * math.pi / 2, rel_tol=1e-12, abs_tol=1e-12):
        cos, sin = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][quarter_turns % 4]
        sides, turn = [3, 2] if quarter_turns % 2 else [2, 3], 0.0
    else:
        cos, sin, sides, turn = math.cos(angle), math.sin(angle), [2, 3], angle
    exact = rboxes.double()
    x, y = exact[:, 0] - centre[0], exact[:, 1] - centre[1]
    turned = torch.stack([centre[0] + cos * x - sin * y, centre[1] + sin * x + cos * y], dim=1)
    turned = torch.cat([turned, exact[:, sides], exact[:, 4:] + turn], dim=1)
    return _rounded(turned, rboxes.dtype)


def scale_rboxes(rboxes: Tensor, scale_x: float, scale_y: float) -> Tensor:
    """Return the boxes of the resized image.

    Unequal factors shear an oblique rectangle into a parallelogram; the rectangle of least area
    around it is returned.

    Args:
        rboxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        scale_x: New width over old width, positive and finite.
        scale_y: New height over old height, the same.

    Returns:
        (N, 5), le90.

    Raises:
        ValueError: If ``rboxes`` is not (N, 5), or a factor is not positive and finite.

    Example:
        >>> scale_rboxes(torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]]), 2.0, 2.0).tolist()
        [[8.0, 6.0, 8.0, 4.0, 0.0]]
    """
    check_boxes(rboxes, 5, "rboxes")
    if not (0 < scale_x < math.inf and 0 < scale_y < math.inf):
        raise ValueError(f"factors must be positive and finite, got {scale_x} and {scale_y}")
    exact = rboxes.double()
    if scale_x == scale_y:
        scaled = torch.cat([exact[:, :4] * scale_x, exact[:, 4:]], dim=1)
    else:
        scaled = qbox_to_rbox(rbox_to_qbox(exact) * exact.new_tensor([scale_x, scale_y] * 4))
    return _rounded(scaled, rboxes.dtype)


def shift_rboxes(rboxes: Tensor, shift_x: float, shift_y: float) -> Tensor:
    """Return the boxes moved by a number of pixels, their shape untouched.

    Args:
        rboxes: (N, 5) float, (cx, cy, w, h, angle) in px and radians; N may be 0.
        shift_x: To the right, px.
        shift_y: Down, px.

    Returns:
        (N, 5), sides and angles as given.

    Raises:
        ValueError: If ``rboxes`` is not (N, 5) or a shift is not finite.

    Example:
        >>> shift_rboxes(torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]]), -1.0, 2.0).tolist()
        [[3.0, 5.0, 4.0, 2.0, 0.0]]
    """
    check_boxes(rboxes, 5, "rboxes")
    _check_finite(shift_x=shift_x, shift_y=shift_y)
    exact = rboxes.double()
    return (exact + exact.new_tensor([shift_x, shift_y, 0.0, 0.0, 0.0])).to(rboxes.dtype)


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")


def _rounded(rboxes: Tensor, dtype: torch.dtype) -> Tensor:
    """Return le90 boxes in ``dtype``. Rounding comes first: it may carry an angle to the limit."""
    return normalize_le90(rboxes.to(dtype))
