import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obbflow.geometry import normalize_le90, rbox_to_qbox
from obbflow.models.anchors import level_points
from obbflow.models.matching import BACKGROUND, IGNORED
from obbflow.models.point_matching import centerness, ignore_inside, match_points

CPU = torch.device("cpu")
GRIDS = [(12, 10, 8), (6, 5, 16), (3, 3, 32)]
RANGES = [(0, 24), (24, 48), (48, math.inf)]
POINTS = torch.cat([level_points(*grid, CPU) for grid in GRIDS])


@st.composite
def objects(draw):
    """Rboxes in and around a scene of 80 x 96 px, tiny and huge ones among them."""
    count = draw(st.integers(0, 12))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    centre = torch.rand(count, 2, generator=generator) * 160 - 40
    sides = 2 ** (torch.rand(count, 2, generator=generator) * 9)
    angle = (torch.rand(count, 1, generator=generator) - 0.5) * math.pi
    return normalize_le90(torch.cat([centre, sides, angle], dim=1))


def by_definition(rboxes, radius):
    """Each point of each level against each object, one after the other."""
    matches, start = [], 0
    for (height, width, stride), (least, largest) in zip(GRIDS, RANGES, strict=True):
        for x, y in POINTS[start : start + height * width].double().tolist():
            best, smallest = BACKGROUND, math.inf
            for number, (cx, cy, w, h, angle) in enumerate(rboxes.double().tolist()):
                along = (x - cx) * math.cos(angle) + (y - cy) * math.sin(angle)
                across = (y - cy) * math.cos(angle) - (x - cx) * math.sin(angle)
                is_inside = abs(along) < w / 2 and abs(across) < h / 2
                is_central = max(abs(along), abs(across)) < radius * stride
                farthest = max(w / 2 + abs(along), h / 2 + abs(across))
                fits = is_inside and is_central and least <= farthest <= largest
                if fits and w * h < smallest:
                    best, smallest = number, w * h
            matches.append(best)
        start += height * width
    return matches


@given(objects(), st.sampled_from([0.5, 1.5, 4.0]))
def test_points_near_the_centre_find_the_smallest_object_of_their_level(rboxes, radius):
    assert match_points(rboxes, GRIDS, RANGES, radius).tolist() == by_definition(rboxes, radius)


def test_some_object_of_each_level_is_found():
    rboxes = torch.tensor([[40.0, 40, 30, 20, 0.3], [48, 48, 58, 40, 0], [48, 48, 400, 120, 1]])
    matches = match_points(rboxes, GRIDS, RANGES, 1.5).split([120, 30, 9])
    assert [set(level.tolist()) - {BACKGROUND} for level in matches] == [{0}, {1}, {2}]


def test_the_first_of_two_equal_objects_is_found():
    rboxes = torch.tensor([[40.0, 40.0, 30.0, 20.0, 0.3]]).repeat(3, 1)
    assert set(match_points(rboxes, GRIDS, RANGES, 1.5).tolist()) == {BACKGROUND, 0}


def test_background_points_inside_an_ignore_region_are_ignored_and_others_stay():
    region = torch.tensor([[40.0, 48.0, 60.0, 20.0, 0.6], [10.0, 10.0, 1.0, 1.0, 0.0]])
    matches = torch.full((len(POINTS),), BACKGROUND)
    matches[::7] = 2
    ignoring = ignore_inside(matches, region, POINTS)
    corners = rbox_to_qbox(region[:1]).reshape(4, 2)
    edges = corners.roll(-1, dims=0) - corners
    offset = POINTS[:, None] - corners
    turn = edges[:, 0] * offset[..., 1] - edges[:, 1] * offset[..., 0]
    inside = (turn > 0).all(dim=1) | (turn < 0).all(dim=1)
    assert 10 < inside.sum() < len(POINTS) / 2
    assert torch.equal(ignoring == IGNORED, inside & (matches == BACKGROUND))
    assert torch.equal(ignoring[::7], matches[::7])
    assert torch.equal(ignore_inside(matches, region[:0], POINTS), matches)


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ([5.0, 3.0, 5.0, 3.0], 1.0),  # left, top, right, bottom
        ([1.0, 3.0, 4.0, 3.0], 0.5),
        ([1.0, 1.0, 4.0, 9.0], 1 / 6),
    ],
)
def test_centerness_falls_from_the_centre_to_the_sides(distances, expected):
    assert centerness(torch.tensor([distances])).item() == pytest.approx(expected)
