"""Every reader of text, fed with damaged files.

No input may crash a reader or keep it busy: what it cannot use ends in a ``DataError`` that names
the file. Of what it reads, each line, row, feature or element is an object or has a reason why not,
and objects have eight finite coordinates. What there is to account for is counted here by other
means than the reader's.
"""

import csv
import io
import json
import math
import re
from pathlib import Path
from xml.dom import expatbuilder

import pytest
import torch

from fuzz.inputs import damaged, damaged_json, fuzz, one_of
from obbflow.config import DatasetSection
from obbflow.data.checks import check_annotations
from obbflow.data.formats import (
    airbus_csv,
    airbus_export,
    airbus_split,
    coco,
    fair1m,
    hrsc,
    label_lines,
    read_data_set,
    yolo_obb,
    yolo_yaml,
)
from obbflow.data.hard_tiles import weigh_tiles
from obbflow.data.images import ImageFacts
from obbflow.errors import DataError
from samples import FORMATS
from scenes import write_scene

FACTS = ImageFacts(64, 48, 3, "uint8", "0")
SAMPLES = {name: text.encode() for name, (_, text) in FORMATS.items()}
LINE_ENDS = re.compile("\r\n|\r|\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def write(path, content):
    path.write_bytes(content)
    return path


def read(path, call, *arguments, **keys):
    """Return what a reader gives, None if it refuses the file, or its folder, by name."""
    try:
        return call(*arguments, **keys)
    except DataError as error:
        message = str(error)
    assert str(path) in message or f"{path.parent}: no " in message
    return None


def count(content):
    """Return how many lines a label file accounts for; all its objects must be ones."""
    for item in content.objects:
        assert len(item.corners) == 8
        assert all(abs(value) <= 2e9 for value in item.corners)  # False for NaN and infinity
        assert item.class_name.encode() == b" ".join(item.class_name.encode().split()) != b""
        assert item.line >= 1
    assert all(bad.kind and bad.message.encode() and bad.line >= 1 for bad in content.bad_lines)
    assert math.isnan(content.gsd) or content.gsd > 0
    assert content.size is None or min(content.size) > 0
    return len(content.objects) + len(content.bad_lines)


def lines_of(content):
    """Return the lines that are not blank, with their number."""
    lines = enumerate(LINE_ENDS.split(content.decode("utf-8-sig")), start=1)
    return {number: line.strip() for number, line in lines if line.split()}


DOTA = b"imagesource:GoogleEarth\ngsd:0.25\n1.0 1.0 9.0 1.0 9.0 5.0 1.0 5.0 storage tank 0\n" * 2
DOTA += b"x1 y1 x2 y2 x3 y3 x4 y4 class difficult\r\n2,2,8,2,8,6,2,6,ship,1\r2\t2\t8\t2 8 6 2 6 a\n"
DOTA_HEADER = re.compile(r"(imagesource|gsd)\s*:|x1(\s*,\s*|\s+)y1\b", re.IGNORECASE)


@fuzz(damaged([DOTA, SAMPLES["dota"]], [b"gsd:", b"imagesource:", b"x1 y1 ", b" 0\n"]))
def test_dota_lines(folder, content):
    path = write(folder / "P1.txt", content)
    found = read(path, label_lines.read_label_file, path)
    if found is None:
        with pytest.raises(UnicodeDecodeError):
            content.decode("utf-8-sig")
        return
    lines = [number for number, line in lines_of(content).items() if not DOTA_HEADER.match(line)]
    assert count(found) == len(lines)
    assert sorted(item.line for item in (*found.objects, *found.bad_lines)) == lines


YOLO = (
    b"0 0.1 .1 0.5 .1 .5 .4 1e-1 0.4\n3 0.25 0.5 0.5 0.5 0.5 0.75 0.25 0.75\r\n1.0 0 0 1 0 1 1 0 1"
)


@fuzz(damaged([YOLO, SAMPLES["yolo_obb"]], [b"3 ", b"0.5", b"-0.1", b"1.6", b"1000000"]))
def test_yolo_lines(folder, content):
    path = write(folder / "P1.txt", content)
    names = {0: "ship", 1: "harbour", 3: "plane"}
    found = read(path, yolo_obb._read, names, path, FACTS)
    if found is not None:
        assert count(found) == len(lines_of(content))
        assert {item.class_name for item in found.objects} <= set(names.values())


YAML = b"""path: .
train: images
val: [images]
names: {0: ship, 1: 'plane', 2: "a b"}  # classes
"""
NAMES = b"names:\n  - ship\n  - &x plane\nnc: 2\ntrain: images\n"


@fuzz(damaged([YAML, NAMES], [b"names:", b"*x", b"<<: ", b"? ", b"- ", b"2001-99-99", b"!!python"]))
def test_yolo_yaml(folder, content):
    (folder / "images").mkdir(exist_ok=True)
    path = write(folder / "data.yaml", content)
    issues = []
    found = read(path, yolo_yaml.read_yolo_set, folder, issues)
    if found is not None:
        assert found.names
        assert all(type(number) is int and number >= 0 for number in found.names)
        assert all(name.encode() and name == name.strip() for name in found.names.values())
        assert all(place.exists() for _, place in found.images)


SHIP = SAMPLES["hrsc"]
TRUCK = b'<?xml version="1.0" encoding="utf-8"?>\n' + SAMPLES["fair1m"]
XML_TOKENS = [
    b"<object>",
    b"</object>",
    b"<HRSC_Object/>",
    b"<name/>",
    b"&amp;",
    b"<point>1,2</point>",
]


def count_elements(content, *tags):
    document = expatbuilder.parseString(content, namespaces=False)
    return sum(len(document.getElementsByTagName(tag)) for tag in tags)


@fuzz(
    damaged([SHIP, SAMPLES["hrsc-rolabelimg"]], [*XML_TOKENS, b"100000005", b"mbox_ang"]),
    one_of(False, True),
)
def test_hrsc_elements(folder, content, use_types):
    path = write(folder / "1.xml", content)
    found = read(path, hrsc.read_label_file, path, use_types=use_types)
    if found is not None:
        assert count(found) == count_elements(content, "object", "HRSC_Object")


@fuzz(damaged([TRUCK, SAMPLES["fair1m"]], [*XML_TOKENS, b"pixel", b"geographic"]))
def test_fair1m_elements(folder, content):
    path = write(folder / "1.xml", content)
    found = read(path, fair1m.read_label_file, path)
    if found is not None:
        assert count(found) == count_elements(content, "object")


FEATURE = json.loads(SAMPLES["airbus_playground"])["features"][0]
MULTI = {
    "geometry": {
        "type": "MultiPolygon",
        "coordinates": [[[[1, 1], [5, 1], [3, 4.5], [1, 1]]], [[[9, 9, 7], [12, 9], [12, 11]]]],
    },
    "properties": {"tags": ["Car", "Hidden"], "mask": False},
}
MASK = {"geometry": None, "properties": {"mask": True}}
GEOJSON = {"type": "FeatureCollection", "features": [FEATURE, MULTI, MASK]}


def is_mask(feature):
    properties = feature.get("properties") if isinstance(feature, dict) else None
    return isinstance(properties, dict) and properties.get("mask") is True


@fuzz(damaged_json(GEOJSON))
def test_geojson_features(folder, content):
    path = write(folder / "1.json", content)
    found = read(path, airbus_export.read_file, path, {"Hidden"})
    if found is not None:
        features = json.loads(content.decode("utf-8-sig"))["features"]
        assert count(found) == sum(not is_mask(feature) for feature in features)


COCO = {
    "images": [
        {"id": 1, "file_name": "P1.png", "width": 64, "height": 48},
        {"id": 2, "filename": "images\\P2.png"},
    ],
    "annotations": [
        {"image_id": 1, "category_id": 1, "segmentation": [[10, 10, 30, 10, 30, 20, 10, 20]]},
        {"image_id": 1, "category_id": 7, "segmentation": [1, 1, 5, 1, 3, 4], "difficult": 1},
        {"image_id": 2, "category_id": 1, "bbox": [20, 20, 10, 4, 0.3], "iscrowd": 0},
        {"image_id": 2, "category_id": 1, "segmentation": {"counts": "a", "size": [1, 1]}},
    ],
    "categories": [{"id": 1, "name": "ship"}, {"id": 7, "name": "a  plane"}],
}


@fuzz(damaged_json(COCO), one_of(None, "degrees_clockwise", "radians_counter_clockwise"))
def test_coco_entries(folder, content, angle):
    root = folder / "coco"
    if not root.exists():
        write_scene(root, "P1", None)
        write_scene(root, "P2", None)
    path = write(root / "all.json", content)
    issues = []
    dataset = DatasetSection(data_root=root, format="coco", coco_angle=angle)
    scenes = read(path, coco.find_scenes, root, dataset, issues)
    if scenes is None:
        return
    assert all(issue["message"].encode() for issue in issues)
    whole = json.loads(content.decode("utf-8-sig"))
    rows = [issue["message"] for issue in issues if issue["kind"] in {"bad_image", "missing_image"}]
    n_images = len(scenes) + sum(not row.startswith("annotations[") for row in rows)
    assert n_images == len(whole["images"])
    n_objects = sum(count(scene.read(FACTS)) for scene in scenes)
    n_objects += sum(row.startswith("annotations[") for row in rows)
    n_objects += sum(
        int(number) for row in rows for number in re.findall(r"\((\d+) of labels", row)
    )
    annotations = whole.get("annotations")
    assert n_objects == len(annotations if isinstance(annotations, list) else [])


def records_of(content):
    """Return the rows of a CSV file that hold anything, without its header."""
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    return [row for row in [row for row in rows if row][1:] if "".join(row).strip()]


PLAYGROUND = SAMPLES["airbus_playground-csv"]
PLAYGROUND += b'images/P1.png,d,z,i,P1,"10, 10, 30, 10, 30, 20, 10, 20","Car, Hidden",1\n\n,,\n'
AIRCRAFT = SAMPLES["airbus_playground-aircraft"]
AIRCRAFT += b'2,P1.png,"[(1, 1), (5, 1), (3, 4.5)]",Truncated_airplane\r\n'
CSV_TOKENS = [b'"', b'""', b",", b"\n", b",,,\n", b"[(1,2),", b"..\\", b"tile_relpath", b"geometry"]


@fuzz(damaged([PLAYGROUND, AIRCRAFT], CSV_TOKENS))
def test_airbus_annotations(folder, content):
    path = write(folder / "annotations.csv", content)
    issues = []

    def find():
        return airbus_csv.find_labels(
            folder, path, lambda: {"P1.png": "a/P1.png"}, ["Hidden"], issues
        )

    labels = read(path, find)
    if labels is not None:
        contents = [each.read(FACTS) for each in labels.values()]
        assert sum(map(count, contents)) + len(issues) == len(records_of(content))
        assert all(".." not in tile.split("/") for tile in labels)


SPLITS = (
    b"tile_relpath,dataset_id,zone_id,image_id,tile_id,split\na/1.png,a,z,i,1,0\na/2.png,,,,2,1\n"
)
SPLIT_WORDS = b"image_id,split\nP1.png,train\nP2.png,Val\nP3.png,test\n"


@fuzz(damaged([SPLITS, SPLIT_WORDS], [*CSV_TOKENS, b"train", b"val", b"0", b"1.0", b"split"]))
def test_airbus_split(folder, content):
    path = write(folder / "split.csv", content)
    issues = []
    dataset = DatasetSection(data_root=folder, format="airbus_playground", val_split_id=0)

    def find():
        return airbus_split.read_split(
            folder, path, lambda: {"P1.png": "a/P1.png"}, dataset, issues
        )

    tiles = read(path, find)
    if tiles is not None:
        assert len(tiles) + len(issues) == len(records_of(content))
        assert {tile.split for tile in tiles.values()} <= {"train", "val"}


SCORES = b"tile_id,image_id,f1,n\na,A,0.5,1\nb,A,,2\nc,B,1e-3,3\n"


@fuzz(
    damaged([SCORES, SCORES.replace(b"tile_id,", b"").replace(b"\na,", b"\n")], [b"f1", b'"', b","])
)
def test_tile_scores(folder, content):
    path = write(folder / "scores.csv", content)
    dataset = DatasetSection(format="synthetic", tile_metrics_csv=path)
    weights = read(path, weigh_tiles, ["a", "b", "c"], dataset)
    if weights is not None:
        assert weights.shape == (3,)
        assert torch.isin(weights, torch.tensor([1, dataset.hard_tile_oversample_factor])).all()


@fuzz(damaged([DOTA]), share=0.02)
def test_dota_lines_to_the_tables(folder, content):
    root = folder / "dota"
    if not root.exists():
        write_scene(root, "P1")
        write_scene(root, "P2", ["1 2 3 4 5 6 7 8 never seen 0"])
    path = write(root / "labelTxt" / "P1.txt", content)
    dataset = DatasetSection(data_root=root, difficult_strategy="keep")
    data = read(Path("labelTxt/P1.txt"), read_data_set, root, dataset, 0)
    if data is None:
        return
    kept, issues = check_annotations(data.images, data.annotations, data.issues, dataset)
    source = "labelTxt/P1.txt"
    if "broken_label_file" in set(issues["kind"]):
        assert source not in set(kept["source_file"])
        return
    lines = {number for number, line in lines_of(content).items() if not DOTA_HEADER.match(line)}
    dropped = issues[(issues["file"] == source) & (issues["action"] == "dropped")]
    of_file = kept[kept["source_file"] == source]
    assert len(dropped) + len(of_file) == len(lines)
    assert {*dropped["line"], *of_file["source_line"]} == lines
    assert path.exists()
