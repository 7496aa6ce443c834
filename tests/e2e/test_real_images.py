"""A few real frames with DOTA labels, from images to report."""

import json

import pandas as pd
import pytest

CLASSES = {"car", "person", "bicycle", "other-vehicle"}


@pytest.fixture(scope="module")
def frames(shared_dir, tmp_path_factory):
    """Links to the first frames of each split that hold at least three objects."""
    source = shared_dir / "data" / "real" / "hituav"
    if not source.is_dir():
        pytest.skip(f"no thermal frames at {source}")
    root = tmp_path_factory.mktemp("frames")
    for split, count in (("train", 4), ("val", 2)):
        labels = [
            path
            for path in sorted((source / split / "labelTxt").glob("*.txt"))
            if len(path.read_text(encoding="utf-8").splitlines()) >= 5
        ]
        for label in labels[:count]:
            (image,) = (source / split / "images").glob(f"{label.stem}.*")
            for kind, file in (("labelTxt", label), ("images", image)):
                folder = root / split / kind
                folder.mkdir(parents=True, exist_ok=True)
                (folder / file.name).symlink_to(file)
    return root


@pytest.fixture(scope="module")
def data_dir(project, frames, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    finished = project.kedro(
        "run",
        "--env",
        "smoke",
        "--params",
        "training.num_epochs=1,tiling.tile_size=320",
        OBBFLOW_DATA_ROOT=frames,
        OBBFLOW_DATA_DIR=folder,
    )
    assert finished.status == 0, finished.output
    return folder


def test_all_frames_and_labels_are_read(data_dir, frames):
    images = pd.read_parquet(data_dir / "02_intermediate" / "images.parquet")
    annotations = pd.read_parquet(data_dir / "03_primary" / "annotations.parquet")

    assert images["split"].value_counts().to_dict() == {"train": 4, "val": 2}
    assert images[["width", "height"]].drop_duplicates().to_numpy().tolist() == [[640, 512]]
    assert set(annotations["class_name"]) <= CLASSES
    lines = sum(
        len(path.read_text(encoding="utf-8").splitlines()) - 2
        for path in frames.rglob("labelTxt/*.txt")
    )
    assert len(annotations) == lines


def test_no_demo_scene_is_drawn(data_dir):
    assert not (data_dir / "01_raw" / "demo").exists()


def test_the_detector_is_scored_and_reported(data_dir):
    (final,) = (data_dir / "07_model_output").glob("final_metrics.json/*/*.json")
    metrics = json.loads(final.read_text(encoding="utf-8"))
    (report,) = (data_dir / "08_reporting").glob("report.html/*/*.html")

    assert 0 <= metrics["mAP"] <= 1
    assert metrics["n_objects"] > 0
    assert "car" in report.read_text(encoding="utf-8")
