import pandas as pd
import pytest
from click.testing import CliRunner

from obbflow.cli import cli
from obbflow.config import DatasetSection
from obbflow.data.formats import convert, read_data_set
from obbflow.data.formats.convert import convert_data_set
from obbflow.errors import DataError
from obbflow.tables import CORNERS
from scenes import SQUARE, write_scene


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    write_scene(root / "train", "P1", [f"{SQUARE} ship 1", "bad line"])
    write_scene(root / "val", "P2", [f"{SQUARE} ship 0", f"{SQUARE} plane 0"])
    return root


def run(*arguments):
    return CliRunner().invoke(cli, ["convert", *map(str, arguments)])


@pytest.mark.parametrize("target_format", ["dota", "yolo_obb", "coco"])
def test_converted_folder_holds_the_same_objects(source, tmp_path, target_format):
    target = tmp_path / "new" / "target"
    result = run(source, target, "--from", "dota", "--to", target_format)
    assert result.exit_code == 0, result.output
    n_issues = 2 if target_format == "yolo_obb" else 1
    assert result.output.strip() == (
        f"{target}: 2 images (1 train, 1 val), 3 objects, {n_issues} issues, see data_issues.csv"
    )
    data = read_data_set(target, DatasetSection(data_root=target, format=target_format), seed=0)
    assert data.images["image_id"].tolist() == ["train/P1", "val/P2"]
    assert data.annotations["class_name"].tolist() == ["ship", "ship", "plane"]
    assert data.annotations[list(CORNERS)].iloc[0].tolist() == pytest.approx(
        list(map(float, SQUARE.split()))
    )
    original = read_data_set(source, DatasetSection(data_root=source), seed=0)
    assert data.images["sha256"].tolist() == original.images["sha256"].tolist()
    issues = pd.read_csv(target / "data_issues.csv")
    assert issues.loc[0, ["file", "line"]].tolist() == ["train/labelTxt/P1.txt", 2]
    assert len(issues) == n_issues
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_links_lead_to_the_images(source, tmp_path):
    assert (
        run(source, tmp_path / "t", "--from", "dota", "--to", "coco", "--link-images").exit_code
        == 0
    )
    link = tmp_path / "t" / "images" / "train" / "P1.png"
    assert link.is_symlink()
    assert link.resolve() == source / "train" / "images" / "P1.png"


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        (".", [], "exists and is no empty folder"),
        ("source/inner", [], "lies within"),
        ("t", ["--param", "no_such_key=1"], "dataset.no_such_key: unknown key"),
        ("t", ["--param", "strict"], "write it as key=value"),
        ("t", ["--param", "strict=true"], "errors in the data: 1"),
        ("t", ["--from", "coco"], "no COCO file"),
    ],
)
def test_mistake_is_one_message_and_nothing_is_written(source, tmp_path, target, options, words):
    before = sorted(tmp_path.rglob("*"))
    result = run(source, tmp_path / target, "--from", "dota", "--to", "yolo_obb", *options)
    assert result.exit_code != 0
    assert words in result.output
    assert "Traceback" not in result.output
    assert sorted(tmp_path.rglob("*")) == before


def test_labels_without_an_object_are_not_converted(tmp_path):
    write_scene(tmp_path / "source", "P1", [])
    with pytest.raises(DataError, match="no object in its labels"):
        convert_data_set(tmp_path / "source", tmp_path / "t", "dota", "yolo_obb")
    assert not (tmp_path / "t").exists()


def test_failure_half_way_leaves_nothing(source, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(convert.shutil, "copyfile", fail)
    with pytest.raises(OSError, match="No space"):
        convert_data_set(source, tmp_path / "t", "dota", "coco")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_empty_target_folder_is_used_and_a_file_is_not(source, tmp_path):
    (tmp_path / "t").mkdir()
    assert convert_data_set(source, tmp_path / "t", "dota", "dota").n_objects == 3
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="no empty folder"):
        convert_data_set(source, tmp_path / "file", "dota", "dota")
