import json

import numpy as np
import pytest
from PIL import Image

from obbflow.config import DatasetSection, fill_sections
from obbflow.data.formats import read_data_set
from obbflow.errors import ConfigError, DataError

HEADER = "tile_relpath,dataset_id,zone_id,image_id,tile_id,dota_coords,class_name,difficult"
SPLIT_HEADER = "tile_relpath,dataset_id,zone_id,image_id,tile_id,split"
BOX = "10 10 30 10 30 30 10 30"
RING = [[10, 10], [30, 10], [30, 30], [10, 30], [10, 10]]


def write_tile(root, image, tile):
    """Write a tile of noise; return its path below ``root``."""
    name = f"ds1/samples/z1/{image}/{tile}.jpg"
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng([*image.encode(), *tile.encode()]).integers(0, 256, (48, 64, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(root / name)
    return name


def write_features(root, tile, *features):
    folder = root / "ds1" / "labels" / "z1"
    folder.mkdir(parents=True, exist_ok=True)
    content = {"type": "FeatureCollection", "features": list(features)}
    (folder / f"{tile}.json").write_text(json.dumps(content), encoding="utf-8")


def feature(*rings, tags=("Aircraft",), **properties):
    geometry = {"type": "Polygon", "coordinates": list(rings) or [RING]}
    return {"geometry": geometry, "properties": {"tags": list(tags), **properties}}


def row(tile, coords=BOX, name="Aircraft", difficult="0"):
    return f"ds1/samples/z1/{tile}.jpg,ds1,z1,{tile.replace('/', ',')},{coords},{name},{difficult}"


def split_row(tile, split):
    return f"ds1/samples/z1/{tile}.jpg,ds1,z1,{tile.replace('/', ',')},{split}"


def write_csv(root, rows, splits=None):
    (root / "annotations.csv").write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    if splits is not None:
        (root / "split.csv").write_text("\n".join([SPLIT_HEADER, *splits]), encoding="utf-8")


def read(root, seed=0, **keys):
    dataset = DatasetSection(data_root=root, format="airbus_playground", **keys)
    return read_data_set(root, dataset, seed)


@pytest.fixture
def three_folds(tmp_path):
    """An image a fold, 0 to 2, each with a tile of one object."""
    for number in range(3):
        write_tile(tmp_path, f"i{number}", "t")
    tiles = [f"i{number}/t" for number in range(3)]
    write_csv(
        tmp_path,
        [row(tile) for tile in tiles],
        [split_row(tile, number) for number, tile in enumerate(tiles)],
    )
    return tmp_path


def test_one_fold_validates_and_the_others_train(three_folds):
    images = read(three_folds, val_split_id=2).images
    assert dict(zip(images["image_id"], images["split"], strict=True)) == {
        "train/ds1/samples/z1/i0/t": "train",
        "train/ds1/samples/z1/i1/t": "train",
        "val/ds1/samples/z1/i2/t": "val",
    }
    assert images["group"].tolist() == ["ds1/z1/i0", "ds1/z1/i1", "ds1/z1/i2"]


def test_a_fold_that_is_not_there_is_refused_with_those_that_are(three_folds):
    with pytest.raises(DataError, match=r"no tile is in fold 7; the folds are 0, 1, 2\. Set datas"):
        read(three_folds, val_split_id=7)


def test_train_includes_val_trains_on_all_folds_and_is_no_leak(three_folds):
    data = read(three_folds, train_includes_val=True)
    images, objects = data.images, data.annotations
    assert images["split"].value_counts().to_dict() == {"train": 3, "val": 1}
    assert images["image_id"].is_unique
    assert objects.groupby("image_id").size().to_dict() == dict.fromkeys(images["image_id"], 1)
    (issue,) = data.issues.to_dict("records")
    assert (issue["kind"], issue["severity"]) == ("val_is_trained_on", "info")
    assert "1 validation tiles" in issue["message"]


def test_train_includes_val_needs_a_split_file(three_folds):
    (three_folds / "split.csv").unlink()
    with pytest.raises(DataError, match=r"train_includes_val needs a split file"):
        read(three_folds, train_includes_val=True)


def test_words_and_folds_in_one_column_are_refused(three_folds):
    write_csv(three_folds, [], [split_row("i0/t", "train"), split_row("i1/t", "1")])
    with pytest.raises(DataError, match=r"fold numbers \(1\) and words \(train\); use one of both"):
        read(three_folds)


def test_each_odd_row_of_the_split_has_an_issue_with_its_line(three_folds):
    rows = [
        split_row("i0/t", "val"),
        split_row("i1/t", "Train"),
        split_row("i2/t", ""),
        split_row("i2/t", "9" * 5000),
        split_row("i0/t", "train"),
        split_row("i9/t", "train"),
        "ds1,too,short",
        "../t.jpg,ds1,z1,i1,t,train",
        split_row("i2/t", "test"),
    ]
    write_csv(three_folds, [row("i0/t")], rows)
    data = read(three_folds)
    assert data.images["image_id"].tolist() == [
        "train/ds1/samples/z1/i1/t", "val/ds1/samples/z1/i0/t",
    ]  # fmt: skip
    found = data.issues[data.issues["file"] == "split.csv"]
    assert sorted(zip(found["line"], found["kind"], strict=True)) == [
        (4, "bad_split"),
        (5, "bad_split"),
        (6, "listed_twice"),
        (7, "missing_image"),
        (8, "field_count"),
        (9, "bad_path"),
        (10, "bad_split"),
    ]


def test_each_odd_annotation_has_an_issue_with_its_line(three_folds):
    rows = [
        row("i0/t"),
        row("i0/t", coords="1 2 3"),
        row("i0/t", coords="1 2 3 4 5 6 7 x"),
        "",
        row("i0/t", coords="1 2 3 4 5 6 7 nan"),
        row("i0/t", name='"a\nb, ,c"'),  # two lines
        row("i0/t", name=""),
        row("i0/t", difficult="9"),
        row("i0/t") + ",more",
        row("i0/t") + ",",
        row("i0/t", coords="1 2 3 4 5 6 7 1_0"),
        row("i0/t", coords="1 2 3 4 5 6 7 -1e200"),
        ",,,,,,, ",
        ",,,",
    ]
    write_csv(three_folds, rows, [split_row("i0/t", "train"), split_row("i1/t", "val")])
    data = read(three_folds)
    assert data.annotations["source_line"].tolist() == [2, 7, 12]
    assert data.annotations["class_name"].tolist() == ["Aircraft", "a b, c", "Aircraft"]
    found = data.issues[data.issues["file"] == "annotations.csv"]
    assert sorted(zip(found["line"], found["kind"], strict=True)) == [
        (3, "field_count"),
        (4, "not_a_number"),
        (6, "not_finite"),
        (9, "bad_class"),
        (10, "bad_difficulty"),
        (11, "field_count"),
        (13, "not_a_number"),
        (14, "not_finite"),
    ]


def test_files_of_other_names_are_read_and_a_missing_one_is_named(three_folds):
    (three_folds / "split.csv").rename(three_folds / "other.csv")
    images = read(three_folds, split_file="other.csv").images
    assert (images["split"] == "val").sum() == 1
    with pytest.raises(DataError, match=r"split\.csv: no such file; correct dataset\.split_file"):
        read(three_folds, split_file="split.csv")


def test_without_a_single_tile_the_message_names_the_folder_to_set(tmp_path):
    write_csv(tmp_path, [row("i0/t")], [split_row("i0/t", "train")])
    with pytest.raises(DataError, match=r"none of the 1 tiles is there, such as ds1/samples/z1/i0"):
        read(tmp_path)


def test_export_is_read_without_csv_and_tiles_of_an_image_stay_together(tmp_path):
    for image in ("i1", "i2", "i3"):
        for tile in ("a", "b"):
            write_tile(tmp_path, image, f"{image}{tile}")
            write_features(tmp_path, f"{image}{tile}", feature(), feature(RING, mask=True))
    write_features(tmp_path, "lost", feature())
    data = read(tmp_path, val_fraction=0.3)
    assert len(data.annotations) == 6
    assert data.annotations["source_file"].iloc[0] == "ds1/labels/z1/i1a.json"
    assert data.images.groupby("group")["split"].nunique().to_dict() == {
        "ds1/z1/i1": 1, "ds1/z1/i2": 1, "ds1/z1/i3": 1,
    }  # fmt: skip
    assert (data.images["split"] == "val").sum() == 2
    (issue,) = data.issues.to_dict("records")
    assert (issue["file"], issue["kind"]) == ("ds1/labels/z1/lost.json", "label_without_image")


def test_an_export_can_have_a_split_file_alone(three_folds):
    (three_folds / "annotations.csv").unlink()
    for image in ("i0", "i1", "i2"):
        (three_folds / f"ds1/samples/z1/{image}/t.jpg").rename(
            three_folds / f"ds1/samples/z1/{image}/{image}.jpg"
        )
        write_features(three_folds, image, feature())
    rows = [split_row("i0/i0", 0), split_row("i1/i1", 1)]
    (three_folds / "split.csv").write_text("\n".join([SPLIT_HEADER, *rows]), encoding="utf-8")
    data = read(three_folds)
    assert len(data.annotations) == 2
    assert data.issues[["file", "kind"]].values.tolist() == [
        ["ds1/labels/z1/i2.json", "not_in_split"]
    ]


def test_two_tiles_of_a_zone_with_one_name_are_refused(tmp_path):
    for image in ("i1", "i2"):
        write_tile(tmp_path, image, "t")
    write_features(tmp_path, "t", feature())
    with pytest.raises(DataError, match=r"same label file: ds1/samples/z1/i1/t\.jpg and ds1/sampl"):
        read(tmp_path)


def test_a_folder_without_labels_is_refused_with_what_is_read(tmp_path):
    write_tile(tmp_path, "i1", "t")
    with pytest.raises(DataError, match=r"neither annotations\.csv nor an export with <dataset>/s"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("tags", "name", "difficult"),
    [
        ([], "Truncated_airplane", False),
        (["Truncated_airplane"], "Truncated_airplane", True),
        (["truncated_airplane"], "Truncated_airplane", False),
    ],
)
def test_images_of_the_aircraft_sample_are_found_by_name(tmp_path, tags, name, difficult):
    for tile in ("t1", "t2"):
        write_tile(tmp_path, "i1", tile)
    rows = [
        "id,image_id,geometry,class",
        '1,t1.jpg,"[(10, 10), (30, 10), (30, 30.5), (10, 30), (10, 10)]",Truncated_airplane',
        '2,t1.jpg,"[(10, 10), (30, 10)]",Airplane',
        "3,t1.jpg,__import__('os'),Airplane",
    ]
    (tmp_path / "annotations.csv").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "split.csv").write_text("image_id,split\nt1.jpg,train\nt2.jpg,val", "utf-8")
    data = read(tmp_path, difficult_tags=tags)
    (found,) = data.annotations.to_dict("records")
    assert (found["class_name"], found["difficult"]) == (name, difficult)
    assert [found[f"{axis}{n}"] for n in range(1, 5) for axis in "xy"] == [
        10, 10, 30, 10, 30, 30.5, 10, 30,
    ]  # fmt: skip
    bad = data.issues[data.issues["kind"] == "not_a_polygon"]
    assert bad["line"].tolist() == [3, 4]


def test_keys_of_the_format_are_refused_for_another_one():
    with pytest.raises(
        ConfigError, match=r"difficult_tags: .* set dataset\.format to airbus_playg"
    ):
        fill_sections({"dataset": {"format": "synthetic", "difficult_tags": ["Hidden"]}})
