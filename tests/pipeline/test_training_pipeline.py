from dataclasses import fields

import pytest
import torch
from kedro.io import DataCatalog
from kedro.runner import SequentialRunner
from toy import toy_sections, toy_tiles

from obbflow.models import build_model, load_checkpoint
from obbflow.pipelines.training.pipeline import create_pipeline

TINY = {
    "backbone": "resnet18",
    "backbone_width": 0.125,
    "pretrained_backbone": False,
    "freeze_batch_norm": False,
    "fpn_channels": 8,
    "roi_fc_channels": 16,
    "rpn_pre_nms_top_n": 50,
    "rpn_post_nms_top_n": 20,
    "roi_batch_size_per_image": 16,
    "rpn_batch_size_per_image": 16,
}


@pytest.fixture
def inputs(tmp_path) -> dict:
    data = toy_tiles(tmp_path / "tiles")
    sections = toy_sections(
        tmp_path,
        model=TINY,
        preprocessing={"target_size": (64, 64)},
        tensorboard={"enabled": True},
    )
    tables = {field.name: getattr(data, field.name) for field in fields(data)}
    typed = {f"params:{field.name}": getattr(sections, field.name) for field in fields(sections)}
    return {**tables, **typed, "run_id": "r1"}


def test_the_node_trains_the_real_detector(inputs):
    pipeline = create_pipeline()
    assert pipeline.inputs() == set(inputs)
    assert [node.name for node in pipeline.nodes] == ["train_detector"]
    catalog = DataCatalog()
    for name, value in inputs.items():
        catalog[name] = value

    outputs = SequentialRunner().run(pipeline, catalog)

    metrics = outputs["training_metrics"].load()
    assert metrics["epoch"].tolist() == [1, 2]
    losses = ["objectness", "rpn_box_reg", "classifier", "box_reg"]
    parts = metrics[[f"train/loss_{name}" for name in losses]].sum(axis=1)
    assert metrics["train/total_loss"].tolist() == pytest.approx(parts.tolist(), rel=1e-5)
    assert metrics["val/mAP"].between(0, 1).all()
    record = outputs["run_record"].load()
    assert record["run_id"] == "r1"
    assert record["parameters"]["trainable"] > 10_000
    model = build_model(inputs["params:model"], 2)
    report = load_checkpoint(outputs["best_checkpoint"].load(), model, strict=True)
    assert not report.missing
    events = outputs["last_checkpoint"].load().parent / "tensorboard"
    assert any(path.stat().st_size > 0 for path in events.iterdir())


def test_the_same_seed_trains_the_same_detector_twice(inputs, tmp_path):
    from obbflow.training.metrics import TIME_COLUMNS

    tables, weights = [], []
    for run in ("a", "b"):
        catalog = DataCatalog()
        paths = inputs["params:paths"].model_copy(update={"data_dir": tmp_path / run})
        for name, value in (inputs | {"params:paths": paths}).items():
            catalog[name] = value
        outputs = SequentialRunner().run(create_pipeline(), catalog)
        tables.append(outputs["training_metrics"].load().drop(columns=list(TIME_COLUMNS)))
        content = torch.load(outputs["last_checkpoint"].load(), weights_only=True)
        weights.append(content["model"])
    assert tables[0].equals(tables[1])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
