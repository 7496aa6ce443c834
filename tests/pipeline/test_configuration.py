"""Every environment resolves: parameters, catalog, and what the pipelines ask of both."""

from pathlib import Path

import pytest
import yaml
from kedro.framework.project import pipelines
from kedro.framework.session import KedroSession
from kedro.io import AbstractVersionedDataset, MemoryDataset

from obbflow.config import SECTIONS

CONF = Path(__file__).parents[2] / "conf"
ENVIRONMENTS = ("base", "smoke", "dota", "airbus", "local")
LAYERS = {
    "01_raw", "02_intermediate", "03_primary", "04_feature", "05_model_input", "06_models",
    "07_model_output", "08_reporting",
}  # fmt: skip
# Entries of the contract -> whether they keep one file a run.
CONTRACT = {
    "images": False,
    "annotations": False,
    "data_issues": False,
    "tile_index": False,
    "tile_annotations": False,
    "class_map": True,
    "class_weights": True,
    "training_metrics": True,
    "best_checkpoint": True,
    "last_checkpoint": True,
    "detections": True,
    "final_metrics": True,
    "class_metrics": True,
    "run_record": True,
    "report": True,
}


@pytest.fixture(params=ENVIRONMENTS)
def context(request, kedro_project, tmp_path, monkeypatch):
    monkeypatch.setenv("OBBFLOW_DATA_DIR", str(tmp_path))
    with KedroSession.create(project_path=kedro_project, env=request.param) as session:
        yield session.load_context()


@pytest.fixture
def catalog_file():
    return yaml.safe_load((CONF / "base" / "catalog.yml").read_text(encoding="utf-8"))


def test_all_environments_of_the_repository_are_tested():
    folders = {path.name for path in CONF.iterdir() if path.is_dir()}

    assert folders == set(ENVIRONMENTS)


def test_every_input_is_in_the_catalog(context):
    catalog = context.catalog

    for name, pipeline in pipelines.items():
        missing = [entry for entry in pipeline.inputs() if entry not in catalog]
        assert missing == [], name


def test_every_output_is_in_the_catalog_and_on_disk(context):
    catalog = context.catalog

    for entry in (pipelines["train"] + pipelines["predict"]).all_outputs():
        assert entry in catalog, entry
        assert not isinstance(catalog.get(entry), MemoryDataset), entry


def test_every_entry_can_be_made_and_lies_in_the_data_folder(context, tmp_path):
    catalog = context.catalog

    files = {
        name: catalog.get(name)._filepath
        for name in catalog
        if not isinstance(catalog.get(name), MemoryDataset)
    }
    assert set(CONTRACT) <= set(files)
    assert [name for name, path in files.items() if not Path(path).is_relative_to(tmp_path)] == []
    assert len(set(files.values())) == len(files)


def test_the_tiles_in_use_are_those_of_the_catalog(context):
    in_catalog = context.catalog.get("tile_index")._filepath

    assert Path(in_catalog) == context.params["paths"].tile_index


def test_typed_sections_are_built(context):
    for name, section in SECTIONS.items():
        value = context.params[name]
        assert isinstance(value, section | dict), name
    assert context.params["training"].num_epochs >= 1


def test_entries_are_versioned_as_promised(context):
    catalog = context.catalog

    versioned = {
        name: isinstance(catalog.get(name), AbstractVersionedDataset)
        and catalog.get(name)._version is not None
        for name in CONTRACT
    }
    assert versioned == CONTRACT


def test_every_entry_has_a_layer_that_is_its_folder(catalog_file):
    for name, entry in catalog_file.items():
        layer = entry["metadata"]["kedro-viz"]["layer"]
        assert layer in LAYERS, name
        folder, _, file = entry["filepath"].rpartition("/")
        assert folder == f"${{globals:data_dir}}/{layer}", name
        assert file.partition(".")[0] == name


def test_no_entry_is_unused(catalog_file, kedro_project):
    assert kedro_project
    used = set().union(*(each.datasets() for each in pipelines.values()))

    assert set(catalog_file) <= used


def test_no_environment_repeats_the_catalog():
    assert [path.parent.name for path in CONF.rglob("catalog*.yml")] == ["base"]


def test_dota_is_the_published_recipe(kedro_project):
    # Oriented R-CNN, ResNet-50, 1x, le90 (Xie et al., ICCV 2021), two images a step.
    with KedroSession.create(project_path=kedro_project, env="dota") as session:
        parameters = session.load_context().config_loader["parameters"]

    published = {
        "dataset": {"overlap": 200, "format": "dota"},
        "tiling": {"tile_size": 1024},
        "preprocessing": {"target_size": [1024, 1024], "enable_random_rotate": False}
        | dict.fromkeys(
            ["enable_flip_horizontal", "enable_flip_vertical", "enable_flip_diagonal"], True
        ),
        "data_loader": {"batch_size": 2},
        "model": {
            "backbone": "resnet50",
            "backbone_width": 1.0,
            "pretrained_backbone": True,
            "freeze_batch_norm": True,
            "fpn_channels": 256,
            "anchor_scales": [8.0],
            "anchor_ratios": [0.5, 1.0, 2.0],
            "rpn_pre_nms_top_n": 2000,
            "rpn_post_nms_top_n": 2000,
            "rpn_nms_threshold": 0.8,
            "rpn_batch_size_per_image": 256,
            "rpn_positive_fraction": 0.5,
            "rpn_positive_iou_threshold": 0.7,
            "rpn_negative_iou_threshold": 0.3,
            "rpn_min_pos_iou": 0.3,
            "rpn_match_low_quality": True,
            "roi_fc_channels": 1024,
            "roi_batch_size_per_image": 512,
            "roi_positive_fraction": 0.25,
            "roi_positive_iou_threshold": 0.5,
            "roi_negative_iou_threshold": 0.5,
            "roi_norm_factor": None,
            "roi_edge_swap": True,
            "roi_proj_xy": True,
            "final_nms_iou_threshold": 0.1,
            "max_detections_per_image": 2000,
        },
        "loss": {"loss_type": "cross_entropy"},
        "training": {
            "num_epochs": 12,
            "optimizer": "sgd",
            "learning_rate": 0.005,
            "momentum": 0.9,
            "weight_decay": 1e-4,
            "gradient_accumulation_steps": 1,
            "max_grad_norm": 35.0,
            "loss_weights": None,
            "lr_scheduler_type": "multistep",
            "lr_scheduler_milestones": [8, 11],
            "lr_scheduler_gamma": 0.1,
            "lr_warmup_steps": 500,
        },
    }
    for section, values in published.items():
        assert {key: parameters[section][key] for key in values} == values


def test_the_run_configuration_of_the_main_job_names_existing_options(kedro_project):
    job = yaml.safe_load((kedro_project / ".kedro.yml").read_text(encoding="utf-8"))

    assert job == {"run": {"pipelines": "train"}}
    assert "train" in pipelines
