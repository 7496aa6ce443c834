import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.coco_objects import read_object
from obbflow.data.formats.polygons import Fault
from obbflow.errors import DataError
from scenes import write_scene
from strategies import PROPERTY

SQUARE = [10, 10, 30, 10, 30, 30, 10, 30]
CATEGORIES = {1: "ship"}


def annotation(**keys):
    return {"id": 1, "image_id": 7, "category_id": 1, "segmentation": [SQUARE], **keys}


def write(root, name, *annotations, images="images", file="P1", **keys):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / images).mkdir(parents=True, exist_ok=True)
    image = write_scene(root / "scratch", file, lines=None)
    image.rename(root / images / image.name)
    content = {
        "images": [{"id": 7, "file_name": f"{file}.png", "width": 64, "height": 48}],
        "annotations": list(annotations) or [annotation()],
        "categories": [{"id": 1, "name": "ship"}],
        **keys,
    }
    (root / name).write_text(json.dumps(content))
    for folder in ("images", "labelTxt", "."):
        (root / "scratch" / folder).rmdir()


def read(root, **keys):
    return read_data_set(root, DatasetSection(data_root=root, format="coco", **keys), seed=0)


def corners(**keys):
    found = read_object(annotation(**keys), CATEGORIES, keys.pop("angle", None))
    assert not isinstance(found, Fault)
    return found.shape


def test_a_file_a_split(tmp_path):
    write(tmp_path, "annotations/instances_train2017.json", images="train2017")
    write(tmp_path, "annotations/instances_val2017.json", annotation(difficult=1), images="val2017")
    write(tmp_path, "annotations/captions_val2017.json", images="val2017")
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/P1", "val/P1"]
    row = data.annotations.iloc[1]
    assert row[["class_name", "x1", "y1", "x3", "y3", "difficult", "source_line"]].tolist() == [
        "ship", 10, 10, 30, 30, True, 1,
    ]  # fmt: skip
    assert data.annotations["source_file"].iloc[0] == "annotations/instances_train2017.json"


def test_file_beside_the_images_of_its_split_and_test_left_out(tmp_path):
    for folder in ("train", "valid", "test"):
        write(tmp_path, f"{folder}/_annotations.coco.json", images=folder)
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/P1", "val/P1"]
    assert "test_split" in data.issues["kind"].tolist()


def test_one_file_for_all_and_an_image_without_objects(tmp_path):
    write(tmp_path, "labels.json", annotations=[])
    (tmp_path / "package.json").write_text('{"name": "x"}')
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["P1"]
    assert data.issues["kind"].tolist() == ["not_coco"]


def test_four_corners_stay_and_others_become_the_least_rectangle():
    assert corners() == tuple(map(float, SQUARE))
    assert corners(segmentation=SQUARE) == tuple(map(float, SQUARE))
    hexagon = [1, 0, 3, 0, 4, 1, 3, 2, 1, 2, 0, 1]
    found = corners(segmentation=[hexagon])
    assert sorted(zip(found[::2], found[1::2], strict=True)) == [(0, 0), (0, 2), (4, 0), (4, 2)]
    two = corners(segmentation=[[0, 0, 2, 0, 2, 2, 0, 2], [6, 0, 8, 0, 8, 2, 6, 2]])
    assert (min(two), max(two)) == (0, 8)


@pytest.mark.parametrize(
    ("custom", "angle"),
    [
        ("degrees_clockwise", 30),
        ("degrees_counter_clockwise", -30),
        ("radians_clockwise", math.pi / 6),
        ("radians_counter_clockwise", -math.pi / 6),
    ],
)
def test_rotated_boxes_by_each_custom(tmp_path, custom, angle):
    write(tmp_path, "a.json", annotation(segmentation=[], bbox=[20, 20, 10, 4, angle]))
    (row,) = read(tmp_path, coco_angle=custom).annotations.to_dict("records")
    direction = math.atan2(row["y2"] - row["y1"], row["x2"] - row["x1"])
    assert direction == pytest.approx(math.pi / 6)
    assert math.hypot(row["y2"] - row["y1"], row["x2"] - row["x1"]) == pytest.approx(10)


def test_turned_box_needs_a_custom_and_a_level_one_does_not(tmp_path):
    write(tmp_path, "a.json", annotation(segmentation=None, bbox=[20, 20, 10, 4, 0]))
    assert read(tmp_path).annotations[["x1", "y1"]].values.tolist() == [[15, 18]]
    write(tmp_path, "a.json", annotation(segmentation=None, bbox=[20, 20, 10, 4, 1]))
    with pytest.raises(DataError, match=r"a\.json: annotations\[1\].*set dataset\.coco_angle"):
        read(tmp_path)


def test_sample_with_radians_is_read(shared_dir, tmp_path):
    path = shared_dir / "data/real/format_samples/coco_like_rotated_bbox.json"
    (tmp_path / "a.json").write_bytes(path.read_bytes())
    write_scene(tmp_path, "1_80_90_0_01343", lines=None, suffix=".jpg")
    data = read(tmp_path, coco_angle="radians_clockwise")
    assert len(data.annotations) == 8
    first = data.annotations.iloc[0]
    assert (first["x1"] + first["x3"]) / 2 == pytest.approx(368.0838)
    assert first["class_name"] == "Person"


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"category_id": 9}, "bad_class"),
        ({"category_id": [1]}, "bad_class"),
        ({"iscrowd": 1, "segmentation": {"counts": [1], "size": [1, 1]}}, "crowd"),
        ({"segmentation": {"counts": [1], "size": [1, 1]}}, "mask"),
        ({"segmentation": [], "bbox": [1, 2, 3, 4]}, "upright_box"),
        ({"segmentation": [[1, 2, 3]]}, "not_a_polygon"),
        ({"segmentation": [[1, 2, 3, 4]]}, "not_a_polygon"),
        ({"segmentation": "x"}, "not_a_polygon"),
        ({"segmentation": [[1, 2, 3, 4, 5, "6"]]}, "not_a_polygon"),
        ({"segmentation": [[math.inf, 2, 3, 4, 5, 6, 7, 8]]}, "not_finite"),
        ({"segmentation": [], "bbox": [1, 2, -3, 4, 0]}, "bad_size"),
        ({"segmentation": [], "bbox": [1, 2, math.nan, 4, 0]}, "not_finite"),
        ({"segmentation": [], "bbox": [1, 2, None, 4, 0]}, "not_a_number"),
        ({"difficult": "yes"}, "bad_difficulty"),
    ],
)
def test_bad_object_is_named_by_its_number(tmp_path, keys, kind):
    write(tmp_path, "a.json", annotation(), annotation(**keys))
    data = read(tmp_path)
    assert data.issues[["file", "line", "kind"]].values.tolist() == [["a.json", 2, kind]]
    assert len(data.annotations) == 1


def test_entries_without_a_partner_are_issues(tmp_path):
    write(tmp_path, "a.json", annotation(), annotation(image_id=9), 4)
    content = json.loads((tmp_path / "a.json").read_text())
    content["images"] += [{"id": 8, "file_name": "../images/P1.png"}, {"id": 7}, 3]
    (tmp_path / "a.json").write_text(json.dumps(content))
    data = read(tmp_path)
    assert len(data.annotations) == 1
    assert sorted(data.issues["kind"]) == ["bad_image"] * 4 + ["missing_image"]


def test_entries_that_repeat_an_id_are_issues_and_the_first_counts(tmp_path):
    write(tmp_path, "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    content["images"].append({"id": 7, "file_name": "P2.png"})
    (tmp_path / "a.json").write_text(json.dumps(content))
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["P1"]
    (issue,) = data.issues.to_dict("records")
    assert (issue["kind"], issue["line"], issue["severity"]) == ("bad_image", 2, "error")
    assert issue["message"] == "images[2] has the id 7 of an image above"


def test_categories_without_a_name_or_an_id_of_their_own_are_issues(tmp_path):
    write(
        tmp_path,
        "a.json",
        annotation(),
        annotation(category_id=2),
        categories=[{"id": 1, "name": "ship"}, {"id": 2, "name": " "}, {"id": 1, "name": "b"}, 3],
    )
    data = read(tmp_path)
    assert data.annotations["class_name"].tolist() == ["ship"]
    assert data.issues["kind"].tolist() == [*["bad_category"] * 3, "bad_class"]
    assert data.issues["message"][0] == "categories[2] has no name, or no id of its own"


def test_image_that_no_file_lists_is_left_out_and_named(tmp_path):
    write(tmp_path, "annotations/instances_train.json", images="images/train")
    write(tmp_path, "annotations/instances_test.json", images="images/all", file="P3")
    write(tmp_path, "unused.txt", images="images/test", file="P4")
    write_scene(tmp_path, "P2", lines=None)
    (tmp_path / "images" / "again").symlink_to(tmp_path / "images" / "train")
    (tmp_path / "images" / "P1.png").unlink(missing_ok=True)
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/P1"]
    left_out = data.issues[["file", "kind", "severity", "action"]].values.tolist()
    assert left_out == [
        ["annotations/instances_test.json", "test_split", "info", "left out"],
        ["images/P2.png", "image_not_listed", "warning", "left out"],
        ["images/all/P3.png", "image_not_listed", "warning", "left out"],
        [".", "test_split", "info", "left out"],
    ]
    assert data.issues["message"].iloc[-1].startswith("1 images that are neither")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((128, 96), "of 128 x 96 px, but P1.png has 64 x 48 as shown, perhaps resized since"),
        ((48, 64), "of 48 x 64 px, but P1.png has 64 x 48 as shown, turned by a quarter"),
        ((64, 48), None),
        ((0, 0), None),
        (("64", None), None),
    ],
)
def test_size_that_is_not_the_images_is_an_error(tmp_path, size, words):
    write(tmp_path, "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    content["images"][0] |= dict(zip(("width", "height"), size, strict=True))
    (tmp_path / "a.json").write_text(json.dumps(content))
    data = read(tmp_path)
    assert len(data.annotations) == 1
    assert data.issues["kind"].tolist() == ["other_image_size"] * (words is not None)
    if words is not None:
        (issue,) = data.issues.to_dict("records")
        assert (issue["severity"], issue["action"], issue["image_id"]) == ("error", "kept", "P1")
        assert words in issue["message"]
        with pytest.raises(DataError, match=r"a\.json: the labels are of an image of"):
            read(tmp_path, strict=True)


@pytest.mark.parametrize("text", ['{"images": [\n1,', "[" * 100_000, "9" * 5000])
def test_broken_json_is_one_clear_error(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json(:2)?: no .* JSON|no COCO file"):
        read(tmp_path)


VALUE = st.sampled_from(
    [None, True, 0, 1, -1, 10**400, math.nan, math.inf, -1e308, "", "x", "1", [], {}, {"a": []}]
)
LIST = st.lists(VALUE | st.floats(-9, 99), max_size=9)
ANY = VALUE | LIST | st.lists(LIST, max_size=3)


@PROPERTY
@given(
    st.sampled_from(["segmentation", "bbox", "iscrowd", "difficult", "category_id"]),
    ANY,
    ANY,
    st.sampled_from([None, "degrees_clockwise"]),
)
def test_any_entry_is_an_object_or_a_fault(key, value, bbox, angle):
    found = read_object(annotation(**{"bbox": bbox, key: value}), CATEGORIES, angle)
    assert isinstance(found, Fault) or all(map(math.isfinite, found.shape))
