"""Inputs as users have them (shared cases) in the formats of Airbus."""

import json

import pytest

from obbflow.config import DatasetSection
from obbflow.data.class_rules import apply_class_rules
from obbflow.data.formats import read_data_set
from obbflow.errors import DataError


@pytest.fixture
def case(request, shared_dir):
    """Folder and ``case.json`` of the case that the test names."""
    folder = shared_dir / "cases" / request.param
    return folder, json.loads((folder / "case.json").read_text(encoding="utf-8"))


def section(folder, **keys):
    return DatasetSection(data_root=folder, format="airbus_playground", **keys)


def read(folder, **keys):
    return read_data_set(folder, section(folder, **keys), seed=0)


def of_case(name):
    return pytest.mark.parametrize("case", [name], indirect=True, ids=[name])


@of_case("airbus-folds")
def test_fold_of_the_case_validates(case):
    folder, content = case
    data = read(folder, val_split_id=content["params"]["val_fold"])
    for split, expected in content["values"].items():
        images = data.images[data.images["split"] == split]
        is_in_split = data.annotations["image_id"].isin(images["image_id"])
        assert {"tiles": len(images), "objects": is_in_split.sum()} == expected


@of_case("airbus-missing-and-extra")
def test_what_is_missing_or_extra_is_named_with_counts(case):
    folder, content = case
    data = read(folder)
    counts = {
        image_id.rsplit("/", 1)[1]: (data.annotations["image_id"] == image_id).sum()
        for image_id in data.images["image_id"]
    }
    assert counts == content["values"]
    loud = data.issues[data.issues["severity"].isin(["warning", "error"])]
    named = {(item["file"], item["line"]): item["message"] for item in loud.to_dict("records")}
    assert "t3.jpg: no such file (1 row" in named["split.csv", 4]
    assert "t9.jpg is not in the split file (1 row" in named["annotations.csv", 3]


@of_case("airbus-missing-column")
def test_a_missing_column_is_named_with_those_found(case):
    folder, _ = case
    with pytest.raises(DataError) as error:
        read(folder)
    assert "annotations.csv: column class_name is missing" in str(error.value)
    header = "tile_relpath, dataset_id, zone_id, image_id, tile_id, dota_coords, difficult"
    assert f"the columns found are {header}." in str(error.value)


@of_case("airbus-sample-geometry")
def test_rings_of_the_aircraft_sample_are_boxes_of_four_corners(case):
    folder, content = case
    objects = read(folder).annotations
    assert len(objects) == content["values"]["objects"]
    assert objects["image_id"].str.endswith("t1").all()
    assert objects["class_name"].tolist() == ["Aircraft", "Truncated_Aircraft"]
    corners = objects[[f"{axis}{n}" for n in range(1, 5) for axis in "xy"]]
    assert corners.values.tolist() == [[33, 29, 77, 54, 67, 71, 23, 46]] * 2


@of_case("airbus-tags-with-comma")
def test_tags_are_one_field_and_some_mean_difficult(case):
    folder, content = case
    classes, tags = content["params"]["classes"], content["params"]["difficult_tags"]
    objects = read(folder, difficult_tags=tags).annotations
    assert len(objects) == content["values"]["objects"]
    assert objects["class_name"].tolist() == ["Aircraft", "Aircraft"]
    assert objects["difficult"].tolist() == [True, False]
    dataset = section(folder, allowed_classes=classes)
    with pytest.raises(DataError, match="Aircraft, Partially Hidden"):
        apply_class_rules(read(folder).annotations, dataset)


def test_the_playground_fixture_reads_the_same_from_csv_and_from_geojson(shared_dir, tmp_path):
    source = shared_dir / "data" / "real" / "playground_format"
    (tmp_path / "hituav-sample").symlink_to(source / "hituav-sample", target_is_directory=True)
    from_csv = read(source, difficult_tags=["Partially Hidden"])
    from_export = read(tmp_path, difficult_tags=["Partially Hidden"])
    assert len(from_csv.annotations) == 280
    assert from_csv.annotations["difficult"].sum() == 25
    key = ["x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4", "class_name", "difficult"]
    first = from_csv.annotations[key].sort_values(key, ignore_index=True)
    second = from_export.annotations[key].sort_values(key, ignore_index=True)
    assert first.equals(second)


def test_the_aircraft_sample_reads_as_its_csv_says(shared_dir):
    data = read(
        shared_dir / "data" / "real" / "airbus_aircraft", difficult_tags=["Truncated_airplane"]
    )
    assert data.images["split"].value_counts().to_dict() == {"train": 5, "val": 1}
    is_val = data.annotations["image_id"].str.startswith("val/")
    assert (len(data.annotations), is_val.sum(), data.annotations["difficult"].sum()) == (
        210, 30, 10,
    )  # fmt: skip
    assert data.issues.empty
