"""A mistake in images, labels or settings leaves every file of an earlier data run as it was."""

import shutil
import struct
import zlib

import pytest
import yaml
from kedro.io import DataCatalog
from kedro.runner import SequentialRunner

from obbflow.config import SECTIONS, fill_sections
from obbflow.errors import ObbflowError
from obbflow.pipelines.data.pipeline import create_pipeline
from scenes import SQUARE, write_scene


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


def broken_png():
    """Return a PNG whose chunks and checksums are right, and whose pixels are not."""
    header = struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", b"no deflated pixels"), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


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


def test_an_image_that_cannot_be_decoded_leaves_the_earlier_tiles_as_they_are(
    project_root, earlier, copy, tmp_path
):
    shutil.copytree(earlier / "data", tmp_path / "data")
    (copy / "train" / "images" / "P2.png").write_bytes(broken_png())
    before = contents(tmp_path / "data")
    with pytest.raises(ObbflowError, match=r"P2\.png: the image cannot be read"):
        run_data(project_root, tmp_path / "data", copy)
    after = contents(tmp_path / "data")
    tiles = {path for path in before if "03_primary/tile" in path.as_posix()}
    assert len(tiles) > 4
    assert all(after[path] == before[path] for path in tiles if "manifest" not in path.name)


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
