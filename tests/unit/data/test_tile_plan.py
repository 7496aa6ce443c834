"""The plan that an unchanged run reads instead of cutting labels again."""

import logging

import pandas as pd
import pytest

from obbflow.data import tile_plan
from scenes import cut_scenes, write_scene


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "raw"
    write_scene(folder / "train", "P1", size=(90, 64))
    write_scene(folder / "val", "P1", size=(64, 64))
    return folder


def forbid_planning(monkeypatch):
    def plan(*_arguments):
        raise AssertionError("labels were cut again")

    monkeypatch.setattr(tile_plan, "plan_tiles", plan)


def test_objects_that_no_tile_shows_are_warned_about_in_every_run(root, tmp_path, caplog):
    write_scene(root / "train", "P3", size=(300, 60), lines=("0 5 290 5 290 15 0 15 bridge 0",))
    for _ in range(2):
        caplog.clear()
        cut_scenes(root, tmp_path / "store")
        assert "1 bridge" in caplog.text


def test_an_unchanged_run_gives_the_same_tables_without_cutting_labels(root, tmp_path, monkeypatch):
    first = cut_scenes(root, tmp_path / "store")
    forbid_planning(monkeypatch)
    again = cut_scenes(root, tmp_path / "store")
    pd.testing.assert_frame_equal(again.tile_index, first.tile_index)
    pd.testing.assert_frame_equal(again.tile_annotations, first.tile_annotations)
    assert again.tile_index.attrs == first.tile_index.attrs
    assert again.tile_annotations.attrs == first.tile_annotations.attrs
    assert again.report.geometry == first.report.geometry
    assert again.report.geometry.n_whole > 0


@pytest.mark.parametrize("change", ["image", "label", "overlap"])
def test_whatever_changes_makes_a_new_plan(root, tmp_path, monkeypatch, change):
    cut_scenes(root, tmp_path / "store")
    if change == "image":
        write_scene(root / "train", "P2", size=(40, 30))
    if change == "label":
        label = root / "train/labelTxt/P1.txt"
        label.write_text(label.read_text().replace("10", "11"))
    forbid_planning(monkeypatch)
    options = {"overlap": 32} if change == "overlap" else {}
    with pytest.raises(AssertionError, match="labels were cut again"):
        cut_scenes(root, tmp_path / "store", **options)


def test_other_numbers_of_the_same_objects_make_a_new_plan():
    images = pd.DataFrame({"image_id": ["train/P1"], "width": [90], "height": [64]})
    keys = set()
    for object_id in (0, 7):
        annotations = pd.DataFrame(
            {"object_id": [object_id], "image_id": pd.array(["train/P1"], dtype="string")}
        )
        keys.add(tile_plan._digest(images, annotations, {"train/P1": "digest"}))
    assert len(keys) == 2


def test_a_damaged_plan_is_made_again(root, tmp_path, caplog):
    first = cut_scenes(root, tmp_path / "store")
    (tmp_path / "store" / "plan_index.parquet").write_bytes(b"PAR1 torn")
    with caplog.at_level(logging.WARNING):
        again = cut_scenes(root, tmp_path / "store")
    assert "plan_index.parquet cannot be read" in caplog.text
    pd.testing.assert_frame_equal(again.tile_index, first.tile_index)
    assert again.report.n_cut == 0


def test_a_plan_is_of_all_images_it_is_asked_for(root, tmp_path):
    first = cut_scenes(root, tmp_path / "store")
    (root / "val/images/P1.png").unlink()
    (root / "val/labelTxt/P1.txt").unlink()
    write_scene(root / "val", "P9", size=(64, 64))
    again = cut_scenes(root, tmp_path / "store")
    assert set(first.tile_index["image_id"]) == {"train/P1", "val/P1"}
    assert set(again.tile_index["image_id"]) == {"train/P1", "val/P9"}
