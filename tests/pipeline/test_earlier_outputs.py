"""A mistake in images, labels or settings leaves every file of an earlier data run as it was."""

import shutil

import pandas as pd
import pytest
import yaml
from kedro.io import DataCatalog
from kedro.runner import SequentialRunner

from obbflow.config import SECTIONS, fill_sections
from obbflow.errors import DataError, ObbflowError
from obbflow.pipelines.data.pipeline import create_pipeline
from scenes import SQUARE, write_broken_png, write_scene


def run_data(project_root, data_dir, root, first="read_annotations", **sections):
    """Run the data pipeline, or its end, on the entries of the project's own catalog."""
    text = (project_root / "conf/base/catalog.yml").read_text(encoding="utf-8")
    entries = yaml.safe_load(text.replace("${globals:data_dir}", str(data_dir)))
    pipeline = create_pipeline()
    catalog = DataCatalog.from_config({name: entries[name] for name in pipeline.all_outputs()})
    filled = fill_sections(
        {
            "paths": {"data_dir": str(data_dir)},
            **sections,
            "dataset": {"data_root": str(root), **sections.get("dataset", {})},
            "tiling": {"tile_size": 64, "num_workers": 1, **sections.get("tiling", {})},
        }
    )
    for name, values in filled.items():
        catalog[f"params:{name}"] = SECTIONS[name].model_validate(values)
    SequentialRunner().run(pipeline.from_nodes(first), catalog)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def earlier(project_root, tmp_path_factory):
    """Images and labels, and what the data pipeline made of them."""
    folder = tmp_path_factory.mktemp("earlier")
    for split in ("train", "val"):
        lines = ["10 10 50 10 50 50 10 50 plane 0"]
        write_scene(folder / "raw" / split, "P1", lines, size=(90, 64))
    run_data(project_root, folder / "data", folder / "raw")
    return folder


@pytest.fixture
def copy(earlier, tmp_path):
    shutil.copytree(earlier / "raw", tmp_path / "raw")
    return tmp_path / "raw"


def label(root, line):
    for split in ("train", "val"):
        (root / split / "labelTxt" / "P1.txt").write_text(f"{line}\n", encoding="utf-8")


def flat_objects(root):
    label(root, "1 1 9 1 9 1 1 1 plane 0")
    return {}, "0 objects that can be used"


def objects_outside(root):
    label(root, "190 10 210 10 210 30 190 30 plane 0")
    return {}, "0 objects that can be used"


def objects_larger_than_a_tile(root):
    label(root, "2 2 88 2 88 62 2 62 plane 0")
    return {"tiling": {"tile_size": 32}}, "no object on any of them"


def class_not_allowed(_):
    return {"dataset": {"allowed_classes": ["ship"]}}, "class 'plane' is not in"


def weight_of_no_class(_):
    return {"loss": {"class_weight_overrides": {"plan": 2.0}}}, "no class 'plan', did you mean"


def rotation_of_no_class(_):
    rotate = {"enable_random_rotate": True, "random_rotate_rect_labels": ["plan"]}
    return {"preprocessing": rotate}, "random_rotate_rect_labels: .*did you mean 'plane'"


@pytest.mark.parametrize(
    "mistake",
    [
        flat_objects,
        objects_outside,
        objects_larger_than_a_tile,
        class_not_allowed,
        weight_of_no_class,
        rotation_of_no_class,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_a_mistake_changes_no_earlier_file(project_root, earlier, copy, mistake):
    write_scene(copy / "train", "P0", None)  # were anything written, it would differ
    sections, message = mistake(copy)
    before = contents(earlier / "data")
    with pytest.raises(ObbflowError, match=message):
        run_data(project_root, earlier / "data", copy, **sections)
    assert contents(earlier / "data") == before


def earlier_tiles(data_dir):
    """Return ``tile_index`` and all that it and ``tile_annotations`` depend on."""
    folder = data_dir / "03_primary"
    files = [*folder.glob("tile*.parquet"), *folder.glob("tiles/*/*.png")]
    assert len(files) > 4
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("image", "settings"),
    [("P2", {"strict": True}), ("P1", {})],
    ids=["strict", "the only image to train on"],
)
def test_a_damaged_image_that_stops_leaves_the_earlier_tiles_as_they_are(
    project_root, earlier, copy, tmp_path, image, settings
):
    shutil.copytree(earlier / "data", tmp_path / "data")
    before = earlier_tiles(tmp_path / "data")
    write_scene(copy / "val", "P1", size=(90, 64), seed=1)  # strict: another one than in train
    write_broken_png(copy / "train" / "images" / f"{image}.png", size=(90, 64))
    with pytest.raises(DataError, match=rf"{image}\.png: the image cannot be read"):
        run_data(project_root, tmp_path / "data", copy, dataset=settings)
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_image_is_an_issue_beside_those_of_its_labels(
    project_root, copy, tmp_path, caplog
):
    write_broken_png(copy / "train" / "images" / "P2.png")
    label(copy, "10 10 20 10 20 20 10 20 plane 0\n1 2 3 ship")
    run_data(project_root, tmp_path / "data", copy)
    folder = tmp_path / "data" / "03_primary"
    earlier_issues = pd.read_csv(folder / "annotation_issues.csv")
    issues = pd.read_csv(folder / "data_issues.csv")
    pd.testing.assert_frame_equal(issues.iloc[:-1], earlier_issues)
    assert len(issues) > 2
    damaged = issues.iloc[-1].to_dict()
    assert pd.isna(damaged.pop("line"))
    message = damaged.pop("message")
    assert damaged == {
        "file": "train/images/P2.png",
        "image_id": "train/P2",
        "severity": "error",
        "kind": "broken_image",
        "action": "dropped",
    }
    assert message.startswith("broken image: the image cannot be read (")
    assert f"broken image: 1 in data_issues, first: train/images/P2.png: {message} (dropped)" in [
        record.getMessage() for record in caplog.records if record.levelname == "WARNING"
    ]
    index = pd.read_parquet(folder / "tile_index.parquet")
    assert set(index["image_id"]) == {"train/P1", "val/P1"}
    check = index.attrs["geometry_check"]
    assert (check["n_fitting"], check["n_whole"]) == (2, 2)
    assert check["largest_error"] < 1e-9


def test_the_end_of_the_pipeline_alone_changes_no_earlier_file(project_root, earlier):
    before = contents(earlier / "data")
    with pytest.raises(ObbflowError, match="6 training tiles and no object on any of them"):
        run_data(
            project_root,
            earlier / "data",
            earlier / "raw",
            first="tile_images",
            tiling={"tile_size": 32},
            dataset={"overlap": 0},
        )
    assert contents(earlier / "data") == before


def test_tiles_that_the_stored_tile_index_names_are_there_until_it_is_replaced(
    project_root, copy, tmp_path
):
    data_dir = tmp_path / "data"

    def tiles():
        return {path.name for path in (data_dir / "03_primary" / "tiles").glob("*/*.png")}

    run_data(project_root, data_dir, copy)
    first = tiles()
    run_data(project_root, data_dir, copy, tiling={"min_visible": 0.5})
    second = tiles()
    run_data(project_root, data_dir, copy, tiling={"min_visible": 0.5})
    assert first < second
    assert tiles() == second - first


def test_a_misspelt_class_is_warned_about_once(project_root, copy, tmp_path, caplog):
    run_data(project_root, tmp_path / "data", copy, dataset={"ignore_labels": ["plan"]})
    lines = [line for line in caplog.messages if "no label has the class 'plan'" in line]
    assert len(lines) == 1


def test_the_second_run_decodes_nothing(project_root, earlier, monkeypatch):
    from obbflow.data import tile_pixels

    opened = []
    monkeypatch.setattr(tile_pixels, "open_image", lambda path, **_: opened.append(path))
    run_data(project_root, earlier / "data", earlier / "raw")
    assert opened == []


def test_labels_may_be_empty_beside_one_with_an_object(project_root, copy, tmp_path):
    write_scene(copy / "train", "P2", [], size=(50, 40))
    write_scene(copy / "train", "P3", [f"{SQUARE} plane 1"], size=(50, 40))
    run_data(project_root, tmp_path / "data", copy)
    assert (tmp_path / "data" / "03_primary" / "tile_index.parquet").is_file()
