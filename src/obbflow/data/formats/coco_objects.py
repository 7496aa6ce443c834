"""One entry of ``annotations`` in a COCO file as an object of ours."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from obbflow.data.formats.polygons import LARGEST, Fault, corners_of, read_ring
from obbflow.data.formats.rotated import RBox, make_rbox, shorten_value

_ANGLES = {
    "degrees_clockwise": math.pi / 180,
    "degrees_counter_clockwise": -math.pi / 180,
    "radians_clockwise": 1.0,
    "radians_counter_clockwise": -1.0,
}
"""Value of ``dataset.coco_angle`` -> factor that makes it radians, clockwise on the screen."""


class CocoObject(NamedTuple):
    """An object; ``shape`` is eight corners, or a rotated box of five numbers, px and radians."""

    class_name: str
    is_difficult: bool
    shape: tuple[float, ...]


def needs_angle(item: Mapping[str, Any]) -> bool:
    """Return whether an entry is a turned box, so that ``dataset.coco_angle`` must be known."""
    bbox = item.get("bbox")
    has_polygon = item.get("segmentation") and not isinstance(item["segmentation"], dict)
    return not has_polygon and isinstance(bbox, list) and len(bbox) == 5 and bool(bbox[4])


def read_object(
    item: Mapping[str, Any], categories: Mapping[Any, str], angle: str | None
) -> CocoObject | Fault:
    """Return the object of an entry, or what is wrong with it.

    Args:
        item: An entry of ``annotations``.
        categories: Category id -> class.
        angle: ``dataset.coco_angle``; None where no entry needs it.
    """
    category = item.get("category_id")
    class_name = categories.get(category) if isinstance(category, int | str) else None
    if class_name is None:
        return Fault("bad_class", f"category_id is {shorten_value(category)}, which is no category")
    flags = [item.get(key) or 0 for key in ("iscrowd", "difficult", "ignore")]
    for value in flags:
        if not isinstance(value, int) or value not in (0, 1, 2):
            return Fault("bad_difficulty", f"a flag is {shorten_value(value)}; it must be 0 or 1")
    if flags[0]:
        return Fault("crowd", "a crowd (iscrowd=1), which outlines no single object")
    shape = _read_shape(item, angle)
    if isinstance(shape, Fault):
        return shape
    return CocoObject(class_name, bool(flags[1] or flags[2]), shape)


def _read_shape(item: Mapping[str, Any], angle: str | None) -> tuple[float, ...] | Fault:
    segmentation, bbox = item.get("segmentation"), item.get("bbox")
    if segmentation and not isinstance(segmentation, dict):
        return _read_polygons(segmentation)
    if isinstance(bbox, list) and len(bbox) == 5:
        return _read_rbox(bbox, angle)
    if segmentation:
        return Fault("mask", "the segmentation is a mask (RLE); only polygons are read")
    if isinstance(bbox, list) and len(bbox) == 4:
        return Fault("upright_box", "a bbox of 4 numbers and no polygon: a box without an angle")
    return Fault("not_a_polygon", f"no polygon, and bbox is {shorten_value(bbox)}")


def _read_polygons(value: object) -> tuple[float, ...] | Fault:
    """Return corners from [[x1, y1, x2, y2, ...], ...], or from a single list of numbers."""
    if isinstance(value, list) and not isinstance(value[0], list):
        value = [value]
    if not isinstance(value, list):
        return Fault("not_a_polygon", f"segmentation is {shorten_value(value)}")
    rings = []
    for polygon in value:
        if not isinstance(polygon, list) or len(polygon) % 2:
            return Fault("not_a_polygon", f"{shorten_value(polygon)} is no list of x and y")
        if len(value) == 1 and len(polygon) == 8 and all(map(_is_number, polygon)):
            return _as_written(polygon)
        points = [list(point) for point in zip(polygon[::2], polygon[1::2], strict=True)]
        ring = read_ring(points)
        if isinstance(ring, Fault):
            return ring
        rings.append(ring)
    return corners_of(rings)


def _as_written(corners: list[Any]) -> tuple[float, ...] | Fault:
    """Return four corners as they are, even if some coincide: the checks say so later."""
    if not all(abs(value) <= LARGEST for value in corners):
        return Fault("not_finite", f"the polygon {shorten_value(corners)} is no place in an image")
    return tuple(map(float, corners))


def _read_rbox(values: list[Any], angle: str | None) -> RBox | Fault:
    if not all(map(_is_number, values)):
        return Fault("not_a_number", f"bbox is {shorten_value(values)}")
    cx, cy, w, h, turn = map(float, values)
    return make_rbox(cx, cy, w, h, turn * _ANGLES[angle] if turn and angle else 0.0)


def _is_number(value: object) -> bool:
    """Return whether a float can hold what a JSON parser gave; integers have no limit there."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 10**300)
