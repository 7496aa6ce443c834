"""The places of a demo scene: roads, harbours, aprons, car parks, tank farms, villages, woods.

Each function draws one place onto a plan where there is room for it, objects and clutter included.
"""

from __future__ import annotations

import math

import numpy as np

from obbflow.data.demo_drawing import Colour, Points, Shape, disc, move_shapes, rectangle, vary
from obbflow.data.demo_ground import Water
from obbflow.data.demo_objects import (
    draw_building,
    draw_container,
    draw_helicopter,
    draw_large_vehicle,
    draw_plane,
    draw_pool,
    draw_ship,
    draw_small_vehicle,
    draw_storage_tank,
    draw_tree,
)
from obbflow.data.demo_plan import CELL, ScenePlan, Use

Spot = tuple[float, float, float]
"""x, y and angle of a place or an object."""

ASPHALT: Colour = (104, 104, 108)
CONCRETE: Colour = (150, 148, 142)
PAINT: Colour = (222, 222, 214)
LANE = 13.0
"""Width of a road's lane, px."""


def build_road(rng: np.random.Generator, plan: ScenePlan) -> None:
    """Draw a curved road from border to border, with traffic on both sides (driving right)."""
    path, heading = _road_path(rng, plan)
    asphalt = vary(rng, ASPHALT, 10)
    across = np.stack([-np.sin(heading), np.cos(heading)], axis=1)  # to the driver's right
    for half, colour in ((LANE + 3.5, vary(rng, (148, 138, 116), 8)), (LANE, asphalt)):
        for shape in _ribbon(path, heading, half, colour):
            plan.canvas.lay([shape], colour, plan.grain)
    for side in (-1, 1):
        for shape in _ribbon(path + side * (LANE - 1.6) * across, heading, 0.5, PAINT):
            plan.canvas.paint([shape], 0.7)
    for i in range(2, len(path) - 1, 4):
        dash = rectangle(-5, -0.6, 5, 0.6, PAINT)
        plan.canvas.paint(move_shapes([dash], *path[i], heading[i]))
    for shift in np.arange(-LANE - 5, LANE + 6, CELL / 2):
        plan.mark(path + shift * across, Use.ROAD)
    for side in (-1, 1):
        position = rng.uniform(0, 60)
        while position < 5 * (len(path) - 1):
            i = int(position / 5)
            x, y = path[i] + side * LANE / 2 * across[i]
            angle = heading[i] + (math.pi if side < 0 else 0) + rng.normal(0, 0.03)
            _drive(rng, plan, (x, y, angle))
            position += rng.uniform(30, 150)


def build_car_park(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw rows of parked cars side by side, few px apart; False where there was no room."""
    stalls, pairs = int(rng.integers(7, 17)), int(rng.integers(1, 3))
    pitch, depth = rng.uniform(11.5, 13.0), 25.0
    lean = rng.choice([0.0, 0.0, 0.35, -0.35])
    size = (stalls * pitch + 24, pairs * (2 * depth + 26))
    spot = _find_room(rng, plan, size, Use.FREE)
    if spot is None:
        return False
    _pave(rng, plan, spot, size, ASPHALT)
    full = rng.uniform(0.55, 0.95)
    for pair in range(pairs):
        for side in (-1, 1):
            v = -size[1] / 2 + 13 + depth + pair * (2 * depth + 26) + side * depth / 2
            for stall in range(stalls + 1):
                u = -size[0] / 2 + 12 + stall * pitch
                line = rectangle(-depth / 2, -0.5, depth / 2, 0.5, PAINT)
                plan.canvas.paint(
                    move_shapes([line], *_within(spot, u, v, math.pi / 2 + lean)), 0.75
                )
                if stall < stalls and rng.random() < full:
                    turn = (math.pi / 2 if rng.random() < 0.5 else -math.pi / 2) + lean
                    place = _within(spot, u + pitch / 2, v, turn + rng.normal(0, 0.025))
                    _put(rng, plan, "small-vehicle", draw_small_vehicle(rng), place, gap=0.4)
    return True


def build_lorry_park(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw lorries and buses side by side, and stacks of containers; False without room."""
    stalls, rows = int(rng.integers(5, 10)), int(rng.integers(1, 3))
    pitch, depth = rng.uniform(14.0, 16.5), 50.0
    size = (stalls * pitch + 20, rows * (depth + 26) + 44)
    spot = _find_room(rng, plan, size, Use.FREE)
    if spot is None:
        return False
    _pave(rng, plan, spot, size, CONCRETE)
    for row in range(rows):
        v = -size[1] / 2 + 14 + depth / 2 + row * (depth + 26)
        for stall in range(stalls):
            u = -size[0] / 2 + 10 + (stall + 0.5) * pitch
            if rng.random() < 0.75:
                turn = math.copysign(math.pi / 2, rng.uniform(-1, 1)) + rng.normal(0, 0.03)
                place = _within(spot, u, v + rng.uniform(-2, 2), turn)
                _put(rng, plan, "large-vehicle", draw_large_vehicle(rng), place, tall=3.5)
    v = size[1] / 2 - 24
    for u in np.arange(-size[0] / 2 + 20, size[0] / 2 - 14, 27):
        for layer in range(int(rng.integers(1, 5))):
            place = _within(spot, u, v - 11 + 7.4 * layer, 0.0)
            plan.put("", draw_container(rng), place, tall=3.0, gap=0.0)
    return True


def build_apron(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw planes and helicopters at all headings on concrete; False without room."""
    columns, rows, pitch = int(rng.integers(2, 5)), int(rng.integers(1, 4)), 72.0
    size = (columns * pitch + 12, rows * pitch + 12)
    spot = _find_room(rng, plan, size, Use.FREE)
    if spot is None:
        return False
    _pave(rng, plan, spot, size, CONCRETE)
    nose_in = rng.uniform(0, 2 * math.pi)
    for v in (np.arange(rows) - (rows - 1) / 2) * pitch:
        for u in (np.arange(columns) - (columns - 1) / 2) * pitch:
            turn = nose_in + rng.normal(0, 0.1)
            if rng.random() < 0.5:
                turn = rng.uniform(0, 2 * math.pi)
            lead = rectangle(-34, -0.7, 34, 0.7, (206, 176, 70))
            kind = rng.random()
            if kind < 0.56:
                place = _within(spot, u, v, turn)
                plan.canvas.paint(move_shapes([lead], *place), 0.8)
                _put(rng, plan, "plane", draw_plane(rng), place, tall=4.0)
            elif kind < 0.94:
                for shift in (-17, 17):
                    pad = _within(spot, u + shift, v + shift, turn)
                    _mark_helipad(plan, pad)
                    if rng.random() < 0.85:
                        shift_turn = pad[2] + rng.uniform(-0.4, 0.4)
                        place = (pad[0], pad[1], shift_turn)
                        _put(rng, plan, "helicopter", draw_helicopter(rng), place, tall=3.0)
    return True


def build_tank_farm(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw a yard of round tanks of one size, or a few sizes; False without room."""
    radius = rng.uniform(9.5, 24)
    columns, rows = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    pitch = 2 * radius + rng.uniform(5, 14)
    size = (columns * pitch + 16, rows * pitch + 16)
    spot = _find_room(rng, plan, size, Use.FREE)
    if spot is None:
        return False
    _pave(rng, plan, spot, size, (146, 136, 112))
    for v in (np.arange(rows) - (rows - 1) / 2) * pitch:
        pipe = rectangle(-size[0] / 2 + 4, -1, size[0] / 2 - 4, 1, (120, 120, 122))
        plan.canvas.paint(move_shapes([pipe], *_within(spot, 0, v, 0)))
        for u in (np.arange(columns) - (columns - 1) / 2) * pitch:
            if rng.random() < 0.9:
                own = radius * rng.uniform(0.8, 1.0)
                sprite = draw_storage_tank(rng, max(9.0, own))
                place = _within(spot, u, v, 0.0)
                upright = (place[0], place[1], 0.0)
                _put(rng, plan, "storage-tank", sprite, upright, tall=5.0)
    return True


def build_harbour(rng: np.random.Generator, plan: ScenePlan, water: Water) -> bool:
    """Draw a jetty with ships moored at it side by side; False where no shore suits."""
    shore = np.argwhere(np.abs(water.depth[::CELL, ::CELL]) < 3) * CELL
    if len(shore) == 0 or water.is_river:
        return False
    for _ in range(20):
        y, x = shore[int(rng.integers(len(shore)))]
        angle = water.angle + rng.uniform(-0.4, 0.4)
        reach, boat = rng.uniform(70, 190), rng.uniform(32, 52)
        middle = _within((float(x), float(y), angle), reach / 2 + 16, 0, 0)
        if not plan.is_all(Use.WATER, *middle, (reach - 8, 2 * boat + 16)):
            continue
        base = (float(x), float(y), angle)
        deck = rectangle(-24, -4, reach, 4, vary(rng, (158, 140, 112), 12))
        deck_shapes = move_shapes([deck], *base)
        plan.canvas.shade(deck_shapes, (plan.shadow[0] * 2, plan.shadow[1] * 2), 0.4)
        plan.canvas.lay(deck_shapes, deck.colour, plan.grain)
        for side in (-1, 1):
            u = 22.0
            while u < reach - 5:
                length = boat * rng.uniform(0.86, 1.0)
                sprite = draw_ship(rng, length)
                turn = side * math.pi / 2 + (math.pi if rng.random() < 0.5 else 0)
                place = _within(base, u, side * (6 + length / 2), turn + rng.normal(0, 0.03))
                if rng.random() < 0.8:
                    _put(rng, plan, "ship", sprite, place, gap=0.5)
                u += rng.uniform(15.5, 18.5)
        plan.claim(*middle, (reach, 2 * boat + 16))
        return True
    return False


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
        if plan.is_all(Use.WATER, x, y, angle, (length + 10, 0.34 * length + 8)):
            sprite = draw_ship(rng, length)
            count -= _put(rng, plan, "ship", sprite, (x, y, angle), gap=3)


def build_village(rng: np.random.Generator, plan: ScenePlan) -> bool:
    """Draw houses and sheds with yards, cars before them and round pools behind."""
    big = rng.random() < 0.45
    length, width = (rng.uniform(70, 120), rng.uniform(44, 70)) if big else (150.0, 84.0)
    size = (length + 44, width + 44)
    spot = _find_room(rng, plan, size, Use.FREE)
    if spot is None:
        return False
    if big:
        _pave(rng, plan, spot, size, CONCRETE)
        plan.put("", draw_building(rng, length, width), spot, tall=9)
        for u in np.arange(-length / 2, length / 2, 30):
            for v in (-width / 2 - 12, width / 2 + 12):
                _drive(rng, plan, _within(spot, u, v, float(rng.choice([0, math.pi]))), 0.35)
        return True
    plan.claim(*spot, size)
    for u in (-62, -12, 38):
        place = _within(spot, u + 10, -18, rng.choice([0.0, math.pi / 2]) + rng.normal(0, 0.06))
        plan.put("", draw_building(rng, rng.uniform(26, 36), rng.uniform(20, 28)), place, tall=6)
        garden = _within(spot, u + rng.uniform(0, 20), 30, 0)
        if rng.random() < 0.5:
            plan.put("", draw_pool(rng, rng.uniform(9, 14)), garden, tall=0.0)
        elif rng.random() < 0.8:
            _drive(rng, plan, (garden[0], garden[1], rng.uniform(0, 2 * math.pi)), 0.0)
    return True


def plant_trees(rng: np.random.Generator, plan: ScenePlan, density: float) -> None:
    """Plant groves and single trees on free ground; ``density`` counts groves in a megapixel."""
    groves = max(2, round(density * plan.width * plan.height / 1e6))
    for _ in range(groves):
        x, y = rng.uniform(0, plan.width), rng.uniform(0, plan.height)
        spread = rng.uniform(8, 50)
        for _ in range(int(rng.integers(1, 14))):
            tree_x, tree_y = rng.normal((x, y), spread)
            radius = rng.uniform(5, 13)
            if plan.is_all(Use.FREE, tree_x, tree_y, 0, (2 * radius + 4, 2 * radius + 4)):
                place = (tree_x, tree_y, rng.uniform(0, 2 * math.pi))
                plan.put("", draw_tree(rng, radius), place, tall=4.0, gap=-0.3 * radius)


def _put(
    rng: np.random.Generator,
    plan: ScenePlan,
    class_name: str,
    sprite: list[Shape],
    place: Spot,
    *,
    tall: float = 2.0,
    gap: float = 1.0,
) -> bool:
    """Draw an object as it is nearly always, or now and then faint and difficult."""
    opacity = rng.uniform(0.28, 0.42) if rng.random() < 0.035 else 1.0
    return plan.put(class_name, sprite, place, tall=tall, gap=gap, opacity=opacity)


def _drive(
    rng: np.random.Generator, plan: ScenePlan, place: Spot, large_share: float = 0.16
) -> None:
    """Draw a vehicle, large ones with the given share."""
    if rng.random() < large_share:
        _put(rng, plan, "large-vehicle", draw_large_vehicle(rng), place, tall=3.5)
    else:
        _put(rng, plan, "small-vehicle", draw_small_vehicle(rng), place)


def _find_room(
    rng: np.random.Generator, plan: ScenePlan, size: tuple[float, float], use: Use
) -> Spot | None:
    """Return a place for a rectangle on ground of one use, None when 40 tries found none."""
    for _ in range(40):
        x, y = rng.uniform(0, plan.width), rng.uniform(0, plan.height)
        angle = rng.uniform(0, 2 * math.pi)
        if plan.is_all(use, x, y, angle, (size[0] + 8, size[1] + 8)):
            return x, y, angle
    return None


def _within(spot: Spot, u: float, v: float, turn: float) -> Spot:
    """Return a spot given in another's frame: u along, v across (to the right), and its turn."""
    x, y, angle = spot
    cos, sin = math.cos(angle), math.sin(angle)
    return x + u * cos - v * sin, y + u * sin + v * cos, angle + turn


def _pave(
    rng: np.random.Generator,
    plan: ScenePlan,
    spot: Spot,
    size: tuple[float, float],
    colour: Colour,
) -> None:
    """Cover a rectangle with a surface and claim its ground."""
    half_u, half_v = size[0] / 2, size[1] / 2
    kerb = rectangle(-half_u - 2, -half_v - 2, half_u + 2, half_v + 2, (0, 0, 0))
    ground = rectangle(-half_u, -half_v, half_u, half_v, (0, 0, 0))
    shade = vary(rng, colour, 12)
    plan.canvas.lay(move_shapes([kerb], *spot), vary(rng, (168, 162, 146), 8), plan.grain)
    plan.canvas.lay(move_shapes([ground], *spot), shade, plan.grain)
    for _ in range(int(size[0] * size[1] / 4000)):
        u, v = rng.uniform(-half_u, half_u), rng.uniform(-half_v, half_v)
        stain = disc(u, v, rng.uniform(2, 5), (70, 68, 66), corners=8)
        plan.canvas.paint(move_shapes([stain], *spot), 0.25)
    plan.claim(*spot, size)


def _mark_helipad(plan: ScenePlan, pad: Spot) -> None:
    """Paint a circle and an H."""
    ring = [disc(0, 0, 17, PAINT, corners=24), disc(0, 0, 15.6, (128, 128, 126), corners=24)]
    letter = [
        rectangle(-6, -5, 6, -3.4, PAINT),
        rectangle(-6, 3.4, 6, 5, PAINT),
        rectangle(-0.9, -4, 0.9, 4, PAINT),
    ]
    plan.canvas.paint(move_shapes([*ring, *letter], *pad), 0.8)


def _road_path(rng: np.random.Generator, plan: ScenePlan) -> tuple[Points, Points]:
    """Return points (n, 2) every 5 px along a gentle curve across the scene, and headings (n,)."""
    angle = rng.uniform(0, 2 * math.pi)
    reach = math.hypot(plan.width, plan.height) / 2 + 30
    middle = np.array([rng.uniform(0.15, 0.85) * plan.width, rng.uniform(0.15, 0.85) * plan.height])
    ahead = np.array([math.cos(angle), math.sin(angle)])
    aside = np.array([-ahead[1], ahead[0]])
    distance = np.arange(-2 * reach, 2 * reach, 5.0)
    bend, wave = rng.uniform(20, 90), rng.uniform(500, 1200)
    phase = distance * (2 * math.pi / wave) + rng.uniform(0, 2 * math.pi)
    path = middle + distance[:, None] * ahead + (bend * np.sin(phase))[:, None] * aside
    slope = bend * (2 * math.pi / wave) * np.cos(phase)
    heading = angle + np.arctan(slope)
    near = ((path > -40) & (path < (plan.width + 40, plan.height + 40))).all(axis=1)
    return path[near], heading[near]


def _ribbon(path: Points, heading: Points, half: float, colour: Colour) -> list[Shape]:
    """Return short overlapping pieces of a band along a path."""
    across = half * np.stack([-np.sin(heading), np.cos(heading)], axis=1)
    left, right = path - across, path + across
    pieces = []
    for start in range(0, len(path) - 1, 20):
        stop = min(start + 22, len(path))
        outline = np.concatenate([left[start:stop], right[start:stop][::-1]])
        pieces.append(Shape(outline, colour))
    return pieces
