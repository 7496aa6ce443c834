import logging

import pandas as pd
import pytest

from obbflow.config import DatasetSection
from obbflow.data.class_rules import (
    apply_class_rules,
    name_objects,
    require_objects,
    warn_about_unused_names,
)
from obbflow.errors import DataError
from obbflow.tables import ANNOTATIONS, DATA_ISSUES, make_table
from scenes import annotations_table, images_table, level_box

BOX = level_box(0, 0, 10, 10)


def section(**keys):
    return DatasetSection(data_root="unused", **keys)


def table(*names, **flags):
    return annotations_table(*[("P1", name, BOX) for name in names], **flags)


def test_map_comes_before_ignore_and_allowed():
    rules = section(
        map_labels={"car": "vehicle", "lorry": "vehicle", "tree": "plant"},
        ignore_labels=("plant",),
        allowed_classes=("vehicle", "ship"),
    )
    kept, issues = apply_class_rules(table("car", "lorry", "ship", "tree"), rules)
    assert kept["class_name"].tolist() == ["vehicle", "vehicle", "ship"]
    (issue,) = issues.to_dict("records")
    assert issue["kind"] == "ignored_class"
    assert issue["message"] == "objects of class 'plant' left out by dataset.ignore_labels: 1"


def test_unlisted_classes_are_one_error_with_places_counts_and_suggestion():
    annotations = table("ship", "shp", "hangar", "shp")
    with pytest.raises(DataError) as caught:
        apply_class_rules(annotations, section(allowed_classes=("ship",)))
    message = str(caught.value)
    assert (
        "labelTxt/P1.txt:4: class 'shp' is not in dataset.allowed_classes, did you mean 'ship'? "
        "(lines with this class: 2)"
    ) in message
    assert "labelTxt/P1.txt:5: class 'hangar'" in message


@pytest.mark.parametrize(
    ("strategy", "names", "ignore"),
    [
        ("drop", ["ship"], [False]),
        ("ignore", ["ship", "plane"], [False, True]),
        ("keep", ["ship", "plane"], [False, False]),
    ],
)
def test_difficult_objects_follow_the_strategy(strategy, names, ignore):
    annotations = table("ship", "plane", difficult=[False, True])
    kept, issues = apply_class_rules(annotations, section(difficult_strategy=strategy))
    assert kept["class_name"].tolist() == names
    assert kept["ignore"].tolist() == ignore
    assert len(issues) == (strategy != "keep")


@pytest.mark.parametrize("strategy", ["drop", "ignore", "keep"])
def test_lookalikes_stay_whatever_is_allowed_or_difficult(strategy):
    rules = section(
        map_labels={"bouy": "buoy"},
        lookalike_classes=("buoy",),
        allowed_classes=("ship",),
        difficult_strategy=strategy,
    )
    annotations = table("ship", "buoy", "bouy", difficult=[False, False, True])
    kept, issues = apply_class_rules(annotations, rules)
    assert kept["class_name"].tolist() == ["ship", "buoy", "buoy"]
    assert kept["lookalike"].tolist() == [False, True, True]
    assert not kept["ignore"].any()
    (issue,) = issues.to_dict("records")  # and none that a difficult object was left out
    assert (issue["severity"], issue["kind"]) == ("info", "lookalike")
    assert issue["action"] == "kept as hard negatives"
    assert "class 'buoy' named in dataset.lookalike_classes: 2" in issue["message"]
    assert name_objects(annotations, rules).to_dict() == {0: "ship"}


def test_lookalikes_alone_are_no_objects():
    images = images_table(("P1", "train", 50, 50))
    annotations = table("buoy", "ship", lookalike=[True, False], ignore=[False, True])
    with pytest.raises(DataError, match=r"used \(and 1 ignore regions and 1 look-alikes\);"):
        require_objects(images, annotations, "here")


def test_setting_that_fits_no_label_is_warned_about(caplog):
    rules = section(
        map_labels={"shipp": "boat"}, ignore_labels=("car",), lookalike_classes=("shap",)
    )
    apply_class_rules(table("ship"), rules)
    assert caplog.text == ""  # more than one node applies them
    warn_about_unused_names(table("ship"), rules)
    assert "dataset.map_labels: no label has the class 'shipp', did you mean 'ship'?" in caplog.text
    assert "dataset.ignore_labels: no label has the class 'car'" in caplog.text
    assert (
        "dataset.lookalike_classes: no label has the class 'shap', did you mean 'ship'?"
        in caplog.text
    )


def test_difficult_tags_that_mark_nothing_are_warned_about(caplog):
    rules = DatasetSection(
        format="airbus_playground", data_root="unused", difficult_tags=("Hidden",)
    )
    warn_about_unused_names(table("ship", "plane", difficult=[True, False]), rules)
    assert caplog.text == ""
    warn_about_unused_names(table("ship, hidden", "plane"), rules)
    assert (
        "dataset.difficult_tags: no label has the tag 'Hidden', did you mean 'hidden'?"
        in caplog.text
    )


def test_no_rule_changes_nothing(caplog):
    annotations = table("ship", "plane")
    with caplog.at_level(logging.INFO):
        kept, issues = apply_class_rules(annotations, section())
    assert kept.equals(annotations)
    assert issues.empty
    assert caplog.messages == []


def test_no_object_in_train_says_how_many_images_there_are():
    images = images_table(("P1", "val", 50, 50), ("P2", "train", 50, 50), ("P3", "train", 50, 50))
    with pytest.raises(DataError, match="here: the train split has 2 images and 0 objects"):
        require_objects(images, table("ship"), "here")


def test_ignore_regions_alone_are_no_objects():
    images = images_table(("P1", "train", 50, 50))
    with pytest.raises(DataError, match=r"0 objects that can be used \(and 1 ignore regions\)"):
        require_objects(images, table("ship", ignore=True), "here")
    require_objects(images, table("ship"), "here")


def test_without_objects_the_first_bad_lines_are_named():
    images = pd.DataFrame({"image_id": ["P1"], "split": ["train"]})
    row = {"file": "labelTxt/a.txt", "kind": "bad line", "message": "7 coordinates"}
    issues = make_table([row | {"line": line} for line in range(1, 6)], DATA_ISSUES)

    with pytest.raises(
        DataError,
        match=r"labelTxt/a\.txt:1: 7 coordinates\n  .*:2: .*\n  .*:3: 7 coordinates\n  and 2 more",
    ):
        require_objects(images, make_table([], ANNOTATIONS), "here", issues)
