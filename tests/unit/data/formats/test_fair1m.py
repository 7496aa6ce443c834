import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.fair1m import read_label_file
from obbflow.data.formats.source import LabelFileError
from scenes import write_scene
from strategies import PROPERTY

POINTS = ("10.5,10", "30,10", "30,20", "10.5,20", "10.5,10")


def thing(points=POINTS, name="Cargo Truck", coordinate="pixel"):
    inner = "".join(f"<point>{point}</point>" for point in points)
    return (
        f"<object><coordinate>{coordinate}</coordinate>"
        f"<possibleresult><name>{name}</name></possibleresult>\n<points>{inner}</points></object>"
    )


def label(*objects):
    inner = "\n".join(objects)
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{head}\n<annotation><objects>{inner}</objects></annotation>"


def parse(folder, text):
    path = folder / "1.xml"
    path.write_text(text, encoding="utf-8")
    return read_label_file(path)


def test_four_corners_and_the_closing_point(tmp_path):
    (found,) = parse(tmp_path, label(thing())).objects
    assert found == (2, (10.5, 10, 30, 10, 30, 20, 10.5, 20), "Cargo Truck", False)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"points": ("1,2", "3,x")}, "not_a_number"),
        ({"points": ("1,2,3", "3,4")}, "not_a_number"),
        ({"points": ("1,2", "3,4", "1,2")}, "not_a_polygon"),
        ({"points": ()}, "not_a_polygon"),
        ({"points": ("1e300,2", "3,4", "5,6")}, "not_finite"),
        ({"name": " "}, "bad_class"),
        ({"coordinate": "geographic"}, "not_in_px"),
    ],
)
def test_bad_object_is_named_and_the_others_stay(tmp_path, change, kind):
    content = parse(tmp_path, label(thing(**change), thing()))
    assert [(bad.line, bad.kind) for bad in content.bad_lines] == [(2, kind)]
    assert [each.line for each in content.objects] == [4]


def test_layout_of_the_download(tmp_path):
    for folder in ("train/part1", "validation"):
        image = write_scene(tmp_path / folder, "0", lines=None)
        (image.parents[1] / "labelXml").mkdir()
        (image.parents[1] / "labelXml" / "0.xml").write_text(label(thing()))
    data = read_data_set(tmp_path, DatasetSection(data_root=tmp_path, format="fair1m"), seed=0)
    assert data.images["image_id"].tolist() == ["train/part1/0", "val/0"]
    assert data.images["split"].tolist() == ["train", "val"]
    assert data.annotations["class_name"].tolist() == ["Cargo Truck"] * 2


def test_another_document_is_no_label_file_and_the_size_is_read(tmp_path):
    with pytest.raises(LabelFileError, match=r"1\.xml:1: the outermost element is <HRSC_Image>"):
        parse(tmp_path, "<HRSC_Image/>")
    size = "<size><width>1000</width><height>800</height><depth>3</depth></size>"
    assert parse(tmp_path, f"<annotation>{size}</annotation>").size == (1000, 800)


@PROPERTY
@given(st.lists(st.text(alphabet="0123456789,.-e n", max_size=12), max_size=5))
def test_any_points_are_an_object_or_a_bad_line(tmp_path_factory, points):
    content = parse(tmp_path_factory.mktemp("fuzz"), label(thing(points)))
    assert len(content.objects) + len(content.bad_lines) == 1
    assert all(math.isfinite(value) for each in content.objects for value in each.corners)
