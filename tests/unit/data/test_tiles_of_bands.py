"""Tiles of images that need conversion."""

import json

import numpy as np
import pytest
import rasterio
from PIL import Image

from obbflow.config import DatasetSection, TilingSection
from obbflow.data.images import decode_image
from obbflow.data.tile_manifest import MANIFEST
from obbflow.data.tile_store import tile_data_set
from scenes import annotations_table, images_table, level_box

LABELS = annotations_table(("P1", "plane", level_box(10, 10, 30, 30)))


def write_tiff(path, dtype):
    samples = np.linspace(0, 200, 4 * 48 * 100).reshape(4, 48, 100).astype(dtype)
    profile = {"driver": "GTiff", "width": 100, "height": 48, "count": 4, "dtype": dtype}
    with rasterio.open(path, "w", **profile) as file:
        file.write(samples)
    return path


def tile(path, store, dtype="uint16", *, is_tile=False, channels=4, **dataset):
    images = images_table(("P1", "train", 100, 48)).assign(
        path=str(path), dtype=dtype, bands=channels, is_tile=is_tile
    )
    section = DatasetSection(format="synthetic", **dataset)
    tiling = TilingSection(tile_size=64, num_workers=1)
    return tile_data_set(images, LABELS, section, tiling, store)


@pytest.mark.parametrize("dataset", [{}, {"bands": (4, 1, 2)}, {"stretch_percentiles": (10, 90)}])
def test_tiles_show_the_chosen_bands_on_one_scale(tmp_path, dataset):
    path = write_tiff(tmp_path / "a.tif", "uint16")
    tiled = tile(path, tmp_path / "tiles", **dataset)
    options = {"bands": dataset.get("bands")}
    if "stretch_percentiles" in dataset:
        options["stretch"] = dataset["stretch_percentiles"]
    whole = decode_image(path, **options)
    assert len(tiled.tile_index) == 2
    for row in tiled.tile_index.itertuples():
        shown = np.asarray(Image.open(row.path))[:48]
        np.testing.assert_array_equal(shown, whole[:, row.x : row.x + 64])


def test_the_scale_is_recorded(tmp_path):
    path = write_tiff(tmp_path / "a.tif", "uint16")
    tile(path, tmp_path / "tiles", stretch_percentiles=(0, 100))
    entry = json.loads((tmp_path / "tiles" / MANIFEST).read_text())["images"]["P1"]
    assert entry["stretched"] == [0, 149]  # three of four bands that rise to 200


@pytest.mark.parametrize(
    ("dtype", "change", "is_cut_again"),
    [
        ("uint16", {"stretch_percentiles": (2, 98)}, True),
        ("uint8", {"stretch_percentiles": (2, 98)}, False),
        ("uint8", {"bands": (3, 2, 1)}, True),
    ],
    ids=["percentiles of 16 bits", "percentiles of 8 bits", "bands"],
)
def test_images_are_cut_again_when_their_pixels_change(tmp_path, dtype, change, is_cut_again):
    path = write_tiff(tmp_path / "a.tif", dtype)
    assert tile(path, tmp_path / "tiles", dtype).report.n_cut == 1
    assert tile(path, tmp_path / "tiles", dtype).report.n_cut == 0
    assert tile(path, tmp_path / "tiles", dtype, **change).report.n_cut == is_cut_again


def test_a_ready_tile_is_used_in_place_unless_bands_are_chosen(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (100, 48), (10, 20, 30)).save(path)
    options = {"dtype": "uint8", "is_tile": True, "channels": 3}
    in_place = tile(path, tmp_path / "tiles", **options).tile_index
    assert in_place["path"].tolist() == [str(path)]
    (file,) = tile(path, tmp_path / "tiles", **options, bands=(3, 2, 1)).tile_index["path"]
    assert file != str(path)
    assert Image.open(file).getpixel((0, 0)) == (30, 20, 10)
