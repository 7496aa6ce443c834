import json

import pytest

from obbflow.config import EvaluationSection
from obbflow.evaluation import score_final
from obbflow.tables import DETECTIONS, GROUND_TRUTH, make_table

A, B = (10.0, 10.0, 8.0, 4.0, 0.3), (40.0, 10.0, 8.0, 4.0, -0.7)
WIDER = (10.0, 10.0, 8.0, 5.0, 0.3)  # IoU 0.8 with A


def score(detections, ground_truth, class_names, n_images=1, **settings):
    return score_final(
        make_table(detections, DETECTIONS),
        make_table(ground_truth, GROUND_TRUTH),
        class_names,
        n_images=n_images,
        evaluation=EvaluationSection(**settings),
    )


def test_headline_numbers_of_a_hand_computed_case():
    scores = score(
        [("t", "plane", 0.9, *WIDER), ("t", "plane", 0.8, *B), ("t", "ship", 0.8, *B)],
        [("t", "plane", *A, False), ("t", "plane", *B, False)],
        ["plane", "ship"],
    )
    metrics = scores.metrics
    assert (metrics["AP50"], metrics["AP75"]) == (1.0, 1.0)
    # Up to IoU 0.8 (7 thresholds) both are hits; above, a false positive comes before the hit.
    assert metrics["AP50_95"] == pytest.approx((7 * 1.0 + 3 * 0.25) / 10)
    assert metrics["AP50_95_voc07"] == pytest.approx((7 * 1.0 + 3 * 0.5 * 6 / 11) / 10)
    assert metrics["per_class"]["ship"]["AP50"] is None
    assert metrics["classes_without_ground_truth"] == ["ship"]
    assert (metrics["n_objects"], metrics["n_detections"], metrics["reason"]) == (2, 3, None)


def test_map_is_taken_at_the_configured_threshold():
    rows = [("t", "plane", 0.9, *WIDER)], [("t", "plane", *A, False)], ["plane"]
    metrics = score(*rows, iou_threshold=0.83).metrics
    assert (metrics["mAP"], metrics["AP50"], metrics["AP50_95"]) == (0.0, 1.0, pytest.approx(0.7))
    assert score(*rows, iou_threshold=0.3).metrics["mAP"] == 1.0


@pytest.mark.parametrize(
    ("ground_truth", "n_images", "reason"),
    [
        ([], 0, "no validation image"),
        ([], 3, "no ground truth"),
        ([("t", "plane", *A, True)], 1, "no ground truth"),
    ],
    ids=["no image", "no object", "only difficult"],
)
def test_what_cannot_be_computed_is_none_with_a_reason(ground_truth, n_images, reason):
    metrics = score([], ground_truth, ["plane"], n_images).metrics
    for name in ("mAP", "AP50", "AP75", "AP50_95", "mAP_voc07", "AP50_voc07"):
        assert metrics[name] is None
    assert metrics["per_class"]["plane"] == dict.fromkeys(metrics["per_class"]["plane"])
    assert reason in metrics["reason"]


def test_metrics_are_plain_values_for_strict_json():
    metrics = score([], [("t", "plane", *A, False)], ["plane", "ship"]).metrics
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


def test_curves_come_at_three_thresholds_and_are_empty_without_ground_truth():
    curves = score(
        [("t", "plane", 0.9, *A)], [("t", "plane", *A, False)], ["plane"], iou_threshold=0.3
    ).precision_recall
    assert curves["iou_threshold"].tolist() == [0.3, 0.5, 0.75]
    assert curves["recall"].tolist() == [1.0, 1.0, 1.0]
    assert score([], [], ["plane"]).precision_recall.columns.tolist() == list(curves.columns)
