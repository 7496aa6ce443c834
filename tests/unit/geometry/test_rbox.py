import math

import pytest
import shapely
import torch
from hypothesis import given
from hypothesis import strategies as st

from obbflow.geometry import (
    hbox_to_rbox,
    normalize_le90,
    qbox_to_rbox,
    rbox_to_hbox,
    rbox_to_qbox,
)
from strategies import ANGLE, LENGTH, POSITION, PROPERTY, odd_rboxes, rbox_tensors

CONVERSIONS = [
    (normalize_le90, 5, 5),
    (rbox_to_qbox, 5, 8),
    (qbox_to_rbox, 8, 5),
    (rbox_to_hbox, 5, 4),
    (hbox_to_rbox, 4, 5),
]
CONVERSION_IDS = [function.__name__ for function, _, _ in CONVERSIONS]


def is_le90(rboxes):
    _, _, w, h, angle = rboxes.unbind(dim=1)
    limit = torch.where(w == h, math.pi / 4, math.pi / 2).to(angle.dtype)
    return (w >= h) & (angle >= -limit) & (angle < limit)


def assert_same_rectangles(actual, expected, atol):
    """Corners agree within ``atol`` px whatever corner comes first."""
    actual, expected = (
        rbox_to_qbox(boxes.double()).reshape(-1, 4, 2) for boxes in (actual, expected)
    )
    shifts = [(actual - expected.roll(shift, dims=1)).abs().amax(dim=(1, 2)) for shift in range(4)]
    assert (torch.stack(shifts).amin(dim=0) <= atol).all()


@pytest.mark.parametrize(("convert", "columns", "out_columns"), CONVERSIONS, ids=CONVERSION_IDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_zero_boxes_give_zero_boxes_of_the_same_dtype(convert, columns, out_columns, dtype):
    result = convert(torch.empty(0, columns, dtype=dtype))
    assert result.shape == (0, out_columns)
    assert result.dtype == dtype


@pytest.mark.parametrize(("convert", "columns", "_"), CONVERSIONS, ids=CONVERSION_IDS)
def test_wrong_shape_is_refused_with_the_shape_in_the_message(convert, columns, _):
    with pytest.raises(ValueError, match=rf"must be \(N, {columns}\).*got \(12, 3\)"):
        convert(torch.zeros(12, 3))


@pytest.mark.parametrize(("convert", "columns", "_"), CONVERSIONS, ids=CONVERSION_IDS)
def test_integers_are_refused(convert, columns, _):
    with pytest.raises(TypeError, match=r"floating-point, got torch\.int64"):
        convert(torch.zeros(2, columns, dtype=torch.int64))


@pytest.mark.parametrize(("convert", "columns", "_"), CONVERSIONS, ids=CONVERSION_IDS)
def test_inputs_are_left_as_they_were(convert, columns, _):
    boxes = torch.arange(3.0 * columns).reshape(3, columns)
    before = boxes.clone()
    convert(boxes)
    assert torch.equal(boxes, before)


@pytest.mark.parametrize(
    ("angle", "qbox"),
    [(0.0, [2, 2, 6, 2, 6, 4, 2, 4]), (-math.pi / 2, [3, 5, 3, 1, 5, 1, 5, 5])],
    ids=["level", "quarter turn left"],
)
def test_first_corner_is_top_left_of_the_level_box(angle, qbox):
    corners = rbox_to_qbox(torch.tensor([[4.0, 3.0, 4.0, 2.0, angle]]))
    torch.testing.assert_close(corners, torch.tensor([qbox], dtype=torch.float32))


@PROPERTY
@given(cx=POSITION, cy=POSITION, w=LENGTH, h=LENGTH, angle=ANGLE)
def test_corners_span_the_rectangle_that_shapely_draws(cx, cy, w, h, angle):
    level = shapely.box(cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
    expected = shapely.affinity.rotate(level, angle, use_radians=True)
    rboxes = torch.tensor([[cx, cy, w, h, angle]], dtype=torch.float64)
    actual = shapely.Polygon(rbox_to_qbox(rboxes).reshape(4, 2).tolist())
    assert actual.symmetric_difference(expected).area < 1e-6 * expected.area  # float64 rounding


@PROPERTY
@given(boxes=rbox_tensors(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_normalised_boxes_are_le90_and_the_same_rectangles(boxes, dtype):
    boxes = boxes.to(dtype)
    normalised = normalize_le90(boxes)
    assert is_le90(normalised).all()
    # An angle of up to four pi is rounded to 1e-6 in float32, at a radius of up to 300 px.
    assert_same_rectangles(normalised, boxes, atol=1e-3 if dtype == torch.float32 else 1e-10)


@PROPERTY
@given(boxes=rbox_tensors(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_normalising_twice_changes_no_bit(boxes, dtype):
    once = normalize_le90(boxes.to(dtype))
    assert torch.equal(normalize_le90(once), once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("given_box", "expected"),
    [
        ((4, 2, math.pi / 2), (4, 2, -math.pi / 2)),
        ((4, 2, -math.pi / 2), (4, 2, -math.pi / 2)),
        ((2, 4, 0.0), (4, 2, -math.pi / 2)),
        ((2, 4, -math.pi / 2), (4, 2, 0.0)),
        ((4, 2, 3.0), (4, 2, 3.0 - math.pi)),
        ((3, 3, math.pi / 4), (3, 3, -math.pi / 4)),
        ((3, 3, 0.8), (3, 3, 0.8 - math.pi / 2)),
        ((3, 3, -math.pi), (3, 3, 0.0)),
    ],
    ids=[
        "upper limit belongs to the lower",
        "lower limit stays",
        "tall level box",
        "tall box on its side",
        "half a turn less",
        "square upper limit",
        "square quarter turn",
        "square half turn",
    ],
)
def test_limits_of_le90(given_box, expected, dtype):
    actual = normalize_le90(torch.tensor([[5.0, 6.0, *given_box]], dtype=dtype))
    wanted = torch.tensor([[5.0, 6.0, *expected]], dtype=dtype)
    torch.testing.assert_close(actual, wanted, rtol=1e-6, atol=1e-6)
    assert is_le90(actual).all()


@PROPERTY
@given(boxes=rbox_tensors(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_rectangle_survives_the_way_through_its_corners(boxes, dtype):
    boxes = boxes.to(dtype)
    back = qbox_to_rbox(rbox_to_qbox(boxes))
    assert is_le90(back).all()
    assert_same_rectangles(back, boxes, atol=2e-3 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_square_keeps_its_angle_on_the_way_through_its_corners(dtype):
    angles = torch.linspace(-0.78, 0.78, 41, dtype=dtype)
    boxes = torch.tensor([812.3, 341.7, 23.1, 23.1, 0.0], dtype=dtype).repeat(41, 1)
    boxes[:, 4] = angles
    # float32 has steps of 6e-5 px around 800 px.
    torch.testing.assert_close(qbox_to_rbox(rbox_to_qbox(boxes)), boxes, rtol=0, atol=1e-4)


@PROPERTY
@given(points=st.lists(st.tuples(POSITION, POSITION), min_size=4, max_size=4))
def test_no_rectangle_around_the_quadrilateral_is_smaller(points):
    oracle = shapely.MultiPoint(points).minimum_rotated_rectangle
    found = qbox_to_rbox(torch.tensor(points, dtype=torch.float64).reshape(1, 8))
    rectangle = shapely.Polygon(rbox_to_qbox(found).reshape(4, 2).tolist())
    area = (found[0, 2] * found[0, 3]).item()
    assert area <= oracle.area * (1 + 1e-9) + 1e-6  # px^2; needles of 1,000 px are rounded so far
    assert max(rectangle.distance(shapely.Point(point)) for point in points) < 1e-6


@PROPERTY
@given(points=st.lists(st.tuples(POSITION, POSITION), min_size=4, max_size=4), data=st.data())
def test_order_of_the_corners_does_not_matter(points, data):
    shuffled = data.draw(st.permutations(points))
    pair = torch.tensor([points, shuffled], dtype=torch.float64).reshape(2, 8)
    first, second = qbox_to_rbox(pair)[:, 2:4]
    # Sides, not corners: a symmetric triangle has two equal rectangles, both are right.
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)


def test_missing_corner_of_a_rectangle_is_filled_in():
    """All three rectangles of a right triangle have the same area."""
    found = qbox_to_rbox(torch.tensor([[0.0, 0.0, 10.0, 0.0, 10.0, 0.0, 0.0, 5.0]]))
    torch.testing.assert_close(found, torch.tensor([[5.0, 2.5, 10.0, 5.0, 0.0]]))


@pytest.mark.parametrize(
    ("qbox", "expected"),
    [
        ([7, 9, 7, 9, 7, 9, 7, 9], [7, 9, 0, 0, 0]),
        ([0, 0, 3, 4, 6, 8, 3, 4], [3, 4, 10, 0, math.atan2(4, 3)]),
        ([5, 1, 5, 9, 5, 9, 5, 1], [5, 5, 8, 0, -math.pi / 2]),
    ],
    ids=["point", "line", "upright line"],
)
def test_degenerate_quadrilaterals_give_finite_boxes(qbox, expected):
    found = qbox_to_rbox(torch.tensor([qbox], dtype=torch.float32))
    wanted = torch.tensor([expected], dtype=torch.float32)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@PROPERTY
@given(boxes=rbox_tensors())
def test_level_box_is_the_bounds_of_the_corners(boxes):
    corners = rbox_to_qbox(boxes).reshape(-1, 4, 2)
    bounds = torch.cat([corners.amin(dim=1), corners.amax(dim=1)], dim=1)
    torch.testing.assert_close(rbox_to_hbox(boxes), bounds, rtol=0, atol=1e-9)


@PROPERTY
@given(x=POSITION, y=POSITION, w=LENGTH, h=LENGTH)
def test_level_box_survives_the_way_through_a_rotated_box(x, y, w, h):
    hboxes = torch.tensor([[x, y, x + w, y + h]], dtype=torch.float64)
    rboxes = hbox_to_rbox(hboxes)
    assert is_le90(rboxes).all()
    torch.testing.assert_close(rbox_to_hbox(rboxes), hboxes, rtol=0, atol=1e-9)


def test_odd_boxes_survive_all_conversions():
    boxes = odd_rboxes()
    assert torch.equal(normalize_le90(boxes), boxes)
    # Relative to the coordinate: corners 2e5 px away are rounded to 3e-11 px in float64.
    assert_same_rectangles(qbox_to_rbox(rbox_to_qbox(boxes)), boxes, atol=1e-8)
    assert rbox_to_hbox(boxes).isfinite().all()
