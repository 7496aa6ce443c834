"""Which object a point has to find: the rules of FCOS.

Shapes: N objects, M points of all levels, K ignore regions.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from obbflow.models.coders import DistanceAngleCoder
from obbflow.models.matching import BACKGROUND, IGNORED

_PAIRS_PER_CHUNK = 1 << 21
_coder = DistanceAngleCoder()


class _Grid(NamedTuple):
    height: int
    width: int
    stride: int


def match_points(
    rboxes: Tensor,
    grids: Sequence[tuple[int, int, int]],
    ranges: Sequence[tuple[float, float]],
    radius: float,
) -> Tensor:
    """Return (M,) int64: the index of the object that a point has to find, or ``BACKGROUND``.

    A point has to find an object if it lies inside, nearer to its centre than ``radius`` cells
    along both of its axes, and if the farthest of its sides is within the range of the level. Of
    several objects it is the one of the smallest area, and of equal ones the first. Only cells
    near the centres are looked at: time and memory grow with N, not with N x M.

    Args:
        rboxes: (N, 5) objects, px; N may be 0.
        grids: (height, width, stride) of each level; points are the centres of cells.
        ranges: Least and largest distance to the farthest side on each level, px, both included.
        radius: Cells.

    Source:
        Tian et al., FCOS, ICCV 2019, section 3.2; the radius is from the authors' later code.
    """
    order = (rboxes[:, 2] * rboxes[:, 3]).argsort(stable=True)
    ordered = rboxes[order]
    levels = []
    for grid, limits in zip(grids, ranges, strict=True):
        rank, cell = _claims(ordered, _Grid(*grid), limits, radius)
        best = torch.full((grid[0] * grid[1],), len(rboxes), device=rboxes.device)
        levels.append(best.scatter_reduce(0, cell, rank, "amin"))
    return torch.cat([order, order.new_tensor([BACKGROUND])])[torch.cat(levels)]


def _claims(
    rboxes: Tensor, grid: _Grid, limits: tuple[float, float], radius: float
) -> tuple[Tensor, Tensor]:
    """Return (P,) objects and (P,) cells of one level that fit each other."""
    reach = radius * math.sqrt(2)  # cells: of the turned square round the centre
    steps = torch.arange(math.floor(2 * reach) + 1, device=rboxes.device)
    first = (rboxes[:, :2] / grid.stride - 0.5 - reach).ceil()
    x, y = (first[:, axis, None].long() + steps for axis in range(2))  # (N, steps) each
    x, y = torch.broadcast_tensors(x[:, None, :], y[:, :, None])
    is_cell = (x >= 0) & (x < grid.width) & (y >= 0) & (y < grid.height)
    row, _, _ = is_cell.nonzero(as_tuple=True)
    x, y = x[is_cell], y[is_cell]
    points = (torch.stack([x, y], dim=1) + 0.5) * grid.stride
    distances = _coder.encode(points, rboxes[row])[:, :4]
    offset = (distances[:, :2] - distances[:, 2:]) / 2  # of the point from the centre
    farthest = distances.amax(dim=1)
    fits = (distances.amin(dim=1) > 0) & (offset.abs().amax(dim=1) < radius * grid.stride)
    fits &= (farthest >= limits[0]) & (farthest <= limits[1])
    return row[fits], (y * grid.width + x)[fits]


def ignore_inside(matches: Tensor, ignore_regions: Tensor, points: Tensor) -> Tensor:
    """Return matches in which background points inside an ignore region are ``IGNORED``.

    Args:
        matches: (M,) as from :func:`match_points`.
        ignore_regions: (K, 5) rboxes, px; K may be 0.
        points: (M, 2), px.
    """
    inside = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for chunk in ignore_regions.split(max(_PAIRS_PER_CHUNK // max(len(points), 1), 1)):
        every_point = points.repeat(len(chunk), 1)
        every_region = chunk.repeat_interleave(len(points), dim=0)
        distances = _coder.encode(every_point, every_region)[:, :4]
        inside |= (distances.amin(dim=1) > 0).reshape(len(chunk), len(points)).any(dim=0)
    return torch.where(inside & (matches == BACKGROUND), IGNORED, matches)


def centerness(distances: Tensor) -> Tensor:
    """Return (P,) how central points are: 1 at the centre, 0 on a side.

    Args:
        distances: (P, 4 or more) left, top, right, bottom, px, above 0; P may be 0.

    Source:
        Tian et al., FCOS, ICCV 2019, equation 3.
    """
    start, end = distances[:, :2], distances[:, 2:4]
    return (torch.minimum(start, end) / torch.maximum(start, end)).prod(dim=1).sqrt()
