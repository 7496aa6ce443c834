"""The plan of a demo scene: what each spot of the ground is used for, and which objects stand on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from obbflow.data.demo_drawing import Canvas, Points, Shape, extents, move_points, move_shapes

CELL = 4
"""Ground use is kept in squares of this many px a side."""

MIN_VISIBLE = 0.75
"""An object that leaves the scene further than this is not drawn: labels promise 0.7."""


class Use(IntEnum):
    """What a spot of the ground is used for."""

    FREE = 0
    WATER = 1
    ROAD = 2
    SITE = 3


@dataclass(frozen=True)
class Placed:
    """An object in its place.

    Attributes:
        class_name: Of ``CLASS_NAMES``, or "" for clutter that nothing may be put onto.
        corners: (4, 2) px, clockwise on the screen from the left corner of the front.
        difficult: Hard to make out on purpose.
    """

    class_name: str
    corners: Points
    difficult: bool


class ScenePlan:
    """A scene being filled: its canvas, the use of its ground, and its objects so far."""

    def __init__(
        self,
        canvas: Canvas,
        in_water: NDArray[np.bool_],
        grain: NDArray[np.float32],
        shadow: tuple[float, float],
    ) -> None:
        """Start with no objects.

        Args:
            canvas: The painted ground.
            in_water: (H, W).
            grain: (H, W), the texture of paved surfaces.
            shadow: Where the shadow of a thing one px high falls, px.
        """
        self.canvas = canvas
        self.height, self.width = in_water.shape
        self.grain = grain
        self.shadow = shadow
        self.placed: list[Placed] = []
        self._use = np.where(in_water[::CELL, ::CELL], Use.WATER, Use.FREE).astype(np.uint8)

    def uses_at(self, points: Points) -> NDArray[np.uint8]:
        """Return the use of the ground at those of the points (n, 2) that are in the scene."""
        x, y = points.T
        inside = (x >= 0) & (y >= 0) & (x < self.width) & (y < self.height)
        columns, rows = (points[inside] // CELL).astype(np.int64).T
        return self._use[rows, columns]

    def is_all(self, use: Use, x: float, y: float, angle: float, size: tuple[float, float]) -> bool:
        """Tell whether the part of a rectangle that is in the scene has this use everywhere."""
        uses = self.uses_at(_points_in(x, y, angle, size, 6.0))
        return uses.size > 0 and bool((uses == use).all())

    def claim(self, x: float, y: float, angle: float, size: tuple[float, float]) -> None:
        """Mark the ground below a rectangle (x, y: its centre; size: along and across) as taken."""
        self.mark(_points_in(x, y, angle, size, CELL / 2), Use.SITE)

    def mark(self, points: Points, use: Use) -> None:
        """Set the use of the ground at points (n, 2)."""
        x, y = points.T
        inside = (x >= 0) & (y >= 0) & (x < self.width) & (y < self.height)
        columns, rows = (points[inside] // CELL).astype(np.int64).T
        self._use[rows, columns] = use

    def visible_share(self, corners: Points) -> float:
        """Return how much of a rectangle (4, 2) lies within the scene, 0 .. 1."""
        x, y = corners.T
        if x.min() >= 0 and y.min() >= 0 and x.max() <= self.width and y.max() <= self.height:
            return 1.0
        steps = (np.arange(40) + 0.5) / 40
        a, b = (grid.reshape(-1, 1) for grid in np.meshgrid(steps, steps))
        points = corners[0] + a * (corners[1] - corners[0]) + b * (corners[3] - corners[0])
        inside = (points >= 0).all(axis=1) & (points < (self.width, self.height)).all(axis=1)
        return float(inside.mean())

    def put(
        self,
        class_name: str,
        sprite: Sequence[Shape],
        place: tuple[float, float, float],
        *,
        tall: float = 2.0,
        gap: float = 1.0,
        opacity: float = 1.0,
        level_box: bool = False,
    ) -> bool:
        """Draw an object and label it, unless it has no room or would be cut off by the border.

        Args:
            class_name: Label, "" for clutter.
            sprite: Shapes in the object's own frame.
            place: x, y and angle; the middle of the object's box comes to (x, y).
            tall: Height of the object, px, for its shadow.
            gap: Least room between it and any object before it, px.
            opacity: Below 1 the object is faint, and labelled difficult.
            level_box: For round objects: the box does not turn.

        Returns:
            Whether the object was drawn.
        """
        x, y, angle = place
        x1, y1, x2, y2 = extents(sprite)
        turn = 0.0 if level_box else angle
        half = ((x2 - x1) / 2, (y2 - y1) / 2)
        corners = move_points(_box_corners(*half), x, y, turn)
        room = move_points(_box_corners(half[0] + gap, half[1] + gap), x, y, turn)
        if self.visible_share(corners) < MIN_VISIBLE or not self._has_room(room):
            return False
        middle = move_points(np.array([[(x1 + x2) / 2, (y1 + y2) / 2]]), 0, 0, angle)[0]
        shapes = move_shapes(sprite, x - middle[0], y - middle[1], angle)
        if tall > 0:
            offset = (self.shadow[0] * tall, self.shadow[1] * tall)
            self.canvas.shade(shapes, offset, 0.45 * opacity)
        self.canvas.paint(shapes, opacity)
        self.placed.append(Placed(class_name, corners, difficult=opacity < 1.0))
        return True

    def _has_room(self, room: Points) -> bool:
        """Tell whether a rectangle meets none of the objects placed so far."""
        if not self.placed:
            return True
        others = np.stack([placed.corners for placed in self.placed])  # (N, 4, 2)
        near = (others.min(axis=1) < room.max(axis=0)).all(axis=1)
        near &= (others.max(axis=1) > room.min(axis=0)).all(axis=1)
        return not any(_rectangles_meet(room, other) for other in others[near])


def _box_corners(half_length: float, half_width: float) -> Points:
    """Return the corners of a level box about the origin, from front left, clockwise."""
    return np.array(
        [
            (half_length, -half_width),
            (half_length, half_width),
            (-half_length, half_width),
            (-half_length, -half_width),
        ]
    )


def _points_in(
    x: float, y: float, angle: float, size: tuple[float, float], step: float
) -> Points:
    """Return points that fill a rectangle, its border included, at most ``step`` px apart."""
    axes = [
        np.linspace(-length / 2, length / 2, max(2, math.ceil(length / step) + 1))
        for length in size
    ]
    u, v = np.meshgrid(*axes)
    return move_points(np.stack([u.ravel(), v.ravel()], axis=1), x, y, angle)


def _rectangles_meet(first: Points, second: Points) -> bool:
    """Tell whether two rectangles (4, 2) overlap: no side of either separates them."""
    for corners in (first, second):
        for axis in (corners[1] - corners[0], corners[3] - corners[0]):
            a, b = first @ axis, second @ axis
            if a.max() <= b.min() or b.max() <= a.min():
                return False
    return True
