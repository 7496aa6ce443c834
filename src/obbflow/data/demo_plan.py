"""The plan of a demo scene: what its ground is used for, and which objects stand on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from obbflow.data.demo_drawing import (
    Canvas,
    Colour,
    Points,
    Sprite,
    disc,
    extents,
    move_points,
    move_shapes,
    rectangle,
    vary,
)

Spot = tuple[float, float, float]
"""x, y and angle of a place or an object."""

Size = tuple[float, float]
"""Of a rectangle: along its angle, and across; px."""

CELL = 4
"""Ground use is kept in squares of this many px a side."""

MIN_VISIBLE = 0.75
"""An object that leaves the scene further than this is not drawn: labels promise 0.7."""


FAINT_SHARE = 0.035
"""Share of objects that are drawn faintly and labelled difficult."""


class Use(IntFlag):
    """What a spot of the ground is used for; joined by ``|`` where several will do."""

    FREE = 1
    WATER = 2
    ROAD = 4
    SITE = 8


@dataclass(frozen=True)
class Placed:
    """A thing in its place.

    Attributes:
        class_name: Its label, "" for clutter.
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
        self._lows = np.empty((0, 2))  # of each placed object's level box
        self._highs = np.empty((0, 2))
        self._use = np.where(in_water[::CELL, ::CELL], Use.WATER, Use.FREE).astype(np.uint8)

    def uses_at(self, points: Points) -> NDArray[np.uint8]:
        """Return the use of the ground at those of the points (n, 2) that are in the scene."""
        return self._use[self._cells_at(points)]

    def is_all(self, use: Use, spot: Spot, size: Size) -> bool:
        """Tell whether the part of a rectangle that is in the scene has such a use everywhere."""
        for step in (max(size), 6.0):  # most places fail at a few points already
            uses = self.uses_at(_points_in(spot, size, step))
            if uses.size == 0 or (uses & ~use).any():
                return False
        return True

    def claim(self, spot: Spot, size: Size) -> None:
        """Mark the ground below a rectangle as taken."""
        self.mark(_points_in(spot, size, CELL / 2), Use.SITE)

    def mark(self, points: Points, use: Use) -> None:
        """Set the use of the ground at points (n, 2); those outside of the scene do not matter."""
        self._use[self._cells_at(points)] = use

    def _cells_at(self, points: Points) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows and columns of ``_use`` for those points that are in the scene."""
        x, y = points.T
        inside = (x >= 0) & (y >= 0) & (x < self.width) & (y < self.height)
        columns, rows = (points[inside] * (1 / CELL)).astype(np.int64).T
        return rows, columns

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
        sprite: Sprite,
        spot: Spot,
        *,
        gap: float = 1.0,
        opacity: float = 1.0,
        difficult: bool = False,
    ) -> bool:
        """Draw a thing and note its box, unless it has no room or the border would cut it off.

        Args:
            sprite: The thing.
            spot: Where the middle of its box comes, and where it points.
            gap: Least room between it and anything put before, px; negative lets them touch.
            opacity: Below 1 it is faint.
            difficult: Its label says so.

        Returns:
            Whether it was drawn.
        """
        x, y, angle = spot
        x1, y1, x2, y2 = extents(sprite.shapes)
        half = ((x2 - x1) / 2, (y2 - y1) / 2)
        corners = move_points(_box_corners(*half), x, y, angle)
        room = move_points(_box_corners(half[0] + gap, half[1] + gap), x, y, angle)
        if self.visible_share(corners) < MIN_VISIBLE or not self._has_room(room):
            return False
        off_middle = move_points(np.array([[(x1 + x2) / 2, (y1 + y2) / 2]]), 0, 0, angle)[0]
        shapes = move_shapes(sprite.shapes, x - off_middle[0], y - off_middle[1], angle)
        if sprite.height > 0:
            offset = (self.shadow[0] * sprite.height, self.shadow[1] * sprite.height)
            self.canvas.shade(shapes, offset, 0.45 * opacity)
        self.canvas.paint(shapes, opacity)
        self.placed.append(Placed(sprite.class_name, corners, difficult))
        self._lows = np.vstack([self._lows, corners.min(axis=0)])
        self._highs = np.vstack([self._highs, corners.max(axis=0)])
        return True

    def _has_room(self, room: Points) -> bool:
        """Tell whether a rectangle meets none of the things put so far."""
        low, high = room.min(axis=0), room.max(axis=0)
        near = (self._lows < high).all(axis=1) & (self._highs > low).all(axis=1)
        others = (self.placed[int(i)].corners for i in np.flatnonzero(near))
        return not any(_rectangles_meet(room, other) for other in others)


def within(spot: Spot, u: float, v: float, turn: float = 0.0) -> Spot:
    """Return a spot given in another's frame: u along, v across (to the right), and its turn."""
    x, y, angle = spot
    cos, sin = math.cos(angle), math.sin(angle)
    return x + u * cos - v * sin, y + u * sin + v * cos, angle + turn


def find_room(rng: np.random.Generator, plan: ScenePlan, size: Size) -> Spot | None:
    """Return a place for a rectangle on free ground, None when 40 tries found none."""
    tries = rng.uniform(0, (plan.width, plan.height, 2 * math.pi), (40, 3))
    for x, y, angle in tries[plan.uses_at(tries[:, :2]) == Use.FREE].tolist():
        if plan.is_all(Use.FREE, (x, y, angle), (size[0] + 8, size[1] + 8)):
            return x, y, angle
    return None


def pave(rng: np.random.Generator, plan: ScenePlan, spot: Spot, size: Size, colour: Colour) -> None:
    """Cover a rectangle with a surface, a kerb and stains, and claim its ground."""
    half_u, half_v = size[0] / 2, size[1] / 2
    kerb = rectangle(-half_u - 2, -half_v - 2, half_u + 2, half_v + 2, (168, 162, 146))
    ground = rectangle(-half_u, -half_v, half_u, half_v, colour)
    for shape, amount in ((kerb, 8), (ground, 12)):
        plan.canvas.lay(move_shapes([shape], *spot), vary(rng, shape.colour, amount), plan.grain)
    for _ in range(int(size[0] * size[1] / 4000)):
        u, v = rng.uniform(-half_u, half_u), rng.uniform(-half_v, half_v)
        stain = disc(u, v, rng.uniform(2, 5), (70, 68, 66), corners=8)
        plan.canvas.paint(move_shapes([stain], *spot), 0.25)
    plan.claim(spot, size)


def put_object(
    rng: np.random.Generator, plan: ScenePlan, sprite: Sprite, spot: Spot, gap: float = 1.0
) -> bool:
    """Put an object in full colour, or now and then a faint one that is labelled difficult."""
    is_faint = rng.random() < FAINT_SHARE
    opacity = rng.uniform(0.28, 0.42) if is_faint else 1.0
    return plan.put(sprite, spot, gap=gap, opacity=opacity, difficult=is_faint)


def _box_corners(half_length: float, half_width: float) -> Points:
    """Return the corners of a level box about the origin, from front left, clockwise."""
    return np.array([(1, -1), (1, 1), (-1, 1), (-1, -1)]) * (half_length, half_width)


def _points_in(spot: Spot, size: Size, step: float) -> Points:
    """Return points that fill a rectangle, its border included, at most ``step`` px apart."""
    columns, rows = (max(2, math.ceil(length / step) + 1) for length in size)
    return move_points(_unit_grid(columns, rows) * size, *spot)


@lru_cache(maxsize=1024)
def _unit_grid(columns: int, rows: int) -> Points:
    """Return the points (columns * rows, 2) of a grid over -0.5 .. 0.5."""
    u, v = np.meshgrid(np.linspace(-0.5, 0.5, columns), np.linspace(-0.5, 0.5, rows))
    return np.stack([u.ravel(), v.ravel()], axis=1)


def _rectangles_meet(first: Points, second: Points) -> bool:
    """Tell whether two rectangles (4, 2) overlap: no side of either separates them."""
    for corners in (first, second):
        for axis in (corners[1] - corners[0], corners[3] - corners[0]):
            a, b = first @ axis, second @ axis
            if a.max() <= b.min() or b.max() <= a.min():
                return False
    return True
