"""A label file that cannot be used: it is named, its image left out, and the rest goes on."""

import json
import os
from pathlib import Path

import pytest

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.errors import DataError
from samples import FORMATS, write_sample

PER_IMAGE = {name: place for name, (place, _) in FORMATS.items() if "{}" in place}


def _cut_off(path):
    rest = b"\xff" if path.suffix == ".txt" else b""  # other text is lines, each with a row
    path.write_bytes(b'{"a": <b' + rest)


def _other_encoding(path):
    path.write_bytes(b"\xff\xfe1\x002\x00")


def _folder(path):
    path.unlink()
    path.mkdir()


def _circle(path):
    path.unlink()
    path.symlink_to(path.name)


def _nowhere(path):
    path.unlink()
    path.symlink_to("nothing")


def _refuse(monkeypatch, path):
    """Take away the right to read; the superuser has it whatever the file says."""
    read_bytes = Path.read_bytes

    def refuse(self):
        if self == path:
            raise PermissionError(13, os.strerror(13), str(self))
        return read_bytes(self)

    monkeypatch.setattr(Path, "read_bytes", refuse)


def read(root, name, **keys):
    dataset = DatasetSection(data_root=root, format=name.split("-")[0], **keys)
    return read_data_set(root, dataset, seed=0)


@pytest.fixture(params=PER_IMAGE)
def sample(request, tmp_path):
    """A data set of three images; name of its format, root, and label file of the second."""
    write_sample(tmp_path, request.param, ("P1", "P2", "P3"))
    return request.param, tmp_path, tmp_path / PER_IMAGE[request.param].format("P2")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut_off, "no whole XML|no JSON|not UTF-8 text"),
        (_other_encoding, "not UTF-8 text|no whole XML|the outermost element"),
        (_folder, "cannot be read \\(Is a directory\\)"),
        (_circle, "cannot be read \\(Too many levels"),
        (_nowhere, "cannot be read \\(No such file"),
    ],
)
def test_image_of_a_broken_label_file_is_left_out_and_no_background(sample, damage, reason):
    name, root, label = sample
    damage(label)
    data = read(root, name)
    assert [Path(path).stem for path in data.images["path"]] == ["P1", "P3"]
    assert set(data.annotations["image_id"]) == set(data.images["image_id"])
    (issue,) = data.issues.to_dict("records")
    assert (issue["kind"], issue["severity"], issue["action"]) == (
        "broken_label_file", "error", "dropped",
    )  # fmt: skip
    assert issue["file"] == label.relative_to(root).as_posix()
    assert issue["image_id"].endswith("P2")
    with pytest.raises(DataError, match=rf"{label.name}(:1)?: broken label file: ({reason})"):
        read(root, name, strict=True)


def test_file_without_the_right_to_read_it(sample, monkeypatch):
    name, root, label = sample
    _refuse(monkeypatch, label)
    (issue,) = read(root, name).issues.to_dict("records")
    assert issue["message"].startswith("broken label file: cannot be read (Permission denied)")


def test_without_a_usable_label_file_the_first_is_named(sample):
    name, root, label = sample
    for path in label.parent.iterdir():
        path.write_bytes(b"\xff")
    with pytest.raises(
        DataError, match=r"none of the 3 label files can be used.*The first is .*P1\..*replace them"
    ):
        read(root, name)


def test_broken_label_files_of_all_training_images_are_named(tmp_path):
    for split in ("train", "val"):
        write_sample(tmp_path / split, "dota", (split,))
    (tmp_path / "train/labelTxt/train.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"no usable image to train on, but 1 in val.*not UTF-8"):
        read(tmp_path, "dota")


def test_folder_that_cannot_be_listed_is_an_error_not_background(sample, monkeypatch):
    name, root, label = sample
    scandir = os.scandir

    def refuse(path):
        if Path(path) == label.parent:
            raise PermissionError(13, os.strerror(13), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", lambda path: [entry.name for entry in refuse(path)])
    with pytest.raises(DataError, match=rf"{label.parent}: cannot be read \(Permission denied\)"):
        read(root, name)


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - PER_IMAGE.keys()))
@pytest.mark.parametrize("damage", [_other_encoding, _folder, _circle])
def test_the_only_label_file_stops_with_its_name(tmp_path, name, damage):
    write_sample(tmp_path, name)
    place, _ = FORMATS[name]
    damage(tmp_path / place)
    with pytest.raises(DataError, match=rf"{tmp_path}(/{place})?: "):
        read(tmp_path, name)


def test_class_names_of_yolo_stop_when_unreadable(tmp_path):
    write_sample(tmp_path, "yolo_obb")
    (tmp_path / "data.yaml").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"data\.yaml: not UTF-8 text"):
        read(tmp_path, "yolo_obb")


def test_size_in_the_label_is_compared_with_the_image(tmp_path):
    for name in ("hrsc", "hrsc-rolabelimg", "fair1m", "coco"):
        root = tmp_path / name
        write_sample(root, name, size=(64, 48))
        assert read(root, name).issues.empty
        for path in root.rglob("*"):
            if path.suffix in {".xml", ".json"}:
                path.write_text(path.read_text().replace("64", "32"))
        (issue,) = read(root, name).issues.to_dict("records")
        assert issue["kind"] == "other_image_size", name
        assert "of 32 x 48 px, but P1.png has 64 x 48" in issue["message"]
    content = json.loads((tmp_path / "coco/annotations/instances.json").read_text())
    assert content["images"][0]["width"] == 32
