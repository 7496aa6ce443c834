import math

import pandas as pd
import pytest

from obbflow.reporting.wording import (
    describe_facts,
    describe_findings,
    format_duration,
    format_number,
    format_sections,
)
from obbflow.tables import CLASS_WEIGHTS, TILE_INDEX, make_table

METRICS = {
    "mAP": 0.8125,
    "AP50_95": 0.5,
    "iou_threshold": 0.5,
    "n_images": 1200,
    "n_objects": 34567,
    "epoch": 17,
}
CLASSES = pd.DataFrame(
    {"class_name": ["ship", "tank", "pier"], "n_gt": [900, 12, 0], "ap50": [0.9, 0.4, math.nan]}
)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.91666, 3, "0.917"), (1234567, 0, "1,234,567"), (None, 3, "n/a"), (math.nan, 3, "n/a")],
)
def test_numbers_are_written_for_people(value, digits, text):
    assert format_number(value, digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.25, "4.2 s"), (402.3, "6 min 42 s"), (7530, "2 h 5 min")]
)
def test_durations_have_two_units(seconds, text):
    assert format_duration(seconds) == text


def test_findings_name_best_and_weakest_class():
    sentences = describe_findings(METRICS, CLASSES, {})
    assert "1,200 validation tiles with 34,567 objects" in sentences[0]
    assert "0.812 at IoU 0.5" in sentences[0]
    assert "Best class: ship (AP50 0.900). Weakest: tank (AP50 0.400, 12 objects)" in sentences[1]


def test_classes_that_score_alike_are_not_ranked():
    alike = CLASSES.assign(ap50=[0.5, 0.5, math.nan])
    assert not any("Best class" in text for text in describe_findings(METRICS, alike, {}))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            {"epochs_completed": 20, "best": {"metric": "val/mAP"}},
            "epoch 17 of 20. That epoch was chosen on the same validation tiles",
        ),
        ({"best": {"metric": "train/total_loss"}}, "epoch 17, chosen by train/total_loss."),
        ({}, "The weights are those of epoch 17."),
    ],
    ids=["validation", "training loss", "not recorded"],
)
def test_findings_say_how_the_epoch_was_chosen(record, text):
    assert any(text in sentence for sentence in describe_findings(METRICS, CLASSES, record))


def test_findings_name_what_limits_the_numbers():
    metrics = METRICS | {
        "classes_without_ground_truth": ["pier"],
        "not_trainable": {"crane": 5},
    }
    text = " ".join(describe_findings(metrics, CLASSES, {}))
    assert "Fewer than 30 validation objects: tank." in text
    assert "not in the mean: pier." in text
    assert "never learned and not in any number: crane (5)." in text


def test_findings_without_a_score_say_why():
    metrics = {"mAP": None, "reason": "no validation image"}
    assert "no validation image" in describe_findings(metrics, CLASSES, {})[0]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (
            {"n_fitting": 1234, "n_whole": 1233, "largest_error": 2.04e-13},
            "1,233 of 1,234 objects that fit into the overlap are whole on a tile and come back to "
            "within 2e-13 px",
        ),
        (
            {"n_fitting": 0, "n_whole": 0, "largest_error": 0.0},
            "no object fits into the overlap",
        ),
        (None, None),
    ],
    ids=["objects", "none fits", "older tiles"],
)
def test_the_self_test_of_tiling_is_a_fact(check, text):
    index = make_table([], TILE_INDEX)
    if check is not None:
        index.attrs["geometry_check"] = check
    facts = dict(describe_facts({}, index, make_table([], CLASS_WEIGHTS)))
    assert facts.get("Tiling self-test") == text


def test_settings_are_one_line_a_key():
    text = format_sections({"loss": {"loss_type": "focal", "weights": None, "scale": [1, 2]}})
    assert text.splitlines() == [
        "loss:",
        '  loss_type: "focal"',
        "  weights: null",
        "  scale: [1, 2]",
    ]
