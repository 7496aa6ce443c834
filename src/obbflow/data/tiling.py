"""The geometry of tiles: where they lie, and what of each object they show.

Shapes: N objects of one image; rboxes (N, 5) px and radians, le90; qboxes (N, 8) px.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import shapely
import torch
from numpy.typing import NDArray

from obbflow.geometry import normalize_le90, qbox_to_rbox

ROUNDING = 1e-9
"""Shares of an area that differ by less are equal."""
WHOLE = 1 - ROUNDING
"""An object with this share of its area inside is whole: its box is kept exactly."""
_PAIRS_AT_ONCE = 2_000_000  # of tile and object: bounds memory
MIN_VISIBLE_AREA = 0.5
"""A visible part that is smaller, px^2, and no object by ``min_visible``, is left out."""

NEARLY_BEST = 0.01
"""Windows that the image fills by so much less than the best one are as good."""


class Window(NamedTuple):
    """A square of an image, px; it may reach beyond the right and lower border."""

    x: int
    y: int
    size: int


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


def fuller_windows(
    width: int, height: int, sizes: Sequence[int], overlaps: Sequence[int], min_image_rate: float
) -> list[Window]:
    """Return the windows of MMRotate's splitting tool: those that the image fills well.

    Windows of all sizes, as `windows` has them but column by column. Those of which at most
    ``min_image_rate`` lies inside the image are left out; when that would be all of them, those
    that are filled best, to within one percent, stay.

    Args:
        width: Of the image, px, at least 1.
        height: Of the image, px, at least 1.
        sizes: Sides of the windows, px.
        overlaps: Of neighbouring windows, px, one for each size.
        min_image_rate: Share of a window, from 0 to below 1.

    Source: MMRotate 0.3, tools/data/dota/split/img_split.py (``img_rate_thr``).

    Example:
        >>> fuller_windows(600, 600, sizes=[512, 1024], overlaps=[0, 0], min_image_rate=0.6)[:2]
        [Window(x=0, y=0, size=512), Window(x=0, y=88, size=512)]
    """
    found = [
        Window(x, y, size)
        for size, overlap in zip(sizes, overlaps, strict=True)
        for x, y in sorted(windows(width, height, size, overlap))
    ]
    rates = [min(size, width - x) * min(size, height - y) / size**2 for x, y, size in found]
    if max(rates) <= min_image_rate:
        min_image_rate = max(rates) - NEARLY_BEST
    return [window for window, rate in zip(found, rates, strict=True) if rate > min_image_rate]


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

    def cut(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        min_visible: float,
        *,
        keep_corners: bool = False,
    ) -> CutObjects:
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
            keep_corners: An object that is cut keeps its box too, which then reaches outside.

        Returns:
            The objects of which something is visible; boxes are relative to (x, y).
        """
        places = np.array([[x, y, width, height]])
        return self.cut_all(places, min_visible, keep_corners=keep_corners)[0]

    def cut_all(
        self, places: NDArray[np.int64], min_visible: float, *, keep_corners: bool = False
    ) -> list[CutObjects]:
        """Return what each of (T, 4) rectangles x, y, width, height shows; see `cut`."""
        step = max(1, _PAIRS_AT_ONCE // max(1, len(self._hulls)))
        chunks = (places[start : start + step] for start in range(0, len(places), step))
        return [
            found
            for chunk in chunks
            for found in self._cut_some(chunk, min_visible, keep_corners=keep_corners)
        ]

    def _cut_some(
        self, places: NDArray[np.int64], min_visible: float, *, keep_corners: bool
    ) -> list[CutObjects]:
        """Return what each rectangle shows; looks at all pairs of rectangle and object at once."""
        starts = places[:, None, :2].astype(np.float64)
        ends = starts + places[:, None, 2:]
        touching = ((self._low < ends) & (self._high > starts)).all(axis=2)
        tiles, rows = np.nonzero(touching)  # P pairs, tile by tile, objects in order
        inside = ((self._low[rows] >= starts[tiles, 0]) & (self._high[rows] <= ends[tiles, 0])).all(
            axis=1
        )
        iof = inside.astype(np.float64)
        rboxes = self._rboxes[rows]

        crossing = np.flatnonzero(~inside)
        frames = shapely.box(*starts[:, 0].T, *ends[:, 0].T)
        parts = shapely.intersection(self._hulls[rows[crossing]], frames[tiles[crossing]])
        iof[crossing] = shapely.area(parts) / self._areas[rows[crossing]]
        is_cut = (iof[crossing] > 0) & (iof[crossing] < WHOLE)
        if not keep_corners:
            rboxes[crossing[is_cut]] = _box_parts(parts[is_cut], rboxes[crossing[is_cut]])

        ignore = iof < min_visible - ROUNDING
        keep = (iof > 0) & ~(ignore & (iof * self._areas[rows] < MIN_VISIBLE_AREA))
        rboxes[:, :2] -= starts[tiles, 0]
        cuts = np.searchsorted(tiles[keep], np.arange(1, len(places)))
        columns = (rows[keep], rboxes[keep], np.minimum(iof[keep], 1.0), ignore[keep])
        split = (np.split(column, cuts) for column in columns)
        return [CutObjects(*found) for found in zip(*split, strict=True)]


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
