import pytest

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.detect import describe_other_format, find_format
from obbflow.errors import DataError
from samples import FORMATS as SAMPLES
from samples import write_sample
from scenes import SQUARE, write_scene

YOLO_OBB = "0 .1 .1 .3 .1 .3 .3 .1 1.06\n"
FILES = {
    "yolo_obb": ("labels/train/a.txt", f"\n{YOLO_OBB}"),
    "coco": ("annotations/instances.json", '{"images": [], "annotations": []}'),
    "hrsc": ("Annotations/1.xml", "<HRSC_Image><HRSC_Objects/></HRSC_Image>"),
    "fair1m": (
        "labelXml/1.xml",
        "<annotation><objects><object><possibleresult><name>A</name></possibleresult>",
    ),
    "airbus_playground": ("labels/zone/1.json", '{"type": "FeatureCollection", "features": []}'),
    "dota": ("labels/a.txt", f"gsd:1\n{SQUARE} ship 0\n"),
}


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_format_is_known_by_content_and_its_setting_named(tmp_path, name):
    path = write(tmp_path, *FILES[name])
    write(tmp_path, "README.txt", "Nothing that looks like labels: 0 1 2")
    found = find_format(tmp_path)
    assert (found.name, found.file) == (name, path)
    assert describe_other_format(tmp_path, name) == ""
    other = "coco" if name != "coco" else "dota"
    message = describe_other_format(tmp_path, other)
    assert message.startswith(f" {path} looks like ")
    assert message.endswith(f"set dataset.format={name}.")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("tile_relpath,dataset_id,dota_coords,class_name,difficult", "Playground"),
        ('"id","image_id","geometry","class"\r', "aircraft sample"),
    ],
)
def test_tables_are_known_by_their_columns(tmp_path, header, words):
    write(tmp_path, "annotations.csv", f"{header}\n1,2,3,4,5\n")
    found = find_format(tmp_path)
    assert found.name == "airbus_playground"
    assert words in found.description


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("labels/a.txt", "1 .5 .5 .1 .1\n", "upright boxes"),
        ("a.xml", "<annotation><object><bndbox></bndbox></object></annotation>", "Pascal VOC"),
    ],
    ids=["yolo", "voc"],
)
def test_known_format_without_a_reader_is_to_be_converted(tmp_path, file, text, words):
    write(tmp_path, file, text)
    message = describe_other_format(tmp_path, "dota")
    assert words in message
    assert "convert" in message


@pytest.mark.parametrize(
    "text", ["", "one two", "0 12 8 10 14", ".5 .5 .5 .2 .1", "1 2 9 2 9 6 1 6"]
)
def test_other_text_is_no_format(tmp_path, text):
    write(tmp_path, "a.txt", text)
    write(tmp_path, "a.json", '{"images": 3}')
    write(tmp_path, "a.csv", "x,y\n1,2\n")
    assert find_format(tmp_path) is None
    assert describe_other_format(tmp_path, "dota") == ""


PAIRS = [
    (name, set_format)
    for name in SAMPLES
    for set_format in sorted({name.split("-")[0] for name in SAMPLES} - {name.split("-")[0]})
]


@pytest.mark.parametrize(("name", "set_format"), PAIRS)
def test_any_other_format_is_named_with_its_setting(tmp_path, name, set_format):
    real = name.split("-")[0]
    write_sample(tmp_path, name, ("P1", "P2"))
    with pytest.raises(DataError, match=rf"looks like .*: set dataset\.format={real}\."):
        read_data_set(tmp_path, DatasetSection(data_root=tmp_path, format=set_format), seed=0)


def read(root):
    return read_data_set(root, DatasetSection(data_root=root), seed=0)


def test_yolo_lines_in_a_label_folder_are_named_with_the_setting(tmp_path):
    write_scene(tmp_path, "P1", [YOLO_OBB.strip()])
    with pytest.raises(
        DataError, match=r"no object could be read.*P1\.txt looks like YOLO-OBB.*format=yolo_obb"
    ):
        read(tmp_path)


def test_missing_label_folder_is_explained_by_the_format_that_is_there(tmp_path):
    image = write_scene(tmp_path / "train", "P1")
    (tmp_path / "train" / "labelTxt" / "P1.txt").unlink()
    (tmp_path / "train" / "labelTxt").rmdir()
    write(tmp_path, *FILES["coco"])
    with pytest.raises(DataError, match=r"labelTxt: no such folder.*instances\.json looks like a"):
        read(tmp_path)
    assert image.exists()


def test_folder_without_images_is_explained_by_the_format_that_is_there(tmp_path):
    write(tmp_path, *FILES["hrsc"])
    with pytest.raises(DataError, match=r"no image in it.*set dataset\.format=hrsc"):
        read(tmp_path)


def test_bad_lines_of_the_expected_format_are_left_to_the_checks(tmp_path):
    write_scene(tmp_path, "P1", ["1 2 3 ship"])
    assert len(read(tmp_path).issues) == 1
