"""Ready-made tiles, several sizes and scales, and what all these tiles are called."""

import logging

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from obbflow.config import DatasetSection, TilingSection
from obbflow.data.images import decode_image
from obbflow.data.tile_pixels import encode_png
from obbflow.data.tile_settings import (
    keep_settings,
    list_other_settings,
    warn_about_other_settings,
)
from obbflow.data.tile_tables import (
    TilePlace,
    list_places,
    name_tile,
    plan_tiles,
    require_tile_with_object,
)
from obbflow.errors import DataError
from scenes import annotations_table, cut_scenes, images_table, level_box, write_scene

# Ready-made tiles


@pytest.fixture
def root(tmp_path):
    write_scene(tmp_path / "raw" / "train", "P1", size=(90, 64))
    write_scene(tmp_path / "raw" / "val", "P1", size=(64, 64))
    return tmp_path / "raw"


def ready_rows(root, ready, store, **tiling):
    tiled = cut_scenes(root, store, ready=ready, **tiling)
    index = tiled.tile_index
    return tiled, index[index["image_id"].str.contains("ready")]


def test_a_ready_tile_is_used_where_it_is_and_never_cut_or_removed(root, tmp_path):
    ready = tmp_path / "ready"
    path = write_scene(ready, "P9__1__0___0", size=(100, 80))
    before = path.read_bytes()
    for overlap in (16, 8, 8):
        tiled, rows = ready_rows(root, ready, tmp_path / "store", overlap=overlap)
        assert rows[["x", "y", "width", "height"]].values.tolist() == [[0, 0, 100, 80]]
        assert rows["path"].tolist() == [str(path)]
        assert rows["n_objects"].tolist() == [1]
    assert path.read_bytes() == before
    assert tiled.report.n_cut == 0
    stored = {file.name for file in (tmp_path / "store").glob("*/*")}
    assert len(stored) == 3
    assert not any("P9" in name for name in stored)


def grey_16(path):
    samples = np.arange(64 * 48, dtype=np.uint16).reshape(48, 64) * 10
    Image.fromarray(samples).save(path)


def with_alpha(path):
    Image.new("RGBA", (64, 48), (10, 200, 30, 128)).save(path)


def turned(path):
    pixels = np.zeros((48, 64, 3), dtype=np.uint8)
    pixels[:, :16] = 250
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(path, exif=exif)


@pytest.mark.parametrize("save", [grey_16, with_alpha, turned], ids=lambda save: save.__name__)
def test_a_ready_tile_that_needs_conversion_is_converted_into_the_store(root, tmp_path, save):
    path = write_scene(tmp_path / "ready", "T1", size=(64, 48))
    save(path)
    _, rows = ready_rows(root, tmp_path / "ready", tmp_path / "store")
    (file,) = rows["path"]
    assert file.startswith(str(tmp_path / "store"))
    expected = decode_image(path)
    np.testing.assert_array_equal(np.asarray(Image.open(file)), expected)
    assert rows[["height", "width"]].values.tolist() == [list(expected.shape[:2])]


def test_an_object_larger_than_tile_size_counts_on_a_ready_tile():
    images = images_table(("P1", "train", 200, 200))
    annotations = annotations_table(("P1", "ship", level_box(0, 0, 200, 200)))
    tiling = TilingSection(tile_size=64)
    with pytest.raises(DataError, match="no object on any of them"):
        require_tile_with_object(images, annotations, "here", 16, tiling)
    ready = images.assign(is_tile=True)
    require_tile_with_object(ready, annotations, "here", 16, tiling)
    index, objects = plan_tiles(ready, annotations, 16, tiling)
    assert index["n_objects"].tolist() == [1]
    assert objects["iof"].tolist() == [1]


# Names


NAME = st.text(alphabet="a_/1@t", min_size=1, max_size=12)
PLACE = st.builds(
    TilePlace,
    st.sampled_from([1.0, 0.5, 1e-1]),
    st.sampled_from([None, 1, 11, 111]),
    st.sampled_from([0, 1, 11]),
    st.sampled_from([0, 1, 11]),
    st.just(1),
    st.just(1),
)


@given(NAME, PLACE, NAME, PLACE)
def test_two_tiles_never_share_a_name(one, place, other, other_place):
    same = one == other and (
        place == other_place or place.size is None is other_place.size  # there is one such tile
    )
    assert (name_tile(one, place) == name_tile(other, other_place)) == same


def test_images_that_differ_in_slashes_only_have_files_of_their_own(tmp_path):
    for folder, name in (("a/b", "P1"), ("a__b", "P1"), ("a", "b__P1")):
        write_scene(tmp_path / "raw" / "train" / "images" / folder, name, None, same_folder=True)
    write_scene(tmp_path / "raw" / "train", "P1")
    write_scene(tmp_path / "raw" / "val", "P1")
    index = cut_scenes(tmp_path / "raw", tmp_path / "store").tile_index
    assert len(index) == 5
    assert index["tile_id"].is_unique
    assert index["path"].is_unique


def test_a_very_long_name_fits_into_the_file_system(tmp_path):
    write_scene(tmp_path / "raw" / "train", "ö" * 120)
    write_scene(tmp_path / "raw" / "val", "P1")
    index = cut_scenes(tmp_path / "raw", tmp_path / "store").tile_index
    assert len(index) == 2


# Sizes and scales


def test_training_scenes_are_cut_at_every_size_and_scale_and_validation_once():
    images = images_table(("a", "train", 100, 60), ("b", "val", 100, 60))
    tiling = TilingSection(tile_size=64, extra_tile_sizes=(48,), scales=(1.0, 0.5))
    index, _ = plan_tiles(images, annotations_table().iloc[:0], 0, tiling)
    found = index[["image_id", "scale", "size", "x", "y", "width", "height"]].values.tolist()
    assert found == [
        ["a", 1.0, 64, 0, 0, 64, 60],
        ["a", 1.0, 64, 36, 0, 64, 60],
        ["a", 1.0, 48, 0, 0, 48, 48],
        ["a", 1.0, 48, 48, 0, 48, 48],
        ["a", 1.0, 48, 52, 0, 48, 48],
        ["a", 1.0, 48, 0, 12, 48, 48],
        ["a", 1.0, 48, 48, 12, 48, 48],
        ["a", 1.0, 48, 52, 12, 48, 48],
        ["a", 0.5, 64, 0, 0, 50, 30],
        ["a", 0.5, 48, 0, 0, 48, 30],
        ["a", 0.5, 48, 2, 0, 48, 30],
        ["b", 1.0, 64, 0, 0, 64, 60],
        ["b", 1.0, 64, 36, 0, 64, 60],
    ]


def test_objects_are_scaled_with_their_image():
    images = images_table(("a", "train", 100, 50))
    annotations = annotations_table(("a", "ship", level_box(20, 10, 60, 30)))
    tiling = TilingSection(tile_size=256, scales=(1.0, 0.5, 2.0))
    _, objects = plan_tiles(images, annotations, 0, tiling)
    boxes = objects[["cx", "cy", "w", "h"]].values.tolist()
    assert boxes == [[40, 20, 40, 20], [20, 10, 20, 10], [80, 40, 80, 40]]


@pytest.mark.parametrize("scale", [0.5, 0.37, 1.6])
def test_tiles_show_the_pixels_of_the_whole_image_resized(root, tmp_path, scale):
    index = cut_scenes(root, tmp_path / "store", scales=(1.0, scale), tile_size=32).tile_index
    whole = Image.fromarray(decode_image(root / "train/images/P1.png"))
    size = (round(90 * scale), round(64 * scale))
    resized = np.asarray(whole.resize(size, Image.Resampling.BILINEAR)).astype(int)
    rows = index[index["scale"] == scale]
    assert len(rows) > 1
    for row in rows.itertuples():
        tile = np.asarray(Image.open(row.path)).astype(int)
        part = resized[row.y : row.y + row.height, row.x : row.x + row.width]
        # Pillow rounds the filter's weights: a unit of 255.
        assert np.abs(tile[: row.height, : row.width] - part).max() <= 1


def test_windows_that_an_image_hardly_fills_are_left_out_by_the_rule_of_mmrotate():
    (image,) = images_table(("a", "train", 100, 100)).to_dict("records")
    tiling = TilingSection(tile_size=64, extra_tile_sizes=(200,), window_rule="mmrotate")
    assert {place.size for place in list_places(image, 0, tiling)} == {64}
    larger = TilingSection(tile_size=200, window_rule="mmrotate")
    assert [place.size for place in list_places(image, 0, larger)] == [200]


def test_untouched_corners_reach_out_of_the_tile():
    images = images_table(("a", "train", 150, 100))
    annotations = annotations_table(("a", "ship", level_box(60, 10, 120, 30)))
    for corners, expected in (("untouched", [90, 20, 60, 20]), ("keep_angle", [80, 20, 40, 20])):
        tiling = TilingSection(tile_size=100, corners=corners, min_visible=0.5)
        _, objects = plan_tiles(images, annotations, 20, tiling)
        assert objects[["cx", "cy", "w", "h"]].values.tolist()[0] == expected
        assert objects["iof"].iloc[0] == pytest.approx(2 / 3)
        assert not objects["ignore"].iloc[0]


# Files


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (64, 50)])
def test_png_gives_the_same_pixels_back(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(b"".join(encode_png(pixels)))
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(image), pixels)


# Settings


def test_settings_stay_with_the_stored_index_and_differences_are_named(tmp_path, caplog):
    dataset = DatasetSection(format="synthetic", bands=(3, 2, 1))
    tiling = TilingSection(tile_size=64)
    images = images_table(("a", "val", 64, 64))
    index, _ = plan_tiles(images, annotations_table(), dataset.overlap, tiling)
    kept = keep_settings(index, dataset, tiling, is_stretched=True)
    kept.to_parquet(tmp_path / "index.parquet")
    stored = pd.read_parquet(tmp_path / "index.parquet")
    work = {"num_workers": 7, "executor": "thread", "jpeg_quality": 3, "min_image_rate": 0.1}
    same = tiling.model_copy(update=work)
    assert list_other_settings(stored, dataset.model_copy(update={"strict": True}), same) == []
    other = {"overlap": 8, "bands": None, "stretch_percentiles": (2.0, 98.0)}
    other_dataset = dataset.model_copy(update=other)
    other_tiling = tiling.model_copy(update={"tile_size": 96, "image_format": "jpg"})
    assert list_other_settings(stored, other_dataset, other_tiling) == [
        "dataset.bands: None now, the tiles were cut with [3, 2, 1]",
        "dataset.overlap: 8 now, the tiles were cut with 16",
        "dataset.stretch_percentiles: [2.0, 98.0] now, the tiles were cut with [0.1, 99.9]",
        "tiling.image_format: jpg now, the tiles were cut with png",
        "tiling.tile_size: 96 now, the tiles were cut with 64",
    ]
    with caplog.at_level(logging.WARNING):
        warn_about_other_settings(stored, dataset, tiling)
        assert not caplog.messages
        warn_about_other_settings(stored, other_dataset, tiling)
    assert "kedro run --pipelines data" in caplog.text


def test_percentiles_are_compared_only_where_an_image_was_stretched():
    now = DatasetSection(format="synthetic", stretch_percentiles=(2, 98))
    then, tiling = DatasetSection(format="synthetic"), TilingSection()
    listed = [
        list_other_settings(
            keep_settings(pd.DataFrame(), then, tiling, is_stretched=is_stretched), now, tiling
        )
        for is_stretched in (False, True)
    ]
    assert [len(lines) for lines in listed] == [0, 1]


def test_an_index_of_unknown_settings_is_not_doubted():
    dataset = DatasetSection(format="synthetic")
    assert list_other_settings(pd.DataFrame(), dataset, TilingSection()) == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scales": [0.5]}, "scales: .*1 among them"),
        ({"scales": [1.0, 1.0]}, "scales: each factor once"),
        ({"extra_tile_sizes": [1024]}, "extra_tile_sizes: each size once"),
    ],
)
def test_sizes_and_scales_that_make_no_sense_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        TilingSection.model_validate(values)
