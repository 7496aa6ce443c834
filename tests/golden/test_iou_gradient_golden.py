"""Slopes of the intersection against differences of it; section 1 of the golden README."""

import json

import numpy as np
import pytest
import torch

from obbflow.ops import pairwise_iou_rotated
from obbflow.ops.iou_gradient import intersection_gradient

STEP = 1e-6  # of the shortest side; by angle, of the shortest over the longest
ROUNDING = 2e-6  # the curvature over a step, and 1e-15 / STEP
KINK = 1e-3  # the slopes behind and ahead differ by this: edges coincide, or a corner meets an edge
# In these groups edges coincide but for the rounding of float32. Other pairs have no kink at hand.
SHARE_WITH_KINK = {
    "identical": 1, "equivalent_angle": 1, "touching_edge": 0.8, "near_parallel": 0.6,
    "axis_aligned": 0.05, "bug_reports": 0.75,
}  # fmt: skip


@pytest.fixture(scope="module")
def pairs(shared_dir):
    with np.load(shared_dir / "golden" / "rotated_iou.npz") as file:
        a, b = (torch.from_numpy(file[name]).double() for name in ("boxes_a", "boxes_b"))
        names = np.array(json.loads(str(file["meta"]))["groups"])[file["group"]]
    origin = torch.cat([a[:, :2], torch.zeros(len(a), 3)], dim=1)  # a step of 1e-9 px must count
    return a - origin, b - origin, names


def intersection(a, b):
    return pairwise_iou_rotated(a, b, "iof") * a[:, 2] * a[:, 3]


def slopes(a, b, steps):
    """Return the change (P, 5) of the intersection by a step of ``a`` to here, and from here."""
    here, behind, ahead = intersection(a, b), [], []
    for column, step in enumerate(steps.unbind(1)):
        move = torch.zeros_like(a)
        move[:, column] = step
        behind.append(here - intersection(a - move, b))
        ahead.append(intersection(a + move, b) - here)
    return torch.stack(behind, dim=1), torch.stack(ahead, dim=1)


def test_slope_of_the_intersection_lies_between_those_to_both_sides(pairs):
    a, b, names = pairs
    sides = torch.cat([a[:, 2:4], b[:, 2:4]], dim=1)
    shortest, longest = sides.amin(dim=1), sides.amax(dim=1)
    # Of one needle, 8e-7 px thin and 2 km long, a step is less than the rounding of its length.
    plain = shortest > 1e-6 * longest
    assert plain.sum() == len(plain) - 1
    a, b, shortest, longest = (values[plain] for values in (a, b, shortest, longest))
    steps = STEP * torch.stack([*[shortest] * 4, shortest / longest], dim=1)
    unit = STEP * torch.minimum(a[:, 2] * a[:, 3], b[:, 2] * b[:, 3])[:, None]
    has_kink = torch.zeros(len(a), dtype=torch.bool)
    for first, second, gradient in zip((a, b), (b, a), intersection_gradient(a, b), strict=True):
        behind, ahead = (slope / unit for slope in slopes(first, second, steps))
        actual = gradient * steps / unit
        assert (actual > torch.minimum(behind, ahead) - ROUNDING).all()
        assert (actual < torch.maximum(behind, ahead) + ROUNDING).all()
        has_kink |= ((ahead - behind).abs() > KINK).any(dim=1)
    for name in np.unique(names):
        share = has_kink[torch.from_numpy(names == name)[plain]].double().mean()
        assert share <= SHARE_WITH_KINK.get(name, 0), name


def test_identical_boxes_have_the_mean_of_the_slopes_to_both_sides(pairs):
    boxes = pairs[0]
    longest, shortest = boxes[:, 2:4].amax(dim=1), boxes[:, 2:4].amin(dim=1)
    steps = STEP * torch.stack([*[shortest] * 4, shortest / longest], dim=1)
    behind, ahead = slopes(boxes, boxes, steps)
    unit = STEP * (boxes[:, 2] * boxes[:, 3])[:, None]
    for gradient in intersection_gradient(boxes, boxes):
        actual, expected = gradient * steps / unit, (behind + ahead) / 2 / unit
        torch.testing.assert_close(actual, expected, rtol=0, atol=ROUNDING)
