"""The places on land of a demo scene: car parks, aprons, tank farms, villages, woods.

Each ``build`` function draws one place where there is room for it, objects and clutter included,
and tells whether there was.
"""

from __future__ import annotations

import math

import numpy as np

from obbflow.data.demo_drawing import Colour, disc, move_shapes, rectangle
from obbflow.data.demo_objects import (
    draw_building,
    draw_container,
    draw_helicopter,
    draw_large_vehicle,
    draw_plane,
    draw_pool,
    draw_small_vehicle,
    draw_storage_tank,
    draw_tree,
)
from obbflow.data.demo_plan import ScenePlan, Spot, Use, find_room, pave, put_object, within
from obbflow.data.demo_roads import ASPHALT, PAINT, drive

CONCRETE: Colour = (150, 148, 142)
GRAVEL: Colour = (146, 136, 112)


def build_car_park(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw rows of parked cars side by side, few px apart; False where there was no room."""
    stalls, pairs = int(rng.integers(7, 17)), int(rng.integers(1, 3))
    pitch, depth = rng.uniform(10.8, 12.4), 25.0
    lean = rng.choice([0.0, 0.0, 0.35, -0.35])
    size = (stalls * pitch + 24, pairs * (2 * depth + 26))
    spot = find_room(rng, plan, size)
    if spot is None:
        return False
    pave(rng, plan, spot, size, ASPHALT)
    full = rng.uniform(0.55, 0.95)
    for pair in range(pairs):
        for side in (-1, 1):
            v = -size[1] / 2 + 13 + depth + pair * (2 * depth + 26) + side * depth / 2
            for stall in range(stalls + 1):
                u = -size[0] / 2 + 12 + stall * pitch
                line = rectangle(-depth / 2, -0.5, depth / 2, 0.5, PAINT)
                plan.canvas.paint(
                    move_shapes([line], *within(spot, u, v, math.pi / 2 + lean)), 0.75
                )
                if stall < stalls and rng.random() < full:
                    turn = (math.pi / 2 if rng.random() < 0.5 else -math.pi / 2) + lean
                    place = within(spot, u + pitch / 2, v, turn + rng.normal(0, 0.025))
                    put_object(rng, plan, draw_small_vehicle(rng), place, gap=0.4)
    return True


def build_lorry_park(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw lorries and buses side by side, and stacks of containers; False without room."""
    stalls, rows = int(rng.integers(5, 10)), int(rng.integers(1, 3))
    pitch, depth = rng.uniform(14.0, 16.5), 50.0
    size = (stalls * pitch + 20, rows * (depth + 26) + 44)
    spot = find_room(rng, plan, size)
    if spot is None:
        return False
    pave(rng, plan, spot, size, CONCRETE)
    for row in range(rows):
        v = -size[1] / 2 + 14 + depth / 2 + row * (depth + 26)
        for stall in range(stalls):
            u = -size[0] / 2 + 10 + (stall + 0.5) * pitch
            if rng.random() < 0.75:
                turn = math.copysign(math.pi / 2, rng.uniform(-1, 1)) + rng.normal(0, 0.03)
                place = within(spot, u, v + rng.uniform(-2, 2), turn)
                put_object(rng, plan, draw_large_vehicle(rng), place)
    v = size[1] / 2 - 24
    for u in np.arange(-size[0] / 2 + 20, size[0] / 2 - 14, 27):
        for layer in range(int(rng.integers(1, 5))):
            place = within(spot, u, v - 11 + 7.4 * layer, 0.0)
            plan.put(draw_container(rng), place, gap=0.0)
    return True


def build_apron(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw planes on concrete, half of them side by side; False without room."""
    columns, rows, pitch = int(rng.integers(2, 5)), int(rng.integers(1, 4)), 70.0
    size = (columns * pitch + 8, rows * pitch + 8)
    spot = find_room(rng, plan, size)
    if spot is None:
        return False
    pave(rng, plan, spot, size, CONCRETE)
    nose_in = rng.uniform(0, 2 * math.pi)
    lead = rectangle(-34, -0.7, 34, 0.7, (206, 176, 70))
    for u, v in _stands(columns, rows, pitch):
        turn = rng.uniform(0, 2 * math.pi) if rng.random() < 0.5 else nose_in + rng.normal(0, 0.1)
        place = within(spot, u, v, turn)
        plan.canvas.paint(move_shapes([lead], *place), 0.8)
        if rng.random() < 0.92:
            put_object(rng, plan, draw_plane(rng), place)
    return True


def build_heliport(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw helicopters on marked pads, some pads empty; False without room."""
    columns, rows, pitch = int(rng.integers(2, 5)), int(rng.integers(1, 3)), 50.0
    size = (columns * pitch + 8, rows * pitch + 8)
    spot = find_room(rng, plan, size)
    if spot is None:
        return False
    pave(rng, plan, spot, size, CONCRETE)
    for u, v in _stands(columns, rows, pitch):
        pad = within(spot, u, v, rng.uniform(0, 2 * math.pi))
        _mark_helipad(plan, pad)
        if rng.random() < 0.8:
            place = (pad[0], pad[1], pad[2] + rng.normal(0, 0.3))
            put_object(rng, plan, draw_helicopter(rng), place)
    return True


def build_tank_farm(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw a yard of round tanks of one size, or a few sizes; False without room."""
    radius = rng.uniform(9.5, 24)
    columns, rows = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    pitch = 2 * radius + rng.uniform(5, 14)
    size = (columns * pitch + 16, rows * pitch + 16)
    spot = find_room(rng, plan, size)
    if spot is None:
        return False
    pave(rng, plan, spot, size, GRAVEL)
    pipe = rectangle(-size[0] / 2 + 4, -1, size[0] / 2 - 4, 1, (120, 120, 122))
    for v in sorted({v for _, v in _stands(columns, rows, pitch)}):
        plan.canvas.paint(move_shapes([pipe], *within(spot, 0, v, 0)))
    for u, v in _stands(columns, rows, pitch):
        if rng.random() < 0.9:
            sprite = draw_storage_tank(rng, max(9.0, radius * rng.uniform(0.8, 1.0)))
            x, y, _ = within(spot, u, v, 0.0)
            put_object(rng, plan, sprite, (x, y, 0.0))
    return True


def build_village(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw houses and sheds with yards, cars before them and round pools behind."""
    big = rng.random() < 0.45
    length, width = (rng.uniform(70, 120), rng.uniform(44, 70)) if big else (150.0, 84.0)
    size = (length + 44, width + 44)
    spot = find_room(rng, plan, size)
    if spot is None:
        return False
    if big:
        pave(rng, plan, spot, size, CONCRETE)
        plan.put(draw_building(rng, length, width), spot)
        for u in np.arange(-length / 2, length / 2, 30):
            for v in (-width / 2 - 12, width / 2 + 12):
                drive(rng, plan, within(spot, u, v, float(rng.choice([0, math.pi]))), 0.35)
        return True
    plan.claim(spot, size)
    for u in (-62, -12, 38):
        place = within(spot, u + 10, -18, rng.choice([0.0, math.pi / 2]) + rng.normal(0, 0.06))
        plan.put(draw_building(rng, rng.uniform(26, 36), rng.uniform(20, 28)), place)
        garden = within(spot, u + rng.uniform(0, 20), 30, 0)
        if rng.random() < 0.5:
            plan.put(draw_pool(rng, rng.uniform(9, 14)), garden)
        elif rng.random() < 0.8:
            _park_in_garden(rng, plan, (garden[0], garden[1], rng.uniform(0, 2 * math.pi)))
    return True


def _park_in_garden(rng: np.random.Generator, plan: ScenePlan, place: Spot) -> None:
    """Draw a car; now and then a tree hides one end of it, and the label says difficult."""
    is_hidden = rng.random() < 0.3
    sprite = draw_small_vehicle(rng)
    if plan.put(sprite, place, difficult=is_hidden) and is_hidden:
        end = 8.0 if rng.random() < 0.5 else -8.0
        crown = draw_tree(rng, rng.uniform(8, 10))
        plan.canvas.paint(move_shapes(crown.shapes, *within(place, end, 3.0, 0.0)))


def plant_trees(rng: np.random.Generator, plan: ScenePlan, density: float) -> None:
    """Plant groves and single trees on free ground; ``density`` counts groves in a megapixel."""
    groves = max(2, round(density * plan.width * plan.height / 1e6))
    for _ in range(groves):
        x, y = rng.uniform(0, plan.width), rng.uniform(0, plan.height)
        spread = rng.uniform(8, 50)
        for _ in range(int(rng.integers(1, 14))):
            tree_x, tree_y = rng.normal((x, y), spread)
            radius = rng.uniform(5, 13)
            if plan.is_all(Use.FREE, (tree_x, tree_y, 0.0), (2 * radius + 4, 2 * radius + 4)):
                place = (tree_x, tree_y, rng.uniform(0, 2 * math.pi))
                plan.put(draw_tree(rng, radius), place, gap=-0.3 * radius)


def _stands(columns: int, rows: int, pitch: float) -> list[tuple[float, float]]:
    """Return the places (u, v) of a grid about the origin, row by row."""
    return [
        ((column - (columns - 1) / 2) * pitch, (row - (rows - 1) / 2) * pitch)
        for row in range(rows)
        for column in range(columns)
    ]


def _mark_helipad(plan: ScenePlan, pad: Spot) -> None:
    """Paint a circle and an H."""
    ring = [disc(0, 0, 17, PAINT, corners=24), disc(0, 0, 15.6, (128, 128, 126), corners=24)]
    letter = [
        rectangle(-6, -5, 6, -3.4, PAINT),
        rectangle(-6, 3.4, 6, 5, PAINT),
        rectangle(-0.9, -4, 0.9, 4, PAINT),
    ]
    plan.canvas.paint(move_shapes([*ring, *letter], *pad), 0.8)
