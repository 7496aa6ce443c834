"""Rotated boxes in label files: (cx, cy, w, h, angle), px and radians, as corners."""

import reprlib
from collections.abc import Sequence

import torch

from obbflow.data.formats.polygons import LARGEST, Fault
from obbflow.geometry import rbox_to_qbox

RBox = tuple[float, float, float, float, float]


def make_rbox(cx: float, cy: float, w: float, h: float, angle: float) -> RBox | Fault:
    """Return a rotated box, or what makes it none: a negative side or a number beyond all sense.

    Example:
        >>> make_rbox(5, 5, -4, 2, 0).kind
        'bad_size'
    """
    if not all(abs(value) <= LARGEST for value in (cx, cy, w, h, angle)):  # False for NaN too
        return Fault("not_finite", f"the box ({cx:g}, {cy:g}, {w:g}, {h:g}, {angle:g}) is no place")
    if w < 0 or h < 0:
        return Fault("bad_size", f"the size is {w:g} x {h:g}")
    return cx, cy, w, h, angle


def corners_of_rboxes(rboxes: Sequence[RBox]) -> list[tuple[float, ...]]:
    """Return x1, y1, ..., x4, y4 of each box; a positive angle turns clockwise on the screen."""
    qboxes = rbox_to_qbox(torch.tensor(rboxes, dtype=torch.float64).reshape(-1, 5))
    return [tuple(corners) for corners in qboxes.tolist()]


def shorten_value(value: object) -> str:
    """Return a value as messages quote it: cut off, however long or deep it is."""
    return _SHORT.repr(value)


class _Short(reprlib.Repr):
    """Python refuses to write integers of many thousand digits, which JSON and YAML may hold."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if abs(x) < _HUGE else "a number of many digits"


_HUGE = 10**1000
_SHORT = _Short()
