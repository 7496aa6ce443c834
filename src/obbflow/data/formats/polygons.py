"""Polygons of any number of corners as the four corners of an object."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import shapely

Point = tuple[float, float]

LARGEST = 1e9
"""px; larger numbers are a mistake, and areas of them overflow."""


class Fault(NamedTuple):
    """Why something is no object: the kind of fault, as in ``data_issues``, and a message."""

    kind: str
    message: str


def read_ring(value: object) -> list[Point] | Fault:
    """Return the corners of a ring, each once: the closing point and repeated ones are left out.

    Args:
        value: A sequence of (x, y), px, as a JSON parser gives it; more numbers a point, such as a
            height, are left out.
    """
    if not isinstance(value, list):
        return Fault("not_a_polygon", f"{_quote(value)} is no list of points")
    points = []
    for item in value:
        if not isinstance(item, list) or len(item) < 2 or not all(map(_is_number, item[:2])):
            return Fault("not_a_polygon", f"{_quote(item)} is no point (x, y)")
        if not all(abs(number) <= LARGEST for number in item[:2]):
            return Fault("not_finite", f"the point {_quote(item)} is no place in an image")
        points.append((float(item[0]), float(item[1])))
    if not points:
        return Fault("not_a_polygon", "a polygon without a point")
    corners = [point for point, before in pairwise([*points, points[0]]) if point != before]
    if len(set(corners)) < 3:
        return Fault("not_a_polygon", f"{len(set(corners))} different corners; three are needed")
    return corners


def corners_of(rings: Sequence[Sequence[Point]]) -> tuple[float, ...]:
    """Return x1, y1, ..., x4, y4 of an object that one or more rings outline.

    A single ring of four corners is kept as it is. Otherwise it is the rectangle of the smallest
    area around all rings.

    Args:
        rings: Rings of three corners or more, px; at least one.

    Example:
        >>> corners_of([[(0, 0), (4, 0), (4, 2), (0, 2)]])
        (0, 0, 4, 0, 4, 2, 0, 2)
        >>> hexagon = [(1, 0), (3, 0), (4, 1), (3, 2), (1, 2), (0, 1)]
        >>> sorted(zip(*[iter(corners_of([hexagon]))] * 2))
        [(0.0, 0.0), (0.0, 2.0), (4.0, 0.0), (4.0, 2.0)]
    """
    points = [point for ring in rings for point in ring]
    if len(rings) == 1 and len(points) == 4:
        return tuple(number for point in points for number in point)
    around = shapely.oriented_envelope(shapely.MultiPoint(points))
    outline = around.exterior if isinstance(around, shapely.Polygon) else around
    found = shapely.get_coordinates(outline)[:4].tolist()
    found += found[-1:] * (4 - len(found))  # all points on one line: there and back
    return tuple(number for point in found for number in point)


_QUOTED = 60  # characters of a value in a message


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
