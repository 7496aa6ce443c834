"""What stands in a demo scene: sprites of the object classes and of look-alikes that are none.

Sizes are px. Every function draws another specimen each time it is called.
"""

from __future__ import annotations

import math

import numpy as np

from obbflow.data.demo_drawing import (
    Colour,
    Shape,
    Sprite,
    disc,
    lighten,
    mirrored,
    pick,
    polygon,
    rectangle,
    vary,
)

CLASS_NAMES = (
    "helicopter",
    "large-vehicle",
    "plane",
    "ship",
    "small-vehicle",
    "storage-tank",
)

CAR_COLOURS: tuple[Colour, ...] = (
    (238, 238, 240), (238, 238, 240), (200, 204, 208), (150, 152, 158), (34, 36, 42),
    (176, 34, 32), (38, 74, 150), (222, 184, 60), (60, 120, 150), (120, 30, 40),
)  # fmt: skip
TRUCK_COLOURS: tuple[Colour, ...] = (
    (240, 240, 240), (228, 222, 204), (216, 120, 40), (52, 96, 172), (230, 196, 66),
    (190, 48, 44), (70, 142, 96),
)  # fmt: skip
HULL_COLOURS: tuple[Colour, ...] = (
    (236, 238, 240), (208, 212, 214), (150, 60, 48), (46, 60, 84), (90, 96, 102), (60, 96, 82),
)  # fmt: skip
PLANE_COLOURS: tuple[Colour, ...] = (
    (240, 242, 246), (226, 230, 236), (206, 212, 222), (188, 198, 190),
)  # fmt: skip
HELICOPTER_COLOURS: tuple[Colour, ...] = (
    (206, 60, 44), (236, 190, 50), (232, 234, 238), (60, 84, 130), (92, 104, 62),
)  # fmt: skip
ROOF_COLOURS: tuple[Colour, ...] = (
    (168, 92, 70), (150, 78, 62), (140, 140, 144), (186, 180, 168), (110, 108, 110),
    (196, 160, 120), (120, 130, 142),
)  # fmt: skip
CONTAINER_COLOURS: tuple[Colour, ...] = (
    (150, 62, 44), (48, 86, 132), (60, 110, 82), (172, 128, 60), (126, 130, 134),
)  # fmt: skip
GLASS: Colour = (36, 46, 58)


def draw_small_vehicle(rng: np.random.Generator) -> Sprite:
    """Return a car, 16 to 22 by 8 to 10 px, its windscreen nearer to the front."""
    length, width = rng.uniform(16, 22), rng.uniform(8, 10)
    half, side = length / 2, width / 2
    paint = vary(rng, pick(rng, CAR_COLOURS), 8)
    inner = side - 1.2
    body = polygon(
        [(half, -side + 2), (half, side - 2), (half - 1.5, side), (-half + 1, side),
         (-half, side - 1.2), (-half, -side + 1.2), (-half + 1, -side), (half - 1.5, -side)],
        paint,
    )  # fmt: skip
    screen = polygon(
        [(half - 4.5, -inner), (half - 4.5, inner), (half - 7.5, inner - 0.8),
         (half - 7.5, -inner + 0.8)],
        GLASS,
    )  # fmt: skip
    rear = rectangle(-half + 1.8, -inner + 0.6, -half + 3.4, inner - 0.6, GLASS)
    roof = rectangle(-half + 3.4, -inner + 0.6, half - 7.5, inner - 0.6, lighten(paint, 1.12))
    return Sprite("small-vehicle", (body, screen, rear, roof), 2.0)


def draw_large_vehicle(rng: np.random.Generator) -> Sprite:
    """Return a bus or an articulated lorry, 28 to 46 by 9 to 12 px."""
    length, width = rng.uniform(28, 46), rng.uniform(9, 12)
    half, side = length / 2, width / 2
    paint = vary(rng, pick(rng, TRUCK_COLOURS), 10)
    if rng.random() < 0.4:
        body = rectangle(-half, -side, half, side, paint)
        front = rectangle(half - 2.6, -side + 1, half - 0.8, side - 1, GLASS)
        hatches = [
            rectangle(x - 1.6, -1.6, x + 1.6, 1.6, lighten(paint, 0.72))
            for x in np.linspace(-half + 6, half - 8, 3)
        ]
        edges = mirrored(
            [(-half + 1, side - 1.4), (half - 4, side - 1.4), (half - 4, side - 0.5),
             (-half + 1, side - 0.5)],
            lighten(paint, 0.6),
        )  # fmt: skip
        return Sprite("large-vehicle", (body, front, *hatches, *edges), 3.5)
    cab_back = half - 8.0
    cab_paint = vary(rng, pick(rng, TRUCK_COLOURS), 10)
    trailer = rectangle(-half, -side, cab_back - 1.6, side, paint)
    ribs = [
        rectangle(x, -side + 0.8, x + 0.8, side - 0.8, lighten(paint, 0.82))
        for x in np.arange(-half + 4, cab_back - 4, 5.0)
    ]
    coupling = rectangle(cab_back - 2.5, -1.2, cab_back + 1, 1.2, (40, 40, 44))
    cab = rectangle(cab_back, -side + 0.6, half, side - 0.6, cab_paint)
    screen = rectangle(half - 2.8, -side + 1.4, half - 1.0, side - 1.4, GLASS)
    return Sprite("large-vehicle", (coupling, trailer, *ribs, cab, screen), 3.5)


def draw_ship(rng: np.random.Generator, length: float) -> Sprite:
    """Return a vessel ``length`` px long: a yacht below 48 px, a cargo ship above."""
    half = length / 2
    side = min(13.0, max(4.5, length * rng.uniform(0.13, 0.17)))
    hull = pick(rng, HULL_COLOURS) if length > 48 else pick(rng, HULL_COLOURS[:4])
    hull = vary(rng, hull, 10)
    bow = half - min(1.8 * side, 0.4 * length)

    def outline(inset: float, colour: Colour) -> Shape:
        front, breadth = half - 1.6 * inset, side - inset
        return polygon(
            [(front, 0), ((front + bow) / 2, 0.66 * breadth), (bow, breadth),
             (-half + 3 + inset, breadth), (-half + inset, 0.72 * breadth),
             (-half + inset, -0.72 * breadth), (-half + 3 + inset, -breadth), (bow, -breadth),
             ((front + bow) / 2, -0.66 * breadth)],
            colour,
        )  # fmt: skip

    wood, steel = (196, 164, 116), (136, 96, 84)
    if length <= 48:
        cabin = [
            rectangle(-0.25 * half, -0.5 * side, 0.3 * half, 0.5 * side, (246, 246, 248)),
            rectangle(0.2 * half, -0.45 * side, 0.34 * half, 0.45 * side, GLASS),
        ]
        cockpit = rectangle(-0.8 * half, -0.5 * side, -0.35 * half, 0.5 * side, (92, 78, 66))
        deck = outline(1.3, vary(rng, wood, 14))
        return Sprite("ship", (outline(0, hull), deck, cockpit, *cabin), 2.0)
    bridge_end = -half + 0.2 * length
    bridge = rectangle(-half + 4, -0.8 * side, bridge_end, 0.8 * side, (244, 244, 246))
    funnel = rectangle(-half + 6, -1.8, -half + 10, 1.8, (44, 44, 50))
    window = rectangle(bridge_end - 2, -0.7 * side, bridge_end - 0.6, 0.7 * side, GLASS)
    holds = [
        rectangle(x, -0.62 * side, x + 0.1 * length, 0.62 * side, pick(rng, CONTAINER_COLOURS))
        for x in np.arange(bridge_end + 3, bow - 0.1 * length, 0.12 * length)
    ]
    deck = outline(1.5, vary(rng, steel, 16))
    return Sprite("ship", (outline(0, hull), deck, bridge, funnel, window, *holds), 3.0)


def draw_plane(rng: np.random.Generator) -> Sprite:
    """Return an airliner, 38 to 68 px long, its swept wings spanning 0.78 to 0.92 of that."""
    length = rng.uniform(38, 68)
    half, tip = length / 2, length / 2 * rng.uniform(0.78, 0.92)
    radius = 0.058 * length
    paint = vary(rng, pick(rng, PLANE_COLOURS), 6)
    wing = lighten(paint, 0.86)
    accent = pick(rng, CAR_COLOURS[4:])
    root = rng.uniform(0.16, 0.26) * half
    wings = mirrored(
        [(root + 0.18 * half, 0), (root - 0.44 * half, tip), (root - 0.6 * half, tip),
         (root - 0.36 * half, 0)],
        wing,
    )  # fmt: skip
    tails = mirrored(
        [(-0.72 * half, 0), (-0.9 * half, 0.4 * tip), (-half, 0.4 * tip), (-0.94 * half, 0)],
        wing,
    )
    engines = [
        shape
        for y in (0.3 * tip, 0.56 * tip)[: 2 if length > 54 else 1]
        for x in [root + 0.2 * half - 0.62 * half * y / tip]
        for shape in mirrored(
            [(x + 0.1 * half, y - 1.5), (x + 0.1 * half, y + 1.5), (x - 0.12 * half, y + 1.3),
             (x - 0.12 * half, y - 1.3)],
            (112, 116, 124),
        )
    ]  # fmt: skip
    fuselage = polygon(
        [(half, 0), (0.95 * half, 0.6 * radius), (0.84 * half, radius), (-0.55 * half, radius),
         (-half, 0.3 * radius), (-half, -0.3 * radius), (-0.55 * half, -radius),
         (0.84 * half, -radius), (0.95 * half, -0.6 * radius)],
        paint,
    )  # fmt: skip
    cockpit = rectangle(0.82 * half, -0.6 * radius, 0.89 * half, 0.6 * radius, GLASS)
    fin = rectangle(-0.96 * half, -0.9, -0.66 * half, 0.9, accent)
    return Sprite("plane", (*wings, *tails, *engines, fuselage, cockpit, fin), 4.0)


def draw_helicopter(rng: np.random.Generator) -> Sprite:
    """Return a helicopter, 34 to 44 px long, with four blades that stand crosswise."""
    length = rng.uniform(34, 44)
    half, reach = length / 2, 0.31 * length
    paint = vary(rng, pick(rng, HELICOPTER_COLOURS), 10)
    hub = 0.42 * half
    boom = polygon(
        [(0, -0.08 * half), (0, 0.08 * half), (-half, 0.05 * half), (-half, -0.05 * half)],
        lighten(paint, 0.8),
    )
    tail = rectangle(-0.98 * half, -0.28 * half, -0.84 * half, 0.28 * half, lighten(paint, 0.7))
    angles = np.arange(16) * (math.pi / 8)
    body = Shape(
        np.stack([hub + 0.58 * half * np.cos(angles), 0.27 * half * np.sin(angles)], axis=1),
        paint,
    )
    nose = disc(hub + 0.36 * half, 0, 0.16 * half, GLASS, corners=12)
    blades = [
        polygon(
            [(hub + 0.5, -0.9 * side), (hub + ahead * reach, side * (reach - 1.0)),
             (hub + ahead * (reach - 1.4), side * reach), (hub - 0.5, 0.9 * side)],
            (28, 28, 32),
        )
        for ahead in (-1, 1)
        for side in (-1, 1)
    ]  # fmt: skip
    mast = disc(hub, 0, 1.6, (70, 70, 76), corners=12)
    return Sprite("helicopter", (boom, tail, body, nose, *blades, mast), 3.0)


def draw_storage_tank(rng: np.random.Generator, radius: float) -> Sprite:
    """Return a round tank with a shaded rim, a lid and a walkway."""
    paint = vary(rng, pick(rng, ((236, 236, 232), (216, 218, 214), (196, 186, 160))), 8)
    light = rng.uniform(0, 2 * math.pi)
    x, y = 0.1 * radius * math.cos(light), 0.1 * radius * math.sin(light)
    walkway = polygon(
        [(0.9 * x - y, 0.9 * y + x), (9 * x - y / 2, 9 * y + x / 2),
         (9 * x + y / 2, 9 * y - x / 2), (0.9 * x + y, 0.9 * y - x)],
        lighten(paint, 0.55),
    )  # fmt: skip
    shell = disc(0, 0, radius, lighten(paint, 0.72), corners=48)
    roof = disc(x, y, 0.86 * radius, paint)
    lid = disc(x, y, 0.62 * radius, lighten(paint, 0.95))
    vent = disc(0, 0, max(1.2, 0.12 * radius), lighten(paint, 0.45), corners=12)
    return Sprite("storage-tank", (shell, roof, lid, walkway, vent), 5.0)


def draw_tree(rng: np.random.Generator, radius: float) -> Sprite:
    """Return the crown of a tree: a ragged dark disc with lighter tufts."""
    leaf = vary(rng, pick(rng, ((52, 84, 40), (64, 98, 46), (44, 72, 42), (86, 104, 52))), 10)
    crown = disc(0, 0, radius, leaf, corners=14)
    ragged = crown.points * rng.uniform(0.8, 1.08, (14, 1))
    tufts = []
    for shade in (0.78, 1.2, 1.35):
        distance, angle = radius * rng.uniform(0.1, 0.5), rng.uniform(0, 2 * math.pi)
        x, y = distance * math.cos(angle), distance * math.sin(angle)
        tufts.append(disc(x, y, radius * rng.uniform(0.25, 0.42), lighten(leaf, shade), corners=8))
    return Sprite("", (Shape(ragged, leaf), *tufts), 4.0)


def draw_building(rng: np.random.Generator, length: float, width: float) -> Sprite:
    """Return a roof: gabled when small, flat with skylights and machines when large."""
    half, side = length / 2, width / 2
    paint = vary(rng, pick(rng, ROOF_COLOURS), 12)
    outline = rectangle(-half, -side, half, side, paint)
    if width < 40:
        shaded = rectangle(-half, 0, half, side, lighten(paint, 0.78))
        ridge = rectangle(-half, -0.6, half, 0.6, lighten(paint, 1.2))
        return Sprite("", (outline, shaded, ridge), 6.0)
    shapes = [outline, rectangle(-half + 2, -side + 2, half - 2, side - 2, lighten(paint, 1.08))]
    for x in np.arange(-half + 12, half - 12, rng.uniform(16, 26)):
        y = rng.choice([-0.5, 0.0, 0.5]) * side
        if rng.random() < 0.6:
            shapes.append(rectangle(x, y - 7, x + 4, y + 7, (190, 206, 214)))
        else:
            shapes.append(rectangle(x, y - 3, x + 6, y + 3, lighten(paint, 0.6)))
    return Sprite("", tuple(shapes), 9.0)


def draw_container(rng: np.random.Generator) -> Sprite:
    """Return a steel box, 26 by 7 px: ribbed from end to end, no cab, no glass."""
    paint = vary(rng, pick(rng, CONTAINER_COLOURS), 12)
    ribs = [
        rectangle(x, -3.2, x + 0.9, 3.2, lighten(paint, 0.8)) for x in np.arange(-11.5, 12.0, 2.6)
    ]
    return Sprite("", (rectangle(-13, -3.5, 13, 3.5, paint), *ribs), 3.0)


def draw_pool(rng: np.random.Generator, radius: float) -> Sprite:
    """Return a round pool with a pale rim, as large as a storage tank but blue."""
    water = vary(rng, (66, 168, 196), 16)
    rim, basin = disc(0, 0, radius, (208, 202, 188)), disc(0, 0, radius - 2.5, water)
    glint = disc(-0.2 * radius, -0.2 * radius, 0.4 * radius, lighten(water, 1.08))
    return Sprite("", (rim, basin, glint), 0.0)
