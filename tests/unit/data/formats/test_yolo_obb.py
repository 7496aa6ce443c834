import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.yolo_obb import parse_label_text
from obbflow.data.images import ImageFacts
from obbflow.errors import DataError
from scenes import write_scene
from strategies import PROPERTY

NAMES = {0: "ship", 3: "plane"}
LINE = "3 0.25 0.5 0.5 0.5 0.5 0.75 0.25 0.75"
CORNERS = (16, 24, 32, 24, 32, 36, 16, 36)  # of an image of 64 x 48
FACTS = ImageFacts(64, 48, 3, "uint8", "0")


def write(root, image_folder, name="P1", line=LINE):
    """Write an image and its label file where Ultralytics looks for it."""
    parent, _, tail = image_folder.rpartition("images")
    label_folder = root / f"{parent}labels{tail}"
    image = write_scene(root / "scratch", name, lines=None)
    (root / image_folder).mkdir(parents=True, exist_ok=True)
    label_folder.mkdir(parents=True, exist_ok=True)
    image.rename(root / image_folder / image.name)
    (label_folder / f"{name}.txt").write_text(line)
    for folder in ("images", "labelTxt", "."):
        (root / "scratch" / folder).rmdir()


def read(root):
    return read_data_set(root, DatasetSection(data_root=root, format="yolo_obb"), seed=0)


def test_fractions_become_px_of_both_sides():
    content = parse_label_text(f"\n{LINE}\r\n", NAMES, FACTS)
    assert content.objects == [(2, CORNERS, "plane", False)]
    assert content.bad_lines == []


def test_sample_of_dota8_reaches_out_of_its_image(shared_dir):
    path = shared_dir / "data/real/format_samples/yolo_obb_P1161__1024__3296___1648.txt"
    (found,) = parse_label_text(
        path.read_text(), NAMES, ImageFacts(1024, 1024, 3, "uint8", "0")
    ).objects
    assert found.corners[3] == pytest.approx(1.05664 * 1024)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("3 .5 .5 .1 .1", "field_count"),
        (f"{LINE} 0.9", "field_count"),
        (LINE.replace("0.75", "nan"), "not_a_number"),
        (LINE.replace("0.75", "0,75"), "not_a_number"),
        (LINE.replace("0.75", "1e400"), "not_normalised"),
        ("3 16 24 32 24 32 36 16 36", "not_normalised"),
        (LINE.replace("3", "1", 1), "bad_class"),
        (LINE.replace("3", "ship", 1), "bad_class"),
        (LINE.replace("3", "-3", 1), "bad_class"),
    ],
)
def test_bad_line_is_named_and_the_others_stay(line, kind):
    content = parse_label_text(f"{LINE}\n{line}\n", NAMES, FACTS)
    assert [(bad.line, bad.kind) for bad in content.bad_lines] == [(2, kind)]
    assert len(content.objects) == 1


@pytest.mark.parametrize("layout", ["images/{}", "{}/images"])
@pytest.mark.parametrize("val", ["val", "valid"])
@pytest.mark.parametrize("names", ["[ship, b, c, plane]", "{0: ship, 3: plane}"])
def test_both_layouts_and_both_ways_to_write_names(tmp_path, layout, val, names):
    write(tmp_path, layout.format("train"))
    write(tmp_path, layout.format(val), "P2")
    (tmp_path / "data.yaml").write_text(f"names: {names}\n")
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/P1", "val/P2"]
    assert data.annotations["class_name"].tolist() == ["plane", "plane"]
    assert data.issues.empty


@pytest.mark.parametrize("entry", ["../photos/a/images", "photos/a/images", "list.txt"])
def test_paths_of_the_yaml_are_followed(tmp_path, entry):
    write(tmp_path, "photos/a/images")
    write(tmp_path, "photos/b/images", "P2")
    (tmp_path / "list.txt").write_text("./photos/a/images/P1.png\n")
    (tmp_path / "data.yaml").write_text(
        f"path: nowhere\ntrain: {entry}\nval: [photos/b/images]\nnames: {{0: ship, 3: plane}}\n"
    )
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/P1", "val/P2"]
    assert data.annotations["source_file"].tolist() == [
        "photos/a/labels/P1.txt", "photos/b/labels/P2.txt",
    ]  # fmt: skip


def test_yaml_of_another_machine_is_reported_and_the_folders_are_read(tmp_path):
    write(tmp_path, "images/train")
    (tmp_path / "data.yaml").write_text("train: /content/x/train\nnames: {3: plane}\n")
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/P1"]
    assert data.issues["kind"].tolist() == ["missing_path"]


def test_a_single_missing_path_is_an_error(tmp_path):
    write(tmp_path, "images/train")
    (tmp_path / "data.yaml").write_text("train: images/train\nval: images/vla\nnames: [a]\n")
    with pytest.raises(DataError, match=r"data\.yaml: val: 'images/vla': there is no such"):
        read(tmp_path)


def test_names_in_a_text_file_and_a_label_without_image(tmp_path):
    write(tmp_path, "images")
    (tmp_path / "classes.txt").write_text("ship\nb\nc\nplane\n")
    (tmp_path / "labels" / "P9.txt").write_text(LINE)
    data = read(tmp_path)
    assert data.annotations["class_name"].tolist() == ["plane"]
    assert data.issues["file"].tolist() == ["labels/P9.txt"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, r"no data\.yaml or classes\.txt"),
        ("names: [a, no]", r"class 1 is False.*quotes"),
        ("names: {x: a}", r"'x' for a class number"),
        ("names: []", "holds no class"),
        ("names: {1: a, '1': b}", "names has '1' twice"),
        (f"names: {{? 0x{'f' * 5000}\n: a}}", "names has a number of many digits for a class"),
        (f"names: [0x{'f' * 5000}]", "class 0 is a number of many digits, which is no text"),
        ("a: b\nnames: [a", r"data\.yaml:2: no valid YAML"),
        ("names: [a]\nb: !!float", r"data\.yaml: no valid YAML"),
        ("names: [a]\nb: !!bool 5", r"data\.yaml: no valid YAML"),
        ("names: [a]\nb: !!timestamp x", r"data\.yaml: no valid YAML"),
    ],
)
def test_unusable_names_are_one_clear_error(tmp_path, text, words):
    write(tmp_path, "images/train")
    if text is not None:
        (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=words):
        read(tmp_path)


@PROPERTY
@given(st.lists(st.text(alphabet="0123456789.-+e_٣ \n\r\tnaif", max_size=30), max_size=4))
def test_each_line_is_an_object_or_a_bad_line(lines):
    text = "\n".join([LINE, *lines])
    content = parse_label_text(text, NAMES, FACTS)
    numbers = [each.line for each in (*content.objects, *content.bad_lines)]
    assert len(numbers) == len(set(numbers)) >= 1
    assert all(math.isfinite(value) for each in content.objects for value in each.corners)
