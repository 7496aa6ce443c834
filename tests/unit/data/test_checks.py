import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obbflow.config import DatasetSection
from obbflow.data.checks import check_annotations, corners_of, is_crossed, order_corners
from obbflow.tables import DATA_ISSUES, make_table
from scenes import annotations_table, images_table, level_box

IMAGES = images_table(("P1", "train", 100, 80), ("P2", "train", 20, 20))
NO_ISSUES = make_table([], DATA_ISSUES)
BOX = level_box(10, 10, 30, 20)


def check(*boxes, names=None, image_id="P1"):
    names = names or ["ship"] * len(boxes)
    rows = [(image_id, name, box) for name, box in zip(names, boxes, strict=True)]
    return check_annotations(
        IMAGES, annotations_table(*rows), NO_ISSUES, DatasetSection(data_root="unused")
    )


def test_proper_boxes_pass_without_an_issue():
    annotations = annotations_table(
        ("P1", "ship", BOX), ("P2", "plane", BOX[:0] + level_box(0, 0, 20, 20))
    )
    kept, issues = check_annotations(
        IMAGES, annotations, NO_ISSUES, DatasetSection(data_root="unused")
    )
    assert kept.equals(annotations)
    assert issues.empty


def test_no_object_at_all_passes():
    empty = annotations_table(("P1", "ship", BOX)).iloc[:0]
    kept, issues = check_annotations(IMAGES, empty, NO_ISSUES, DatasetSection(data_root="unused"))
    assert kept.empty
    assert issues.empty


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 1, 3, 2)], ids=["one pair", "other pair"])
def test_crossing_corners_are_put_in_order(order):
    crossed = np.array(BOX).reshape(4, 2)[list(order)]
    kept, issues = check(crossed.ravel())
    assert is_crossed(crossed[None]).tolist() == [True]
    repaired = corners_of(kept)
    assert is_crossed(repaired).tolist() == [False]
    assert sorted(map(tuple, repaired[0])) == sorted(map(tuple, crossed))
    assert issues[["kind", "action", "line"]].values.tolist() == [
        ["crossed_corners", "repaired", 3]
    ]


@given(st.permutations(range(4)), st.floats(0, 2 * np.pi))
def test_any_order_of_a_rectangles_corners_becomes_a_cyclic_one(order, angle):
    cos, sin = np.cos(angle), np.sin(angle)
    corners = np.array([[-3, -1], [3, -1], [3, 1], [-3, 1]]) @ np.array([[cos, sin], [-sin, cos]])
    assert not is_crossed(order_corners(corners[list(order)][None]))[0]


@pytest.mark.parametrize(
    "box",
    [[5, 5, 15, 5, 25, 5, 35, 5], [5, 5, 15, 15, 15, 15, 5, 5], [7] * 8, [0] * 8],
    ids=["level line", "there and back", "point", "zeros"],
)
def test_object_without_area_is_dropped(box):
    kept, issues = check(BOX, box)
    assert kept["source_line"].tolist() == [3]
    assert issues[["kind", "action", "file", "line"]].values.tolist() == [
        ["zero_area", "dropped", "labelTxt/P1.txt", 4]
    ]


def test_triangle_is_kept():
    kept, issues = check([10, 10, 30, 10, 30, 50, 30, 50])
    assert len(kept) == 1
    assert issues.empty


def test_object_outside_is_dropped_and_one_partly_outside_is_kept_as_written():
    outside, touching = level_box(100, 10, 120, 30), level_box(-20, 0, 0, 20)
    partly = level_box(-10, 10, 30, 20)
    kept, issues = check(outside, partly, touching)
    assert corners_of(kept).ravel().tolist() == partly
    found = issues.set_index("line")[["kind", "action"]].agg(tuple, axis=1).to_dict()
    assert found == {
        3: ("outside_image", "dropped"),
        5: ("outside_image", "dropped"),
        4: ("partly_outside", "kept"),
    }


def test_enclosing_rectangle_inside_is_not_enough():
    # a thin diagonal box past the corner: its enclosing rectangle overlaps the image, it does not
    kept, issues = check([95, 90, 110, 75, 111, 76, 96, 91])
    assert kept.empty
    assert issues["kind"].tolist() == ["outside_image"]


def test_same_corners_and_class_are_one_object_whatever_the_order():
    turned = BOX[2:] + BOX[:2]
    mirrored = np.array(BOX).reshape(4, 2)[::-1].ravel()
    kept, issues = check(BOX, turned, BOX, mirrored, names=["ship", "ship", "plane", "ship"])
    assert kept["source_line"].tolist() == [3, 5]
    assert issues["line"].tolist() == [4, 6]
    assert issues["message"].str.contains("line 3 already").all()
    assert set(issues["kind"]) == {"duplicate"}


def test_same_corners_in_two_images_are_two_objects():
    annotations = annotations_table(
        ("P1", "ship", level_box(1, 1, 9, 9)), ("P2", "ship", level_box(1, 1, 9, 9))
    )
    kept, issues = check_annotations(
        IMAGES, annotations, NO_ISSUES, DatasetSection(data_root="unused")
    )
    assert len(kept) == 2
    assert issues.empty


def test_unusual_sizes_are_noted_once_an_image():
    small = [level_box(x, 5, x + 8, 6) for x in range(0, 90, 10)]
    kept, issues = check(*small)
    assert len(kept) == 9
    (issue,) = issues.to_dict("records")
    assert (issue["kind"], issue["severity"], issue["line"]) == ("tiny", "info", 3)
    assert issue["message"] == "objects with a side under 2.0 px: 9 (line 3, 4, 5, 6, 7 and 4 more)"


def test_object_longer_than_its_image_is_noted():
    kept, issues = check(level_box(-200, 10, 300, 40))
    assert len(kept) == 1
    assert set(issues["kind"]) == {"partly_outside", "huge"}


def test_thin_object_is_noted():
    _, issues = check(level_box(0, 5, 100, 7), level_box(0, 20, 100, 21.9))
    assert issues.loc[issues["kind"] == "thin", "line"].tolist() == [4]


def test_class_without_an_angle_is_noted_from_20_objects_on():
    upright = [level_box(x, 5, x + 3, 9) for x in range(20)]
    _, issues = check(*upright)
    (issue,) = issues.to_dict("records")
    assert (issue["kind"], issue["severity"], issue["line"]) == ("no_angle", "info", 3)
    assert issue["message"].startswith("all 20 objects of 'ship' are upright boxes")
    turned = [[40, 40, 43, 41, 42, 44, 39, 43]]
    for boxes in (upright[1:], upright + turned):
        assert "no_angle" not in set(check(*boxes)[1]["kind"])


def test_class_name_that_is_nearly_another_is_noted_as_it_is_after_map_labels():
    names = ["ship", "Ship", "ship", "boat"]
    _, issues = check(*[level_box(x, 5, x + 3, 9) for x in range(4)], names=names)
    assert issues[["kind", "line", "action"]].values.tolist() == [
        ["class_name_near_miss", 4, "kept"]
    ]
    mapped = DatasetSection(data_root="unused", map_labels={"Ship": "ship"})
    rows = [("P1", name, level_box(x, 5, x + 3, 9)) for x, name in enumerate(names)]
    _, issues = check_annotations(IMAGES, annotations_table(*rows), NO_ISSUES, mapped)
    assert issues.empty


def test_lookalikes_need_no_angle_and_their_names_are_right_as_they_are():
    names = ["ship"] + ["buoy"] * 20 + ["Buoy"] * 20 + ["buoy-"]
    boxes = [level_box(4 * x, 5, 4 * x + 3, 9) for x in range(21)]
    boxes += [level_box(4 * x, 15, 4 * x + 3, 19) for x in range(21)]
    boxes[0] = [40, 40, 43, 41, 42, 44, 39, 43]
    rows = [("P1", name, box) for name, box in zip(names, boxes, strict=True)]
    rules = DatasetSection(data_root="unused", lookalike_classes=("buoy", "Buoy"))
    kept, issues = check_annotations(IMAGES, annotations_table(*rows), NO_ISSUES, rules)
    assert kept["lookalike"].sum() == 40
    # "buoy-" would be a class of its own, beside the look-alike that it most likely is
    assert issues[["kind", "line"]].values.tolist() == [
        ["lookalike", pd.NA],
        ["lookalike", pd.NA],
        ["class_name_near_miss", 44],
    ]


def test_issues_of_reading_come_first():
    earlier = make_table([{"file": "a", "kind": "field_count"}], DATA_ISSUES)
    _, issues = check_annotations(
        IMAGES,
        annotations_table(("P1", "ship", [7] * 8)),
        earlier,
        DatasetSection(data_root="unused"),
    )
    assert issues["kind"].tolist() == ["field_count", "zero_area"]
