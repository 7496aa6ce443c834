import pandas as pd
import pytest
import torch

from obbflow.inference.merge import find_fragments, merge_windows
from obbflow.inference.tables import PREDICTION_IMAGES, WINDOW_DETECTIONS
from obbflow.tables import make_table

LEFT, RIGHT = (0, 0, 256, 256), (192, 0, 256, 256)
IMAGE = (448, 256)
WHOLE = (206.0, 120.0, 80.0, 20.0, 0.0)  # 166 .. 246
FRAGMENT = (219.0, 120.0, 54.0, 20.0, 0.0)  # 192 .. 246, cut by the border of RIGHT


def table(*rows) -> pd.DataFrame:
    """Return detections from (image, window, class, score, rbox)."""
    flat = [(image, *window, name, score, *box) for image, window, name, score, box in rows]
    return make_table(flat, WINDOW_DETECTIONS)


IMAGES = make_table([("a", "", *IMAGE), ("b", "", *IMAGE)], PREDICTION_IMAGES)


def merge(*rows, iou_threshold=0.3, **options):
    return merge_windows(table(*rows), IMAGES, iou_threshold=iou_threshold, **options)


def fragments(*rows, image_size=IMAGE):
    boxes = torch.tensor([box for _, _, box in rows])
    scores = torch.tensor([score for _, score, _ in rows])
    places = torch.tensor([window for window, _, _ in rows], dtype=torch.float32)
    labels = torch.zeros(len(rows), dtype=torch.int64)
    return find_fragments(boxes, scores, labels, places, image_size).tolist()


def test_a_fragment_goes_even_with_the_better_score():
    assert fragments((LEFT, 0.9, WHOLE), (RIGHT, 0.95, FRAGMENT)) == [False, True]


@pytest.mark.parametrize(
    ("window", "box"),
    [
        ((0, 0, 256, 256), (216.0, 120.0, 80.0, 20.0, 0.0)),
        ((192, 0, 256, 256), (232.0, 120.0, 80.0, 20.0, 0.0)),
    ],
    ids=["right side", "left side"],
)
def test_both_borders_between_windows_count(window, box):
    other = RIGHT if window == LEFT else LEFT
    whole = (box[0], box[1], 120.0, 24.0, 0.0)
    assert fragments((window, 0.9, box), (other, 0.9, whole)) == [True, False]


def test_at_the_border_of_the_image_nothing_is_cut():
    box, larger = (20.0, 120.0, 40.0, 20.0, 0.0), (25.0, 120.0, 60.0, 24.0, 0.0)
    assert fragments((LEFT, 0.9, box), (RIGHT, 0.9, larger)) == [False, False]


def test_a_box_off_the_border_is_no_fragment():
    inside = (225.0, 120.0, 40.0, 18.0, 0.0)  # 205 .. 245
    assert fragments((LEFT, 0.9, WHOLE), (RIGHT, 0.95, inside)) == [False, False]


def test_an_unlikely_large_box_does_not_remove_a_sure_one():
    assert fragments((LEFT, 0.3, WHOLE), (RIGHT, 0.95, FRAGMENT)) == [False, False]


def test_boxes_of_one_window_are_left_to_the_detector():
    assert fragments((RIGHT, 0.9, WHOLE), (RIGHT, 0.95, FRAGMENT)) == [False, False]


def test_no_boxes_have_no_fragments():
    empty = torch.zeros(0, 5)
    none = torch.zeros(0, dtype=torch.int64)
    assert find_fragments(empty, empty[:, 0], none, empty[:, :4], IMAGE).tolist() == []


def test_classes_are_merged_by_themselves_unless_asked_otherwise():
    rows = ("a", LEFT, "ship", 0.9, WHOLE), ("a", RIGHT, "harbor", 0.95, FRAGMENT)

    assert merge(*rows)["class_name"].tolist() == ["harbor", "ship"]
    assert merge(*rows, class_agnostic=True)["class_name"].tolist() == ["ship"]


def test_suppression_never_crosses_images_and_follows_their_order():
    merged = merge(("b", LEFT, "ship", 0.8, WHOLE), ("a", LEFT, "ship", 0.9, WHOLE))

    assert merged["image_id"].tolist() == ["a", "b"]


def test_the_threshold_decides():
    shifted = (246.0, 120.0, 80.0, 20.0, 0.0)  # half over half: IoU 1/3
    rows = ("a", LEFT, "ship", 0.9, WHOLE), ("a", LEFT, "ship", 0.8, shifted)

    assert len(merge(*rows, iou_threshold=0.34)) == 2
    assert merge(*rows, iou_threshold=0.33)["score"].tolist() == [0.9]


def test_nothing_found_gives_an_empty_table():
    merged = merge()

    assert len(merged) == 0
    assert merged.columns.tolist()[:3] == ["image_id", "class_name", "score"]


def test_an_image_that_is_not_listed_is_an_error():
    with pytest.raises(ValueError, match="lacks c"):
        merge(("c", LEFT, "ship", 0.9, WHOLE))
