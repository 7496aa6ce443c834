"""A DOTA folder with a look-alike class, from its label files to the scores."""

import pytest
import torch
import yaml
from kedro.io import DataCatalog, DatasetError, MemoryDataset
from kedro.runner import SequentialRunner

from obbflow.cli import describe_mistake
from obbflow.config import SECTIONS, fill_sections
from obbflow.data.tile_dataset import TileDataset
from obbflow.data.transforms import EvalTransform
from obbflow.models.roi_sampling import RegionSampler
from obbflow.ops import box_iou_rotated
from obbflow.pipelines.data.pipeline import create_pipeline as data_pipeline
from obbflow.pipelines.evaluation.pipeline import create_pipeline as evaluation_pipeline
from obbflow.pipelines.training.pipeline import create_pipeline as training_pipeline
from obbflow.tables import TILE_ANNOTATIONS, make_table
from scenes import SQUARE, write_scene

BUOY = "45 5 57 5 57 11 45 11"
SECTIONS_OF_RUN = {
    "tiling": {"tile_size": 64, "num_workers": 1},
    "model": {
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
    },
    "preprocessing": {"target_size": (64, 64)},
    "data_loader": {"batch_size": 2, "num_workers": 0},
    "training": {"num_epochs": 1, "accelerator": "cpu", "lr_warmup_steps": 0},
    "tensorboard": {"enabled": False},
}


class KeptDataset(MemoryDataset):
    """Memory that the runner does not clear once the last node has read it."""

    def _release(self):
        """Keep the data."""


@pytest.fixture
def sampled(monkeypatch):
    """Return a list that fills with what the region head drew: (target, sampled regions)."""
    drawn = []
    sample = RegionSampler.__call__

    def spy(self, proposals, target):
        regions = sample(self, proposals, target)
        drawn.append((target, regions))
        return regions

    monkeypatch.setattr(RegionSampler, "__call__", spy)
    return drawn


def test_a_lookalike_trains_as_background_and_is_no_class_anywhere(tmp_path, sampled):
    root = tmp_path / "raw"
    write_scene(root / "train", "P1", [f"{SQUARE} ship 0", f"{BUOY} bouy 1"], size=(64, 64))
    write_scene(root / "train", "P2", [f"{BUOY} buoy 0"], size=(64, 64))
    write_scene(root / "val", "P3", [f"{SQUARE} ship 0", f"{BUOY} buoy 0"], size=(64, 64))
    given = {
        "paths": {"data_dir": str(tmp_path / "data")},
        "dataset": {
            "data_root": str(root),
            "map_labels": {"bouy": "buoy"},
            "lookalike_classes": ["buoy"],
            "allowed_classes": ["ship"],
        },
        **SECTIONS_OF_RUN,
    }
    typed = {
        name: SECTIONS[name].model_validate(values) for name, values in fill_sections(given).items()
    }
    pipeline = data_pipeline() + training_pipeline() + evaluation_pipeline()
    catalog = DataCatalog()
    for name in pipeline.all_outputs():
        catalog[name] = KeptDataset()
    for name, section in typed.items():
        catalog[f"params:{name}"] = section
    catalog["run_id"] = "r1"
    SequentialRunner().run(pipeline, catalog)
    made = {name: catalog[name].load() for name in pipeline.all_outputs()}

    assert made["class_map"] == {"ship": 1}
    assert made["class_weights"]["class_name"].tolist() == ["ship"]
    assert made["tile_index"]["n_objects"].tolist() == [1, 0, 1]
    shown = made["tile_annotations"]
    assert shown.loc[shown["lookalike"], "class_name"].tolist() == ["buoy"] * 3
    assert not shown["ignore"].any()
    issues = made["data_issues"].set_index("kind")
    assert issues.at["lookalike", "message"].endswith("dataset.lookalike_classes: 3")

    assert sorted(len(target["rboxes"]) for target, _ in sampled) == [0, 1]
    for target, regions in sampled:
        (buoy,) = target["rboxes_lookalike"]
        rows = (regions.rboxes == buoy).all(dim=1)
        assert rows.sum() == 1
        assert regions.labels[rows].tolist() == [0]
        n_positive = int((regions.labels > 0).sum())
        first = box_iou_rotated(regions.rboxes[n_positive:], buoy[None])[:, 0] >= 0.5
        assert first[: int(first.sum())].all()

    metrics = made["final_metrics"]
    assert (metrics["n_objects"], metrics["n_ignored"]) == (1, 0)
    assert list(metrics["per_class"]) == made["class_metrics"]["class_name"].tolist() == ["ship"]
    val = TileDataset(
        made["tile_index"],
        shown,
        made["class_map"],
        EvalTransform(typed["preprocessing"]),
        split="val",
        dataset=typed["dataset"],
        seed=0,
    )
    assert val.ground_truth["class_name"].tolist() == ["ship"]
    assert val.unmapped_classes == {}
    torch.testing.assert_close(
        val[0, 0][1]["rboxes_lookalike"], torch.tensor([[51.0, 8.0, 12.0, 6.0, 0.0]])
    )


def test_tiles_of_an_earlier_version_are_named_with_the_command_that_helps(project_root, tmp_path):
    text = (project_root / "conf/base/catalog.yml").read_text(encoding="utf-8")
    entries = yaml.safe_load(text.replace("${globals:data_dir}", str(tmp_path)))
    catalog = DataCatalog.from_config({"tile_annotations": entries["tile_annotations"]})
    path = tmp_path / "03_primary" / "tile_annotations.parquet"
    path.parent.mkdir(parents=True)
    make_table([], TILE_ANNOTATIONS).drop(columns="lookalike").to_parquet(path)
    with pytest.raises(DatasetError) as caught:
        catalog.load("tile_annotations")
    message = describe_mistake(caught.value)
    assert "lacks the columns lookalike" in message
    assert "kedro run --pipelines data" in message
