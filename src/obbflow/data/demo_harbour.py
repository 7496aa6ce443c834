"""The shore of a demo scene: jetties and quays with moored ships, and ships under way."""

from __future__ import annotations

import math

import numpy as np

from obbflow.data.demo_drawing import Colour, move_shapes, rectangle, vary
from obbflow.data.demo_ground import Water
from obbflow.data.demo_objects import draw_container, draw_ship
from obbflow.data.demo_plan import CELL, ScenePlan, Spot, Use, put_object, within
from obbflow.data.demo_roads import drive

WOOD: Colour = (158, 140, 112)
CONCRETE: Colour = (150, 148, 142)


def build_harbour(water: Water, rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw a jetty with boats side by side, or a quay with ships along it; False without room."""
    shore = np.argwhere(np.abs(water.depth[::CELL, ::CELL]) < 3) * CELL
    if len(shore) == 0:
        return False
    build = _build_quay if water.is_river or rng.random() < 0.35 else _build_jetty
    for _ in range(30):
        y, x = shore[int(rng.integers(len(shore)))]
        out = water.angle + (_bank_side(water, int(x), int(y)) if water.is_river else 0.0)
        if build(rng, plan, (float(x), float(y), out)):
            return True
    return False


def _build_jetty(rng: np.random.Generator, plan: ScenePlan, base: Spot) -> bool:
    """Draw a jetty from a spot on the shore, boats moored at a right angle to it."""
    base = (base[0], base[1], base[2] + rng.uniform(-0.4, 0.4))
    reach, boat = rng.uniform(70, 190), rng.uniform(32, 52)
    middle = within(base, reach / 2 + 16, 0)
    is_wet = plan.is_all(Use.WATER, middle, (reach - 8, 2 * boat + 16))
    if not is_wet or not plan.is_all(Use.FREE | Use.WATER, within(base, 10, 0), (76, 16)):
        return False
    _build_pier(rng, plan, base, (-24, -4, reach, 4), WOOD)
    for side in (-1, 1):
        u = 22.0
        while u < reach - 5:
            length = boat * rng.uniform(0.86, 1.0)
            turn = side * math.pi / 2 + (math.pi if rng.random() < 0.5 else 0)
            place = within(base, u, side * (6 + length / 2), turn + rng.normal(0, 0.03))
            if rng.random() < 0.8:
                put_object(rng, plan, draw_ship(rng, length), place, gap=0.5)
            u += rng.uniform(15.5, 18.5)
    plan.claim(middle, (reach, 2 * boat + 16))
    return True


def _build_quay(rng: np.random.Generator, plan: ScenePlan, base: Spot) -> bool:
    """Draw a concrete quay along the shore, ships moored alongside, two abreast here and there."""
    length = rng.uniform(100, 280)
    if not plan.is_all(Use.WATER, within(base, 48, 0), (54, length)):
        return False
    if not plan.is_all(Use.FREE, within(base, -36, 0), (36, length)):
        return False
    if not plan.is_all(Use.FREE | Use.WATER, within(base, 2, 0), (44, length)):
        return False
    _build_pier(rng, plan, base, (-50, -length / 2, 18, length / 2), CONCRETE)
    for v in np.arange(-length / 2 + 16, length / 2 - 16, 27):
        if rng.random() < 0.6:
            place = within(base, -38, v, math.pi / 2)
            plan.put(draw_container(rng), place, gap=0.0)
        drive(rng, plan, within(base, -16, v, math.pi / 2), 0.4)
    ahead = math.pi / 2 if rng.random() < 0.5 else -math.pi / 2
    for row in range(2):
        v = -length / 2 + rng.uniform(0, 20)
        while v < length / 2 - 40:
            ship_length = rng.uniform(44, 100)
            if row == 0 or rng.random() < 0.5:
                place = within(
                    base, 28 + 25 * row, v + ship_length / 2, ahead + rng.normal(0, 0.02)
                )
                put_object(rng, plan, draw_ship(rng, ship_length), place, gap=0.5)
            v += ship_length + rng.uniform(5, 16)
    plan.claim(within(base, 10, 0), (130, length))
    return True


def _build_pier(
    rng: np.random.Generator,
    plan: ScenePlan,
    base: Spot,
    box: tuple[float, float, float, float],
    colour: Colour,
) -> None:
    """Draw a raised deck; ``box``: x1, y1, x2, y2 in the frame of ``base``."""
    deck = move_shapes([rectangle(*box, colour)], *base)
    plan.canvas.shade(deck, (plan.shadow[0] * 2, plan.shadow[1] * 2), 0.4)
    plan.canvas.lay(deck, vary(rng, colour, 12), plan.grain)


def _bank_side(water: Water, x: int, y: int) -> float:
    """Return the turn from a river's direction to the middle of the river, at a bank."""
    height, width = water.depth.shape
    probes = []
    for turn in (-math.pi / 2, math.pi / 2):
        column = int(np.clip(x + 10 * math.cos(water.angle + turn), 0, width - 1))
        row = int(np.clip(y + 10 * math.sin(water.angle + turn), 0, height - 1))
        probes.append((float(water.depth[row, column]), turn))
    return max(probes)[1]


def sail_ships(rng: np.random.Generator, plan: ScenePlan, water: Water, count: int) -> None:
    """Draw ships under way or at anchor: along a river, at any heading on the sea."""
    for _ in range(count * 6):
        if count == 0:
            return
        length = rng.uniform(30, 110)
        x, y = rng.uniform(0, plan.width), rng.uniform(0, plan.height)
        angle = rng.uniform(0, 2 * math.pi)
        if water.is_river:
            angle = water.angle + rng.normal(0, 0.12) + (math.pi if rng.random() < 0.5 else 0)
        if plan.is_all(Use.WATER, (x, y, angle), (length + 10, 0.34 * length + 8)):
            sprite = draw_ship(rng, length)
            count -= put_object(rng, plan, sprite, (x, y, angle), gap=3)
