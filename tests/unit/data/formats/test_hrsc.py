import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.hrsc import read_label_file
from obbflow.data.formats.source import LabelFileError
from scenes import write_scene
from strategies import PROPERTY

BOX = {"mbox_cx": 30, "mbox_cy": 20, "mbox_w": 20, "mbox_h": 10, "mbox_ang": 0.3}


def ship(class_id=100000005, difficult=0, **changes):
    box = "".join(f"<{tag}>{value}</{tag}>" for tag, value in (BOX | changes).items())
    return (
        f"<HRSC_Object>\n<Class_ID>{class_id}</Class_ID><difficult>{difficult}</difficult>{box}"
        "</HRSC_Object>"
    )


def label(*objects):
    inner = "\n".join(objects)
    return (
        "<HRSC_Image><Img_Resolution>1.07</Img_Resolution>\n"
        f"<HRSC_Objects>{inner}</HRSC_Objects></HRSC_Image>"
    )


def parse(tmp_path, text, **options):
    path = tmp_path / "1.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_label_file(path, **options)


def write(folder, name, text, images="AllImages"):
    path = write_scene(folder, name, lines=None)
    (folder / images).mkdir(exist_ok=True)
    path.rename(folder / images / path.name)
    (folder / "images").rmdir()
    (folder / "labelTxt").rmdir()
    (folder / "Annotations").mkdir(exist_ok=True)
    (folder / "Annotations" / f"{name}.xml").write_text(text)


def read(root, **keys):
    return read_data_set(root, DatasetSection(data_root=root, format="hrsc", **keys), seed=0)


def test_angle_in_radians_turns_the_long_side_clockwise(tmp_path):
    (found,) = parse(tmp_path, label(ship())).objects
    right_middle = (
        (found.corners[2] + found.corners[4]) / 2,
        (found.corners[3] + found.corners[5]) / 2,
    )
    assert right_middle == pytest.approx((30 + 10 * math.cos(0.3), 20 + 10 * math.sin(0.3)))
    assert (found.class_name, found.difficult, found.line) == ("ship", False, 2)


def test_types_difficulty_and_resolution(tmp_path):
    content = parse(tmp_path, label(ship(difficult=1), ship(100000018)), use_types=True)
    assert [each.class_name for each in content.objects] == ["Nimitz", "Container"]
    assert [each.difficult for each in content.objects] == [True, False]
    assert content.gsd == 1.07


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"mbox_ang": "x"}, "not_a_number"),
        ({"mbox_cx": ""}, "not_a_number"),
        ({"mbox_w": "nan"}, "not_a_number"),
        ({"mbox_cx": 1e12}, "not_finite"),
        ({"mbox_h": -3}, "bad_size"),
        ({"difficult": "maybe"}, "bad_difficulty"),
        ({"class_id": 100000099}, "bad_class"),
    ],
)
def test_bad_object_is_named_by_line_and_the_others_stay(tmp_path, change, kind):
    content = parse(tmp_path, label(ship(), ship(**change)), use_types=True)
    assert [(bad.line, bad.kind) for bad in content.bad_lines] == [(4, kind)]
    assert len(content.objects) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (label(ship())[:-5], ":3: no whole XML"),
        ("", ":1: no whole XML"),
        ('<?xml version="1.0" encoding="odd"?><a/>', ":1: no usable XML"),
        (f'<!DOCTYPE a [<!ENTITY b "c">]>\n{label(ship())}', ":1: no usable XML .*DOCTYPE"),
        ("\n<html/>", ":2: the outermost element is <html>, not <HRSC_Image> or <annotation>"),
    ],
    ids=["cut off", "empty", "encoding", "entities", "another element"],
)
def test_file_that_is_no_label_is_named_with_the_line_and_what_is_wrong(tmp_path, text, words):
    with pytest.raises(LabelFileError, match=rf"1\.xml{words}"):
        parse(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (
            "<HRSC_Image><Img_SizeWidth>64</Img_SizeWidth><Img_SizeHeight>48</Img_SizeHeight>",
            (64, 48),
        ),
        ("<HRSC_Image><Img_SizeWidth>0</Img_SizeWidth><Img_SizeHeight>x</Img_SizeHeight>", None),
        ("<annotation><size><width>64</width><height>48</height></size>", (64, 48)),
        ("<annotation><size><width>64</width></size>", None),
    ],
)
def test_size_is_that_of_both_kinds_of_files(tmp_path, text, size):
    assert parse(tmp_path, f"{text}</{text[1:].split('>')[0]}>").size == size


def test_lists_of_the_download_are_the_split(tmp_path):
    for number in range(4):
        write(tmp_path / "FullDataSet", f"{number}", label(ship()))
    (tmp_path / "sysdata.xml").write_text("<HRSC_Sys/>")
    sets = tmp_path / "ImageSets"
    sets.mkdir()
    for name, text in {
        "train": "0\n1\n",
        "val": "2\n",
        "trainval": "0\n1\n2\n",
        "test": "3\n",
    }.items():
        (sets / f"{name}.txt").write_text(text)
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/0", "train/1", "val/2"]
    assert data.annotations["source_file"].iloc[0] == "FullDataSet/Annotations/0.xml"
    assert data.issues[["kind", "severity"]].values.tolist() == [["test_split", "info"]]


def test_folders_of_a_split_and_orphans(tmp_path):
    write(tmp_path / "Train", "0", label(ship()))
    write(tmp_path / "Val", "0", label(ship()))
    (tmp_path / "Train" / "Annotations" / "9.xml").write_text(label())
    data = read(tmp_path)
    assert data.images["image_id"].tolist() == ["train/0", "val/0"]
    assert data.issues["kind"].tolist().count("label_without_image") == 1


def test_rolabelimg_file_is_read(shared_dir):
    content = read_label_file(shared_dir / "data/real/format_samples/rolabelimg_robndbox.xml")
    assert content.bad_lines == []
    first = content.objects[0]
    assert first.class_name == "Car"
    xs, ys = first.corners[::2], first.corners[1::2]
    assert (sum(xs) / 4, sum(ys) / 4) == pytest.approx((215.984, 120.9863))
    side = math.dist(first.corners[:2], first.corners[2:4])
    direction = math.atan2(ys[1] - ys[0], xs[1] - xs[0])
    assert (side, direction) == pytest.approx((32.276, 2.589049), abs=1e-6)


def test_upright_box_of_voc_is_no_object(tmp_path):
    text = "<annotation><object><name>a</name><bndbox><xmin>1</xmin></bndbox></object></annotation>"
    (bad,) = parse(tmp_path, text).bad_lines
    assert bad.kind == "upright_box"


@PROPERTY
@given(
    st.text(alphabet="HRSC_Objectmbx0123456789.-+eE\n ", max_size=60), st.sampled_from(list(BOX))
)
def test_any_text_is_an_object_or_a_bad_line(tmp_path_factory, text, tag):
    folder = tmp_path_factory.mktemp("fuzz")
    content = parse(folder, label(ship(**{tag: text})))
    assert len(content.objects) + len(content.bad_lines) >= 1
    assert all(math.isfinite(value) for each in content.objects for value in each.corners)
