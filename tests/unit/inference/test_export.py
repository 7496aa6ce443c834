import json
import math
from itertools import pairwise

import pandas as pd
import pytest

from obbflow.errors import DataError
from obbflow.inference import geojson_files, task1_files
from obbflow.inference.tables import PREDICTION_IMAGES
from obbflow.tables import DETECTIONS, make_table

LEVEL = (60.0, 60.0, 40.0, 20.0, 0.0)


def detections(*rows) -> pd.DataFrame:
    return make_table(rows, DETECTIONS)


def signed_area(ring):
    return sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairwise(ring)) / 2


def test_a_line_has_ten_fields_whatever_the_image_is_called():
    files = task1_files(
        detections(("my  scene 1", "storage tank", 0.91234567, *LEVEL)), ["storage tank"]
    )

    assert files == {"Task1_storage tank.txt": "my_scene_1 0.912346 40 50 80 50 80 70 40 70\n"}


def test_every_class_has_a_file_and_the_empty_ones_are_named(caplog):
    files = task1_files(detections(("P1", "ship", 0.5, *LEVEL)), ["plane", "ship"])

    assert list(files) == ["Task1_plane.txt", "Task1_ship.txt"]
    assert files["Task1_plane.txt"] == ""
    assert "No detection of plane" in caplog.text


def test_small_scores_are_no_powers_of_ten():
    files = task1_files(detections(("P1", "ship", 2e-5, *LEVEL)), ["ship"])

    assert files["Task1_ship.txt"].split()[1] == "0.00002"


def test_a_class_name_that_is_no_file_name_is_written_safely():
    files = task1_files(detections(), ["<b>ship&co</b>", "a/b"])

    assert list(files) == ["Task1__b_ship&co__b_.txt", "Task1_a_b.txt"]


def test_two_classes_never_share_a_file():
    with pytest.raises(DataError, match="two classes would share this file"):
        task1_files(detections(), ["a/b", "a:b"])


def test_a_class_that_the_detector_does_not_know_is_an_error():
    with pytest.raises(ValueError, match="lacks ship"):
        task1_files(detections(("P1", "ship", 0.5, *LEVEL)), ["plane"])


def test_pixel_polygons_are_closed_and_counter_clockwise():
    images = make_table([("P1", "P1.png", 100, 100)], PREDICTION_IMAGES)
    turned = (60.0, 60.0, 40.0, 20.0, math.pi / 6)
    files = geojson_files(detections(("P1", "ship", 0.5, *turned)), images)

    assert list(files) == ["pixels.geojson"]
    feature = json.loads(files["pixels.geojson"])["features"][0]
    ring = feature["geometry"]["coordinates"][0]
    assert len(ring) == 5
    assert ring[0] == ring[-1]
    assert signed_area(ring) == pytest.approx(800, rel=1e-3)  # corners are written to 0.01 px
    assert feature["properties"]["class_name"] == "ship"
    assert feature["properties"]["image_id"] == "P1"
    assert feature["properties"]["score"] == 0.5
    assert feature["properties"]["angle"] == pytest.approx(math.pi / 6, abs=1e-4)


def test_nothing_found_is_an_empty_collection():
    images = make_table([("P1", "P1.png", 100, 100)], PREDICTION_IMAGES)
    files = geojson_files(detections(), images)

    assert json.loads(files["pixels.geojson"])["features"] == []
