import math

import pytest
import shapely
import torch
from hypothesis import given
from hypothesis import strategies as st

from obbflow.geometry import rbox_to_hbox, rbox_to_qbox
from obbflow.ops import (
    box_iou_rotated,
    intersection,
    pairs,
    pairwise_iou_rotated,
    sparse_iou_rotated,
)
from obbflow.ops.iou import overlaps_rotated
from strategies import ODD_RBOXES, PROPERTY, near_degenerate_pairs, odd_rboxes, rbox_tensors

ROUNDING = 1e-10  # float64, a few dozen operations, slivers of 1:400


def shapely_overlap(a, b, mode):
    """IoU or IoF (N, M) of shapely polygons, the slow and obvious way."""
    polygons_a, polygons_b = (
        [shapely.Polygon(corners) for corners in rbox_to_qbox(boxes).reshape(-1, 4, 2).tolist()]
        for boxes in (a, b)
    )
    rows = []
    for first in polygons_a:
        common = [first.intersection(second).area for second in polygons_b]
        united = [first.area + second.area for second in polygons_b]
        rows.append(
            [
                c / (first.area if mode == "iof" else u - c)
                for c, u in zip(common, united, strict=True)
            ]
        )
    return torch.tensor(rows, dtype=torch.float64).reshape(len(a), len(b))


def level(x1, y1, x2, y2):
    return torch.tensor([[(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, 0.0]])


@PROPERTY
@given(a=rbox_tensors(), b=rbox_tensors())
@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_overlap_equals_that_of_shapely_polygons(mode, a, b):
    expected = shapely_overlap(a, b, mode)
    torch.testing.assert_close(box_iou_rotated(a, b, mode), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_overlap_of_odd_boxes_equals_that_of_shapely_polygons(mode):
    # "far away" is placed by its corners in shapely, which rounds them to 3e-11 px.
    boxes = odd_rboxes()
    expected = shapely_overlap(boxes, boxes, mode)
    torch.testing.assert_close(box_iou_rotated(boxes, boxes, mode), expected, rtol=0, atol=1e-7)


@PROPERTY
@given(pair=near_degenerate_pairs())
@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_overlap_of_boxes_that_nearly_coincide_or_touch_equals_that_of_shapely(mode, pair):
    # shapely rounds corners to 1e-13 px and, along common sides, crossings to that over the angle.
    expected = shapely_overlap(*pair, mode)
    torch.testing.assert_close(box_iou_rotated(*pair, mode), expected, rtol=0, atol=1e-9)
    rows = pairwise_iou_rotated(*pair, mode)
    torch.testing.assert_close(rows, expected.diagonal(), rtol=0, atol=1e-9)


@PROPERTY
@given(a=rbox_tensors(), b=rbox_tensors())
def test_iou_is_symmetric_and_within_0_and_1(a, b):
    forth, back = box_iou_rotated(a, b), box_iou_rotated(b, a)
    torch.testing.assert_close(forth, back.T, rtol=0, atol=ROUNDING)
    assert ((forth >= 0) & (forth <= 1)).all()


@PROPERTY
@given(boxes=rbox_tensors())
def test_identical_boxes_have_iou_1(boxes):
    ones = torch.ones(len(boxes), dtype=torch.float64)
    torch.testing.assert_close(pairwise_iou_rotated(boxes, boxes), ones, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", ODD_RBOXES)
def test_odd_box_has_iou_1_with_itself(name, dtype):
    box = torch.tensor([ODD_RBOXES[name]], dtype=dtype)
    assert pairwise_iou_rotated(box, box).item() == pytest.approx(1, abs=1e-12)
    assert box_iou_rotated(box, box).item() == pytest.approx(1, abs=1e-12)


@PROPERTY
@given(boxes=rbox_tensors())
@pytest.mark.parametrize("turns", [-1, 1, 2], ids=["quarter left", "quarter right", "half"])
def test_other_descriptions_of_a_rectangle_have_iou_1_with_it(turns, boxes):
    cx, cy, w, h, angle = boxes.unbind(dim=1)
    sides = [h, w] if turns % 2 else [w, h]
    same = torch.stack([cx, cy, *sides, angle + turns * math.pi / 2], dim=1)
    ones = torch.ones(len(boxes), dtype=torch.float64)
    torch.testing.assert_close(pairwise_iou_rotated(boxes, same), ones, rtol=0, atol=ROUNDING)


@PROPERTY
@given(a=rbox_tensors(min_size=1, max_size=4), b=rbox_tensors(min_size=1, max_size=4))
def test_iou_does_not_depend_on_where_the_pair_lies(a, b):
    far = torch.tensor([2.0**20, -(2.0**21), 0, 0, 0], dtype=torch.float64)
    # The shifted centres themselves are rounded to 2e-10 px; sides are at least 0.5 px.
    near_result, far_result = box_iou_rotated(a, b), box_iou_rotated(a + far, b + far)
    torch.testing.assert_close(near_result, far_result, rtol=0, atol=1e-8)


@PROPERTY
@given(a=rbox_tensors(min_size=1, max_size=4), b=rbox_tensors(min_size=1, max_size=4))
@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_overlap_does_not_change_when_the_scene_turns_by_90_degrees(mode, a, b):
    def turned(boxes):
        cx, cy, w, h, angle = boxes.unbind(dim=1)
        return torch.stack([-cy, cx, w, h, angle + math.pi / 2], dim=1)

    before, after = box_iou_rotated(a, b, mode), box_iou_rotated(turned(a), turned(b), mode)
    torch.testing.assert_close(after, before, rtol=0, atol=ROUNDING)


@PROPERTY
@given(a=rbox_tensors(min_size=1, max_size=4), b=rbox_tensors(min_size=1, max_size=4))
@pytest.mark.parametrize("scale", [1e-9, 0.3, 1e9])
def test_overlap_does_not_depend_on_the_unit(scale, a, b):
    factor = torch.tensor([scale] * 4 + [1], dtype=torch.float64)
    before, after = box_iou_rotated(a, b), box_iou_rotated(a * factor, b * factor)
    torch.testing.assert_close(after, before, rtol=0, atol=ROUNDING)


@PROPERTY
@given(a=rbox_tensors(), b=rbox_tensors(), threshold=st.sampled_from([0.0, 0.1, 0.5]))
@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_sparse_overlaps_are_the_cells_of_the_table_above_the_threshold(mode, a, b, threshold):
    table = box_iou_rotated(a, b, mode)
    sparse = sparse_iou_rotated(a, b, mode, threshold)
    expected_rows, expected_columns = (table > threshold).nonzero(as_tuple=True)
    assert torch.equal(sparse.rows, expected_rows)
    assert torch.equal(sparse.columns, expected_columns)
    assert torch.equal(sparse.values, table[expected_rows, expected_columns])


def test_boxes_apart_have_overlap_0_without_rounding():
    """Level boxes around them touch, so these pairs are computed."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([100, 100, 40, 6, 6])
    a, b = (torch.rand(200, 5, generator=generator, dtype=torch.float64) * scale for _ in range(2))
    apart = shapely_overlap(a, b, "iou") == 0
    hboxes = rbox_to_hbox(a), rbox_to_hbox(b)
    assert sum(int(apart[i, j].sum()) for i, j in pairs.touching_pairs(*hboxes)) > 1000
    assert (box_iou_rotated(a, b)[apart] == 0).all()


@pytest.mark.parametrize(
    ("a", "b", "expected_iou", "expected_iof"),
    [
        (level(0, 0, 4, 2), level(2, 0, 6, 2), 1 / 3, 0.5),
        (level(0, 0, 4, 2), level(4, 0, 6, 2), 0.0, 0.0),
        (level(0, 0, 4, 2), level(4, 2, 6, 4), 0.0, 0.0),
        (level(1, 1, 2, 2), level(0, 0, 4, 4), 1 / 16, 1.0),
        (level(0, 0, 4, 4), level(1, 1, 2, 2), 1 / 16, 1 / 16),
        (level(0, 0, 9, 1), level(4, -4, 5, 5), 1 / 17, 1 / 9),
        (level(0, 0, 4, 2), level(0, 0, 0, 2), 0.0, 0.0),
    ],
    ids=["half", "touching edge", "touching corner", "inside", "around", "cross", "no area"],
)
def test_overlap_of_level_boxes(a, b, expected_iou, expected_iof):
    assert box_iou_rotated(a, b, "iou").item() == pytest.approx(expected_iou, abs=1e-7)
    assert box_iou_rotated(a, b, "iof").item() == pytest.approx(expected_iof, abs=1e-7)


@pytest.mark.parametrize("order", [1, -1], ids=["dot in huge box", "huge box around dot"])
def test_rounding_is_that_of_the_smaller_box(order):
    count = 50
    dots = torch.tensor([[0.0, 0.0, 1e-3, 1e-3, 0.2]], dtype=torch.float64).repeat(count, 1)
    dots[:, 0] = torch.linspace(-3e4, 3e4, count)
    huge = torch.tensor([[0.0, 0.0, 1e5, 3e4, 0.3]], dtype=torch.float64).repeat(count, 1)
    first, second = (dots, huge)[::order]
    area = pairwise_iou_rotated(first, second, "iof") * first[:, 2] * first[:, 3]
    torch.testing.assert_close(area, torch.full_like(area, 1e-6), rtol=1e-13, atol=0)


def test_square_turned_by_45_degrees_covers_an_octagon():
    square = torch.tensor([[5.0, 5.0, 2.0, 2.0, 0.0]], dtype=torch.float64)
    turned = torch.tensor([[5.0, 5.0, 2.0, 2.0, math.pi / 4]], dtype=torch.float64)
    octagon = 8 * (math.sqrt(2) - 1)  # of inscribed radius 1
    assert pairwise_iou_rotated(square, turned).item() == pytest.approx(octagon / (8 - octagon))


@pytest.mark.parametrize("difference", [0, 1e-16, 1e-12, 1e-8, 1e-4])
def test_nearly_parallel_boxes_have_nearly_iou_1(difference):
    a = torch.tensor([[500.0, 300.0, 80.0, 20.0, 0.6]], dtype=torch.float64)
    b = a.clone()
    b[0, 4] += difference
    # Each end of a 40 px arm moves by 40 * difference: under 2 * 80 * 40 * difference px^2.
    allowed = 2 * 80 * 40 * difference / 1600 + 1e-13
    assert pairwise_iou_rotated(a, b).item() == pytest.approx(1, abs=allowed)


@pytest.mark.parametrize(("count_a", "count_b"), [(0, 3), (3, 0), (0, 0)])
def test_zero_boxes_give_an_empty_table(count_a, count_b):
    a, b = torch.zeros(count_a, 5), torch.zeros(count_b, 5)
    assert box_iou_rotated(a, b).shape == (count_a, count_b)
    rows, columns, values = sparse_iou_rotated(a, b)
    assert rows.shape == columns.shape == values.shape == (0,)
    assert (rows.dtype, values.dtype) == (torch.int64, torch.float32)
    assert pairwise_iou_rotated(torch.zeros(0, 5), torch.zeros(0, 5)).shape == (0,)


def test_chunks_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([100, 100, 60, 60, 6])
    a, b = (torch.rand(40, 5, generator=generator, dtype=torch.float64) * scale for _ in range(2))
    whole, sparse = box_iou_rotated(a, b), sparse_iou_rotated(a, b)
    monkeypatch.setattr(pairs, "_PAIRS_PER_CHUNK", 100)
    monkeypatch.setattr(intersection, "_PAIRS_PER_CHUNK_CPU", 7)
    assert (whole > 0).sum() > 100
    assert torch.equal(box_iou_rotated(a, b), whole)
    assert all(map(torch.equal, sparse_iou_rotated(a, b), sparse))


def test_large_scene_is_never_looked_at_pair_by_pair(monkeypatch):
    """20,000 x 20,000 boxes: fewer than 1 in 1,000 pairs are computed, in bounded chunks."""
    generator = torch.Generator().manual_seed(0)
    scale, least = torch.tensor([1e4, 1e4, 40, 40, 6]), torch.tensor([0, 0, 20, 20, 0])
    a, b = (torch.rand(20_000, 5, generator=generator) * scale + least for _ in range(2))
    monkeypatch.setattr(pairs, "_test_every_pair", None)  # calling it would be an error
    sizes = [len(chunk.values) for chunk in overlaps_rotated(a, b)]
    assert 20_000 < sum(sizes) < 20_000**2 / 1000
    assert max(sizes) <= pairs._PAIRS_PER_CHUNK


@PROPERTY
@given(a=rbox_tensors(min_size=1, max_size=4), b=rbox_tensors(min_size=1, max_size=4))
@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_gradient_is_the_derivative_of_the_overlap(mode, a, b):
    a, b = (boxes[: min(len(a), len(b))].requires_grad_() for boxes in (a, b))
    grads = torch.autograd.grad(pairwise_iou_rotated(a, b, mode).sum(), [a, b])
    step = 1e-6  # px and radians; sides are at least 0.5 px
    changes = step * torch.eye(10, dtype=torch.float64)  # of the ten numbers of a pair
    numbers = torch.cat([a, b], dim=1).detach()[:, None]  # (n, 1, 10)
    more, less = (
        pairwise_iou_rotated(*moved.flatten(0, 1).split(5, dim=1), mode).reshape(-1, 10)
        for moved in (numbers + changes, numbers - changes)
    )
    expected = (more - less) / (2 * step)
    # The slope itself changes by up to 100 a radian and px where a corner passes an edge.
    torch.testing.assert_close(torch.cat(grads, dim=1), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_gradient_of_odd_pairs_is_finite(dtype):
    boxes = torch.cat(
        [odd_rboxes(dtype), torch.tensor([[50.0, 40, 0, 10, 0.3], [50, 40, 0, 0, 0]])]
    )
    a = boxes.repeat_interleave(len(boxes), dim=0).to(dtype).requires_grad_()
    b = boxes.repeat(len(boxes), 1).to(dtype).requires_grad_()
    for mode in ("iou", "iof"):
        grads = torch.autograd.grad(pairwise_iou_rotated(a, b, mode).sum(), [a, b])
        assert all(grad.isfinite().all() and grad.dtype == dtype for grad in grads)


def test_gradient_of_boxes_that_coincide_or_lie_apart_is_0():
    boxes = odd_rboxes().requires_grad_()
    (grad,) = torch.autograd.grad(pairwise_iou_rotated(boxes, boxes.detach()).sum(), boxes)
    scale = torch.minimum(boxes[:, 2], boxes[:, 3]).detach()[:, None]
    torch.testing.assert_close(grad * scale, torch.zeros_like(grad), rtol=0, atol=1e-9)
    away = boxes.detach() + 1e6
    (grad,) = torch.autograd.grad(pairwise_iou_rotated(boxes, away).sum(), boxes)
    assert (grad == 0).all()


def test_gradient_pulls_a_box_onto_the_other():
    a = torch.tensor([[10.0, 10.0, 8.0, 4.0, 0.0]], requires_grad=True)
    b = torch.tensor([[11.0, 10.0, 8.0, 4.0, 0.0]])
    pairwise_iou_rotated(a, b).sum().backward()
    # I = 28, U = 36. A px to the right adds 4 to I and takes 4 from U: (4 * 36 + 28 * 4) / 36^2.
    # A px of width adds 2 to both, half of it beyond b.
    assert a.grad[0].tolist() == pytest.approx([16 / 81, 0, 1 / 81, 0, 0], abs=1e-6)


def test_results_have_the_dtype_of_the_boxes():
    boxes = odd_rboxes(torch.float32).requires_grad_()
    tables = [box_iou_rotated(boxes, boxes), sparse_iou_rotated(boxes, boxes).values]
    rows = pairwise_iou_rotated(boxes, boxes.double())
    assert [result.dtype for result in (*tables, rows)] == [torch.float32] * 3
    assert [result.requires_grad for result in (*tables, rows)] == [False, False, True]
    assert not pairwise_iou_rotated(boxes.detach(), boxes.detach()).requires_grad


def test_bad_arguments_are_refused():
    good = torch.zeros(2, 5)
    for operation in (box_iou_rotated, sparse_iou_rotated, pairwise_iou_rotated):
        with pytest.raises(ValueError, match=r"b must be \(N, 5\).*got \(2, 4\)"):
            operation(good, torch.zeros(2, 4))
        with pytest.raises(ValueError, match="'iou' or 'iof', got 'giou'"):
            operation(good, good, mode="giou")
        with pytest.raises(ValueError, match="a must be finite"):
            operation(torch.full((1, 5), math.nan), good)
    with pytest.raises(ValueError, match="same length, got 2 and 3"):
        pairwise_iou_rotated(good, torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"not be negative, got -0\.1"):
        sparse_iou_rotated(good, good, threshold=-0.1)
