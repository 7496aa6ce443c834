import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obbflow.geometry import (
    flip_rboxes,
    normalize_le90,
    qbox_to_rbox,
    rbox_to_qbox,
    rotate_rboxes,
    scale_rboxes,
    shift_rboxes,
)
from strategies import ANGLE, POSITION, PROPERTY, odd_rboxes, rbox_tensors

HEIGHT, WIDTH = 600, 800
FLIPS = ["horizontal", "vertical", "diagonal"]
ROUNDING = 1e-9  # px; float64 at 1,000 px and several operations

MOVES = {
    "flip": lambda boxes: flip_rboxes(boxes, "horizontal", (HEIGHT, WIDTH)),
    "rotate": lambda boxes: rotate_rboxes(boxes, 0.3, (400.0, 300.0)),
    "quarter turn": lambda boxes: rotate_rboxes(boxes, math.pi / 2, (400.0, 300.0)),
    "scale": lambda boxes: scale_rboxes(boxes, 2.0, 2.0),
    "stretch": lambda boxes: scale_rboxes(boxes, 2.0, 0.5),
    "shift": lambda boxes: shift_rboxes(boxes, 3.0, -4.0),
}


def assert_corners(rboxes, expected, atol=ROUNDING):
    """Every expected corner (N, 4, 2) is a corner of the box, and the other way round."""
    corners = rbox_to_qbox(rboxes).reshape(-1, 4, 2)
    distances = torch.cdist(corners, expected, compute_mode="donot_use_mm_for_euclid_dist")
    assert (distances.amin(dim=1) <= atol).all()
    assert (distances.amin(dim=2) <= atol).all()


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_zero_boxes_give_zero_boxes(move):
    assert move(torch.empty(0, 5)).shape == (0, 5)


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_wrong_shape_is_refused(move):
    with pytest.raises(ValueError, match=r"must be \(N, 5\).*got \(2, 4\)"):
        move(torch.zeros(2, 4))


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_moved_odd_boxes_are_le90_and_of_the_same_dtype(move):
    for dtype in (torch.float32, torch.float64):
        moved = move(odd_rboxes(dtype))
        assert moved.dtype == dtype
        assert torch.equal(normalize_le90(moved), moved)


@PROPERTY
@given(boxes=rbox_tensors())
@pytest.mark.parametrize("direction", FLIPS)
def test_flip_moves_each_corner_to_the_other_side(direction, boxes):
    corners = rbox_to_qbox(boxes).reshape(-1, 4, 2)
    x, y = corners.unbind(dim=2)
    x = WIDTH - x if direction in ("horizontal", "diagonal") else x
    y = HEIGHT - y if direction in ("vertical", "diagonal") else y
    flipped = flip_rboxes(boxes, direction, (HEIGHT, WIDTH))
    assert_corners(flipped, torch.stack([x, y], dim=2))


@PROPERTY
@given(boxes=rbox_tensors())
@pytest.mark.parametrize("direction", FLIPS)
def test_flipping_twice_changes_nothing(direction, boxes):
    boxes = normalize_le90(boxes)
    twice = boxes
    for _ in range(2):
        twice = flip_rboxes(twice, direction, (HEIGHT, WIDTH))
    assert_corners(twice, rbox_to_qbox(boxes).reshape(-1, 4, 2))


def test_unknown_flip_is_refused():
    with pytest.raises(ValueError, match=r"direction must be one of .*got 'sideways'"):
        flip_rboxes(torch.zeros(1, 5), "sideways", (HEIGHT, WIDTH))


@PROPERTY
@given(boxes=rbox_tensors(), angle=ANGLE, x=POSITION, y=POSITION)
def test_rotation_turns_each_corner_about_the_centre(boxes, angle, x, y):
    centre = torch.tensor([x, y], dtype=torch.float64)
    cos, sin = math.cos(angle), math.sin(angle)
    matrix = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    expected = (rbox_to_qbox(boxes).reshape(-1, 4, 2) - centre) @ matrix + centre
    assert_corners(rotate_rboxes(boxes, angle, (x, y)), expected)


def test_positive_rotation_is_clockwise_on_the_screen():
    right_of_the_centre = torch.tensor([[9.0, 5.0, 4.0, 2.0, 0.0]])
    turned = rotate_rboxes(right_of_the_centre, math.pi / 2, (5.0, 5.0))
    torch.testing.assert_close(turned, torch.tensor([[5.0, 9.0, 4.0, 2.0, -math.pi / 2]]))


@PROPERTY
@given(boxes=rbox_tensors(), quarters=st.integers(-6, 6))
def test_quarter_turns_there_and_back_change_no_bit(boxes, quarters):
    boxes = normalize_le90(boxes.round())  # whole coordinates: differences to the centre are exact
    angle = quarters * math.pi / 2
    back = rotate_rboxes(rotate_rboxes(boxes, angle, (400.5, 300.5)), -angle, (400.5, 300.5))
    assert torch.equal(back[:, :4], boxes[:, :4])
    assert_corners(back, rbox_to_qbox(boxes).reshape(-1, 4, 2))


@PROPERTY
@given(boxes=rbox_tensors(), scale=st.floats(0.1, 5))
def test_equal_scaling_moves_each_corner(boxes, scale):
    expected = rbox_to_qbox(boxes).reshape(-1, 4, 2) * scale
    assert_corners(scale_rboxes(boxes, scale, scale), expected)


@PROPERTY
@given(boxes=rbox_tensors(), scale_x=st.floats(0.2, 5), scale_y=st.floats(0.2, 5))
def test_unequal_scaling_is_the_least_rectangle_round_the_scaled_corners(boxes, scale_x, scale_y):
    scale = torch.tensor([scale_x, scale_y] * 4, dtype=torch.float64)
    expected = qbox_to_rbox(rbox_to_qbox(boxes) * scale)
    actual = scale_rboxes(boxes, scale_x, scale_y)
    torch.testing.assert_close(actual[:, 2:4], expected[:, 2:4], rtol=1e-6, atol=1e-6)
    parallelogram = boxes[:, 2] * boxes[:, 3] * scale_x * scale_y
    assert (actual[:, 2] * actual[:, 3] >= parallelogram * (1 - 1e-9)).all()


@pytest.mark.parametrize(
    ("angle", "sides"), [(0.0, (40.0, 5.0)), (-math.pi / 2, (20.0, 10.0))], ids=["level", "upright"]
)
def test_unequal_scaling_of_a_level_box_scales_its_sides(angle, sides):
    scaled = scale_rboxes(torch.tensor([[50.0, 40.0, 20.0, 10.0, angle]]), 2.0, 0.5)
    torch.testing.assert_close(scaled[:, :4], torch.tensor([[100.0, 20.0, *sides]]))


@pytest.mark.parametrize("scale", [(0.0, 1.0), (1.0, -1.0), (math.nan, 1.0)])
def test_scale_that_is_not_positive_is_refused(scale):
    with pytest.raises(ValueError, match="must be positive"):
        scale_rboxes(torch.zeros(1, 5), *scale)


def test_shift_moves_the_centre_alone():
    boxes = odd_rboxes()
    moved = shift_rboxes(boxes, -13.5, 7.25)
    assert torch.equal(moved[:, 0], boxes[:, 0] - 13.5)
    assert torch.equal(moved[:, 1], boxes[:, 1] + 7.25)
    assert torch.equal(moved[:, 2:], boxes[:, 2:])
