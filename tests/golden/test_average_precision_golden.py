"""AP of 588 detections that others evaluated; see section 6 of the golden folder's README.

``reference`` is an independent exact evaluation. Class 4 has tied scores, whose order no rule
fixes: there the two bounds hold.
"""

import json

import numpy as np
import pandas as pd
import pytest

from obbflow.evaluation import COCO_THRESHOLDS, evaluate_detections

BOX = ["cx", "cy", "w", "h", "angle"]
TIED = 4
CLASSES = [f"class {number}" for number in range(6)]


@pytest.fixture(scope="module")
def golden(shared_dir):
    with np.load(shared_dir / "golden" / "map.npz") as arrays:
        ground_truth = _table(arrays["gt"], "difficult").astype({"difficult": bool})
        detections = _table(arrays["det"], "score")
    results = json.loads((shared_dir / "golden" / "map_results.json").read_text(encoding="utf-8"))
    return detections, ground_truth, results


def _table(rows, last):
    table = pd.DataFrame(rows, columns=["image_id", "class_name", *BOX, last])
    return table.assign(
        image_id=table["image_id"].astype(int).astype(str),
        class_name=[CLASSES[int(number)] for number in table["class_name"]],
    )


@pytest.mark.parametrize("left_out", [None, "3"], ids=["all images", "without image 3"])
@pytest.mark.parametrize("threshold", [0.5, 0.75])
@pytest.mark.parametrize(("interpolation", "name"), [("area", "area"), ("voc07", "11points")])
def test_average_precision_equals_the_exact_reference(
    golden, interpolation, name, threshold, left_out
):
    detections, ground_truth, results = golden
    key = f"{name}_{threshold * 100:.0f}" + ("_without_image_3" if left_out else "")
    expected = [np.nan if ap is None else ap for ap in results["reference"][key]]
    result = evaluate_detections(
        detections[detections["image_id"] != left_out],
        ground_truth[ground_truth["image_id"] != left_out],
        CLASSES,
        (threshold,),
        interpolation,
    )
    actual = result.ap_per_class[threshold].to_numpy()
    untied = [number for number in range(6) if number != TIED]
    # Both are float64 sums of the same few hundred terms.
    np.testing.assert_allclose(actual[untied], np.array(expected)[untied], rtol=0, atol=1e-9)
    bounds = [results["reference"][f"{key}_ties_{end}"] for end in ("pessimistic", "optimistic")]
    assert bounds[0] - 1e-9 <= actual[TIED] <= bounds[1] + 1e-9


@pytest.mark.parametrize(("interpolation", "name"), [("area", "area"), ("voc07", "11points")])
def test_average_precision_at_all_thresholds_equals_the_other_tool(golden, interpolation, name):
    detections, ground_truth, results = golden
    kept = [table[table["image_id"] != "3"] for table in (detections, ground_truth)]
    result = evaluate_detections(*kept, CLASSES, (0.5, 0.75), interpolation)
    for threshold in (0.5, 0.75):
        other = results["results"][f"{name}_{threshold * 100:.0f}_without_image_3"]["ap"]
        for number in (0, 1, 3, 5):
            actual = result.ap_per_class[threshold].iloc[number]
            assert actual == pytest.approx(other[number], abs=1e-5)  # it computes in float32


def test_counts_equal_the_other_tool(golden):
    detections, ground_truth, results = golden
    result = evaluate_detections(detections, ground_truth, CLASSES, COCO_THRESHOLDS)
    other = results["results"]["area_50"]
    assert result.counts["n_gt"].tolist() == other["num_gts"]
    assert result.counts["n_det"].tolist() == other["num_dets"]
