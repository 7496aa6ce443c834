import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from executors import ShufflingExecutor
from obbflow.config import DatasetSection, TilingSection
from obbflow.data import tile_store
from obbflow.data.formats import read_data_set
from obbflow.data.images import decode_image
from obbflow.data.tile_manifest import MANIFEST
from obbflow.data.tile_store import tile_data_set, tiles_in_use
from obbflow.errors import DataError
from scenes import SQUARE, write_scene
from scenes import cut_scenes as cut


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "raw"
    write_scene(folder / "train", "P1", size=(90, 64))
    write_scene(folder / "train", "P2", size=(40, 30))
    write_scene(folder / "val", "P1", size=(64, 64))
    return folder


def numbers(tiled):
    report = tiled.report
    return report.n_cut, report.n_unchanged, report.n_removed


def stamps(store):
    return {path: path.stat().st_mtime_ns for path in store.glob("*/*")}


def test_tiles_show_the_pixels_of_their_image_and_are_padded_with_black(root, tmp_path):
    index = cut(root, tmp_path / "store").tile_index
    assert index["image_id"].tolist() == ["train/P1", "train/P1", "train/P2", "val/P1"]
    sources = {
        "train/P1": decode_image(root / "train/images/P1.png"),
        "train/P2": decode_image(root / "train/images/P2.png"),
        "val/P1": decode_image(root / "val/images/P1.png"),
    }
    for row in index.itertuples():
        tile = np.asarray(Image.open(row.path))
        assert tile.shape == (64, 64, 3)
        part = sources[row.image_id][row.y : row.y + row.height, row.x : row.x + row.width]
        np.testing.assert_array_equal(tile[: row.height, : row.width], part)
        assert not tile[row.height :].any()
        assert not tile[:, row.width :].any()


def test_scenes_of_one_name_in_two_splits_have_tiles_of_their_own(root, tmp_path):
    index = cut(root, tmp_path / "store").tile_index
    assert index["path"].is_unique
    assert Path(index["path"].iloc[-1]).parent.name == "val"


def test_nothing_changed_cuts_nothing_again(root, tmp_path):
    first = cut(root, tmp_path / "store")
    before = stamps(tmp_path / "store")
    second = cut(root, tmp_path / "store")
    assert numbers(first) == (3, 0, 0)
    assert numbers(second) == (0, 3, 0)
    assert stamps(tmp_path / "store") == before
    assert second.tile_index.equals(first.tile_index)
    assert second.tile_annotations.equals(first.tile_annotations)


def test_changed_image_is_cut_again_alone(root, tmp_path):
    cut(root, tmp_path / "store")
    before = stamps(tmp_path / "store")
    write_scene(root / "train", "P1", size=(90, 64), seed=1)
    tiled = cut(root, tmp_path / "store")
    assert numbers(tiled) == (1, 2, 2)
    after = stamps(tmp_path / "store")
    kept = before.keys() & after.keys()
    assert len(kept) == 2
    assert all(after[path] == before[path] for path in kept)
    new = decode_image(Path(tiled.tile_index["path"].iloc[0]))
    assert (new == decode_image(root / "train/images/P1.png")[:64, :64]).all()


def test_changed_label_is_cut_again_and_a_shifted_line_is_not(root, tmp_path):
    cut(root, tmp_path / "store")
    label = root / "train/labelTxt/P2.txt"
    label.write_text(f"imagesource:x\n{SQUARE} plane 0\n")
    assert numbers(cut(root, tmp_path / "store")) == (0, 3, 0)
    label.write_text(f"{SQUARE} ship 0\n")
    tiled = cut(root, tmp_path / "store")
    assert numbers(tiled) == (1, 2, 1)
    assert set(tiled.tile_annotations["class_name"]) == {"plane", "ship"}


@pytest.mark.parametrize(
    "change", [{"overlap": 8}, {"tile_size": 48}, {"image_format": "jpg"}, {"min_visible": 0.5}]
)
def test_changed_setting_cuts_all_again_and_removes_the_old_tiles(root, tmp_path, change):
    cut(root, tmp_path / "store")
    tiled = cut(root, tmp_path / "store", **change)
    assert tiled.report.n_cut == 3
    assert tiled.report.n_removed == 4
    assert {str(path) for path in stamps(tmp_path / "store")} == set(tiled.tile_index["path"])


def test_tiles_in_use_stay_until_nobody_uses_them(root, tmp_path):
    store = tmp_path / "store"
    index = tmp_path / "tile_index.parquet"
    assert tiles_in_use(index) == frozenset()
    cut(root, store).tile_index.to_parquet(index)
    in_use = tiles_in_use(index)
    assert in_use == {str(path) for path in stamps(store)}

    changed = cut(root, store, overlap=8, in_use=in_use)
    assert numbers(changed) == (3, 0, 0)
    assert all(Path(path).is_file() for path in in_use)
    changed.tile_index.to_parquet(index)
    assert numbers(cut(root, store, overlap=8, in_use=tiles_in_use(index))) == (0, 3, 4)


def test_a_damaged_tile_index_uses_no_tile(tmp_path, caplog):
    (tmp_path / "tile_index.parquet").write_bytes(b"PAR1 cut off")
    assert tiles_in_use(tmp_path / "tile_index.parquet") == frozenset()
    assert "tile_index.parquet cannot be read" in caplog.text


def test_number_of_processes_changes_nothing(root, tmp_path):
    cut(root, tmp_path / "store")
    assert numbers(cut(root, tmp_path / "store", num_workers=2)) == (0, 3, 0)


@pytest.mark.parametrize("damage", ["missing", "cut off"])
def test_damaged_tile_is_noticed_and_cut_again(root, tmp_path, damage):
    tile = Path(cut(root, tmp_path / "store").tile_index["path"].iloc[2])
    content = tile.read_bytes()
    tile.unlink() if damage == "missing" else tile.write_bytes(content[:50])
    assert numbers(cut(root, tmp_path / "store")) == (1, 2, 0)
    assert tile.read_bytes() == content


def test_tiles_of_a_removed_image_are_removed(root, tmp_path):
    cut(root, tmp_path / "store")
    (root / "train/images/P2.png").unlink()
    tiled = cut(root, tmp_path / "store")
    assert numbers(tiled) == (0, 2, 1)
    assert len(stamps(tmp_path / "store")) == 3


def test_processes_cut_the_same_tiles(root, tmp_path, monkeypatch):
    alone = cut(root, tmp_path / "a").tile_index["path"]
    monkeypatch.setattr(tile_store, "_SMALL_WORK_PX", 0)
    shared = cut(root, tmp_path / "b", num_workers=2)
    assert numbers(shared) == (3, 0, 0)
    for one, other in zip(alone, shared.tile_index["path"], strict=True):
        assert Path(one).read_bytes() == Path(other).read_bytes()


@pytest.mark.parametrize("seed", range(3))
def test_order_of_completion_changes_nothing(root, tmp_path, seed):
    alone = cut(root, tmp_path / "a")
    shuffling = ShufflingExecutor(seed, at_once=3)
    shuffled = cut(root, tmp_path / "b", executor=shuffling)
    assert shuffled.report == alone.report
    stores = [tmp_path / "a", tmp_path / "b"]
    one, other = (
        {path.relative_to(store): path.read_bytes() for path in store.rglob("*.*")}
        for store in stores
    )
    assert one == other
    unplaced = [tiled.tile_index.drop(columns="path") for tiled in (alone, shuffled)]
    assert unplaced[0].equals(unplaced[1])
    assert shuffled.tile_annotations.equals(alone.tile_annotations)


def test_crash_halfway_leaves_the_earlier_tiles_and_continues_where_it_was(
    root, tmp_path, monkeypatch
):
    store = tmp_path / "store"
    earlier = cut(root, store).tile_index
    pixels = {path: Path(path).read_bytes() for path in earlier["path"]}
    cut_one = tile_store.cut_or_explain

    def fail_at_the_second(job):
        if job.image_id == "train/P2":
            raise KeyboardInterrupt
        return cut_one(job)

    monkeypatch.setattr(tile_store, "cut_or_explain", fail_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        cut(root, store, overlap=8)
    assert {path: Path(path).read_bytes() for path in earlier["path"]} == pixels
    monkeypatch.undo()
    assert numbers(cut(root, store, overlap=8)) == (2, 1, 4)


def test_image_that_changed_since_it_was_read_is_an_error(root, tmp_path, monkeypatch):
    read = tile_store.load_or_plan

    def change_meanwhile(*arguments, **settings):
        write_scene(root / "val", "P1", size=(30, 20))
        return read(*arguments, **settings)

    monkeypatch.setattr(tile_store, "load_or_plan", change_meanwhile)
    with pytest.raises(DataError, match=r"P1\.png: 30 x 20 px, but 64 x 64 when"):
        cut(root, tmp_path / "store", strict=True)


def test_what_is_called_a_lookalike_is_cut_again(root, tmp_path):
    dataset = DatasetSection(data_root=root)
    tiling = TilingSection(tile_size=64, num_workers=1)
    data = read_data_set(root, dataset, seed=0)
    image_id = data.annotations["image_id"].iloc[0]
    is_lookalike = data.annotations["image_id"] == image_id
    reports = [
        tile_data_set(
            data.images,
            data.annotations.assign(lookalike=lookalike),
            dataset,
            tiling,
            tmp_path / "store",
        ).report
        for lookalike in (False, is_lookalike, is_lookalike)
    ]
    assert [report.n_cut for report in reports] == [len(data.images), 1, 0]


def test_unreadable_record_means_that_all_is_cut_again(root, tmp_path, caplog):
    cut(root, tmp_path / "store")
    (tmp_path / "store" / MANIFEST).write_text("{")
    assert numbers(cut(root, tmp_path / "store")) == (3, 0, 0)
    assert "is not readable JSON: cutting all tiles again" in caplog.text


def test_tiling_process_needs_no_torch():
    code = "import sys, obbflow.data.tile_pixels; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
