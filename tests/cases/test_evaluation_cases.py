"""The users' cases of stage "eval": small label and detection files with known scores."""

import json
import time

import pandas as pd
import pytest
import torch

from obbflow.errors import DataError
from obbflow.evaluation import COCO_THRESHOLDS, evaluate_detections
from obbflow.geometry import qbox_to_rbox
from obbflow.tables import DETECTIONS, GROUND_TRUTH, RBOX, make_table


@pytest.fixture
def read_case(shared_dir):
    """Return a function: case id -> (description, ground truth, folder)."""

    def read(name):
        folder = shared_dir / "cases" / name
        description = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        rows = []
        for path in sorted((folder / "gt" / "labelTxt").glob("*.txt")):
            lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
            rows += [(path.stem, fields) for fields in lines if len(fields) == 10]
        table = pd.DataFrame(
            {
                "image_id": [image for image, _ in rows],
                "class_name": [fields[8] for _, fields in rows],
                "difficult": [fields[9] == "1" for _, fields in rows],
            }
        )
        boxes = _boxes([fields[:8] for _, fields in rows])
        return description, make_table(pd.concat([table, boxes], axis=1), GROUND_TRUTH), folder

    return read


def _read_detections(folder):
    rows = []
    for path in sorted(folder.glob("Task1_*.txt")):
        class_name = path.stem.removeprefix("Task1_")
        lines = path.read_text(encoding="utf-8").splitlines()
        rows += [(class_name, line.split()) for line in lines]
    table = pd.DataFrame(
        {
            "image_id": [fields[0] for _, fields in rows],
            "class_name": [class_name for class_name, _ in rows],
            "score": [float(fields[1]) for _, fields in rows],
        }
    )
    return make_table(pd.concat([table, _boxes([f[2:] for _, f in rows])], axis=1), DETECTIONS)


def _boxes(qboxes):
    numbers = [[float(field) for field in fields] for fields in qboxes]
    corners = torch.tensor(numbers, dtype=torch.float64).reshape(-1, 8)
    return pd.DataFrame(qbox_to_rbox(corners).numpy(), columns=list(RBOX))


@pytest.mark.parametrize(
    "name",
    [
        "eval-class-without-gt",
        "eval-corner-order-irrelevant",
        "eval-dense-2400-detections",
        "eval-difficult-ignored",
        "eval-no-detections",
        "eval-perfect",
        "eval-thin-box-angle-error",
    ],
)
def test_scores_are_those_the_case_states(read_case, name):
    case, ground_truth, folder = read_case(name)
    detections = _read_detections(folder / "det")
    result = evaluate_detections(
        detections, ground_truth, case["params"]["classes"], COCO_THRESHOLDS
    )
    values = case["values"]
    for class_name, ap in values.get("ap50", {}).items():
        actual = result.ap_per_class.loc[class_name, 0.5]
        assert actual == pytest.approx(float("nan") if ap is None else ap, nan_ok=True)
    if "map50" in values:
        assert result.mean_ap_at(0.5) == pytest.approx(values["map50"])
    if "map50_95" in values:
        assert result.mean_ap == pytest.approx(values["map50_95"])
    if "non_difficult_gt" in values:
        assert result.counts["n_gt"].sum() == values["non_difficult_gt"]


def test_a_duplicate_is_a_false_positive_in_both_forms(read_case):
    case, ground_truth, folder = read_case("eval-duplicate-detection")
    detections = _read_detections(folder / "det")
    for interpolation in ("area", "voc07"):
        result = evaluate_detections(
            detections, ground_truth, case["params"]["classes"], interpolation=interpolation
        )
        # The case states four decimals.
        assert result.mean_ap == pytest.approx(case["values"][f"ap50_{interpolation}"], abs=5e-5)


def test_difficult_objects_can_be_counted(read_case):
    _, ground_truth, folder = read_case("eval-difficult-ignored")
    counted = ground_truth.assign(difficult=False)
    result = evaluate_detections(_read_detections(folder / "det"), counted, ["plane"])
    assert result.precision_recall(0.5)["recall"].max() == pytest.approx(2 / 3)


def test_thin_box_overlap_is_exact(read_case):
    case, ground_truth, folder = read_case("eval-thin-box-angle-error")
    result = evaluate_detections(_read_detections(folder / "det"), ground_truth, ["ship"])
    overlap = result.judged_detections(0.5)["best_iou"].iloc[0]
    assert overlap == pytest.approx(case["values"]["iou"], abs=5e-4)  # stated with three decimals


def test_equal_scores_in_two_orders_score_the_same(read_case):
    _, ground_truth, folder = read_case("eval-tied-scores")
    tables = [_read_detections(folder / name) for name in ("det_a", "det_b")]
    first, second = (evaluate_detections(table, ground_truth, ["ship"]) for table in tables)
    assert tables[0]["cx"].tolist() != tables[1]["cx"].tolist()
    assert first.mean_ap == second.mean_ap
    assert 0 < first.mean_ap < 1


def test_dense_image_is_scored_in_time(read_case):
    case, ground_truth, folder = read_case("eval-dense-2400-detections")
    detections = _read_detections(folder / "det")
    started = time.process_time()
    evaluate_detections(detections, ground_truth, ["small-vehicle"], COCO_THRESHOLDS)
    assert time.process_time() - started < case["values"]["seconds_max"]


def test_a_score_that_is_no_number_is_refused(read_case):
    _, ground_truth, folder = read_case("eval-bad-detection-lines")
    first = (folder / "det" / "Task1_plane.txt").read_text(encoding="utf-8").split()
    rows = ground_truth.head(1).assign(score=float(first[1]))
    with pytest.raises(DataError, match="not a finite number"):
        evaluate_detections(rows, ground_truth, ["plane"])
