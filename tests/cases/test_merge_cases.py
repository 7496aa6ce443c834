"""The users' cases of stages "merge" and "predict"."""

import json

import pandas as pd
import pytest
import torch

from obbflow.geometry import qbox_to_rbox, rbox_to_qbox
from obbflow.inference import find_images, geojson_files, merge_windows, task1_files
from obbflow.inference.tables import PREDICTION_IMAGES, WINDOW_DETECTIONS
from obbflow.ops import pairwise_iou_rotated
from obbflow.tables import DETECTIONS, RBOX, make_table


@pytest.fixture
def read_json(shared_dir):
    """Return a function: case id, file name -> content."""

    def read(case, file):
        return json.loads((shared_dir / "cases" / case / file).read_text(encoding="utf-8"))

    return read


def to_rboxes(polygons):
    corners = torch.tensor(polygons, dtype=torch.float64).reshape(-1, 8)
    return pd.DataFrame(qbox_to_rbox(corners).numpy(), columns=list(RBOX))


def whole_image_detections(found):
    facts = pd.DataFrame(
        {
            "image_id": [each["image"] for each in found],
            "class_name": [each["class"] for each in found],
            "score": [each["score"] for each in found],
        }
    )
    return make_table(facts.join(to_rboxes([each["poly"] for each in found])), DETECTIONS)


def window_detections(found, tiles):
    rows = []
    for each in found:
        tile = tiles[each["tile"]]
        shift = [tile["x"], tile["y"]] * 4
        rows.append(
            {
                "image_id": tile["image"],
                "window_x": tile["x"],
                "window_y": tile["y"],
                "window_width": tile["w"],
                "window_height": tile["h"],
                "class_name": each["class"],
                "score": each["score"],
                "poly": [value + move for value, move in zip(each["poly"], shift, strict=True)],
            }
        )
    table = pd.DataFrame(rows).drop(columns="poly").join(to_rboxes([row["poly"] for row in rows]))
    return make_table(table, WINDOW_DETECTIONS)


@pytest.mark.parametrize(
    "name",
    [
        "merge-fragment-at-tile-edge",
        "merge-parallel-ships",
        "merge-same-object-two-tiles",
        "merge-two-images-same-offsets",
    ],
)
def test_windows_are_merged_as_the_case_states(read_json, name):
    case = read_json(name, "case.json")
    tiles = {tile["tile"]: tile for tile in read_json(name, "tiles.json")}
    sizes = pd.DataFrame(tiles.values()).assign(right=lambda t: t.x + t.w, low=lambda t: t.y + t.h)
    ends = sizes.groupby("image")[["right", "low"]].max()
    images = make_table(
        [(image, "", right, low) for image, right, low in ends.itertuples()], PREDICTION_IMAGES
    )

    merged = merge_windows(
        window_detections(read_json(name, "detections.json"), tiles),
        images,
        iou_threshold=case["params"]["nms_iou"],
    )

    expected = whole_image_detections(case["values"]["merged"])
    assert len(merged) == case["values"]["merged_count"]
    facts = ["image_id", "class_name", "score"]
    assert merged[facts].to_numpy().tolist() == expected[facts].to_numpy().tolist()
    overlap = pairwise_iou_rotated(
        torch.tensor(merged[list(RBOX)].to_numpy()), torch.tensor(expected[list(RBOX)].to_numpy())
    )
    assert overlap.min() > 0.999  # the same box; the case writes corners to 0.01 px


def test_a_submission_has_a_file_for_each_class(read_json, caplog):
    case = read_json("submit-dota-task1", "case.json")
    found = read_json("submit-dota-task1", "detections.json")

    files = task1_files(whole_image_detections(found), case["params"]["classes"])

    assert len(files) == case["values"]["files"]
    for name, count in case["values"]["lines"].items():
        assert len(files[f"Task1_{name}.txt"].splitlines()) == count
    empty = [name for name, text in files.items() if not text]
    assert len(empty) == case["values"]["files"] - len(case["values"]["lines"])
    assert "baseball-diamond" in caplog.text
    first = files["Task1_plane.txt"].splitlines()[0].split()
    assert first[:2] == ["P0006", "0.9123"]
    written = torch.tensor([[float(field) for field in first[2:]]], dtype=torch.float64)
    # The same rectangle, from whichever corner it is written; the case has 0.1 px.
    box = torch.tensor(whole_image_detections(found)[list(RBOX)].to_numpy()[:1])
    torch.testing.assert_close(written, rbox_to_qbox(box), atol=0.01, rtol=0)


def test_a_geotiff_keeps_its_place(read_json, shared_dir):
    name = "predict-geotiff-north-up"
    case = read_json(name, "case.json")
    images = find_images(shared_dir / "cases" / name / "images")

    files = geojson_files(whole_image_detections(read_json(name, "detections.json")), images)

    collection = json.loads(files["map_EPSG_32631.geojson"])
    assert collection["crs"]["properties"]["name"] == "urn:ogc:def:crs:EPSG::32631"
    ring = torch.tensor(collection["features"][0]["geometry"]["coordinates"][0])
    expected = torch.tensor(case["values"]["corners_utm"], dtype=ring.dtype)
    distances = torch.cdist(expected.double(), ring.double()).amin(dim=1)
    # The rectangle around the case's corners, which are rounded to 0.1 px (0.05 m).
    assert distances.max() < 0.06
    assert "features" in json.loads(files["pixels.geojson"])
