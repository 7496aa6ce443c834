"""What the pixels of a data set say in its tables: metres a px, and bands that are missing."""

import math

import numpy as np
import pytest
import rasterio

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.errors import DataError
from scenes import SQUARE, write_scene


def write_geotiff(folder, name, lines):
    """Write a scene whose image has 2 m a px in UTM zone 31, in its middle."""
    path = write_scene(folder, name, lines, suffix=".tif")
    profile = {"driver": "GTiff", "width": 64, "height": 48, "count": 3, "dtype": "uint8"}
    place = {"crs": "EPSG:32631", "transform": rasterio.Affine(2, 0, 500_000, 0, -2, 4_600_000)}
    with rasterio.open(path, "w", **profile, **place) as file:
        file.write(np.zeros((3, 48, 64), dtype="uint8"))


def test_metres_a_px_come_from_the_label_file_else_from_the_image(tmp_path):
    write_geotiff(tmp_path / "train", "P1", ["gsd:0.7", f"{SQUARE} plane 0"])
    write_geotiff(tmp_path / "train", "P2", [f"{SQUARE} plane 0"])
    write_scene(tmp_path / "train", "P3")
    images = read_data_set(tmp_path, DatasetSection(data_root=tmp_path), 0).images
    labelled, measured, unknown = images["gsd"]
    assert labelled == 0.7
    assert measured == pytest.approx(2 / 0.9996)  # the scale of UTM along its middle
    assert math.isnan(unknown)


def test_an_image_that_lacks_a_band_is_left_out_or_stops(tmp_path):
    write_scene(tmp_path / "train", "P1")
    path = write_scene(tmp_path / "train", "P2", suffix=".tif")
    profile = {"driver": "GTiff", "width": 64, "height": 48, "count": 4, "dtype": "uint8"}
    with rasterio.open(path, "w", **profile) as file:
        file.write(np.zeros((4, 48, 64), dtype="uint8"))
    dataset = DatasetSection(data_root=tmp_path, bands=(4, 2, 1))
    data = read_data_set(tmp_path, dataset, 0)
    assert data.images["image_id"].tolist() == ["train/P2"]
    (issue,) = data.issues.to_dict("records")
    assert (issue["file"], issue["severity"]) == ("train/images/P1.png", "error")
    assert "dataset.bands asks for band 4, the image has 3" in issue["message"]
    with pytest.raises(DataError, match=r"P1\.png: .*asks for band 4"):
        read_data_set(tmp_path, dataset.model_copy(update={"strict": True}), 0)
