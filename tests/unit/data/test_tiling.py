import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from obbflow.data.tiling import ObjectCutter, windows
from scenes import level_box


def qbox(cx, cy, w, h, degrees):
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    corners = np.array([[-w, -h], [w, -h], [w, h], [-w, h]]) / 2
    return (corners @ np.array([[cos, sin], [-sin, cos]]) + (cx, cy)).ravel()


@pytest.mark.parametrize(
    ("size", "tile", "overlap", "expected"),
    [
        ((256, 256), 256, 64, [(0, 0)]),
        ((100, 80), 256, 64, [(0, 0)]),
        ((257, 80), 256, 64, [(0, 0), (1, 0)]),
        ((448, 256), 256, 64, [(0, 0), (192, 0)]),
        ((449, 256), 256, 64, [(0, 0), (192, 0), (193, 0)]),
        ((20, 30), 10, 0, [(0, 0), (10, 0), (0, 10), (10, 10), (0, 20), (10, 20)]),
    ],
    ids=["exact", "smaller", "one px more", "whole strides", "strides and one px", "no overlap"],
)
def test_tiles_step_by_stride_and_end_flush(size, tile, overlap, expected):
    assert windows(*size, tile_size=tile, overlap=overlap) == expected


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 90), st.integers(0, 89))
def test_tiles_cover_the_image_once_each_and_stay_inside(width, height, tile, overlap):
    overlap %= max(1, tile - 6)  # at least 6 px a step, to keep it quick
    found = windows(width, height, tile, overlap)
    columns, rows = (sorted({corner[axis] for corner in found}) for axis in (0, 1))
    assert sorted(found) == list(itertools.product(columns, rows))
    for starts, length in ((columns, width), (rows, height)):
        assert starts[0] == 0
        assert starts[-1] == max(length - tile, 0)
        # Neighbours overlap by what was asked for; only the last one overlaps by more.
        assert all(after - before <= tile - overlap for before, after in pairwise(starts))
        assert all(start % (tile - overlap) == 0 for start in starts[:-1])


@pytest.mark.parametrize(("tile", "overlap"), [(256, 256), (256, 300), (256, -1), (0, 0)])
def test_overlap_out_of_range_is_refused(tile, overlap):
    with pytest.raises(ValueError, match="tile_size"):
        windows(100, 100, tile, overlap)


def test_whole_object_keeps_its_box_shifted():
    cutter = ObjectCutter(np.array([qbox(220, 100, 40, 10, 20)]))
    (rbox,) = cutter.cut(192, 50, 256, 256, 0.7).rboxes
    assert rbox == pytest.approx([28, 50, 40, 10, math.radians(20)], abs=1e-9)


def test_cut_object_keeps_its_angle_and_is_boxed_in_its_own_frame():
    # The right border x = 100 passes 10 px right of the centre.
    cutter = ObjectCutter(np.array([qbox(90, 50, 80, 20, 20)]))
    cut = cutter.cut(0, 0, 100, 100, 0.5)
    cx, cy, w, h, angle = cut.rboxes[0]
    assert angle == pytest.approx(math.radians(20))
    assert h == pytest.approx(20)
    # The visible part ends where the upper (in the frame) long side meets the border:
    # 90 + t cos 20 + 10 sin 20 = 100.
    end = (10 + 10 * math.sin(angle)) / math.cos(angle)
    assert w == pytest.approx(40 + end)
    middle = (end - 40) / 2
    assert (cx, cy) == pytest.approx((90 + middle * math.cos(angle), 50 + middle * math.sin(angle)))
    assert not cut.ignore[0]


def test_cut_object_stays_le90_when_its_short_side_becomes_the_long_one():
    cutter = ObjectCutter(np.array([level_box(80, 10, 180, 50)]))
    cut = cutter.cut(0, 0, 100, 100, 0.1)
    assert cut.iof.tolist() == [pytest.approx(0.2)]
    assert cut.rboxes[0] == pytest.approx([90, 30, 40, 20, -math.pi / 2])


@pytest.mark.parametrize(
    ("min_visible", "ignore"), [(0.5, False), (0.75, False), (0.7501, True), (1.0, True)]
)
def test_object_with_less_than_min_visible_is_an_ignore_region(min_visible, ignore):
    cutter = ObjectCutter(np.array([level_box(70, 10, 110, 20)]))
    cut = cutter.cut(0, 0, 100, 100, min_visible)
    assert cut.ignore.tolist() == [ignore]
    assert cut.rboxes[0] == pytest.approx([85, 15, 30, 10, 0])


def test_whole_object_is_no_ignore_region_at_min_visible_1():
    cut = ObjectCutter(np.array([qbox(50, 50, 40, 10, 33)])).cut(0, 0, 100, 100, 1.0)
    assert cut.ignore.tolist() == [False]


def test_what_is_hardly_visible_or_only_touches_is_left_out():
    boxes = [
        level_box(99.9, 10, 140, 12),  # 0.2 px^2 inside
        level_box(100, 10, 140, 50),
        level_box(200, 10, 240, 50),
        qbox(110, 110, 100, 2, -45),  # its enclosing box overlaps, it does not
    ]
    assert len(ObjectCutter(np.array(boxes)).cut(0, 0, 100, 100, 0.7).rows) == 0


def test_tiny_object_inside_is_kept():
    cut = ObjectCutter(np.array([level_box(5, 5, 5.5, 5.5)])).cut(0, 0, 100, 100, 0.7)
    assert cut.rows.tolist() == [0]


def test_no_object_gives_no_row():
    cut = ObjectCutter(np.zeros((0, 8))).cut(0, 0, 100, 100, 0.7)
    assert cut.rboxes.shape == (0, 5)
    assert cut.rows.shape == cut.iof.shape == cut.ignore.shape == (0,)


@given(
    st.floats(-40, 140),
    st.floats(-40, 140),
    st.floats(4, 90),
    st.floats(2, 30),
    st.floats(-90, 89),
)
def test_visible_share_and_box_are_those_that_shapely_finds(cx, cy, w, h, degrees):
    corners = qbox(cx, cy, w, h, degrees)
    polygon, frame = shapely.Polygon(corners.reshape(4, 2)), shapely.box(0, 0, 100, 100)
    visible = polygon.intersection(frame)
    cut = ObjectCutter(corners[None]).cut(0, 0, 100, 100, 0.01)
    if visible.area < 1:
        return
    assert cut.iof[0] == pytest.approx(visible.area / polygon.area, abs=1e-9)
    x, y, bw, bh, angle = cut.rboxes[0]
    box = shapely.Polygon(qbox(x, y, bw, bh, math.degrees(angle)).reshape(4, 2))
    # The box holds the visible part, and lies in the object's own rectangle; 1e-6: rounding.
    assert visible.difference(box.buffer(1e-6)).area < 1e-6
    assert box.difference(polygon.buffer(1e-6)).area < 1e-6


def test_half_of_an_object_is_enough_for_min_visible_one_half():
    # The border passes through the centre; in floating point the share is 0.5 - 2e-16 or so.
    corners = np.array([895.6, 40.8, 1095.7, -53.2, 1101.5, -40.8, 901.4, 53.2]) - [900, 0] * 4
    cut = ObjectCutter(corners[None]).cut(-200, 0, 400, 400, 0.5)
    assert cut.iof.tolist() == [pytest.approx(0.5)]
    assert not cut.ignore[0]
