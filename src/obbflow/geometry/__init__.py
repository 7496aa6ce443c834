"""Box formats and what happens to boxes when their image is moved."""

from obbflow.geometry.affine import flip_rboxes, rotate_rboxes, scale_rboxes, shift_rboxes
from obbflow.geometry.rbox import (
    hbox_to_rbox,
    normalize_le90,
    qbox_to_rbox,
    rbox_to_hbox,
    rbox_to_qbox,
)

__all__ = [
    "flip_rboxes",
    "hbox_to_rbox",
    "normalize_le90",
    "qbox_to_rbox",
    "rbox_to_hbox",
    "rbox_to_qbox",
    "rotate_rboxes",
    "scale_rboxes",
    "shift_rboxes",
]
