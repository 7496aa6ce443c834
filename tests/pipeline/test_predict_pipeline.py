import pytest
import torch
from kedro.io import DataCatalog
from kedro.runner import SequentialRunner

from obbflow.config import SECTIONS, ProductionSection
from obbflow.datasets import JSONDataset, ParquetDataset
from obbflow.errors import CheckpointError, ConfigError
from obbflow.models import build_model
from obbflow.pipelines.predict.nodes import find_images
from obbflow.pipelines.predict.pipeline import create_pipeline
from obbflow.tables import DETECTIONS, check_table
from obbflow.training.checkpoints import write_checkpoint
from scenes import write_scene

CLASSES = {"plane": 1, "ship": 2}
WINDOW = 96
CONFIG = {
    "experiment": {},
    "dataset": {"format": "synthetic", "overlap": 16},
    "tiling": {"tile_size": WINDOW},
    "preprocessing": {"target_size": (WINDOW, WINDOW)},
    "evaluation": {"score_threshold": 0.3},
    "model": {
        "backbone": "resnet18",
        "backbone_width": 0.125,
        "pretrained_backbone": True,  # no weights are looked for: all come from the checkpoint
        "fpn_channels": 8,
        "roi_fc_channels": 16,
        "rpn_pre_nms_top_n": 20,
        "rpn_post_nms_top_n": 10,
    },
}


@pytest.fixture
def checkpoint(tmp_path):
    """A detector with random weights, as a training run saves it."""
    torch.manual_seed(0)
    config = {name: SECTIONS[name].model_validate(CONFIG[name]) for name in CONFIG}
    untrained = config["model"].model_copy(update={"pretrained_backbone": False})
    model = build_model(untrained, len(CLASSES))
    path = tmp_path / "elsewhere" / "best.pt"
    plain = {name: section.model_dump(mode="json") for name, section in config.items()}
    content = {"model": model.state_dict(), "epoch": 1, "run_id": "r1"}
    write_checkpoint({**content, "class_map": CLASSES, "config": plain}, path)
    return path


@pytest.fixture
def catalog(tmp_path, checkpoint):
    folder = tmp_path / "new"
    write_scene(folder, "large scene", None, size=(150, 96))
    write_scene(folder, "small", None, size=(60, 40))
    catalog = DataCatalog()
    catalog["best_checkpoint"] = checkpoint
    catalog["params:production"] = ProductionSection(
        images=folder, score_threshold=0.06, per_class_score_threshold={"ship": 0.1}
    )
    for name, values in {
        "data_loader": {"batch_size": 2},
        "training": {"accelerator": "cpu"},
    }.items():
        catalog[f"params:{name}"] = SECTIONS[name].model_validate(values)
    return catalog


def test_new_images_are_looked_at_with_the_checkpoint_alone(catalog, checkpoint, tmp_path):
    pipeline = create_pipeline()
    names = ["find_images", "predict_windows", "merge_detections", "export_predictions"]
    assert [node.name for node in pipeline.nodes] == names
    assert {name for name in pipeline.inputs() if "params:" not in name} == {"best_checkpoint"}
    # On disk, as the runner lets go of what is only in memory.
    for name in ("prediction_images", "window_detections", "predictions"):
        catalog[name] = ParquetDataset(filepath=str(tmp_path / f"{name}.parquet"))
    catalog["prediction_settings"] = JSONDataset(filepath=str(tmp_path / "settings.json"))

    SequentialRunner().run(pipeline, catalog)

    values = {name: catalog[name].load() for name in pipeline.all_outputs()}
    settings = values["prediction_settings"]
    assert settings["tile_size"] == WINDOW
    assert (settings["overlap"], settings["ignore_margin"]) == (48, 8.0)
    assert settings["score_thresholds"] == {"plane": 0.06, "ship": 0.1}
    assert (settings["checkpoint"], settings["run_id"]) == (str(checkpoint), "r1")
    assert values["prediction_images"]["image_id"].tolist() == ["large scene", "small"]

    windows = values["window_detections"]
    # Random weights give each class about a third of the probability.
    assert len(windows) > 0
    assert set(windows["window_x"]) <= {0, 48, 54}
    assert windows["score"].min() >= 0.06

    merged = check_table(values["predictions"], DETECTIONS, "predictions")
    assert 0 < len(merged) <= len(windows)
    assert merged["cx"].between(0, 150).all()
    assert set(merged["class_name"]) <= set(CLASSES)

    task1 = values["dota_task1"]
    assert list(task1) == ["Task1_plane.txt", "Task1_ship.txt"]
    lines = [line.split() for text in task1.values() for line in text.splitlines()]
    assert len(lines) == len(merged)
    assert {len(fields) for fields in lines} == {10}
    assert list(values["predictions_geojson"]) == ["pixels.geojson"]


def test_no_images_set_says_how_to_set_them():
    with pytest.raises(ConfigError, match=r"--params production\.images=FOLDER"):
        find_images(ProductionSection())


def test_a_damaged_checkpoint_is_refused(catalog, checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="damaged"):
        SequentialRunner().run(create_pipeline(), catalog)
