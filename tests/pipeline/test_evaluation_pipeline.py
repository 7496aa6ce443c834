import hashlib
import json

import numpy as np
import pytest
import torch
from kedro.io import DataCatalog
from kedro.runner import SequentialRunner
from PIL import Image
from torch import nn

from obbflow.config import (
    DataLoaderSection,
    DatasetSection,
    EvaluationSection,
    ExperimentSection,
    ModelSection,
    PreprocessingSection,
    TilingSection,
    TrainingSection,
)
from obbflow.data.tile_settings import keep_settings
from obbflow.errors import CheckpointError
from obbflow.models.build import build_model
from obbflow.pipelines.evaluation.nodes import compute_final_map
from obbflow.pipelines.evaluation.pipeline import create_pipeline
from obbflow.tables import (
    CLASS_METRICS,
    DETECTIONS,
    TILE_ANNOTATIONS,
    TILE_INDEX,
    check_table,
    make_table,
)

SHIP, TANK = (20.0, 24.0, 16.0, 8.0, 0.3), (44.0, 40.0, 10.0, 10.0, 0.0)
SIZE, SCALE = 64, 2  # px of a tile, and how much larger the model sees it
TINY = ModelSection(
    backbone="resnet18",
    backbone_width=0.125,
    fpn_channels=8,
    roi_fc_channels=16,
    pretrained_backbone=False,
    rpn_pre_nms_top_n=20,
    rpn_post_nms_top_n=20,
)


class KnowsShips(nn.Module):
    """A detector that finds the ship of each tile, in pixels of the enlarged image."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images):
        box = torch.tensor([*(SCALE * side for side in SHIP[:4]), SHIP[4]])
        return [
            {
                "rboxes": box[None],
                "scores": torch.tensor([0.9]),
                "labels": torch.tensor([1]),
            }
            for _ in images
        ]


@pytest.fixture
def make_inputs(tmp_path):
    """Return a function: splits of the tiles, checkpoint content -> inputs of the pipeline."""

    def make(splits=("val", "val", "train"), **content):
        tiles, objects = [], []
        for number, split in enumerate(splits):
            path = tmp_path / f"t{number}.png"
            Image.fromarray(np.full((SIZE, SIZE, 3), 90, np.uint8)).save(path)
            tiles.append((f"t{number}", "s", split, 0, 0, SIZE, SIZE, str(path), 2, 1.0))
            objects.append((f"t{number}", "ship", *SHIP, False, False, False, 1.0, 2 * number))
            objects.append((f"t{number}", "tank", *TANK, True, True, False, 1.0, 2 * number + 1))
        checkpoint = tmp_path / "best.pt"
        torch.save({"epoch": 4, "run_id": "r1", "git": {"commit": "c0ffee"}, **content}, checkpoint)
        return {
            "best_checkpoint": checkpoint,
            "tile_index": make_table(tiles, TILE_INDEX),
            "tile_annotations": make_table(objects, TILE_ANNOTATIONS),
            "class_map": {"ship": 1, "tank": 2},
            "params:experiment": ExperimentSection(),
            "params:dataset": DatasetSection(format="synthetic"),
            "params:tiling": TilingSection(),
            "params:preprocessing": PreprocessingSection(target_size=(SCALE * SIZE,) * 2),
            "params:data_loader": DataLoaderSection(batch_size=2, num_workers=0),
            "params:model": TINY,
            "params:training": TrainingSection(accelerator="cpu"),
            "params:evaluation": EvaluationSection(),
        }

    return make


def run(inputs):
    catalog = DataCatalog()
    for name, value in inputs.items():
        catalog[name] = value
    outputs = SequentialRunner().run(create_pipeline(), catalog)
    return {name: dataset.load() for name, dataset in outputs.items()}


@pytest.fixture
def knows_ships(monkeypatch):
    detector = KnowsShips()
    monkeypatch.setattr("obbflow.models.build.build_model", lambda *_, **__: detector)
    return detector


def test_objects_found_in_enlarged_tiles_score_one(make_inputs, knows_ships):
    inputs = make_inputs(model=knows_ships.state_dict())
    outputs = run(inputs)
    check_table(outputs["detections"], DETECTIONS, "detections")
    check_table(outputs["class_metrics"], CLASS_METRICS, "class_metrics")
    assert outputs["detections"]["image_id"].tolist() == ["t0", "t1"]
    assert outputs["detections"].loc[0, ["cx", "cy", "w", "h", "angle"]].tolist() == pytest.approx(
        SHIP, abs=1e-5
    )
    metrics = outputs["final_metrics"]
    assert (metrics["mAP"], metrics["AP50_95"]) == (1.0, 1.0)
    # Tanks are ignore regions: no ground truth, so no AP, and not in the mean.
    assert metrics["per_class"]["tank"]["AP50"] is None
    assert (metrics["n_images"], metrics["n_objects"], metrics["n_ignored"]) == (2, 2, 2)


def test_numbers_name_what_they_belong_to(make_inputs, knows_ships):
    inputs = make_inputs(model=knows_ships.state_dict(), class_map={"ship": 1, "tank": 2})
    metrics = run(inputs)["final_metrics"]
    expected = hashlib.sha256(inputs["best_checkpoint"].read_bytes()).hexdigest()
    assert metrics["checkpoint_sha256"] == expected
    assert (metrics["epoch"], metrics["run_id"], metrics["git_commit"]) == (4, "r1", "c0ffee")
    assert metrics["level"] == "tile"
    assert len(metrics["data_hash"]) == 64
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


def test_without_validation_tiles_every_score_is_none(make_inputs, knows_ships):
    outputs = run(make_inputs(["train"], model=knows_ships.state_dict()))
    metrics = outputs["final_metrics"]
    assert [metrics[name] for name in ("mAP", "AP50", "AP75", "AP50_95")] == [None] * 4
    assert metrics["reason"] == "no validation image"
    assert len(outputs["detections"]) == 0
    assert outputs["class_metrics"]["class_name"].tolist() == ["ship", "tank"]


def test_a_real_detector_is_loaded_and_scores_the_same_twice(make_inputs):
    torch.manual_seed(0)
    inputs = make_inputs(model=build_model(TINY, 2).state_dict())
    first, second = run(inputs), run(inputs)
    assert first["detections"].equals(second["detections"])
    assert first["final_metrics"] == second["final_metrics"]


def test_a_checkpoint_of_other_classes_is_refused(make_inputs):
    inputs = make_inputs(model={}, class_map={"plane": 1, "ship": 2})
    with pytest.raises(CheckpointError, match=r"classes plane, ship; the class map has ship, tank"):
        run(inputs)


CONFIG = {
    "experiment": ExperimentSection().model_dump(mode="json"),
    "model": TINY.model_dump(mode="json"),
    "preprocessing": PreprocessingSection(target_size=(SCALE * SIZE,) * 2).model_dump(mode="json"),
}


def trained_with(**changes):
    return {name: keys | changes.get(name, {}) for name, keys in CONFIG.items()}


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "anchor_scales", [4.0]),
        ("model", "target_stds", [0.2, 0.2, 0.2, 0.2, 0.1]),
        ("model", "roi_norm_factor", None),
        ("model", "roi_proj_xy", True),
        ("model", "roi_edge_swap", False),
        ("preprocessing", "normalize_mean", [0.5, 0.5, 0.5]),
        ("preprocessing", "normalize_std", [0.5, 0.5, 0.5]),
        ("preprocessing", "resize_mode", "crop"),
        ("preprocessing", "target_size", [64, 64]),
        ("preprocessing", "pad_size_divisor", 64),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_trained_with_other_settings_are_refused(make_inputs, section, key, value):
    config = trained_with(**{section: {key: value}})
    inputs = make_inputs(model=build_model(TINY, 2).state_dict(), config=config)
    with pytest.raises(CheckpointError, match=rf"other settings.*: {section}\.{key} was .*, is "):
        compute_final_map(*inputs.values())


def test_settings_that_choose_detections_or_guide_learning_may_differ(make_inputs):
    config = trained_with(
        model={
            "pretrained_backbone": True,
            "max_detections_per_image": 7,
            "nms_class_agnostic": True,
            "rpn_pre_nms_top_n": 9,
            "roi_batch_size_per_image": 4,
        },
        preprocessing={"enable_flip_diagonal": True},
    )
    inputs = make_inputs(model=build_model(TINY, 2).state_dict(), config=config)
    assert run(inputs)["final_metrics"]["epoch"] == 4


def test_every_setting_that_differs_is_named(make_inputs):
    config = trained_with(model={"roi_proj_xy": True}, preprocessing={"resize_mode": "crop"})
    inputs = make_inputs(model={}, config=config)
    with pytest.raises(CheckpointError, match=r"roi_proj_xy was True.*resize_mode was 'crop'"):
        compute_final_map(*inputs.values())


def test_other_tiles_than_those_of_the_training_are_a_warning(make_inputs, knows_ships, caplog):
    same = run(make_inputs(model=knows_ships.state_dict()))["final_metrics"]["data_hash"]
    run(make_inputs(model=knows_ships.state_dict(), data_hash=same))
    assert "other tiles or labels" not in caplog.text
    run(make_inputs(model=knows_ships.state_dict(), data_hash="0" * 64))
    assert "best.pt was trained on other tiles or labels" in caplog.text


def test_tiles_of_other_settings_are_a_warning(make_inputs, knows_ships, caplog):
    inputs = make_inputs(model=knows_ships.state_dict())
    dataset, tiling = inputs["params:dataset"], inputs["params:tiling"]
    tile_index = keep_settings(inputs["tile_index"], dataset, tiling, is_stretched=False)
    run({**inputs, "tile_index": tile_index})
    assert "other settings" not in caplog.text
    other = dataset.model_copy(update={"bands": (1,)})
    run({**inputs, "tile_index": tile_index, "params:dataset": other})
    assert "dataset.bands: [1] now, the tiles were cut with None" in caplog.text


def test_a_checkpoint_that_does_not_fit_is_refused(make_inputs):
    inputs = make_inputs(model=build_model(TINY, 3).state_dict())
    with pytest.raises(CheckpointError, match="must agree in every tensor"):
        compute_final_map(*inputs.values())
