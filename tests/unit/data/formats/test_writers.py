import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.writers import WRITERS, write_coco, write_dota, write_yolo_obb
from obbflow.errors import DataError
from obbflow.tables import CORNERS
from scenes import annotations_table, images_table, write_scene
from strategies import PROPERTY

SIZE = (64, 48)
PRECISION = {"dota": 0.0005, "coco": 0.0005, "yolo_obb": 1e-6}  # px, half of the last digit


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_scene(tmp_path_factory.mktemp("photo"), "a", lines=None, size=SIZE)


def tables(photo, objects, ids=("train/P1", "val/a/P.2")):
    rows = [(name, name.split("/")[0], *SIZE) for name in ids]
    images = images_table(*rows).assign(path=str(photo))
    names, classes, corners, difficult = zip(*objects, strict=True)
    return images, annotations_table(
        *zip(names, classes, corners, strict=True), difficult=difficult
    )


def write_and_read(format_name, photo, images, annotations, root):
    for place in WRITERS[format_name](images, annotations, root).values():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(photo.read_bytes())
    return read_data_set(root, DatasetSection(data_root=root, format=format_name), seed=0)


POSITION = st.floats(-30, 90)
OBJECT = st.tuples(
    st.sampled_from(["train/P1", "val/a/P.2"]),
    st.sampled_from(["ship", "storage tank", "no", "é, f", "7"]),
    st.lists(POSITION, min_size=8, max_size=8),
    st.booleans(),
)


@pytest.mark.parametrize("format_name", WRITERS)
def test_objects_come_back_within_the_precision_of_the_format(format_name, photo, tmp_path_factory):
    @settings(PROPERTY, max_examples=10)
    @given(st.lists(OBJECT, min_size=1, max_size=12))
    def check(objects):
        images, annotations = tables(photo, objects)
        root = tmp_path_factory.mktemp("round")
        data = write_and_read(format_name, photo, images, annotations, root)
        assert data.images["image_id"].tolist() == images["image_id"].tolist()
        errors = data.issues.loc[data.issues["severity"] == "error", "kind"]
        assert set(errors) <= {"same_image_in_train_and_val"}  # all images are one photo
        wanted = annotations.sort_values("image_id", kind="stable")
        assert data.annotations["class_name"].tolist() == wanted["class_name"].tolist()
        assert np.allclose(
            data.annotations[list(CORNERS)], wanted[list(CORNERS)], rtol=0,
            atol=PRECISION[format_name] * 1.001,
        )  # fmt: skip
        difficult = wanted["difficult"] & (format_name != "yolo_obb")
        assert data.annotations["difficult"].tolist() == difficult.tolist()

    check()


ONE = [("train/P1", "ship", (1.23456, 1, 9, 1, 9, 5, 1, 5), True)]


def test_dota_keeps_the_ground_sampling_distance(photo, tmp_path):
    images, annotations = tables(photo, ONE, ids=("train/P1",))
    write_dota(images.assign(gsd=0.25), annotations, tmp_path)
    text = (tmp_path / "train/labelTxt/P1.txt").read_text()
    assert text == "gsd:0.25\n1.235 1 9 1 9 5 1 5 ship 1\n"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["P1.txt"]


def test_class_that_a_line_cannot_hold_is_refused(photo, tmp_path):
    images, annotations = tables(photo, ONE, ids=("train/P1",))
    with pytest.raises(DataError, match=r"'1 2': classes whose names DOTA's lines cannot hold"):
        write_dota(images, annotations.assign(class_name="1 2"), tmp_path)


def test_yolo_leaves_out_ignore_regions_and_names_the_paths(photo, tmp_path):
    images, annotations = tables(photo, ONE * 2, ids=("train/P1",))
    write_yolo_obb(images, annotations.assign(ignore=[True, False]), tmp_path)
    assert len((tmp_path / "labels/train/P1.txt").read_text().splitlines()) == 1
    assert (tmp_path / "data.yaml").read_text() == "train: images/train\nnames:\n  0: ship\n"


def test_coco_has_level_box_and_area(photo, tmp_path):
    corners = (0, 0, 4, 4, 2, 6, -2, 2)
    images, annotations = tables(photo, [("train/P1", "ship", corners, False)], ids=("train/P1",))
    places = write_coco(images, annotations, tmp_path)
    assert places == {"train/P1": tmp_path / "images/train/P1.png"}
    content = json.loads((tmp_path / "annotations/instances_train.json").read_text())
    (entry,) = content["annotations"]
    assert (entry["bbox"], entry["area"], entry["iscrowd"]) == ([-2, 0, 6, 6], 16, 0)
    assert content["images"][0] == {"id": 1, "file_name": "P1.png", "width": 64, "height": 48}


def test_two_images_that_would_be_one_file_are_refused(tmp_path):
    images = images_table(("train/P1", "train", *SIZE), ("P1", "train", *SIZE))
    with pytest.raises(DataError, match=r"two images would be called train/P1"):
        write_dota(images, annotations_table(("P1", "ship", ONE[0][2])), Path(tmp_path))
