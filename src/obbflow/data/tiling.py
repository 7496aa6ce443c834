"""The geometry of tiles: where they lie, and what of each object they show.

Shapes: N objects of one image; rboxes (N, 5) px and radians, le90; qboxes (N, 8) px.
"""

from dataclasses import dataclass

import numpy as np
import shapely
import torch
from numpy.typing import NDArray

from obbflow.geometry import normalize_le90, qbox_to_rbox

ROUNDING = 1e-9
"""Shares of an area that differ by less are equal."""
WHOLE = 1 - ROUNDING
"""An object with this share of its area inside is whole: its box is kept exactly."""
MIN_VISIBLE_AREA = 0.5
"""A visible part that is smaller, px^2, and no object by ``min_visible``, is left out."""


@dataclass(frozen=True)
class CutObjects:
    """What one tile shows of the objects of its image; K rows in the order of the objects.

    ``rows`` (K,) are indices of the objects, ``rboxes`` (K, 5) boxes in the tile's px, le90,
    ``iof`` (K,) the share of the object's area inside, ``ignore`` (K,) whether it is too small.
    """

    rows: NDArray[np.int64]
    rboxes: NDArray[np.float64]
    iof: NDArray[np.float64]
    ignore: NDArray[np.bool_]


def windows(width: int, height: int, tile_size: int, overlap: int) -> list[tuple[int, int]]:
    """Return the top left corners of the tiles that cover an image.

    Tiles start every ``tile_size - overlap`` px; the last one of a row or column is moved back
    flush with the border. An image that is not larger than a tile has one tile, at 0.

    Args:
        width: Of the image, px, at least 1.
        height: Of the image, px, at least 1.
        tile_size: Side of a tile, px.
        overlap: Of neighbouring tiles, px, from 0 to below ``tile_size``.

    Returns:
        (x, y) px, row by row, each once.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> windows(448, 256, tile_size=256, overlap=64)
        [(0, 0), (192, 0)]
    """
    if min(width, height, tile_size) < 1:
        raise ValueError(
            f"width, height and tile_size must be positive, got {width}, {height} and {tile_size}"
        )
    if not 0 <= overlap < tile_size:
        raise ValueError(f"overlap must be in [0, tile_size), got {overlap} of {tile_size}")
    stride = tile_size - overlap
    columns, rows = (_starts(length, tile_size, stride) for length in (width, height))
    return [(x, y) for y in rows for x in columns]


def _starts(length: int, tile_size: int, stride: int) -> list[int]:
    last = max(length - tile_size, 0)
    return [*range(0, last, stride), last]


class ObjectCutter:
    """The objects of one image, ready to be cut by many tiles.

    Areas are those of the label as written (the convex hull of its corners), exact in float64.
    """

    def __init__(self, qboxes: NDArray[np.float64]) -> None:
        """Take the objects' corners, (N, 8) px; N may be 0."""
        corners = np.array(qboxes, dtype=np.float64).reshape(-1, 4, 2)  # a writable copy
        self._low, self._high = corners.min(axis=1), corners.max(axis=1)
        self._hulls = shapely.convex_hull(shapely.polygons(corners))
        self._areas = shapely.area(self._hulls)
        self._rboxes = qbox_to_rbox(torch.from_numpy(corners.reshape(-1, 8))).numpy()

    def cut(self, x: int, y: int, width: int, height: int, min_visible: float) -> CutObjects:
        """Return what the rectangle from (x, y) shows of the objects.

        An object that is whole inside keeps its box. Of another one the visible part is boxed in
        the object's own frame, so its angle stays; with less than ``min_visible`` of its area
        inside it is an ignore region.

        Args:
            x: Left border, px of the image.
            y: Upper border, px.
            width: Of the part that shows the image, px.
            height: The same.
            min_visible: Share of an object's area, in (0, 1].

        Returns:
            The objects of which something is visible; boxes are relative to (x, y).
        """
        start = np.array([x, y], dtype=np.float64)
        end = np.array([x + width, y + height], dtype=np.float64)
        touching = ((self._low < end) & (self._high > start)).all(axis=1)
        inside = ((self._low >= start) & (self._high <= end)).all(axis=1)
        iof = inside.astype(np.float64)
        rboxes = self._rboxes.copy()

        crossing = np.flatnonzero(touching & ~inside)
        parts = shapely.intersection(self._hulls[crossing], shapely.box(*start, *end))
        iof[crossing] = shapely.area(parts) / self._areas[crossing]
        has_area = iof[crossing] > 0
        cut = crossing[has_area & (iof[crossing] < WHOLE)]
        rboxes[cut] = _box_parts(parts[has_area & (iof[crossing] < WHOLE)], rboxes[cut])

        ignore = iof < min_visible - ROUNDING
        keep = (iof > 0) & ~(ignore & (iof * self._areas < MIN_VISIBLE_AREA))
        rows = np.flatnonzero(keep)
        shift = np.array([x, y, 0, 0, 0], dtype=np.float64)
        return CutObjects(rows, rboxes[rows] - shift, np.minimum(iof[rows], 1.0), ignore[rows])


def _box_parts(parts: NDArray[np.object_], rboxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the box of each polygon in the frame of its rbox, (K, 5), le90."""
    if not len(parts):
        return rboxes
    points, owner = shapely.get_coordinates(parts, return_index=True)
    cos, sin = np.cos(rboxes[:, 4]), np.sin(rboxes[:, 4])
    axes = np.stack([np.stack([cos, sin], axis=1), np.stack([-sin, cos], axis=1)], axis=1)
    around = points - rboxes[owner, :2]
    along = np.einsum("pij,pj->pi", axes[owner], around)  # (P, 2), in the frame of the rbox
    low, high = np.full((len(parts), 2), np.inf), np.full((len(parts), 2), -np.inf)
    np.minimum.at(low, owner, along)
    np.maximum.at(high, owner, along)
    centre = rboxes[:, :2] + np.einsum("kij,ki->kj", axes, (low + high) / 2)
    boxes = np.concatenate([centre, high - low, rboxes[:, 4:]], axis=1)
    return normalize_le90(torch.from_numpy(boxes)).numpy()
