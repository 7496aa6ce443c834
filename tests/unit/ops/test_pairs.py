import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.ops import box_iou

from obbflow.ops import pairs
from obbflow.ops.pairs import overlaps_horizontal, touching_pairs, touching_pairs_within
from strategies import PROPERTY, hbox_tensors


@pytest.fixture(params=["sweep", "every pair"])
def _both_ways(request, monkeypatch):
    """Small sets are tested pair by pair, large ones swept."""
    tests = 0 if request.param == "sweep" else 10**9
    monkeypatch.setattr(pairs, "_TESTS_PER_SORTED_BOX", tests)


both_ways = pytest.mark.usefixtures("_both_ways")


def listed(chunks):
    """All pairs in order; a pair that came twice is in the list twice."""
    return sorted(pair for i, j in chunks for pair in zip(i.tolist(), j.tolist(), strict=True))


def with_common_area(a, b):
    """The definition, for every pair."""
    start = torch.maximum(a[:, None, :2], b[None, :, :2])
    end = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    return [tuple(pair) for pair in (end > start).all(dim=2).nonzero().tolist()]


def table(overlaps, count_a, count_b):
    """Overlaps as nested lists, with 0 for the pairs that are not listed."""
    result = torch.zeros(count_a, count_b, dtype=torch.float64)
    for rows, columns, values in overlaps:
        assert (values > 0).all()
        result[rows, columns] = values.double()
    return result.tolist()


def noise(count, span, size=40.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(count, 4, generator=generator, dtype=torch.float64)
    start = values[:, :2] * torch.tensor(span, dtype=torch.float64)
    return torch.cat([start, start + size / 2 + values[:, 2:] * size], dim=1)


GIANT = torch.tensor([[-1e6, -1e6, 1e6, 1e6]], dtype=torch.float64)
SCENES = {
    "crowded": noise(80, 100.0),
    "wide": noise(80, (5000.0, 30.0)),
    "tall": noise(80, (30.0, 5000.0)),
    "one giant": torch.cat([noise(40, 300.0), GIANT, noise(40, 300.0, seed=1)]),
    "no area": noise(80, 100.0) * torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64),
    "lines and points": noise(80, 20.0, size=2.0).round(),
    "on a grid": (noise(80, 40.0) / 8).round() * 8,
    "far from 0": noise(80, 60.0) + 1e5,
    "tiny and far apart": torch.cat([noise(40, 1e-2, 1e-3) + p for p in (-1e5, 0, 1e5)]),
    "huge span": torch.cat([noise(40, 100.0) + p for p in (-1e15, 0, 1e15)]),
    "smallest numbers": noise(80, 100.0) * 1e-320,
}


@both_ways
@PROPERTY
@given(a=hbox_tensors(), b=hbox_tensors())
def test_each_pair_with_a_common_area_comes_once(a, b):
    assert listed(touching_pairs(a, b)) == with_common_area(a, b)


@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", SCENES)
def test_pairs_of_odd_scenes_come_once(name, dtype):
    a, b = SCENES[name].to(dtype), noise(50, 100.0, seed=2).to(dtype)
    for first, second in ((a, b), (b, a), (a, a.flip(0))):
        assert listed(touching_pairs(first, second)) == with_common_area(first, second)


@PROPERTY
@given(boxes=hbox_tensors(), data=st.data())
def test_each_pair_within_a_group_comes_once_smaller_row_first(boxes, data):
    label = st.lists(st.integers(0, 2), min_size=len(boxes), max_size=len(boxes))
    groups = torch.tensor(data.draw(label), dtype=torch.int64)
    expected = [(i, j) for i, j in with_common_area(boxes, boxes) if i < j]
    assert listed(touching_pairs_within(boxes)) == expected
    same = [(i, j) for i, j in expected if groups[i] == groups[j]]
    assert listed(touching_pairs_within(boxes, groups)) == same


@pytest.mark.parametrize("name", SCENES)
def test_pairs_within_odd_scenes_come_once(name):
    boxes = SCENES[name]
    expected = [(i, j) for i, j in with_common_area(boxes, boxes) if i < j]
    assert listed(touching_pairs_within(boxes)) == expected


@both_ways
@pytest.mark.parametrize(("count_a", "count_b"), [(0, 3), (3, 0), (0, 0)])
def test_zero_boxes_make_no_pairs(count_a, count_b):
    assert listed(touching_pairs(noise(count_a, 9.0), noise(count_b, 9.0))) == []
    assert listed(touching_pairs_within(noise(0, 9.0))) == []


@both_ways
def test_chunks_are_bounded_and_change_nothing(monkeypatch):
    a, b = noise(200, 300.0), noise(150, 300.0, seed=1)
    whole, within = listed(touching_pairs(a, b)), listed(touching_pairs_within(a))
    monkeypatch.setattr(pairs, "_PAIRS_PER_CHUNK", 200)
    sizes = [len(i) for i, _ in touching_pairs(a, b)]
    assert len(whole) > 1000
    assert max(sizes) <= 2 * 200  # a box's own run is not divided
    assert listed(touching_pairs(a, b)) == whole
    assert listed(touching_pairs_within(a)) == within


def test_work_grows_with_the_pairs_that_touch_and_not_with_the_scene(monkeypatch):
    """Eight times the boxes in eight times the area: eight times the candidates."""
    candidates = []
    chunks = pairs._chunks

    def spy(counts):
        candidates.append(int(counts.sum()))
        return chunks(counts)

    monkeypatch.setattr(pairs, "_chunks", spy)
    for side in (1000.0, 1000 * math.sqrt(8)):
        count = int(500 * (side / 1000) ** 2)
        a, b = noise(count, side), noise(count, side, seed=1)
        candidates.clear()
        touching = len(listed(touching_pairs_within(torch.cat([a, b]))))
        assert 1.5 * count < touching < sum(candidates) < 3 * touching


@pytest.mark.parametrize("name", [name for name in SCENES if name != "no area"])
def test_boxes_are_cut_into_three_pieces_on_average_at_most(name):
    boxes = SCENES[name]
    assert 1 <= len(pairs._cut(boxes).box) / len(boxes) <= 3


@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", SCENES)
def test_overlaps_are_those_of_torchvision_bit_by_bit(name, dtype):
    a, b = SCENES[name].to(dtype), noise(60, 100.0, seed=3).to(dtype)
    expected = box_iou(a, b)
    assert table(overlaps_horizontal(a, b), *expected.shape) == expected.tolist()


@both_ways
def test_iof_is_over_the_area_of_the_first_box():
    a = torch.tensor([[0.0, 0.0, 4.0, 2.0], [8.0, 8.0, 9.0, 9.0]])
    b = torch.tensor([[1.0, 0.0, 9.0, 8.0]])
    assert table(overlaps_horizontal(a, b, "iof"), 2, 1) == [[0.75], [0.0]]
    assert table(overlaps_horizontal(b, a, "iof"), 1, 2) == [[6 / 64, 0.0]]


def test_boxes_too_small_for_an_area_in_float32_overlap_nothing():
    dots = torch.tensor([[0.0, 0.0, 1e-30, 1e-30]])  # 1e-60 px^2 is 0, and 0 / 0 not a number
    assert sum(len(chunk.values) for chunk in overlaps_horizontal(dots, dots)) == 0


def test_bad_arguments_are_refused():
    good = torch.zeros(2, 4)
    with pytest.raises(ValueError, match=r"b must be \(N, 4\).*got \(2, 5\)"):
        list(touching_pairs(good, torch.zeros(2, 5)))
    with pytest.raises(ValueError, match=r"boxes must be \(N, 4\).*got \(5,\)"):
        list(touching_pairs_within(torch.zeros(5)))
    with pytest.raises(ValueError, match="a must be finite"):
        list(overlaps_horizontal(torch.full((1, 4), math.nan), good))
    with pytest.raises(ValueError, match="'iou' or 'iof', got 'giou'"):
        list(overlaps_horizontal(good, good, "giou"))
