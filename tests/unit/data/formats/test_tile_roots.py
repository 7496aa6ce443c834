import pytest

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.errors import DataError
from scenes import SQUARE, write_scene


def read(root=None, **keys):
    return read_data_set(root, DatasetSection(data_root=root, **keys), seed=0)


def test_union_of_roots_of_both_layouts_beside_a_data_set(tmp_path):
    write_scene(tmp_path / "raw" / "train", "P1")
    write_scene(tmp_path / "raw" / "val", "P2")
    write_scene(tmp_path / "a", "P1__1__0___0", [f"{SQUARE} ship 0"])
    write_scene(tmp_path / "b", "P1__1__0___0", [f"{SQUARE} harbor 0"], same_folder=True)
    write_scene(tmp_path / "c" / "images", "P9", [f"{SQUARE} car 0"], same_folder=True)
    data = read(
        tmp_path / "raw",
        train_tiles_dir=tmp_path / "a",
        train_tiles_dirs=[tmp_path / "b"],
        val_tiles_dirs=[tmp_path / "c"],
    )
    images = data.images.set_index("image_id")
    assert images["split"].to_dict() == {
        "train/P1": "train",
        "train/a/P1__1__0___0": "train",
        "train/b/P1__1__0___0": "train",
        "val/P2": "val",
        "val/c/P9": "val",
    }
    assert images["is_tile"].tolist() == [False, True, True, False, True]
    assert images["group"].tolist() == ["train/P1", "P1", "P1", "val/P2", "val/c/P9"]
    assert images["path"]["train/a/P1__1__0___0"] == str(tmp_path / "a/images/P1__1__0___0.png")
    classes = data.annotations.set_index("image_id")["class_name"]
    assert classes["train/b/P1__1__0___0"] == "harbor"
    assert classes["val/c/P9"] == "car"
    label = (tmp_path / "a/labelTxt/P1__1__0___0.txt").as_posix()
    assert label in data.annotations["source_file"].tolist()
    assert not data.issues["kind"].isin(["not_an_image", "label_without_image"]).any()


def test_roots_of_one_name_are_told_apart_whatever_their_order(tmp_path):
    folders = [tmp_path / "x" / "tiles", tmp_path / "y" / "tiles"]
    for folder in folders:
        write_scene(folder, "P1")
    ids = ["train/x/tiles/P1", "train/y/tiles/P1"]
    for order in (folders, folders[::-1]):
        assert read(train_tiles_dirs=order).images["image_id"].tolist() == ids


def test_name_that_ends_another_one_is_no_clash(tmp_path):
    for name in ("tiles", "my_tiles"):
        write_scene(tmp_path / name, "P1")
    images = read(train_tiles_dirs=[tmp_path / "tiles", tmp_path / "my_tiles"]).images
    assert images["image_id"].tolist() == ["train/my_tiles/P1", "train/tiles/P1"]


def test_root_may_serve_both_splits_to_watch_what_is_trained_on(tmp_path):
    write_scene(tmp_path / "a", "P1")
    images = read(train_tiles_dir=tmp_path / "a", val_tiles_dir=tmp_path / "a").images
    assert images["image_id"].tolist() == ["train/a/P1", "val/a/P1"]
    assert images["split"].tolist() == ["train", "val"]


def test_nothing_is_written_to_the_roots(tmp_path):
    write_scene(tmp_path / "a", "P1")
    before = sorted(tmp_path.rglob("*"))
    read(train_tiles_dir=tmp_path / "a")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "twice"])
def test_root_that_cannot_be_used_is_named_with_its_key(tmp_path, kind):
    write_scene(tmp_path / "a", "P1")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    roots = {"twice": [tmp_path / "a", tmp_path / "x" / ".." / "a"]}.get(kind, [tmp_path / kind])
    message = {
        "missing": "there is no such folder",
        "file": "it is a file",
        "empty": "no image in it",
        "twice": "named twice",
    }[kind]
    (tmp_path / "x").mkdir()
    with pytest.raises(DataError, match=rf"{message}.*val_tiles_dirs"):
        read(train_tiles_dir=tmp_path / "a", val_tiles_dirs=roots)
