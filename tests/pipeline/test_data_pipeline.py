import logging

import numpy as np
import pandas as pd
import pytest
from kedro.io import DataCatalog, MemoryDataset
from kedro.runner import SequentialRunner
from PIL import Image

from obbflow.config import SECTIONS, PathsSection, fill_sections
from obbflow.data.images import decode_image
from obbflow.errors import ConfigError, DataError
from obbflow.pipelines.data.pipeline import create_pipeline
from obbflow.tables import (
    ANNOTATIONS,
    CLASS_WEIGHTS,
    DATA_ISSUES,
    IMAGES,
    TILE_ANNOTATIONS,
    TILE_INDEX,
    check_table,
)
from scenes import SQUARE, write_scene

SCHEMAS = {
    "images": IMAGES,
    "annotations": ANNOTATIONS,
    "data_issues": DATA_ISSUES,
    "tile_index": TILE_INDEX,
    "tile_annotations": TILE_ANNOTATIONS,
    "class_weights": CLASS_WEIGHTS,
}
CONTENT = [*SCHEMAS, "class_map"]


class KeptDataset(MemoryDataset):
    """Memory that the runner does not clear once the last node has read it."""

    def _release(self):
        """Keep the data."""


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "raw"
    ships = [f"{x} 5 {x + 8} 5 {x + 8} 9 {x} 9 ship 0" for x in (5, 20, 35, 74)]
    write_scene(folder / "train", "P1", [*ships, "1 2 nan 2 3 4 1 4 ship 0"], size=(90, 64))
    write_scene(folder / "train", "P2", [f"{SQUARE} plane 0"], size=(40, 40))
    write_scene(folder / "val", "P3", [f"{SQUARE} plane 0", f"{SQUARE} ship 1"])
    return folder


def run(tmp_path, pipeline=None, **sections):
    """Run the pipeline on in-memory data, and return what it made."""
    given = {
        "paths": {"data_dir": str(tmp_path / "data")},
        "tiling": {"tile_size": 64, "num_workers": 1},
        **sections,
    }
    catalog = DataCatalog()
    for name, values in fill_sections(given).items():
        catalog[f"params:{name}"] = SECTIONS[name].model_validate(values)
    for name in CONTENT:
        catalog[name] = KeptDataset()
    SequentialRunner().run(pipeline or create_pipeline(), catalog)
    return {name: catalog[name].load() for name in CONTENT}


def test_raw_images_and_labels_become_tiles_classes_and_weights(tmp_path, root):
    made = run(tmp_path, dataset={"data_root": str(root)})
    for name, schema in SCHEMAS.items():
        assert list(check_table(made[name], schema, name).columns) == list(schema)
    assert made["images"]["image_id"].tolist() == ["train/P1", "train/P2", "val/P3"]
    assert made["class_map"] == {"plane": 1, "ship": 2}
    weights = made["class_weights"]
    assert weights["count"].tolist() == [1, 4]
    # sqrt: raw 2 and 1, mean 1.5
    assert weights["weight"].tolist() == pytest.approx([4 / 3, 2 / 3])
    kinds = dict(zip(made["data_issues"]["kind"], made["data_issues"]["severity"], strict=True))
    assert kinds == {"not_finite": "error", "difficult": "info"}
    tiles = made["tile_index"].set_index("tile_id")
    assert tiles["n_objects"].tolist() == [3, 2, 1, 1]
    assert tiles["split"].tolist() == ["train", "train", "train", "val"]


def test_boxes_lie_on_the_objects_of_the_tile_files(tmp_path):
    root = tmp_path / "raw"
    path = write_scene(root / "train", "P1", ["70 20 90 20 90 30 70 30 ship 0"], size=(130, 50))
    pixels = np.zeros((50, 130, 3), dtype=np.uint8)
    pixels[20:30, 70:90] = 255
    Image.fromarray(pixels).save(path)
    made = run(tmp_path, dataset={"data_root": str(root), "overlap": 16})
    tiles = made["tile_index"].set_index("tile_id")
    whole = made["tile_annotations"].query("iof == 1")
    assert len(whole) == 2
    for box in whole.itertuples():
        tile = decode_image(tiles.loc[box.tile_id, "path"])
        rows = slice(int(box.cy - box.h / 2), int(box.cy + box.h / 2))
        columns = slice(int(box.cx - box.w / 2), int(box.cx + box.w / 2))
        assert tile[rows, columns].min() == 255
        assert tile.sum() == 255 * 3 * 20 * 10


def test_one_changed_image_is_tiled_again_alone(tmp_path, root, caplog):
    settings = {"dataset": {"data_root": str(root)}}
    with caplog.at_level(logging.INFO, logger="obbflow"):
        first = run(tmp_path, **settings)
        again = run(tmp_path, **settings)
        write_scene(root / "train", "P2", [f"{SQUARE} plane 0"], size=(40, 40), seed=1)
        changed = run(tmp_path, **settings)
    lines = [line for line in caplog.messages if line.startswith("Cut ")]
    assert [line.partition(" (")[0] for line in lines] == ["Cut 3 images into 4 tiles"] * 3
    assert [line[line.index("(") :].partition(",")[0] for line in lines] == [
        "(0 images unchanged",
        "(3 images unchanged",
        "(2 images unchanged",
    ]
    pd.testing.assert_frame_equal(first["tile_index"], again["tile_index"])
    differs = first["tile_index"]["path"] != changed["tile_index"]["path"]
    assert first["tile_index"].loc[differs, "image_id"].tolist() == ["train/P2"]


def test_flat_folder_is_split_as_the_seed_says(tmp_path):
    root = tmp_path / "raw"
    for number in range(5):
        write_scene(root, f"P{number}")
    settings = {"data_root": str(root), "val_fraction": 0.4}
    made = {seed: run(tmp_path, dataset=settings, experiment={"seed": seed}) for seed in (0, 1)}
    sides = {seed: made[seed]["images"]["split"] for seed in made}
    assert [side.value_counts()["val"] for side in sides.values()] == [2, 2]
    assert not sides[0].equals(sides[1])
    index = made[0]["tile_index"]
    assert index.groupby("image_id")["split"].nunique().max() == 1


def test_demo_scenes_are_drawn_and_read(tmp_path):
    made = run(
        tmp_path,
        dataset={"format": "synthetic"},
        demo={"train_sizes": [[448, 400]], "val_sizes": [[400, 300]]},
        tiling={"tile_size": 256, "num_workers": 1},
    )
    assert made["images"]["image_id"].tolist() == ["train/demo_train_000", "val/demo_val_000"]
    assert len(made["class_map"]) >= 1
    assert (made["tile_index"]["n_objects"] > 0).any()


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        ([], {}, "the train split has 1 images and 0 objects"),
        (["1 2 3 ship"], {}, "the train split has 1 images and 0 objects"),
        ([f"{SQUARE} ship 1"], {}, "0 objects that can be used"),
        ([f"{SQUARE} ship 0"], {"ignore_labels": ["ship"]}, "0 objects that can be used"),
        ([f"{SQUARE} shp 0"], {"allowed_classes": ["ship"]}, "P1.txt:1: class 'shp'.*'ship'"),
    ],
    ids=["no line", "no good line", "difficult only", "ignored only", "class not allowed"],
)
def test_labels_without_a_use_stop_the_run_before_anything_is_written(
    tmp_path, lines, settings, message
):
    write_scene(tmp_path / "raw" / "train", "P1", lines)
    catalog_before = set(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=message):
        run(
            tmp_path,
            create_pipeline().only_nodes("read_annotations"),
            dataset={"data_root": str(tmp_path / "raw"), **settings},
        )
    assert set(tmp_path.rglob("*")) == catalog_before


def test_objects_without_area_stop_the_run_before_tiling(tmp_path):
    write_scene(tmp_path / "raw" / "train", "P1", ["1 1 9 1 9 1 1 1 ship 0"])
    with pytest.raises(DataError, match=r"raw: the train split has 1 images and 0 objects"):
        run(tmp_path, dataset={"data_root": str(tmp_path / "raw")})
    assert not PathsSection(data_dir=tmp_path / "data").tiles.exists()


def test_missing_data_root_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: there is no such folder"):
        run(tmp_path, dataset={"data_root": str(tmp_path / "nowhere")})


def test_override_of_an_unknown_class_is_refused(tmp_path, root):
    with pytest.raises(ConfigError, match="no class 'shp', did you mean 'ship'"):
        run(
            tmp_path,
            dataset={"data_root": str(root)},
            loss={"class_weight_overrides": {"shp": 2.0}},
        )


def test_issues_are_summed_up_in_the_log(tmp_path, root, caplog):
    with caplog.at_level(logging.INFO, logger="obbflow"):
        run(tmp_path, dataset={"data_root": str(root)})
    assert (
        "not finite: 1 in data_issues, first: train/labelTxt/P1.txt:5: coordinate 3 is 'nan' "
        "(dropped)"
    ) in caplog.messages
    assert "Checked 7 objects: kept 6 of 2 classes and 0 ignore regions" in caplog.messages
