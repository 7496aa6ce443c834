import logging

import pytest

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.errors import DataError
from obbflow.tables import ANNOTATIONS, DATA_ISSUES, IMAGES, check_table
from scenes import SQUARE, write_scene


def read(root, seed=0, **keys):
    dataset = DatasetSection(**{"data_root": root, "val_fraction": 0.5, **keys})
    return read_data_set(root, dataset, seed)


def test_given_split_is_kept_and_named_in_the_ids(tmp_path):
    write_scene(tmp_path / "train", "P2", ["gsd:0.3", f"{SQUARE} ship 1"])
    write_scene(tmp_path / "val", "P1", [f"{SQUARE} plane 0", "", f"{SQUARE} storage tank 0"])
    data = read(tmp_path)
    check_table(data.images, IMAGES, "images")
    check_table(data.annotations, ANNOTATIONS, "annotations")
    check_table(data.issues, DATA_ISSUES, "data_issues")
    assert data.images["image_id"].tolist() == ["train/P2", "val/P1"]
    assert data.images["split"].tolist() == ["train", "val"]
    assert data.images["path"].tolist()[0] == str(tmp_path / "train" / "images" / "P2.png")
    assert data.images["gsd"].fillna(-1).tolist() == [0.3, -1]
    assert data.images[["width", "height", "bands"]].iloc[0].tolist() == [64, 48, 3]
    assert data.annotations["class_name"].tolist() == ["ship", "plane", "storage tank"]
    assert data.annotations["difficult"].tolist() == [True, False, False]
    assert data.annotations["object_id"].tolist() == [0, 1, 2]
    assert data.annotations["source_file"].iloc[2] == "val/labelTxt/P1.txt"
    assert data.annotations["source_line"].tolist() == [2, 1, 3]
    assert data.annotations[["x1", "y1", "x3", "y3"]].iloc[0].tolist() == [10, 10, 30, 30]
    assert data.issues.empty


def test_flat_folder_is_split_by_scene_and_the_choice_is_logged(tmp_path, caplog):
    for number in range(4):
        write_scene(tmp_path, f"P{number}")
    with caplog.at_level(logging.INFO):
        images = read(tmp_path, val_fraction=0.25, seed=7).images
    assert images["image_id"].tolist() == ["P0", "P1", "P2", "P3"]
    (chosen,) = images.loc[images["split"] == "val", "image_id"]
    assert f"chose 1 of 4 scenes for validation (seed 7): {chosen}" in caplog.text


@pytest.mark.parametrize("has_splits", [True, False])
def test_images_and_labels_side_by_side(tmp_path, has_splits):
    folder = tmp_path / "train" if has_splits else tmp_path
    write_scene(folder, "P1", same_folder=True)
    data = read(tmp_path, same_folder=True)
    assert data.images["image_id"].tolist() == ["train/P1" if has_splits else "P1"]
    assert len(data.annotations) == 1
    assert data.issues.empty


def test_bad_lines_are_named_and_the_rest_is_read(tmp_path):
    write_scene(tmp_path, "P1", [f"{SQUARE} ship 0", "1 2 3 ship", f"{SQUARE} ship 0"])
    data = read(tmp_path)
    assert data.annotations["source_line"].tolist() == [1, 3]
    issue = data.issues.iloc[0]
    assert issue[["file", "line", "image_id", "severity", "kind", "action"]].tolist() == [
        "labelTxt/P1.txt", 2, "P1", "error", "field_count", "dropped",
    ]  # fmt: skip


def test_image_without_label_is_background_and_label_without_image_is_left_out(tmp_path):
    write_scene(tmp_path, "P1", lines=None)
    (tmp_path / "labelTxt" / "P2.txt").write_text(f"{SQUARE} ship 0")
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["P1"]
    assert data.annotations.empty
    found = data.issues.set_index("kind")["file"].to_dict()
    assert found == {
        "image_without_label": "images/P1.png",
        "label_without_image": "labelTxt/P2.txt",
    }


def test_broken_image_is_named_and_left_out_with_its_objects(tmp_path):
    write_scene(tmp_path, "P1")
    broken = write_scene(tmp_path, "P2")
    broken.write_bytes(broken.read_bytes()[:200])
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["P1"]
    assert data.annotations["image_id"].tolist() == ["P1"]
    (issue,) = data.issues.to_dict("records")
    assert (issue["file"], issue["kind"], issue["severity"], issue["action"]) == (
        "images/P2.png", "broken_image", "error", "dropped",
    )  # fmt: skip


def test_files_that_are_no_images_are_named_and_hidden_ones_are_not(tmp_path):
    write_scene(tmp_path, "P1")
    (tmp_path / "images" / "P1.jp2").touch()
    (tmp_path / "images" / ".DS_Store").touch()
    issues = read(tmp_path).issues
    assert issues[["file", "kind"]].values.tolist() == [["images/P1.jp2", "not_an_image"]]


def test_label_file_is_found_whatever_the_form_of_its_accents(tmp_path):
    write_scene(tmp_path, "e\u0301te\u0301", lines=None)
    (tmp_path / "labelTxt" / "\u00e9t\u00e9.TXT").write_text(f"{SQUARE} ship 0")
    data = read(tmp_path)
    assert len(data.annotations) == 1
    assert data.images["image_id"].tolist() == ["\u00e9t\u00e9"]


def test_same_file_in_train_and_val_is_reported(tmp_path):
    source = write_scene(tmp_path / "train", "P1")
    write_scene(tmp_path / "val", "P2").write_bytes(source.read_bytes())
    (issue,) = read(tmp_path).issues.to_dict("records")
    assert (issue["kind"], issue["severity"]) == ("same_image_in_train_and_val", "error")
    assert issue["file"] == "val/images/P2.png"
    assert "train/P1" in issue["message"]


def test_two_images_of_one_name_are_an_error_that_names_both(tmp_path):
    write_scene(tmp_path, "P1")
    write_scene(tmp_path, "P1", suffix=".jpg")
    with pytest.raises(
        DataError, match=r"images/P1\.jpg and P1\.png: two files with the same name"
    ):
        read(tmp_path)


def test_normalised_coordinates_are_an_error_that_says_so(tmp_path):
    write_scene(tmp_path, "P1", [".1 .1 .3 .1 .3 .3 .1 .3 ship 0"])
    with pytest.raises(
        DataError, match=r"labelTxt/P1\.txt: all coordinates lie in 0\.\.1.*normalised"
    ):
        read(tmp_path)


def test_missing_folder_says_what_to_set(tmp_path):
    with pytest.raises(DataError, match=r"none: there is no such folder; set dataset\.data_root"):
        read(tmp_path / "none")


def test_file_in_place_of_a_folder_is_said_to_be_one(tmp_path):
    (tmp_path / "a.zip").touch()
    with pytest.raises(DataError, match=r"a\.zip: it is a file"):
        read(tmp_path / "a.zip")


@pytest.mark.parametrize("folder", ["images", "train/images", "."])
def test_folder_without_an_image_says_where_they_belong(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    with pytest.raises(DataError, match=r"no image in it.*images/\. Put them there"):
        read(tmp_path)


def test_images_of_which_none_can_be_read(tmp_path):
    write_scene(tmp_path, "P1").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"P1\.png: it is no image.*none of the 1 images"):
        read(tmp_path)


def test_validation_alone_cannot_be_trained_on(tmp_path):
    write_scene(tmp_path / "val", "P1")
    with pytest.raises(DataError, match=r"no usable image to train on, but 1 in val"):
        read(tmp_path)


def test_missing_validation_is_allowed_with_a_warning(tmp_path, caplog):
    write_scene(tmp_path / "train", "P1")
    assert read(tmp_path).images["split"].tolist() == ["train"]
    assert "no image for validation, so no mAP will be computed" in caplog.text


@pytest.mark.parametrize("same_folder", [True, False])
def test_splits_may_be_folders_inside_of_images_and_labels(tmp_path, same_folder):
    for split, name in (("train", "P1"), ("val", "P2")):
        image = write_scene(tmp_path / "drawn" / split, name, same_folder=same_folder)
        for path in (image, tmp_path / "drawn" / split / "labelTxt" / f"{name}.txt"):
            if path.exists():
                kind = "labelTxt" if path.suffix == ".txt" else "images"
                target = tmp_path / "root" / kind / split / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        if same_folder:
            label = image.with_suffix(".txt")
            label.rename(tmp_path / "root" / "images" / split / label.name)
    data = read(tmp_path / "root", same_folder=same_folder)
    assert data.images["image_id"].tolist() == ["train/P1", "val/P2"]
    assert data.images["split"].tolist() == ["train", "val"]
    assert data.annotations["image_id"].tolist() == ["train/P1", "val/P2"]
    assert data.issues.empty


def test_folders_of_a_download_are_no_part_of_the_name(tmp_path):
    image = write_scene(tmp_path / "train", "P1")
    inner = image.parent / "part1" / "images"
    inner.mkdir(parents=True)
    image.rename(inner / image.name)
    labels = tmp_path / "train" / "labelTxt"
    versioned = tmp_path / "train" / "labelTxt-v1.5"
    versioned.mkdir()
    labels.rename(versioned / "DOTA-v1.5_train")
    upright = versioned / "DOTA-v1.5_train_hbb"
    upright.mkdir()
    (upright / "P1.txt").write_text(f"{SQUARE} plane 0")
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/P1"]
    assert data.annotations["source_file"].tolist() == [
        "train/labelTxt-v1.5/DOTA-v1.5_train/P1.txt"
    ]
    (issue,) = data.issues.to_dict("records")
    assert (issue["file"], issue["kind"], issue["action"]) == (
        "train/labelTxt-v1.5/DOTA-v1.5_train_hbb", "upright_boxes", "left out",
    )  # fmt: skip


def test_images_of_one_name_in_two_folders_keep_these_in_their_ids(tmp_path):
    for place in ("north", "south"):
        image = write_scene(tmp_path, "P1", [f"{SQUARE} {place} 0"])
        for path in (image, tmp_path / "labelTxt" / "P1.txt"):
            (path.parent / place).mkdir()
            path.rename(path.parent / place / path.name)
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["north/P1", "south/P1"]
    assert data.annotations[["image_id", "class_name"]].values.tolist() == [
        ["north/P1", "north"], ["south/P1", "south"],
    ]  # fmt: skip


def test_linked_folders_are_followed_once(tmp_path):
    image = write_scene(tmp_path / "root", "P1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    image.rename(elsewhere / image.name)
    (image.parent / "part1").symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / "circle").symlink_to(image.parent, target_is_directory=True)
    data = read(tmp_path / "root")
    assert data.images["image_id"].tolist() == ["P1"]
    assert len(data.annotations) == 1


def write_versions(folder, *versions):
    write_scene(folder, "P1")
    (folder / "labelTxt" / "P1.txt").unlink()
    (folder / "labelTxt").rmdir()
    for version in versions:
        (folder / f"labelTxt-v{version}").mkdir()
        label = folder / f"labelTxt-v{version}" / "P1.txt"
        label.write_text(f"{SQUARE} ship 0\n" * int(float(version) * 2))


def test_labels_of_the_version_asked_for_are_read(tmp_path):
    write_versions(tmp_path, "1.0", "1.5", "2.0")
    assert len(read(tmp_path, dota_version="1.5").annotations) == 3


def test_plain_label_folder_is_read_unless_the_version_has_one(tmp_path):
    write_versions(tmp_path, "1.5")
    (tmp_path / "labelTxt").mkdir()
    (tmp_path / "labelTxt" / "P1.txt").write_text(f"{SQUARE} ship 0")
    assert len(read(tmp_path).annotations) == 1
    assert len(read(tmp_path, dota_version="1.0").annotations) == 1
    assert len(read(tmp_path, dota_version="1.5").annotations) == 3


@pytest.mark.parametrize(
    ("versions", "asked"), [(("1.0", "1.5"), None), (("1.0",), "1.5")], ids=["two", "another"]
)
def test_versions_of_labels_that_are_not_chosen_between_are_named(tmp_path, versions, asked):
    write_versions(tmp_path, *versions)
    with pytest.raises(DataError, match=rf"labelTxt-v1\.0.*dota_version is {asked or 'null'}"):
        read(tmp_path, dota_version=asked)


def test_tiles_cut_from_one_scene_stay_in_one_split(tmp_path):
    for scene in ("P1", "P2", "P3"):
        for x in (0, 824):
            write_scene(tmp_path, f"{scene}__1__{x}___0")
    images = read(tmp_path).images
    assert images["group"].tolist() == ["P1", "P1", "P2", "P2", "P3", "P3"]
    assert images.groupby("group")["split"].nunique().tolist() == [1, 1, 1]
    assert sorted(images["split"].value_counts().to_dict().values()) == [2, 4]


def test_label_folder_of_another_name_is_pointed_out(tmp_path):
    write_scene(tmp_path, "P1")
    (tmp_path / "labelTxt").rename(tmp_path / "labels")
    with pytest.raises(DataError, match=r"labelTxt: no such folder.*there are: images, labels"):
        read(tmp_path)


def test_labels_beside_the_images_are_pointed_out(tmp_path):
    write_scene(tmp_path / "images", "P1", same_folder=True)
    with pytest.raises(DataError, match=r"Set dataset\.same_folder=true"):
        read(tmp_path)
