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
FAR = 1e5  # px; nothing that is photographed is larger
CENTRE = (400.5, 300.5)
DTYPE = st.sampled_from([torch.float32, torch.float64])
BOXES = st.one_of(rbox_tensors(), rbox_tensors(span=FAR))

MOVES = {
    "flip": lambda boxes: flip_rboxes(boxes, "horizontal", (HEIGHT, WIDTH)),
    "rotate": lambda boxes: rotate_rboxes(boxes, 0.3, (400.0, 300.0)),
    "quarter turn": lambda boxes: rotate_rboxes(boxes, math.pi / 2, (400.0, 300.0)),
    "scale": lambda boxes: scale_rboxes(boxes, 2.0, 2.0),
    "stretch": lambda boxes: scale_rboxes(boxes, 2.0, 0.5),
    "shift": lambda boxes: shift_rboxes(boxes, 3.0, -4.0),
}
THERE_AND_BACK = {
    "flips": [MOVES["flip"], MOVES["flip"]],
    "diagonal flips": [lambda boxes: flip_rboxes(boxes, "diagonal", (HEIGHT, WIDTH))] * 2,
    "turns": [
        lambda boxes: rotate_rboxes(boxes, 0.7371, CENTRE),
        lambda boxes: rotate_rboxes(boxes, -0.7371, CENTRE),
    ],
    "four quarter turns": [lambda boxes: rotate_rboxes(boxes, math.pi / 2, CENTRE)] * 4,
    "half turns": [lambda boxes: rotate_rboxes(boxes, math.pi, CENTRE)] * 2,
    "scales": [
        lambda boxes: scale_rboxes(boxes, 1.7, 1.7),
        lambda boxes: scale_rboxes(boxes, 1 / 1.7, 1 / 1.7),
    ],
    "scales by powers of two": [
        lambda boxes: scale_rboxes(boxes, 0.25, 0.25),
        lambda boxes: scale_rboxes(boxes, 4.0, 4.0),
    ],
    "shifts": [
        lambda boxes: shift_rboxes(boxes, 13.5, -7.25),
        lambda boxes: shift_rboxes(boxes, -13.5, 7.25),
    ],
}
EXACT = ["flips", "diagonal flips", "half turns", "scales by powers of two", "shifts"]


def on_grid(boxes):
    """Quarters of a pixel and of a radian, in le90: sums with them are exact, in float32 too."""
    return normalize_le90((boxes * 4).round() / 4)


def rounding_of(boxes, dtype):
    """The step of ``dtype`` at the far side of each box and its image, (N,) px, float64."""
    reach = boxes[:, :4].double().abs().sum(dim=1) + WIDTH + HEIGHT
    return torch.finfo(dtype).eps * reach


def corners_of(rboxes):
    return rbox_to_qbox(rboxes.double()).reshape(-1, 4, 2)


def assert_corners(rboxes, expected, atol=ROUNDING):
    """Each expected corner (N, 4, 2) is one of the box and the other way round, to atol ((N,))."""
    distances = torch.cdist(
        corners_of(rboxes), expected, compute_mode="donot_use_mm_for_euclid_dist"
    )
    atol = torch.as_tensor(atol, dtype=torch.float64).reshape(-1, 1)
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


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_shows_in_its_own_row_alone(move, value):
    boxes = odd_rboxes()
    expected = move(boxes)
    for column in range(5):
        spoilt = boxes.clone()
        spoilt[3, column] = value
        found = move(spoilt)
        assert not found[3].isfinite().all(), column
        others = torch.arange(len(boxes)) != 3
        assert torch.equal(found[others], expected[others])


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_gradients_are_those_of_small_changes(move):
    boxes = torch.tensor([[30.0, 40, 20, 10, 0.3], [70, 20, 9, 8, -0.9]], dtype=torch.float64)
    assert torch.autograd.gradcheck(move, boxes.requires_grad_())


@pytest.mark.parametrize(
    ("move", "name"),
    [
        (lambda boxes, x: flip_rboxes(boxes, "vertical", (x, WIDTH)), "image_height"),
        (lambda boxes, x: flip_rboxes(boxes, "vertical", (HEIGHT, x)), "image_width"),
        (lambda boxes, x: rotate_rboxes(boxes, x, CENTRE), "angle"),
        (lambda boxes, x: rotate_rboxes(boxes, 0.1, (x, 0.0)), "centre_x"),
        (lambda boxes, x: rotate_rboxes(boxes, 0.1, (0.0, x)), "centre_y"),
        (lambda boxes, x: shift_rboxes(boxes, x, 0.0), "shift_x"),
        (lambda boxes, x: shift_rboxes(boxes, 0.0, x), "shift_y"),
    ],
    ids=["height", "width", "angle", "x", "y", "shift in x", "shift in y"],
)
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_move_that_is_not_finite_is_refused(move, name, value):
    with pytest.raises(ValueError, match=f"{name} must be finite, got {value}"):
        move(torch.zeros(1, 5), value)


@PROPERTY
@given(boxes=BOXES)
@pytest.mark.parametrize(
    "move",
    [
        lambda boxes: flip_rboxes(boxes, "diagonal", (600.3, 800.7)),
        lambda boxes: rotate_rboxes(boxes, 0.7, (400.1, 300.3)),
        lambda boxes: scale_rboxes(boxes, 1.7, 1.7),
        lambda boxes: scale_rboxes(boxes, 1.7, 0.6),
        lambda boxes: shift_rboxes(boxes, 3.3, -4.7),
    ],
    ids=["flip", "rotate", "scale", "stretch", "shift"],
)
def test_single_precision_is_rounded_once_at_the_end(move, boxes):
    boxes = boxes.float()
    rounded = normalize_le90(move(boxes.double()).float())
    assert torch.equal(normalize_le90(move(boxes))[:, :4], rounded[:, :4])


@PROPERTY
@given(dtype=DTYPE, boxes=BOXES)
@pytest.mark.parametrize("moves", THERE_AND_BACK.values(), ids=THERE_AND_BACK)
def test_there_and_back_is_the_same_box(dtype, moves, boxes):
    boxes = normalize_le90(boxes.to(dtype))
    back = boxes
    for move in moves:
        back = move(back)
    assert back.dtype == dtype
    assert_corners(back, corners_of(boxes), atol=2 * len(moves) * rounding_of(boxes, dtype))


@PROPERTY
@given(dtype=DTYPE, boxes=BOXES)
@pytest.mark.parametrize("moves", [THERE_AND_BACK[name] for name in EXACT], ids=EXACT)
def test_there_and_back_changes_no_bit_of_quarters_of_a_pixel(dtype, moves, boxes):
    boxes = on_grid(boxes).to(dtype)
    back = boxes
    for move in moves:
        back = move(back)
    assert torch.equal(back, normalize_le90(boxes))


@PROPERTY
@given(dtype=DTYPE, boxes=BOXES)
def test_unequal_scaling_of_level_boxes_has_a_way_back(dtype, boxes):
    boxes = on_grid(torch.cat([boxes[:, :4], torch.zeros(len(boxes), 1)], dim=1)).to(dtype)
    back = scale_rboxes(scale_rboxes(boxes, 2.0, 0.5), 0.5, 2.0)
    assert_corners(back, corners_of(boxes), atol=rounding_of(boxes, dtype))
    level = boxes[:, 4] == 0  # the cosine of -pi/2 is not quite 0
    assert torch.equal(back[level], boxes[level])


@PROPERTY
@given(dtype=DTYPE, boxes=BOXES)
@pytest.mark.parametrize("direction", FLIPS)
def test_flip_moves_each_corner_to_the_other_side(dtype, direction, boxes):
    boxes = boxes.to(dtype)
    x, y = corners_of(boxes).unbind(dim=2)
    x = WIDTH - x if direction in ("horizontal", "diagonal") else x
    y = HEIGHT - y if direction in ("vertical", "diagonal") else y
    flipped = flip_rboxes(boxes, direction, (HEIGHT, WIDTH))
    assert_corners(flipped, torch.stack([x, y], dim=2), atol=4 * rounding_of(boxes, dtype))


def test_unknown_flip_is_refused():
    with pytest.raises(ValueError, match=r"direction must be one of .*got 'sideways'"):
        flip_rboxes(torch.zeros(1, 5), "sideways", (HEIGHT, WIDTH))


@PROPERTY
@given(dtype=DTYPE, boxes=BOXES, angle=ANGLE, x=POSITION, y=POSITION)
def test_rotation_turns_each_corner_about_the_centre(dtype, boxes, angle, x, y):
    boxes = boxes.to(dtype)
    centre = torch.tensor([x, y], dtype=torch.float64)
    cos, sin = math.cos(angle), math.sin(angle)
    matrix = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    expected = (corners_of(boxes) - centre) @ matrix + centre
    turned = rotate_rboxes(boxes, angle, (x, y))
    assert_corners(turned, expected, atol=10 * rounding_of(boxes, dtype))


def test_positive_rotation_is_clockwise_on_the_screen():
    right_of_the_centre = torch.tensor([[9.0, 5.0, 4.0, 2.0, 0.0]])
    turned = rotate_rboxes(right_of_the_centre, math.pi / 2, (5.0, 5.0))
    torch.testing.assert_close(turned, torch.tensor([[5.0, 9.0, 4.0, 2.0, -math.pi / 2]]))


@PROPERTY
@given(dtype=DTYPE, boxes=BOXES, quarters=st.integers(-6, 6))
def test_quarter_turns_there_and_back_leave_centre_and_sides(dtype, boxes, quarters):
    boxes = on_grid(boxes).to(dtype)
    angle = quarters * math.pi / 2
    back = rotate_rboxes(rotate_rboxes(boxes, angle, CENTRE), -angle, CENTRE)
    assert torch.equal(back[:, :4], boxes[:, :4])
    # An angle near 0 is rounded once on its way, at pi / 2.
    turned = (back[:, 4] - boxes[:, 4]).abs()
    assert (turned <= math.pi * torch.finfo(dtype).eps).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_quarter_turn_exchanges_coordinates_and_sides(dtype):
    boxes = torch.tensor([[FAR, 7.0, 4.0, 2.0, 0.25], [3.0, -FAR, 5.0, 5.0, 0.25]], dtype=dtype)
    turned = rotate_rboxes(boxes, math.pi / 2, (0.0, 0.0))
    expected = [[-7.0, FAR, 4.0, 2.0], [FAR, 3.0, 5.0, 5.0]]
    assert turned[:, :4].tolist() == expected
    angles = torch.tensor([0.25 - math.pi / 2, 0.25], dtype=dtype)
    torch.testing.assert_close(turned[:, 4], angles, rtol=0, atol=2e-7)


@PROPERTY
@given(dtype=DTYPE, boxes=BOXES, scale=st.floats(0.1, 5))
def test_equal_scaling_moves_each_corner(dtype, boxes, scale):
    boxes = boxes.to(dtype)
    scaled = scale_rboxes(boxes, scale, scale)
    atol = 4 * max(scale, 1) * rounding_of(boxes, dtype)
    assert_corners(scaled, corners_of(boxes) * scale, atol=atol)


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


@pytest.mark.parametrize("scale", [(0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)])
def test_scale_that_is_not_positive_is_refused(scale):
    with pytest.raises(ValueError, match="must be positive and finite"):
        scale_rboxes(torch.zeros(1, 5), *scale)


def test_shift_moves_the_centre_alone():
    boxes = odd_rboxes()
    moved = shift_rboxes(boxes, -13.5, 7.25)
    assert torch.equal(moved[:, 0], boxes[:, 0] - 13.5)
    assert torch.equal(moved[:, 1], boxes[:, 1] + 7.25)
    assert torch.equal(moved[:, 2:], boxes[:, 2:])
