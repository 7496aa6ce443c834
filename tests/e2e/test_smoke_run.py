"""The whole pipeline through the command line, twice, on the demo scenes of env smoke."""

import json
import re

import pandas as pd
import pytest

from obbflow.pipeline_registry import register_pipelines

TIMES = ["epoch_seconds", "validation_seconds", "images_per_second", "data_wait_share"]


@pytest.fixture(scope="module")
def former_tiles(smoke_run):
    tiles = smoke_run.data_dir / "03_primary" / "tiles"
    return {path: path.stat().st_mtime_ns for path in tiles.rglob("*.png")}


@pytest.fixture(scope="module")
def second_run(project, smoke_run, former_tiles):
    assert former_tiles
    finished = project.kedro(
        "run", "--config", ".kedro.yml", "--env", "smoke", OBBFLOW_DATA_DIR=smoke_run.data_dir
    )
    assert finished.status == 0, finished.output
    return finished


def read(path):
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


def test_every_output_has_a_file(smoke_run):
    sizes = {
        name: smoke_run.path(name).stat().st_size
        for name in register_pipelines()["train"].all_outputs()
    }

    assert len(sizes) >= 20
    assert [name for name, size in sizes.items() if size == 0] == []


@pytest.mark.usefixtures("smoke_run")
def test_everything_is_written_below_the_data_folder(project):
    assert not (project.root / "data").exists()
    assert not (project.root / "info.log").exists()


def test_no_scratch_file_is_left(smoke_run):
    hidden = [path.name for path in smoke_run.data_dir.rglob(".*") if path.is_file()]

    assert set(hidden) <= {".lock"}
    assert not list(smoke_run.data_dir.rglob("*.tmp"))


def test_all_versions_of_a_run_carry_its_id(smoke_run):
    run_id = read(smoke_run.path("run_record"))["run_id"]

    for entry in ("class_map", "best_checkpoint", "final_metrics", "report"):
        assert smoke_run.path(entry).parent.name == run_id
    assert (smoke_run.data_dir / "06_models" / "runs" / run_id / "best.pt").samefile(
        smoke_run.path("best_checkpoint")
    )


def test_classes_are_numbered_by_name_and_all_weighed(smoke_run):
    class_map = read(smoke_run.path("class_map"))
    weights = read(smoke_run.path("class_weights"))

    assert list(class_map) == sorted(class_map)
    assert list(class_map.values()) == list(range(1, len(class_map) + 1))
    assert len(class_map) >= 5
    assert dict(zip(weights["class_name"], weights["class_id"], strict=True)) == class_map
    assert weights["weight"].between(0.3, 3.0).all()


def test_tiles_overlap_and_cover_each_scene(smoke_run):
    images = read(smoke_run.path("images")).set_index("image_id")
    tiles = read(smoke_run.path("tile_index"))

    for image_id, group in tiles.groupby("image_id"):
        assert (group["x"] + group["width"]).max() == images.loc[image_id, "width"]
        assert (group["y"] + group["height"]).max() == images.loc[image_id, "height"]
        assert group[["x", "y"]].min().tolist() == [0, 0]
    assert set(tiles["split"]) == {"train", "val"}


def test_metrics_have_a_row_an_epoch(smoke_run):
    metrics = read(smoke_run.path("training_metrics"))

    assert metrics["epoch"].tolist() == [1, 2]
    assert (metrics["train/total_loss"] > 0).all()
    assert (metrics["lr"] > 0).all()
    losses = [f"train/loss_{part}" for part in
              ("objectness", "rpn_box_reg", "classifier", "box_reg")]  # fmt: skip
    # training.loss_weights of conf/base: the parts are logged as they are, the total as weighted.
    weights = {"train/loss_rpn_box_reg": 4.0}
    weighted = sum(weights.get(loss, 1.0) * metrics[loss] for loss in losses)
    assert weighted.to_numpy() == pytest.approx(metrics["train/total_loss"].to_numpy(), rel=1e-6)


def test_the_final_score_belongs_to_the_best_checkpoint(smoke_run):
    final = read(smoke_run.path("final_metrics"))
    tiles = read(smoke_run.path("tile_index"))

    assert final["epoch"] in (1, 2)
    assert final["checkpoint"] == str(smoke_run.path("best_checkpoint"))
    assert final["n_images"] == (tiles["split"] == "val").sum()
    assert final["n_detections"] == len(read(smoke_run.path("detections")))
    for name in ("mAP", "AP50", "AP75", "AP50_95"):
        assert 0 <= final[name] <= 1


def test_detections_are_on_validation_tiles_and_of_known_classes(smoke_run):
    detections = read(smoke_run.path("detections"))
    tiles = read(smoke_run.path("tile_index"))

    assert set(detections["image_id"]) <= set(tiles.loc[tiles["split"] == "val", "tile_id"])
    assert set(detections["class_name"]) <= set(read(smoke_run.path("class_map")))
    assert detections["score"].between(0.05, 1).all()
    assert (detections["w"] >= detections["h"]).all()


def test_the_run_can_be_repeated_from_its_record(smoke_run):
    record = read(smoke_run.path("run_record"))

    assert record["configuration"]["training"]["num_epochs"] == 2
    assert record["configuration"]["experiment"]["seed"] == 0


def test_the_report_is_one_file_about_this_run(smoke_run):
    page = smoke_run.path("report").read_text(encoding="utf-8")

    assert read(smoke_run.path("run_record"))["run_id"] in page
    for name in read(smoke_run.path("class_map")):
        assert name in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?!data:|#)[^"'\s>]+""", page)
    assert not re.findall(r"@import|url\((?!['\"]?data:)", page)
    assert page.count("data:image/") >= 4


@pytest.mark.usefixtures("smoke_run", "second_run")
def test_nothing_tries_the_network(project):
    tried = project.network_log.read_text() if project.network_log.exists() else ""

    assert tried == ""


@pytest.mark.usefixtures("smoke_run")
def test_a_run_leaves_the_project_files_alone(project, project_root):
    for name in ("pyproject.toml", ".telemetry", ".kedro.yml"):
        assert (project.root / name).read_bytes() == (project_root / name).read_bytes()


@pytest.mark.usefixtures("second_run")
def test_the_same_seed_gives_the_same_metrics(smoke_run):
    first, second = (read(path) for path in smoke_run.versions("training_metrics"))

    times = [column for column in first.columns if column in TIMES]
    pd.testing.assert_frame_equal(
        first.drop(columns=times), second.drop(columns=times), check_exact=True
    )


@pytest.mark.usefixtures("second_run")
def test_the_same_seed_gives_the_same_detections_and_scores(smoke_run):
    first, second = (read(path) for path in smoke_run.versions("detections"))
    pd.testing.assert_frame_equal(first, second, check_exact=True)

    about_the_run = {"checkpoint", "checkpoint_sha256", "run_id"}
    first, second = (
        {key: value for key, value in read(path).items() if key not in about_the_run}
        for path in smoke_run.versions("final_metrics")
    )
    assert first == second


@pytest.mark.usefixtures("second_run")
def test_unchanged_images_are_not_tiled_again(former_tiles):
    now = {path: path.stat().st_mtime_ns for path in former_tiles}

    assert now == former_tiles
