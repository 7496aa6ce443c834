import itertools
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
    rbox,
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
DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64], ids=["float32", "float64"]
)
FAR = 1e5  # px; nothing that is photographed is larger

# Corners of any quadrilateral, concave and self-crossing ones too; whole numbers make many of
# them coincide or lie on a line.
CORNERS = st.one_of(
    st.lists(st.tuples(POSITION, POSITION), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=4, max_size=4),
)


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
@DTYPES
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


@pytest.mark.parametrize(("convert", "columns", "_"), CONVERSIONS, ids=CONVERSION_IDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_shows_in_its_own_row_alone(convert, columns, _, value):
    boxes = torch.arange(3.0 * columns).reshape(3, columns).sqrt()
    expected = convert(boxes)
    for column in range(columns):
        spoilt = boxes.clone()
        spoilt[1, column] = value
        found = convert(spoilt)
        assert not found[1].isfinite().all(), column
        assert torch.equal(found[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize(("convert", "columns", "_"), CONVERSIONS, ids=CONVERSION_IDS)
def test_layout_in_memory_does_not_matter(convert, columns, _):
    boxes = torch.arange(4.0 * columns).reshape(4, columns).sqrt()
    expected = convert(boxes)
    transposed = boxes.T.contiguous().T
    every_other = boxes.repeat_interleave(2, dim=0)[::2]
    assert not transposed.is_contiguous()
    assert not every_other.is_contiguous()
    assert torch.equal(convert(transposed), expected)
    assert torch.equal(convert(every_other), expected)
    assert torch.equal(convert(boxes[:1].expand(3, columns)), expected[:1].expand(3, -1))


@pytest.mark.parametrize(("convert", "columns", "_"), CONVERSIONS, ids=CONVERSION_IDS)
def test_gradients_are_those_of_small_changes(convert, columns, _):
    boxes = torch.arange(3.0 * columns, dtype=torch.float64).reshape(3, columns)
    boxes = (7 * boxes).sin() * 10  # irregular: no ties, no limits nearby
    boxes[:, 2:4] += 40
    assert torch.autograd.gradcheck(convert, boxes.requires_grad_())


@pytest.mark.parametrize(
    "qbox", [[3, 4] * 4, [0, 0, 0, 0, 5, 5, 5, 5], [0, 0, 4, 0, 4, 4, 0, 4]],
    ids=["point", "line", "square"],
)  # fmt: skip
def test_gradients_of_degenerate_quadrilaterals_are_finite(qbox):
    qboxes = torch.tensor([qbox], dtype=torch.float64, requires_grad=True)
    qbox_to_rbox(qboxes).sum().backward()
    assert qboxes.grad.isfinite().all()


@pytest.mark.parametrize(("convert", "columns", "_"), CONVERSIONS, ids=CONVERSION_IDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_gives_what_it_can_hold(convert, columns, _, dtype):
    boxes = torch.arange(1.0, 3 * columns + 1).reshape(3, columns)
    actual = convert(boxes.to(dtype))
    assert actual.dtype == dtype
    # Numbers up to 40, and a few operations on them.
    atol = 40 * 3 * torch.finfo(dtype).eps
    torch.testing.assert_close(actual.float(), convert(boxes), rtol=0, atol=atol)
    if convert is not rbox_to_qbox and actual.shape[1] == 5:
        assert is_le90(actual).all()


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


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16],
    ids=["float64", "float32", "float16", "bfloat16"],
)
def test_angles_next_to_a_limit_stay_in_the_interval(dtype):
    """Whole numbers of quarter turns and a half, and the next numbers on both sides of each."""
    angles = torch.arange(-40, 41, dtype=dtype) * (math.pi / 4)
    steps = [angles]
    for _ in range(3):
        steps.append(torch.nextafter(steps[-1], torch.tensor(torch.inf, dtype=dtype)))
        steps.insert(0, torch.nextafter(steps[0], torch.tensor(-torch.inf, dtype=dtype)))
    angles = torch.cat(steps)
    for sides in ((4.0, 2.0), (2.0, 4.0), (3.0, 3.0)):
        boxes = torch.tensor([[5.0, 6.0, *sides, 0.0]], dtype=dtype).repeat(len(angles), 1)
        boxes[:, 4] = angles
        normalised = normalize_le90(boxes)
        assert is_le90(normalised).all()
        # The period is rounded too: by half a step at 10 pi, where corners lie 2.3 px out.
        assert_same_rectangles(normalised, boxes, atol=32 * 2.3 * torch.finfo(dtype).eps)


def test_rounding_of_many_turns_does_not_leave_the_interval():
    """In float32 the whole turns taken away are rounded, here to a step beyond the limit."""
    boxes = torch.tensor([[5.0, 6, 4, 2, 686.43798828125], [5, 6, 3, 3, 343.218994140625]])
    limits = torch.tensor([-math.pi / 2, -math.pi / 4])
    assert torch.equal(normalize_le90(boxes)[:, 4], limits)


@PROPERTY
@given(boxes=rbox_tensors(), data=st.data())
def test_sign_of_a_side_does_not_matter(boxes, data):
    signs = torch.ones_like(boxes)
    for column in (2, 3):
        if data.draw(st.booleans()):
            signs[:, column] = -1
    assert torch.equal(normalize_le90(boxes * signs), normalize_le90(boxes))
    assert torch.equal(rbox_to_hbox(boxes * signs), rbox_to_hbox(boxes))
    of_signed, of_plain = (qbox_to_rbox(rbox_to_qbox(given)) for given in (boxes * signs, boxes))
    assert torch.equal(of_signed, of_plain)


@PROPERTY
@given(boxes=rbox_tensors(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_normalising_twice_changes_no_bit(boxes, dtype):
    once = normalize_le90(boxes.to(dtype))
    assert torch.equal(normalize_le90(once), once)


@DTYPES
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
@given(boxes=st.one_of(rbox_tensors(), rbox_tensors(span=FAR)))
@DTYPES
def test_rectangle_survives_the_way_through_its_corners(dtype, boxes):
    boxes = boxes.to(dtype)
    back = qbox_to_rbox(rbox_to_qbox(boxes))
    assert back.dtype == dtype
    assert is_le90(back).all()
    # Corners are rounded in a few operations; areas are held for equal to 1e-9.
    rounding = torch.finfo(dtype).eps * boxes[:, :4].abs().sum(dim=1)
    shorter = boxes[:, 2:4].amin(dim=1)
    assert_same_rectangles(back, boxes, atol=6 * rounding.double() + 1e-9 * shorter.double())


@DTYPES
def test_square_keeps_its_angle_on_the_way_through_its_corners(dtype):
    angles = torch.linspace(-0.78, 0.78, 41, dtype=dtype)
    boxes = torch.tensor([812.3, 341.7, 23.1, 23.1, 0.0], dtype=dtype).repeat(41, 1)
    boxes[:, 4] = angles
    # float32 has steps of 6e-5 px around 800 px.
    torch.testing.assert_close(qbox_to_rbox(rbox_to_qbox(boxes)), boxes, rtol=0, atol=1e-4)


@PROPERTY
@given(points=CORNERS, shift=st.sampled_from([0.0, FAR]))
def test_rectangle_is_the_least_one_around_the_quadrilateral(points, shift):
    # Of points 1e5 px away shapely's own rectangle is up to 3e-6 px^2 too large.
    oracle = shapely.MultiPoint(points).minimum_rotated_rectangle
    points = [(x + shift, y - shift) for x, y in points]
    found = qbox_to_rbox(torch.tensor(points, dtype=torch.float64).reshape(1, 8))
    rectangle = shapely.Polygon(rbox_to_qbox(found).reshape(4, 2).tolist())
    area = (found[0, 2] * found[0, 3]).item()
    # px^2; float64 rounds a needle's width to 1e-11 px at FAR, and its length may be 1,700 px.
    assert area == pytest.approx(oracle.area, rel=1e-8, abs=1e-6)
    assert max(rectangle.distance(shapely.Point(point)) for point in points) < 1e-6


@PROPERTY
@given(points=st.lists(st.tuples(*[st.integers(0, 99)] * 2), min_size=4, max_size=4))
def test_sides_and_angle_do_not_depend_on_where_the_quadrilateral_lies(points):
    near = torch.tensor(points, dtype=torch.float64).reshape(1, 8)
    assert torch.equal(qbox_to_rbox(near + FAR)[:, 2:], qbox_to_rbox(near)[:, 2:])


@PROPERTY
@given(points=CORNERS)
@DTYPES
def test_order_and_direction_of_the_corners_change_no_bit(dtype, points):
    orders = [list(itertools.chain(*order)) for order in itertools.permutations(points)]
    found = qbox_to_rbox(torch.tensor(orders, dtype=dtype))
    assert torch.equal(found, found[:1].expand(24, 5))


def test_long_input_is_computed_in_chunks(monkeypatch):
    qboxes = torch.rand(7, 8, generator=torch.Generator().manual_seed(0)) * 100
    expected, sizes, compute = qbox_to_rbox(qboxes), [], rbox._least_rectangles
    monkeypatch.setattr(rbox, "_QBOXES_PER_CHUNK", 3)
    monkeypatch.setattr(rbox, "_least_rectangles", lambda q: sizes.append(len(q)) or compute(q))
    assert torch.equal(qbox_to_rbox(qboxes), expected)
    assert sizes == [3, 3, 1]


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
        ([0, 0, 0, 0, 0, 0, 6, 8], [3, 4, 10, 0, math.atan2(4, 3)]),
        ([6, 8, 0, 0, 6, 8, 0, 0], [3, 4, 10, 0, math.atan2(4, 3)]),
        ([0, 0, 6, 4, 6, 0, 0, 4], [3, 2, 6, 4, 0]),
        ([0, 0, 6, 0, 0, 0, 0, 4], [3, 2, 6, 4, 0]),
        ([0, 0, 4, 0, 4, 4, 1, 1], [2, 2, 4, 4, 0]),
    ],
    ids=[
        "point",
        "line",
        "upright line",
        "three equal corners",
        "two and two equal corners",
        "crossing corners",
        "triangle",
        "corner on the diagonal",
    ],
)
@pytest.mark.parametrize("shift", [0.0, FAR], ids=["near", "far"])
@DTYPES
def test_degenerate_quadrilaterals_have_a_defined_box(dtype, shift, qbox, expected):
    found = qbox_to_rbox(torch.tensor([qbox], dtype=dtype) + shift)
    wanted = torch.tensor([expected], dtype=dtype) + shift * torch.tensor([1, 1, 0, 0, 0])
    torch.testing.assert_close(found, wanted.to(dtype), rtol=1e-6, atol=1e-6)


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


@pytest.mark.parametrize("swapped", [(2, 1, 0, 3), (0, 3, 2, 1), (2, 3, 0, 1)])
def test_any_two_opposite_corners_make_a_level_box(swapped):
    hboxes = torch.tensor([[2.0, 3.0, 8.0, 5.0], [2.0, 3.0, 4.0, 9.0]])
    assert torch.equal(hbox_to_rbox(hboxes[:, swapped]), hbox_to_rbox(hboxes))


def test_odd_boxes_survive_all_conversions():
    boxes = odd_rboxes()
    assert torch.equal(normalize_le90(boxes), boxes)
    # Relative to the coordinate: corners 2e5 px away are rounded to 3e-11 px in float64.
    assert_same_rectangles(qbox_to_rbox(rbox_to_qbox(boxes)), boxes, atol=1e-8)
    assert rbox_to_hbox(boxes).isfinite().all()
