"""Roads of a demo scene and the traffic on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from obbflow.data.demo_drawing import Colour, Points, Shape, move_shapes, rectangle, vary
from obbflow.data.demo_objects import draw_large_vehicle, draw_small_vehicle
from obbflow.data.demo_plan import CELL, ScenePlan, Spot, Use, put_object

ASPHALT: Colour = (104, 104, 108)
PAINT: Colour = (222, 222, 214)
LANE = 13.0
"""Width of a road's lane, px."""

STEP = 5.0
"""Distance between the points of a road's path, px."""


@dataclass(frozen=True)
class Road:
    """The middle of a road: ``path`` (n, 2), a point every ``STEP`` px, and ``heading`` (n,)."""

    path: Points
    heading: Points

    def across(self) -> Points:
        """Return the unit vectors (n, 2) to the right of the heading."""
        return np.stack([-np.sin(self.heading), np.cos(self.heading)], axis=1)


def build_road(rng: np.random.Generator, plan: ScenePlan) -> Road:
    """Draw a curved road from border to border, still empty."""
    road = _lay_out_road(rng, plan)
    across = road.across()
    verge, asphalt = vary(rng, (148, 138, 116), 8), vary(rng, ASPHALT, 12)
    for half, colour in ((LANE + 3.5, verge), (LANE, asphalt)):
        for shape in _ribbon(road, 0.0, half):
            plan.canvas.lay([shape], colour, plan.grain)
    for shift in (-LANE + 1.6, LANE - 1.6):
        for shape in _ribbon(road, shift, 0.5):
            plan.canvas.paint([shape], 0.7)
    dash = rectangle(-5, -0.6, 5, 0.6, PAINT)
    for i in range(2, len(road.path) - 1, 4):
        x, y = road.path[i]
        plan.canvas.paint(move_shapes([dash], x, y, road.heading[i]))
    for shift in np.arange(-LANE - 5, LANE + 6, CELL / 2):
        plan.mark(road.path + shift * across, Use.ROAD)
    return road


def fill_road(rng: np.random.Generator, plan: ScenePlan, road: Road) -> None:
    """Draw the traffic on a road, in both directions, driving on the right."""
    across = road.across()
    for side in (-1, 1):
        position = rng.uniform(0, 60)
        while position < STEP * (len(road.path) - 1):
            i = int(position / STEP)
            x, y = road.path[i] + side * LANE / 2 * across[i]
            angle = road.heading[i] + (math.pi if side < 0 else 0) + rng.normal(0, 0.03)
            drive(rng, plan, (x, y, angle))
            position += rng.uniform(30, 150)


def drive(rng: np.random.Generator, plan: ScenePlan, spot: Spot, large_share: float = 0.16) -> None:
    """Put a vehicle, a large one with the given probability."""
    draw = draw_large_vehicle if rng.random() < large_share else draw_small_vehicle
    put_object(rng, plan, draw(rng), spot)


def _lay_out_road(rng: np.random.Generator, plan: ScenePlan) -> Road:
    """Return a gently winding way across the scene at any angle."""
    angle = rng.uniform(0, 2 * math.pi)
    reach = math.hypot(plan.width, plan.height) / 2 + 30
    middle = np.array([rng.uniform(0.15, 0.85) * plan.width, rng.uniform(0.15, 0.85) * plan.height])
    ahead = np.array([math.cos(angle), math.sin(angle)])
    aside = np.array([-ahead[1], ahead[0]])
    distance = np.arange(-2 * reach, 2 * reach, STEP)
    bend, wave = rng.uniform(20, 90), rng.uniform(500, 1200)
    phase = distance * (2 * math.pi / wave) + rng.uniform(0, 2 * math.pi)
    path = middle + distance[:, None] * ahead + (bend * np.sin(phase))[:, None] * aside
    heading = angle + np.arctan(bend * (2 * math.pi / wave) * np.cos(phase))
    near = ((path > -40) & (path < (plan.width + 40, plan.height + 40))).all(axis=1)
    return Road(path[near], heading[near])


def _ribbon(road: Road, shift: float, half: float) -> list[Shape]:
    """Return short overlapping pieces of a band along a road, ``shift`` px right of its middle."""
    across = road.across()
    left, right = road.path + (shift - half) * across, road.path + (shift + half) * across
    pieces = []
    for start in range(0, len(left) - 1, 20):
        stop = min(start + 22, len(left))
        outline = np.concatenate([left[start:stop], right[start:stop][::-1]])
        pieces.append(Shape(outline, PAINT))
    return pieces
