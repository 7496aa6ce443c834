"""How the area that two rotated boxes have in common changes with both boxes.

Shapes: P pairs; E = 4 edges of a box in the order right, left, bottom, top (as seen at angle 0).
Everything is computed in float64 and relative to the boxes' own centres.
"""

import torch
from torch import Tensor

from obbflow.geometry.rbox import check_boxes

_ON_THE_BORDER = 1e-11  # relative to the boxes' sides; far above the rounding of float64


@torch.no_grad()
def intersection_gradient(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives of the intersection area of pairs of boxes by their parameters.

    The part of the border of ``a`` that lies inside ``b`` is border of the intersection and moves
    with ``a``: the area changes by the distance that it moves outwards, integrated along it. Each
    edge is clipped to the other box, so nothing is intersected with anything else, and the result
    is exact and finite for every pair. Where edges of both boxes coincide the area has a kink; they
    count half, the mean of moving out and moving in: identical boxes have gradient 0 of the IoU.

    Args:
        a: (P, 5) float, (cx, cy, w, h, angle) in px and radians, finite; P may be 0.
        b: (P, 5), as ``a``.

    Returns:
        Two (P, 5) float64: the derivative by each parameter of ``a`` and of ``b``, px^2 a px and
        px^2 a radian.

    Raises:
        ValueError: If a shape is not (P, 5).

    Source:
        Reynolds' transport theorem, for the border that lies inside the other box.

    Example:
        >>> a = torch.tensor([[4.0, 3.0, 4.0, 2.0, 0.0]])
        >>> b = torch.tensor([[6.0, 3.5, 4.0, 2.0, 0.0]])
        >>> [gradient.tolist() for gradient in intersection_gradient(a, b)]
        [[[1.5, 2.0, 0.75, 1.0, 1.625]], [[-1.5, -2.0, 0.75, 1.0, 1.625]]]
    """
    for boxes, name in ((a, "a"), (b, "b")):
        check_boxes(boxes, 5, name)
    a, b = a.double(), b.double()
    return _gradient_of(a, b), _gradient_of(b, a)


def _gradient_of(box: Tensor, other: Tensor) -> Tensor:
    """Return (P, 5): the derivative of the intersection area by the parameters of ``box``."""
    length, middle = _clip_edges(box, other)  # (P, E) each
    right, left, bottom, top = length.unbind(dim=1)
    cos, sin = box[:, 4].cos(), box[:, 4].sin()
    along_w, along_h = right - left, bottom - top  # outward motion of both edges of a pair
    # Turning moves a point at s along the edge outwards by s on the edges across, by -s on right
    # and by s on left.
    turn = (length * middle * middle.new_tensor([-1, 1, 1, -1])).sum(dim=1)
    columns = [
        along_w * cos - along_h * sin,
        along_w * sin + along_h * cos,
        (right + left) / 2,
        (bottom + top) / 2,
        turn,
    ]
    return torch.stack(columns, dim=1)


def _clip_edges(box: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the length and the middle (P, E) of the part of each edge that lies in ``other``.

    The middle is measured from the edge's own middle, along the h axis on right and left and along
    the w axis on bottom and top. Half the length where the edge runs along a border of ``other``.
    """
    half = box[:, 2:4] / 2
    turn = box[:, 4] - other[:, 4]
    cos, sin = turn.cos(), turn.sin()
    w_axis = torch.stack([cos, sin], dim=1)  # of ``box`` in the frame of ``other``, (P, 2)
    h_axis = torch.stack([-sin, cos], dim=1)
    shift = box[:, :2] - other[:, :2]
    x_axis = torch.stack([other[:, 4].cos(), other[:, 4].sin()], dim=1)
    y_axis = torch.stack([-x_axis[:, 1], x_axis[:, 0]], dim=1)
    centre = torch.stack([(shift * x_axis).sum(dim=1), (shift * y_axis).sum(dim=1)], dim=1)

    middles, directions, reaches = [], [], []
    for normal, direction, axis in ((w_axis, h_axis, 0), (h_axis, w_axis, 1)):
        for sign in (1, -1):
            middles.append(centre + sign * half[:, axis, None] * normal)
            directions.append(direction)
            reaches.append(half[:, 1 - axis])
    start = torch.stack(middles, dim=1)  # (P, E, 2), the middle of each edge
    direction = torch.stack(directions, dim=1)  # (P, E, 2), unit vectors
    reach = torch.stack(reaches, dim=1)  # (P, E), half the edge's length
    limit = (other[:, 2:4] / 2)[:, None]  # (P, 1, 2)

    enter, leave, share = _inside(start, direction, reach[..., None], limit)
    enter, leave = torch.maximum(enter, -reach), torch.minimum(leave, reach)
    return (leave - enter).clamp(min=0) * share, (enter + leave) / 2


def _inside(
    start: Tensor, direction: Tensor, reach: Tensor, limit: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return where lines enter and leave a level box about the origin, and what share counts.

    Args:
        start: (P, E, 2) the middles of the edges.
        direction: (P, E, 2) unit vectors.
        reach: (P, E, 1) half the lengths.
        limit: (P, 1, 2) half the sides of the box.

    Returns:
        Distances from ``start`` along ``direction``, and 1/2 for edges that run along a border of
        the box, else 1; (P, E) each.
    """
    rounding = _ON_THE_BORDER * (reach + limit)
    is_parallel = (direction * reach).abs() <= rounding
    runs_along = is_parallel & ((start.abs() - limit).abs() <= rounding)
    divisor = torch.where(is_parallel, 1, direction)
    first, second = (-limit - start) / divisor, (limit - start) / divisor
    enter, leave = torch.minimum(first, second), torch.maximum(first, second)
    is_within = runs_along | (start.abs() <= limit)
    enter = torch.where(is_parallel, torch.where(is_within, -reach, reach), enter)
    leave = torch.where(is_parallel, reach, leave)
    share = torch.where(runs_along, 0.5, 1.0).amin(dim=2)
    return enter.amax(dim=2), leave.amin(dim=2), share
