import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from obbflow.errors import DataError
from obbflow.evaluation import COCO_THRESHOLDS, evaluate_detections
from obbflow.evaluation.average_precision import average_precision
from obbflow.ops import box_iou_rotated

CLASSES = ["plane", "ship"]
BOX = ["cx", "cy", "w", "h", "angle"]


def truth(*rows):
    """Return ground truth from (image, class, box[, difficult])."""
    return pd.DataFrame(
        [(image, name, *box, bool(rest and rest[0])) for image, name, box, *rest in rows],
        columns=["image_id", "class_name", *BOX, "difficult"],
    )


def found(*rows):
    """Return detections from (image, class, box, score)."""
    return pd.DataFrame(
        [(image, name, score, *box) for image, name, box, score in rows],
        columns=["image_id", "class_name", "score", *BOX],
    )


A, B, C = (10.0, 10.0, 8.0, 4.0, 0.3), (40.0, 10.0, 8.0, 4.0, -0.7), (70.0, 70.0, 9.0, 9.0, 0.0)


def moved(box, dx):
    return (box[0] + dx, *box[1:])


def test_each_object_is_found_once():
    result = evaluate_detections(
        found(("a", "plane", A, 0.9), ("a", "plane", A, 0.8), ("a", "plane", B, 0.7)),
        truth(("a", "plane", A), ("a", "plane", B)),
        ["plane"],
    )
    assert result.mean_ap == pytest.approx(0.5 + 0.5 * 2 / 3)
    judged = result.judged_detections(0.5)
    assert judged["is_hit"].tolist() == [True, False, True]
    assert judged["gt_row"].tolist() == [0, -1, 1]


def test_the_better_score_takes_the_object_whatever_the_overlap():
    result = evaluate_detections(
        found(("a", "plane", A, 0.6), ("a", "plane", moved(A, 1.0), 0.9)),
        truth(("a", "plane", A)),
        ["plane"],
    )
    assert result.judged_detections(0.5)["is_hit"].tolist() == [False, True]


def test_a_detection_does_not_fall_back_to_its_second_best_object():
    near = moved(A, 2.0)
    detections = found(("a", "plane", A, 0.9), ("a", "plane", moved(A, 0.5), 0.8))
    result = evaluate_detections(
        detections, truth(("a", "plane", A), ("a", "plane", near)), ["plane"]
    )
    assert result.judged_detections(0.5)["gt_row"].tolist() == [0, -1]


@pytest.mark.parametrize(("w", "is_hit"), [(5.0, True), (4.99, False)], ids=["at", "below"])
def test_overlap_at_the_threshold_matches(w, is_hit):
    result = evaluate_detections(
        found(("a", "plane", (0.0, 0.0, 5.0, w, 0.0), 1.0)),
        truth(("a", "plane", (0.0, 0.0, 10.0, 5.0, 0.0))),
        ["plane"],
    )
    assert bool(result.judged_detections(0.5)["is_hit"].iloc[0]) is is_hit


def test_rounding_does_not_decide_at_the_threshold():
    thresholds = [0.1 + 0.2 + 0.3]  # 0.6000000000000001; the boxes overlap by 0.6
    result = evaluate_detections(
        found(("a", "plane", (0.0, 0.0, 10.0, 6.0, 0.0), 1.0)),
        truth(("a", "plane", (0.0, 0.0, 10.0, 10.0, 0.0))),
        ["plane"],
        thresholds,
    )
    assert result.mean_ap == 1.0


def test_other_images_and_other_classes_do_not_match():
    result = evaluate_detections(
        found(("b", "plane", A, 0.9), ("a", "ship", A, 0.9)), truth(("a", "plane", A)), CLASSES
    )
    assert result.ap_per_class[0.5].fillna(-1).tolist() == [0.0, -1]
    assert not result.judged_detections(0.5)["is_hit"].any()


def test_detections_of_difficult_objects_count_neither_way():
    result = evaluate_detections(
        found(("a", "plane", B, 0.9), ("a", "plane", B, 0.8), ("a", "plane", A, 0.5)),
        truth(("a", "plane", A), ("a", "plane", B, True), ("a", "plane", C, True)),
        ["plane"],
    )
    assert result.mean_ap == 1.0
    assert result.counts.loc["plane"].to_dict() == {"n_gt": 1, "n_difficult": 2, "n_det": 3}
    assert result.judged_detections(0.5)["is_neutral"].tolist() == [True, True, False]


def test_class_without_ground_truth_is_left_out_of_the_mean():
    result = evaluate_detections(
        found(("a", "plane", A, 0.9), ("a", "ship", B, 0.9)), truth(("a", "plane", A)), CLASSES
    )
    assert result.mean_ap == 1.0
    assert math.isnan(result.ap_per_class.loc["ship", 0.5])
    assert result.counts["n_det"].to_dict() == {"plane": 1, "ship": 1}


def test_class_without_detections_has_zero_average_precision():
    result = evaluate_detections(found(), truth(("a", "plane", A), ("a", "ship", A)), CLASSES)
    assert result.ap_per_class[0.5].tolist() == [0.0, 0.0]
    assert result.mean_ap == 0.0
    assert result.reason is None


@pytest.mark.parametrize(
    "ground_truth", [truth(), truth(("a", "plane", A, True))], ids=["none", "only difficult"]
)
def test_no_ground_truth_gives_no_mean_but_a_reason(ground_truth):
    result = evaluate_detections(found(("a", "plane", A, 0.9)), ground_truth, CLASSES)
    assert math.isnan(result.mean_ap)
    assert result.ap_per_class[0.5].isna().all()
    assert "no ground truth" in result.reason


def test_no_detection_and_no_object_at_all():
    result = evaluate_detections(found(), truth(), [])
    assert math.isnan(result.mean_ap)
    assert len(result.judged_detections(0.5)) == len(result.precision_recall(0.5)) == 0


def test_an_object_labelled_twice_may_be_found_twice():
    result = evaluate_detections(
        found(*[("a", "plane", A, score) for score in (0.9, 0.8, 0.7)]),
        truth(("a", "plane", A), ("a", "plane", B), ("a", "plane", A)),
        ["plane"],
    )
    judged = result.judged_detections(0.5)
    assert judged["is_hit"].tolist() == [True, True, False]
    assert sorted(judged["gt_row"][:2]) == [0, 2]


def test_mean_over_thresholds_and_single_thresholds():
    result = evaluate_detections(
        found(("a", "plane", (0.0, 0.0, 10.0, 7.0, 0.0), 1.0)),
        truth(("a", "plane", (0.0, 0.0, 10.0, 10.0, 0.0))),
        ["plane"],
        COCO_THRESHOLDS,
    )
    assert result.ap_per_class.loc["plane"].tolist() == [1.0] * 5 + [0.0] * 5  # IoU 0.7
    assert result.mean_ap == pytest.approx(0.5)
    assert result.mean_ap_at(0.7) == 1.0
    assert result.mean_ap_at(0.7, 0.75) == 0.5


def test_another_interpolation_needs_no_second_matching():
    detections = found(("a", "plane", A, 0.9), ("a", "plane", A, 0.8), ("a", "plane", B, 0.7))
    ground_truth = truth(("a", "plane", A), ("a", "plane", B))
    area = evaluate_detections(detections, ground_truth, ["plane"])
    direct = evaluate_detections(detections, ground_truth, ["plane"], interpolation="voc07")
    assert area.with_interpolation("voc07").mean_ap == direct.mean_ap == pytest.approx(28 / 33)


def test_precision_recall_points_are_ranked_by_class():
    result = evaluate_detections(
        found(("a", "plane", C, 0.3), ("a", "plane", A, 0.9), ("a", "ship", B, 0.5)),
        truth(("a", "plane", A), ("a", "plane", B), ("a", "ship", B)),
        CLASSES,
    )
    points = result.precision_recall(0.5)
    assert points["class_name"].tolist() == ["plane", "plane", "ship"]
    assert points["score"].tolist() == [0.9, 0.3, 0.5]
    assert points["recall"].tolist() == [0.5, 0.5, 1.0]
    assert points["precision"].tolist() == [1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"score": math.nan}, DataError, r"detections: 1 of 1 rows .* row 0 \(image a\)"),
        ({"cx": math.inf}, DataError, "not a finite number"),
        ({"w": -1.0}, DataError, "negative w or h"),
        ({"class_name": "plan"}, ValueError, "'plan' is not in class_names, did you mean 'plane'"),
    ],
    ids=["score", "box", "side", "class"],
)
def test_bad_rows_are_refused(change, error, message):
    detections = found(("a", "plane", A, 0.9)).assign(**change)
    with pytest.raises(error, match=message):
        evaluate_detections(detections, truth(("a", "plane", A)), CLASSES)


def test_bad_arguments_are_refused():
    good = found(("a", "plane", A, 0.9)), truth(("a", "plane", A))
    with pytest.raises(ValueError, match="ground_truth lacks the columns difficult"):
        evaluate_detections(good[0], good[1].drop(columns="difficult"), CLASSES)
    with pytest.raises(ValueError, match="holds a name twice"):
        evaluate_detections(*good, ["plane", "plane"])
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\], got \[0.0\]"):
        evaluate_detections(*good, CLASSES, [0.0])


def test_arguments_stay_as_they_are():
    detections, ground_truth = found(("a", "plane", A, 0.9)), truth(("a", "plane", A))
    before = detections.copy(), ground_truth.copy()
    evaluate_detections(detections, ground_truth, CLASSES)
    pd.testing.assert_frame_equal(detections, before[0])
    pd.testing.assert_frame_equal(ground_truth, before[1])


BOXES = st.tuples(
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(4, 30),
    st.integers(2, 20),
    st.sampled_from([-1.5, -0.8, 0.0, 0.4, 1.2]),
).map(lambda box: tuple(map(float, box)))
OBJECTS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(CLASSES), BOXES, st.sampled_from([0, 0, 0, 1])
    ),
    max_size=25,
)
FOUND = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from(CLASSES),
        BOXES,
        st.sampled_from([0.1, 0.3, 0.3, 0.5, 0.7, 0.9]),
    ),
    max_size=40,
)


def reference_ap(detections, ground_truth, class_name, threshold):
    """AP of one class, written the slow and obvious way: one detection after the other."""
    rows = detections[detections["class_name"] == class_name]
    objects = ground_truth[ground_truth["class_name"] == class_name]
    taken, is_hit = set(), []
    for row in rows.sort_values(
        ["score", "image_id", *BOX], ascending=[False] + [True] * 6
    ).itertuples():
        here = objects[objects["image_id"] == row.image_id].sort_values("difficult", kind="stable")
        ious = box_iou_rotated(
            torch.tensor([[getattr(row, name) for name in BOX]], dtype=torch.float64),
            torch.from_numpy(here[BOX].to_numpy(float).reshape(-1, 5)),
        )[0].round(decimals=9)
        if len(ious) == 0 or ious.max() < threshold:
            is_hit.append(False)
            continue
        best = [int(i) for i in here.index[(ious == ious.max()).numpy()]]
        free = [i for i in best if i not in taken and not here["difficult"][i]]
        if free:
            taken.add(free[0])
            is_hit.append(True)
        elif not here["difficult"][best].any():
            is_hit.append(False)
    n_gt = int((~objects["difficult"]).sum())
    return average_precision(torch.tensor(is_hit, dtype=torch.bool), n_gt)


@settings(max_examples=20, deadline=None)
@given(objects=OBJECTS, hits=FOUND)
def test_average_precision_equals_the_one_by_one_way(objects, hits):
    detections, ground_truth = found(*hits), truth(*objects)
    # Different boxes with equal overlap leave a choice of objects that no rule settles.
    spread = np.arange(len(ground_truth)) * 1e-4
    ground_truth["cx"] += spread
    result = evaluate_detections(detections, ground_truth, CLASSES, (0.3, 0.5))
    for name in CLASSES:
        for threshold in (0.3, 0.5):
            expected = reference_ap(detections, ground_truth, name, threshold)
            actual = result.ap_per_class.loc[name, threshold]
            assert actual == pytest.approx(math.nan if expected is None else expected, nan_ok=True)


@settings(max_examples=20, deadline=None)
@given(objects=OBJECTS, hits=FOUND, seed=st.integers(0, 1000))
def test_order_of_rows_does_not_matter(objects, hits, seed):
    detections, ground_truth = found(*hits), truth(*objects)
    result = evaluate_detections(detections, ground_truth, CLASSES, (0.3, 0.5, 0.75))
    shuffled = evaluate_detections(
        detections.sample(frac=1, random_state=seed),
        ground_truth.sample(frac=1, random_state=seed + 1),
        CLASSES,
        (0.3, 0.5, 0.75),
    )
    pd.testing.assert_frame_equal(result.ap_per_class, shuffled.ap_per_class, check_exact=True)


@settings(max_examples=20, deadline=None)
@given(objects=OBJECTS, seed=st.integers(0, 1000))
def test_ground_truth_as_detections_scores_one(objects, seed):
    ground_truth = truth(*objects)
    scores = np.random.default_rng(seed).choice([0.2, 0.5, 0.9], len(ground_truth))
    result = evaluate_detections(
        ground_truth.assign(score=scores), ground_truth, CLASSES, COCO_THRESHOLDS
    )
    counted = result.counts["n_gt"] > 0
    assert (result.ap_per_class[counted] == 1.0).all(axis=None)
    assert result.ap_per_class[~counted].isna().all(axis=None)


@settings(max_examples=20, deadline=None)
@given(objects=OBJECTS, hits=FOUND, interpolation=st.sampled_from(["area", "voc07"]))
def test_a_false_positive_with_a_low_score_never_raises_ap(objects, hits, interpolation):
    far = found(("z", "plane", A, 0.01))
    before = evaluate_detections(found(*hits), truth(*objects), CLASSES, (0.5,), interpolation)
    after = evaluate_detections(
        pd.concat([found(*hits), far]), truth(*objects), CLASSES, (0.5,), interpolation
    )
    pd.testing.assert_frame_equal(before.ap_per_class, after.ap_per_class, check_exact=True)


@settings(max_examples=15, deadline=None)
@given(objects=OBJECTS, hits=FOUND, shift=st.sampled_from([1e5, -1e5]))
def test_chunks_and_far_coordinates_change_nothing(objects, hits, shift):
    # Whole-number boxes: moving them loses no digit, so the verdicts must be the same.
    detections, ground_truth = found(*hits), truth(*objects)
    before = evaluate_detections(detections, ground_truth, CLASSES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("obbflow.evaluation.matching._PAIRS_PER_CHUNK", 3)
        after = evaluate_detections(
            detections.assign(cx=detections["cx"] + shift),
            ground_truth.assign(cx=ground_truth["cx"] + shift),
            CLASSES,
        )
    pd.testing.assert_frame_equal(before.ap_per_class, after.ap_per_class)
