import math

import pandas as pd
import pytest

from obbflow.evaluation import COCO_THRESHOLDS, evaluate_detections
from obbflow.evaluation.thresholds import count_hits, score_tiles, tabulate_classes, thin_curves
from obbflow.tables import CLASS_METRICS, DETECTIONS, GROUND_TRUTH, check_table, make_table

A, B, C = (10.0, 10.0, 8.0, 4.0, 0.3), (40.0, 10.0, 8.0, 4.0, -0.7), (70.0, 70.0, 9.0, 9.0, 0.0)
CLASSES = ["plane", "ship", "tank"]


@pytest.fixture
def scored():
    """Two tiles: one hit, one miss and one false positive of planes; ships only detected."""
    ground_truth = make_table(
        [
            ("t1", "plane", *A, False),
            ("t1", "plane", *B, False),
            ("t2", "plane", *C, True),
            ("t2", "tank", *A, False),
        ],
        GROUND_TRUTH,
    )
    detections = make_table(
        [
            ("t1", "plane", 0.9, *A),
            ("t1", "plane", 0.8, *C),
            ("t1", "plane", 0.4, *B),
            ("t2", "plane", 0.7, *C),
            ("t2", "ship", 0.6, *B),
        ],
        DETECTIONS,
    )
    result = evaluate_detections(detections, ground_truth, CLASSES, COCO_THRESHOLDS)
    return detections, ground_truth, result


def test_class_table_counts_above_the_score_threshold(scored):
    detections, _, result = scored
    table = tabulate_classes(detections, result, 0.5, 0.5).set_index("class_name")
    plane = table.loc["plane"]
    assert (plane["n_gt"], plane["n_det"]) == (2, 2)  # the one on a difficult object is left out
    assert (plane["recall"], plane["precision"], plane["f1"]) == (0.5, 0.5, 0.5)
    assert plane["ap50"] == pytest.approx(0.5 + 0.5 * 2 / 3)


def test_a_detection_at_the_score_threshold_counts(scored):
    detections, _, result = scored
    table = tabulate_classes(detections, result, 0.4, 0.5).set_index("class_name")
    assert table.loc["plane", "recall"] == 1.0
    assert table.loc["plane", "precision"] == pytest.approx(2 / 3)
    assert table.loc["plane", "f1"] == pytest.approx(0.8)


def test_what_cannot_be_computed_is_missing_and_never_zero(scored):
    detections, _, result = scored
    table = tabulate_classes(detections, result, 0.5, 0.5)
    check_table(table, CLASS_METRICS, "class_metrics")
    rows = table.set_index("class_name")
    assert rows.loc["ship", ["recall", "f1", "ap50", "ap75", "ap50_95"]].isna().all()
    assert (rows.loc["ship", "n_det"], rows.loc["ship", "precision"]) == (1, 0.0)
    assert math.isnan(rows.loc["tank", "precision"])
    assert rows.loc["tank", ["recall", "f1", "ap50"]].tolist() == [0.0, 0.0, 0.0]


def test_hits_name_the_object_that_was_found(scored):
    detections, _, result = scored
    judged = count_hits(detections, result, 0.0, 0.5)
    assert judged["is_hit"].tolist() == [True, False, True, False, False]
    assert judged["is_miss"].tolist() == [False, True, False, False, True]
    assert judged["gt_row"].tolist() == [0, -1, 1, 2, -1]


def test_tiles_are_scored_over_all_classes(scored):
    detections, ground_truth, result = scored
    tiles = pd.Series(["t2", "empty", "t1"])
    table = score_tiles(detections, ground_truth, result, tiles, 0.5, 0.5)
    assert table["image_id"].tolist() == ["t2", "empty", "t1"]
    assert table[["n_gt", "n_hit", "n_det"]].to_numpy().tolist() == [
        [1, 0, 1],
        [0, 0, 0],
        [2, 1, 2],
    ]
    assert table["f1"].fillna(-1).tolist() == [0.0, -1, 0.5]


def test_thinned_curves_keep_their_ends_and_every_class():
    recall = [i / 1000 for i in range(1, 1001)]
    curve = pd.DataFrame({"score": recall[::-1], "recall": recall, "precision": 1.0})
    points = pd.concat([curve.assign(class_name=name) for name in ("b", "a")])
    thinned = thin_curves(points, max_points=50)
    assert thinned["class_name"].value_counts(sort=False).to_dict() == {"b": 50, "a": 50}
    assert thinned.groupby("class_name")["recall"].agg(["min", "max"]).to_numpy().tolist() == [
        [0.001, 1.0],
        [0.001, 1.0],
    ]


def test_thinned_curves_drop_points_between_hits():
    points = pd.DataFrame(
        {
            "class_name": "a",
            "score": [0.9, 0.8, 0.7, 0.6, 0.5],
            "recall": [0.5, 0.5, 0.5, 1.0, 1.0],
            "precision": [1.0, 0.5, 1 / 3, 0.5, 0.4],
        }
    )
    assert thin_curves(points)["score"].tolist() == [0.9, 0.6, 0.5]
