"""Images whose headers are right and whose pixels are not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rasterio

from obbflow.data.tile_manifest import read_manifest
from obbflow.errors import DataError
from obbflow.tables import DATA_ISSUES, check_table
from scenes import cut_scenes as cut
from scenes import write_broken_png, write_scene


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "raw"
    write_scene(folder / "train", "P1", size=(90, 64))
    write_scene(folder / "train", "P2", size=(40, 30))
    write_scene(folder / "val", "P1", size=(64, 64))
    return folder


def files(store):
    return {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()}


def write_tiff_with_a_broken_end(path):
    """Write a TIFF of 64 x 200 px in compressed strips, of which the last one is damaged."""
    samples = np.random.default_rng(0).integers(0, 256, (3, 200, 64), dtype=np.uint8)
    layout = {"compress": "deflate", "blockysize": 8, "interleave": "pixel"}
    profile = {"driver": "GTiff", "width": 64, "height": 200, "count": 3, "dtype": "uint8"}
    with rasterio.open(path, "w", **profile, **layout) as file:
        file.write(samples)
    content = bytearray(path.read_bytes())
    content[-200:] = b"\xff" * 200
    path.write_bytes(content)


def test_a_damaged_image_is_left_out_with_the_tiles_it_already_had(root, tmp_path):
    store = tmp_path / "store"
    without = cut(root, tmp_path / "without")
    write_scene(root / "train", "P0", size=(64, 200))
    (root / "train/images/P0.png").unlink()
    write_tiff_with_a_broken_end(root / "train/images/P0.tif")
    tiled = cut(root, store)
    assert tiled.report == replace(without.report, n_removed=3)  # of four tiles, the first three
    assert files(store) == files(tmp_path / "without")
    assert list(read_manifest(store)) == ["train/P1", "train/P2", "val/P1"]
    pd.testing.assert_frame_equal(
        tiled.tile_index.drop(columns="path"), without.tile_index.drop(columns="path")
    )
    shown = [each.tile_annotations.drop(columns="object_id") for each in (tiled, without)]
    pd.testing.assert_frame_equal(*shown)
    (issue,) = check_table(tiled.issues, DATA_ISSUES, "data_issues").to_dict("records")
    assert (issue["file"], issue["image_id"]) == ("train/images/P0.tif", "train/P0")
    assert (issue["severity"], issue["kind"], issue["action"]) == (
        "error",
        "broken_image",
        "dropped",
    )
    assert issue["message"].startswith("broken image: the image cannot be read (")


def test_a_damaged_image_is_tried_again_and_its_replacement_is_cut(root, tmp_path):
    store = tmp_path / "store"
    write_broken_png(root / "train/images/P2.png", size=(40, 30))
    first, again = cut(root, store), cut(root, store)
    assert [(each.report.n_cut, len(each.issues)) for each in (first, again)] == [(2, 1), (0, 1)]
    write_scene(root / "train", "P2", size=(40, 30))
    whole = cut(root, store)
    assert whole.report.n_cut == 1
    assert whole.issues.empty
    assert "train/P2" in set(whole.tile_index["image_id"])


def test_a_ready_tile_that_is_damaged_is_left_out_and_stays_where_it_is(root, tmp_path):
    ready = tmp_path / "ready"
    write_scene(ready, "T1")
    write_broken_png(ready / "images/T2.png")
    tiled = cut(root, tmp_path / "store", ready=ready)
    paths = map(Path, tiled.tile_index["path"])
    in_place = [path for path in paths if not path.is_relative_to(tmp_path / "store")]
    assert in_place == [ready / "images/T1.png"]
    assert tiled.issues["file"].tolist() == [(ready / "images/T2.png").as_posix()]
    assert (ready / "images/T2.png").is_file()


def test_strict_names_all_damaged_images_and_cuts_the_others(root, tmp_path):
    for name, size in (("P1", (90, 64)), ("P2", (40, 30))):
        write_broken_png(root / f"train/images/{name}.png", size=size)
    with pytest.raises(DataError, match=r"(?s)train/images/P1\.png: the.*train/images/P2\.png: "):
        cut(root, tmp_path / "store", strict=True)
    assert list(read_manifest(tmp_path / "store")) == ["val/P1"]


def test_many_damaged_images_are_counted(root, tmp_path):
    for number in range(13):
        write_broken_png(root / f"val/images/B{number:02d}.png")
    with pytest.raises(DataError, match=r"B00(.|\n)*B09\.png: [^\n]*\nand 3 more$"):
        cut(root, tmp_path / "store", strict=True)


@pytest.mark.parametrize("lines", [[], ["1 1 9 1 9 9 1 9 plane 0"]], ids=["empty", "an object"])
def test_without_a_whole_training_image_with_an_object_it_stops(root, tmp_path, lines):
    write_broken_png(root / "train/images/P1.png", size=(90, 64))
    write_scene(root / "train", "P2", lines, size=(40, 30))
    if lines:
        assert len(cut(root, tmp_path / "store").issues) == 1
        return
    with pytest.raises(DataError, match=r"P1\.png: .*\n.*no training tile shows an object"):
        cut(root, tmp_path / "store")
