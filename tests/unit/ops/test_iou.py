import math

import pytest
import shapely
import torch
from hypothesis import given

from obbflow.geometry import rbox_to_qbox
from obbflow.ops import box_iou_rotated, iou, pairwise_iou_rotated
from strategies import ODD_RBOXES, PROPERTY, odd_rboxes, rbox_tensors

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
    table = box_iou_rotated(torch.zeros(count_a, 5), torch.zeros(count_b, 5))
    assert table.shape == (count_a, count_b)
    assert pairwise_iou_rotated(torch.zeros(0, 5), torch.zeros(0, 5)).shape == (0,)


def test_chunks_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([100, 100, 60, 60, 6])
    a, b = (torch.rand(40, 5, generator=generator, dtype=torch.float64) * scale for _ in range(2))
    whole = box_iou_rotated(a, b)
    monkeypatch.setattr(iou, "_CELLS_PER_CHUNK", 100)
    monkeypatch.setattr(iou, "_PAIRS_PER_CHUNK_CPU", 7)
    assert (whole > 0).sum() > 100
    assert torch.equal(box_iou_rotated(a, b), whole)


def test_result_has_the_dtype_of_the_boxes_and_no_gradient():
    boxes = odd_rboxes(torch.float32).requires_grad_()
    for result in (box_iou_rotated(boxes, boxes), pairwise_iou_rotated(boxes, boxes)):
        assert result.dtype == torch.float32
        assert not result.requires_grad


def test_bad_arguments_are_refused():
    good = torch.zeros(2, 5)
    with pytest.raises(ValueError, match=r"b must be \(N, 5\).*got \(2, 4\)"):
        box_iou_rotated(good, torch.zeros(2, 4))
    with pytest.raises(ValueError, match="same length, got 2 and 3"):
        pairwise_iou_rotated(good, torch.zeros(3, 5))
    with pytest.raises(ValueError, match="'iou' or 'iof', got 'giou'"):
        box_iou_rotated(good, good, mode="giou")
    with pytest.raises(ValueError, match="a must be finite"):
        box_iou_rotated(torch.full((1, 5), math.nan), good)
